"""The engine's own scheduler, driven by a request's name: a bench for section 21.3's exercises."""

from collections.abc import Iterable
from itertools import pairwise
from typing import ClassVar

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.policies import Turns
from kvlab.core.request import SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.scheduler_output import SampledToken, SchedulerOutput
from kvlab.core.simulator import SimulatedRunner, VirtualClock
from kvlab.core.step_cost import CostModel
from kvlab.engine import LLMEngine
from kvlab.exercises import endless

# Against the limit that ends an answer, the engine's own lines do not count. What it is asked for
# does: positions to queue, requests to look at in a step, and idle steps, each so much:
IDLE_COSTS = 100


class _NotingRunner(SimulatedRunner):
    """Computes nothing, and notes what it was asked to compute."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(CostModel(per_step=1.0), clock)
        self.asked: dict[str, int] = {}

    def execute(self, output: SchedulerOutput) -> dict[str, SampledToken]:
        self.asked = {row.request_id: len(row.token_ids) for row in output.requests}
        return super().execute(output)


class Serving:
    """the engine's own

    The scheduler, the blocks and the engine's loop are the real ones; the model is left out, and
    outputs are made-up tokens. Waits are counted in steps. A subclass may put another scheduler,
    other turns or fixed settings in, to see what a mistake in them does.
    """

    Scheduler = Scheduler
    Turns = Turns
    fixed: ClassVar[dict[str, object]] = {}  # settings that it has whatever is asked for

    def __init__(
        self,
        num_blocks: int = 1000,
        block_size: int = 4,
        *,
        prefix_caching: bool = False,
        **settings: object,
    ) -> None:
        """settings: those of SchedulerConfig. Raises ValueError for a value it does not take."""
        manager = KVCacheManager(
            BlockPool(num_blocks), block_size, enable_prefix_caching=prefix_caching
        )
        config = SchedulerConfig(**{**settings, **self.fixed})
        scheduler = self.Scheduler(manager, config)
        scheduler.turns = self.Turns()
        clock = VirtualClock()
        self.runner = _NotingRunner(clock)
        self.engine = LLMEngine(scheduler, self.runner, clock)
        self.steps: list[dict[str, int]] = []  # positions computed of each request
        self.ended: dict[str, str] = {}  # why: "length", or "capacity"
        self._came: dict[str, int] = {}  # steps that lay behind it when it was asked for
        self._outputs: dict[str, list[int]] = {}  # in which steps it got one
        self._decoding: list[set[str]] = []  # who had an output before the step

    @property
    def waiting(self) -> list[str]:
        """Who stands in the queue, the next to be admitted first."""
        return [r.request_id for r in self.engine.scheduler.waiting]

    @property
    def running(self) -> list[str]:
        """Who is admitted, in order of admission."""
        return [r.request_id for r in self.engine.scheduler.running]

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return self.engine.scheduler.manager.pool.num_free_blocks

    def ask(self, name: str, prompt: int | Iterable[int], outputs: int = 1) -> None:
        """Queue a request. prompt: its number of tokens, or the tokens; outputs: how many it gets.

        Raises ValueError for a name that was used, or a prompt that can never run.
        """
        if name in self._came:
            raise ValueError(f"request {name!r} was asked for already; take another name")
        tokens = range(prompt) if isinstance(prompt, int) else tuple(prompt)
        with endless.uncounted(len(tokens)):
            self.engine.add_request(tokens, SamplingParams(max_tokens=outputs), request_id=name)
        self._came[name], self._outputs[name] = len(self.steps), []

    def step(self) -> dict[str, int]:
        """One step: the positions that it computed of each request; {} where it did nothing."""
        self.runner.asked = {}
        had_one = {name for name, steps in self._outputs.items() if steps}
        scheduler = self.engine.scheduler
        idle = IDLE_COSTS if self.steps and not self.steps[-1] else 1
        with endless.uncounted(idle + len(scheduler.waiting) + len(scheduler.running)):
            step_outputs = self.engine.step()
        for output in step_outputs:
            if output.new_token_ids:
                self._outputs[output.request_id].append(len(self.steps))
            if output.finish_reason:
                self.ended[output.request_id] = output.finish_reason.value
        self.steps.append(self.runner.asked)
        self._decoding.append({n for n in self.runner.asked if n in had_one})
        return dict(self.runner.asked)

    def run(self) -> None:
        """Step until everybody has ended, or two steps in a row have done nothing."""
        idle = 0
        while self.engine.has_unfinished_requests() and idle < 2:
            ended = len(self.ended)
            idle = 0 if self.step() or len(self.ended) > ended else idle + 1

    def longest_gap(self, name: str) -> int:
        """The most steps from one output to the next; 1: an output in every step.

        A wait that still goes on counts. 0 where there has been no output, or one and the end.
        Raises ValueError for a request that was never asked for.
        """
        steps = self._known(name)
        if steps and name not in self.ended:
            steps = [*steps, len(self.steps) - 1]
        return max((b - a for a, b in pairwise(steps)), default=0)

    def outputs(self, name: str) -> int:
        """How many it has got so far. Raises ValueError as `longest_gap`."""
        return len(self._known(name))

    def order(self, name: str) -> str:
        """The steps from a request's arrival to its first output: "D+P4 D+P4", or "P4 D P4".

        P4: four positions of it; D: others decoded. Raises ValueError as `longest_gap`.
        """
        outputs = self._known(name)
        last = outputs[0] if outputs else len(self.steps) - 1
        words = []
        for i in range(self._came[name], last + 1):
            asked, decoding = self.steps[i], self._decoding[i]
            parts = ["D"] * bool(decoding - {name})
            words.append("+".join([*parts, *(f"P{asked[n]}" for n in asked if n == name)]) or "-")
        return " ".join(words)

    def _known(self, name: str) -> list[int]:
        if name not in self._outputs:
            raise ValueError(f"there is no request {name!r}; there are {sorted(self._outputs)}")
        return self._outputs[name]
