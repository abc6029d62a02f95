"""Every kernel beside the specification in float64, on the device that the rest is measured on."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from kvlab.measure.gpu_pools import Pool, make_pool
from kvlab.measure.gpu_setting import Setting, largest_difference, tried
from kvlab.tensors import launch
from kvlab.tensors.attention import paged_attention_spec
from kvlab.tensors.stored import cache_format

TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 2e-2}  # of values up to 1
FP32, FP16, BF16 = TOLERANCE
WRITTEN = ("fp32", "fp16", "bf16", "fp8", "int8")


@dataclass(frozen=True)
class Case:
    """One launch. queries: of each request; 1 is decode. stored None: as computed."""

    heads: tuple[int, int]
    head_dim: int
    block: int
    length: int
    queries: int
    dtype: torch.dtype
    stored: str | None = None
    window: int | None = None

    @property
    def name(self) -> str:
        what = "decode" if self.queries == 1 else f"{self.queries} queries"
        window = f", window {self.window}" if self.window else ""
        kind = str(self.dtype).removeprefix("torch.")
        heads = "{}/{} heads".format(*self.heads)
        return (
            f"{what}, {heads} of {self.head_dim}, block {self.block}, T {self.length}, {kind} "
            f"over {self.stored or kind}{window}"
        )


FULL = (
    Case((32, 8), 128, 16, 4097, 1, BF16),
    Case((32, 8), 128, 16, 1000, 1, FP16),
    Case((32, 8), 128, 16, 255, 1, FP32),
    Case((8, 8), 64, 1, 33, 1, BF16),
    Case((6, 2), 80, 4, 17, 1, BF16),
    Case((8, 1), 96, 32, 256, 1, FP16),
    Case((8, 2), 256, 16, 1, 1, BF16),
    Case((32, 8), 128, 16, 4097, 1, BF16, "fp8"),
    Case((32, 8), 128, 16, 4097, 1, BF16, "int8"),
    Case((32, 8), 128, 16, 4097, 1, BF16, None, 1000),
    Case((32, 8), 128, 16, 1500, 1500, BF16),
    Case((32, 8), 128, 16, 900, 100, FP16),
    Case((6, 2), 80, 4, 130, 77, FP32),
    Case((8, 1), 96, 1, 65, 17, BF16),
    Case((32, 8), 128, 16, 900, 100, BF16, "fp8"),
    Case((32, 8), 128, 16, 900, 100, BF16, "int8"),
    Case((32, 8), 128, 16, 1500, 700, BF16, None, 300),
)
DRY = (
    Case((4, 2), 16, 4, 9, 1, FP32),
    Case((4, 2), 16, 4, 9, 1, FP32, "fp8"),
    Case((4, 2), 16, 4, 9, 1, BF16, "int8"),
    Case((4, 2), 16, 4, 9, 3, FP16, None, 5),
)


@torch.inference_mode()
def measure(setting: Setting) -> dict[str, object]:
    """A row for each case and each format of writing: the error, its bound, whether it holds."""
    rows = [
        {"case": case.name, **tried(partial(check, setting, case))}
        for case in (DRY if setting.dry else FULL)
    ]
    for stored in WRITTEN:
        rows.append(
            {"case": f"write_kv, {stored}", **tried(partial(check_writing, setting, stored))}
        )
    return {"rows": rows, "wrong": sum(not row.get("holds", False) for row in rows)}


def check(setting: Setting, case: Case) -> dict[str, object]:
    """One launch: its error, the bound, and whether it holds."""
    pool = make_pool(
        setting, 3, case.length, queries=case.queries, heads=case.heads, head_dim=case.head_dim,
        block=case.block, dtype=case.dtype, stored=case.stored, window=case.window,
    )  # fmt: skip
    out = pool.decode() if case.queries == 1 else pool.prefill()
    error = largest_difference(out, wanted(pool, case))
    bound = TOLERANCE[case.dtype]
    return {"error_found": error, "bound": bound, "holds": error <= bound}


def wanted(pool: Pool, case: Case) -> Tensor:
    """The specification over what the pool's codes stand for."""
    kind = cache_format(case.dtype if case.stored is None else case.stored)
    numbers = (
        kind.decode(cache, pool.scales.get(name))
        for cache, name in ((pool.key_cache, "key_scale"), (pool.value_cache, "value_scale"))
    )
    count = len(pool.seq_lens)
    return paged_attention_spec(
        pool.query, *numbers, pool.block_table.tolist(), [case.queries] * count,
        pool.seq_lens.tolist(), window=case.window,
    )  # fmt: skip


def check_writing(setting: Setting, stored: str) -> dict[str, object]:
    """New rows into scattered slots, and -1 into none: the very bytes that torch stores."""
    kind, device = cache_format(stored), setting.device
    blocks, size, heads, width, scale = 12, 4, 2, 16 if setting.dry else 128, 0.01
    new = torch.randn(2, 20, heads, width, device=device)
    slots = torch.randperm(blocks * size, device=device)[:20]
    slots[3] = -1
    shape = (blocks, size, heads, width)
    caches = [torch.zeros(shape, dtype=kind.dtype, device=device) for _ in range(2)]
    scales = [scale if stored == "fp8" else None] * 2
    if stored == "int8":
        scales = [torch.zeros(shape[:3], device=device) for _ in range(2)]
    launch.write_kv(*new, *caches, slots, *scales)
    differ = 0
    for x, cache in zip(new, caches, strict=True):
        codes, _ = kind.encode(x, scale)
        expected = torch.zeros_like(cache).flatten(0, 1).view(torch.uint8)
        kept = slots >= 0
        expected[slots[kept]] = codes[kept].view(torch.uint8)
        differ += int((expected != cache.flatten(0, 1).view(torch.uint8)).sum())
    return {"bytes_that_differ": differ, "holds": differ == 0}
