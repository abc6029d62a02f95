"""What the figures of a GPU have in common: the machine, the sizes, the clock, and a net.

A kernel of 15 microseconds is started by Python in three times that. So a sample first lets the
GPU sleep, while Python queues a row of calls behind it, and device events time the row. Each call
takes the next of several buffers that together exceed the GPU's cache. Medians are kept.

A rented machine goes back on time: every part has a share of the time, a part that fails leaves
its reason in the report, and what was measured before it stays. Section 21.5.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kvlab.measure import devices

SLEEP_CYCLES = 30_000_000  # some 15 ms: longer than Python needs for a row of calls
ROW_SECONDS, MOST_CALLS, SAMPLES = 0.01, 32, 7
CACHES = 4  # buffers in turn hold this many times the last-level cache
MOST_BUFFERS = 16
BUDGET = 210.0  # seconds; imports and the last part begun may take the rest of four minutes

Work = Callable[[], object]


@dataclass(frozen=True)
class Sizes:
    """What is measured. heads: query and KV heads; block: positions of one."""

    heads: tuple[int, int]
    head_dim: int
    block: int
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    flex_contexts: tuple[int, ...]  # each is compiled, which takes its time
    flex_page: int
    stored: tuple[int, int]  # batch and context at which stored formats are compared
    prompts: tuple[tuple[int, int, int], ...]  # batch, new positions, positions before them
    copy_bytes: int
    matmul_side: int
    engine_batches: tuple[int, ...]
    prompt_tokens: int
    new_tokens: int
    samples: int = SAMPLES


FULL = Sizes(
    heads=(32, 8), head_dim=128, block=16,
    batches=(8, 64), contexts=(2048, 8192, 32768), flex_contexts=(8192,), flex_page=128,
    stored=(64, 8192), prompts=((1, 8192, 0), (4, 2048, 0), (4, 512, 7680)),
    copy_bytes=4 * 2**30, matmul_side=8192,
    engine_batches=(8, 64), prompt_tokens=512, new_tokens=128,
)  # fmt: skip
DRY = Sizes(
    heads=(2, 1), head_dim=16, block=4,
    batches=(2,), contexts=(32,), flex_contexts=(32,), flex_page=16,
    stored=(2, 32), prompts=((1, 12, 0), (2, 4, 9)),
    copy_bytes=2**20, matmul_side=64,
    engine_batches=(2,), prompt_tokens=5, new_tokens=3, samples=1,
)  # fmt: skip


@dataclass
class Setting:
    """Where is measured and with what. dry: tiny sizes on a CPU, to see that all of it runs.

    budget: seconds for everything; clock: to look at it.
    """

    device: torch.device
    sizes: Sizes
    dry: bool = False
    budget: float = BUDGET
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    @property
    def dtype(self) -> torch.dtype:
        """What attention computes in; bfloat16 on a GPU."""
        return torch.float32 if self.dry else torch.bfloat16

    @property
    def seconds_left(self) -> float:
        return self.budget - (self.clock() - self.began)

    def buffers_for(self, nbytes: int) -> int:
        """How many buffers of so many bytes keep the cache from helping."""
        if self.dry:
            return 2
        wanted = CACHES * (devices.cache_nbytes(self.device) or 64 * 2**20)
        return max(1, min(MOST_BUFFERS, math.ceil(wanted / nbytes)))

    def seconds(self, works: Sequence[Work]) -> float:
        """Of one call: the median over samples of rows of calls, the works in turn."""
        for work in works:
            work()  # compiles, takes workspaces
        calls = len(works)
        if not self.dry:
            one = max(self._row(works, calls) / calls, 1e-7)
            calls = max(calls, min(MOST_CALLS, math.ceil(ROW_SECONDS / one)))
        rows = [self._row(works, calls) / calls for _ in range(self.sizes.samples)]
        return statistics.median(rows)

    def _row(self, works: Sequence[Work], calls: int) -> float:
        def row() -> None:
            for i in range(calls):
                works[i % len(works)]()

        if self.device.type != "cuda":
            return devices.elapsed(self.device, row)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(self.device)
        torch.cuda._sleep(SLEEP_CYCLES)
        start.record()
        row()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3


def tried(work: Callable[[], dict[str, object]]) -> dict[str, object]:
    """What `work` returns, or the error that it met, as {"error": ...}."""
    try:
        return work()
    except Exception as error:  # whatever a library raises: the rest is still to be measured
        return {"error": f"{type(error).__name__}: {error}"[:400]}


def largest_difference(a: Tensor, b: Tensor) -> float:
    """Between two results; NaN where either holds one."""
    return float((a.double() - b.double()).abs().max())


def copy_rate(setting: Setting) -> dict[str, object]:
    """Bytes a second of a large copy on the device, read and written ones counted."""
    count = setting.sizes.copy_bytes
    source, target = (torch.empty(count, dtype=torch.uint8, device=setting.device) for _ in "st")
    source.fill_(1)
    seconds = setting.seconds([lambda: target.copy_(source)])
    return {"bytes": count, "seconds": seconds, "bytes_per_second": 2 * count / seconds}


def matmul_rate(setting: Setting) -> dict[str, object]:
    """FLOPs a second of a large square product in the setting's dtype."""
    side = setting.sizes.matmul_side
    shape, kind = (side, side), {"dtype": setting.dtype, "device": setting.device}
    a, b = (torch.randn(shape, **kind) for _ in "ab")
    out = torch.empty(shape, **kind)
    seconds = setting.seconds([lambda: torch.mm(a, b, out=out)])
    return {"side": side, "seconds": seconds, "flops_per_second": 2 * side**3 / seconds}
