"""What scheduling costs: the share of a step that `schedule` and `update_from_output` take.

The share is measured on the embedded model with 64 requests that decode; how the cost grows with
the number of requests, with a runner without tensors. Section 21.3.
"""

import random
import time
from collections.abc import Callable

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager, cdiv
from kvlab.core.request import SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.scheduler_output import SampledToken, SchedulerOutput
from kvlab.engine import LLMEngine
from kvlab.measure.rounds import interleave, summary

SHARE_GOAL = 0.1
RUNNING = 64
GROWTH = (16, 64, 256, 1024)
BLOCK_SIZE, PROMPT, STEPS = 16, 64, 48  # tokens a block, prompt tokens, decode steps of a round


class NoTensors:
    """A runner that computes nothing: every request selects token 7."""

    def execute(self, output: SchedulerOutput) -> dict[str, SampledToken]:
        token = SampledToken(7)
        return {r.request_id: token for row in output.requests for r in row.samplers}


def measure(rounds: int, quick: bool = False) -> dict[str, dict[str, object]]:
    """{case: {"running", "seconds": of scheduling one step, "share": of the step}}.

    "embedded model" has a share; the others have no model, so theirs means nothing and is left out.
    """
    counts = GROWTH[:2] if quick else GROWTH
    tasks = {"embedded model": lambda i: one_round(embedded_engine(), RUNNING, i)}
    for count in counts:
        tasks[f"{count} running"] = lambda i, n=count: one_round(engine_without_tensors(n), n, i)
    tasks["embedded model"](rounds)  # the first passes of a process are slower
    found = {}
    for name, taken in interleave(tasks, rounds).items():
        figures = {"seconds": summary([scheduling for scheduling, _ in taken])}
        if name == "embedded model":
            figures["share"] = summary([scheduling / step for scheduling, step in taken])
        found[name] = {
            "running": RUNNING if "share" in figures else int(name.split()[0]),
            **figures,
        }
    return found


def one_round(engine: LLMEngine, running: int, seed: int) -> tuple[float, float]:
    """Seconds a decode step takes to schedule and record, and in all: means over `STEPS` steps."""
    params = SamplingParams(max_tokens=STEPS + 2, ignore_eos=True)
    draw = random.Random(seed)
    for _ in range(running):
        engine.add_request(draw.choices(range(50), k=PROMPT), params)
    engine.step()  # all prompts at once
    watch = Watch()
    scheduler = engine.scheduler
    scheduler.schedule = watch.around(scheduler.schedule)
    scheduler.update_from_output = watch.around(scheduler.update_from_output)
    start = time.perf_counter()
    for _ in range(STEPS):
        assert len(engine.step()) == running
    whole = time.perf_counter() - start
    return watch.seconds / STEPS, whole / STEPS


class Watch:
    """Adds up the seconds that some functions take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable) -> Callable:
        def timed(*args: object) -> object:
            start = time.perf_counter()
            try:
                return function(*args)
            finally:
                self.seconds += time.perf_counter() - start

        return timed


def embedded_engine() -> LLMEngine:
    """Of the tiny model on the CPU, with all defaults but room for the load."""
    from kvlab.llm import LLM

    blocks = RUNNING * cdiv(PROMPT + STEPS + 2, BLOCK_SIZE)
    limits = {"max_num_seqs": RUNNING, "max_num_batched_tokens": RUNNING * PROMPT}
    return LLM("tiny", block_size=BLOCK_SIZE, num_blocks=blocks, device="cpu", **limits).engine


def engine_without_tensors(running: int) -> LLMEngine:
    pool = BlockPool(running * cdiv(PROMPT + STEPS + 2, BLOCK_SIZE))
    config = SchedulerConfig(max_num_seqs=running, max_num_batched_tokens=running * PROMPT)
    return LLMEngine(Scheduler(KVCacheManager(pool, BLOCK_SIZE), config), NoTensors())
