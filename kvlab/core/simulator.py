"""What a machine that is not here would do: a cost model and a virtual clock in the runner's place.

The scheduler, the manager and the blocks are the real ones, and so is every order of events. Only
the model pass is left out: the clock moves on by what the pass would cost, and outputs are
made-up tokens. Everything made this way carries `simulated`. Section 21.3.
"""

import zlib
from collections.abc import Callable

from kvlab.core.checked import number, shown, whole
from kvlab.core.request import Request
from kvlab.core.scheduler_output import SampledToken, SchedulerOutput
from kvlab.core.step_cost import CostModel, StepWork, Windows, checked_windows
from kvlab.core.transfers import BlockCopy, TransferReport


class VirtualClock:
    """A clock that stands still until it is moved. Calling it gives the time."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = number("VirtualClock: now", now)

    def __call__(self) -> float:
        return self.now

    def __repr__(self) -> str:
        return f"VirtualClock({self.now:g})"

    def advance(self, duration: float) -> None:
        """Move on. Raises ValueError for a duration below 0."""
        self.now += number("VirtualClock: duration", duration)

    def wait_until(self, time: float) -> None:
        """Skip to `time`; one that is past changes nothing. Raises ValueError for one below 0."""
        self.now = max(self.now, number("VirtualClock: time", time))


class SimulatedRunner:
    """A runner that computes nothing, and takes as long as the cost model says.

    cost: a `CostModel`, or a function from `StepWork` to seconds where a line does not fit.
    vocab_size: outputs are ids below it. They depend on the tokens before them alone, never on
    batching, chunks or preemption, and mean nothing.
    windows: how far each layer's queries read; None: to the beginning.
    Copies between tiers end with the step that starts them, and its time contains theirs.
    """

    simulated = True

    def __init__(
        self,
        cost: CostModel | Callable[[StepWork], float],
        clock: VirtualClock,
        vocab_size: int = 1000,
        windows: Windows = (None,),
    ) -> None:
        if not isinstance(cost, CostModel) and (not callable(cost) or isinstance(cost, type)):
            raise ValueError(f"cost is {shown(cost)}; give a CostModel, or a function of StepWork")
        if not isinstance(clock, VirtualClock):
            raise ValueError(f"clock is {shown(clock)}; give a VirtualClock")
        self.cost, self.clock = cost, clock
        self.vocab_size = whole("SimulatedRunner: vocab_size", vocab_size, 1)
        self.windows = checked_windows(windows)
        self._seconds = cost.seconds if isinstance(cost, CostModel) else cost
        self._ended: list[tuple[BlockCopy, ...]] = [(), ()]  # stores, loads

    def __repr__(self) -> str:
        return f"SimulatedRunner({self.cost!r}, {self.clock!r})"

    def execute(self, output: SchedulerOutput) -> dict[str, SampledToken]:
        """Let the step's time pass; one made-up token for each request that selects."""
        self.clock.advance(self._seconds(StepWork.of(output, self.windows)))
        for i, copies in enumerate((output.blocks_to_store, output.blocks_to_load)):
            self._ended[i] += tuple(copies)
        return {
            r.request_id: SampledToken(self._made_up(r))
            for row in output.requests
            for r in row.samplers
        }

    def finished_transfers(self, wait: bool = False) -> TransferReport:
        """Copies that ended since the last call; bytes and seconds as the `CostModel` has them."""
        stored, loaded = self._ended
        self._ended = [(), ()]
        size = [len(copies) * getattr(self.cost, "block_nbytes", 0) for copies in (stored, loaded)]
        seconds = [n * getattr(self.cost, "per_byte", 0.0) for n in size]
        return TransferReport(
            stored,
            loaded,
            bytes_stored=size[0],
            bytes_loaded=size[1],
            seconds_storing=seconds[0],
            seconds_loading=seconds[1],
        )

    def _made_up(self, request: Request) -> int:
        known = f"{request.num_tokens} {request.sample_index} {request.all_token_ids[-1]}"
        return zlib.crc32(known.encode()) % self.vocab_size
