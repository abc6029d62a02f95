"""The schedule knobs: turn one, and see who waits now. Each picture is a run of the real engine."""

from collections.abc import Mapping, Sequence
from functools import partial

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.schedule_log import ScheduleLog
from kvlab.core.schedule_spans import Schedule
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import CHOICES, SchedulerConfig
from kvlab.core.simulator import SimulatedRunner, VirtualClock
from kvlab.engine import LLMEngine
from kvlab.llm import LLM
from kvlab.playing import play
from kvlab.widgets.controls import Choice, Steps
from kvlab.widgets.editor import LiveEditor
from kvlab.widgets.schedule_story import schedule_payload
from kvlab.widgets.schedule_workloads import WORKLOADS, workload

POLICIES = ("static", "continuous", "alternating", "mixed")
NOTHING, OTHER_ADMISSION = "nothing", "other admission"
COMPARISONS = (NOTHING, *POLICIES, OTHER_ADMISSION)
SEATS = (1, 2, 3, 4, 6, 8, 12, 20)
BUDGETS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 64)
CHUNKS = (1, 2, 4, 6, 8, 12, 16, 24, 64)
POOLS = (4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
MADE_UP_VOCABULARY = 512
FIRST = {
    "arrivals": "two seats: A, B, C", "policy": "static", "compare": "continuous",
    "admission": "current", "order": "fcfs", "seats": 2, "budget": 12, "chunk": 64, "pool": 16,
}  # fmt: skip
PRESETS = {
    "an empty seat; C waits": FIRST,
    "P12, or P4 D P4 D P4": {
        **FIRST, "arrivals": "12 tokens beside two", "policy": "continuous",
        "compare": "alternating", "seats": 4, "budget": 16, "chunk": 4,
    },
    "chat and long prompts": {
        **FIRST, "arrivals": "long prompts, a chat", "policy": "continuous", "compare": "mixed",
        "seats": 6, "budget": 24, "chunk": 8, "pool": 48,
    },
    "a burst in a small pool": {
        **FIRST, "arrivals": "burst of 20", "policy": "mixed", "compare": OTHER_ADMISSION,
        "seats": 8, "budget": 24, "pool": 12,
    },
    "one prefix for eight": {
        **FIRST, "arrivals": "one shared prefix", "policy": "mixed", "compare": NOTHING,
        "seats": 4, "budget": 16, "pool": 32,
    },
}  # fmt: skip


def schedule_knobs(llm: LLM | None = None, *, block_size: int = 4, **knobs: object) -> LiveEditor:
    """Policy, seats, budget, chunk, pool, admission, order and arrivals, and the timeline of a run.

    Each update is a run of its own on the step clock, with an empty cache, so the same knobs give
    the same picture. llm: its weights compute every step, and its own cache is left alone; None:
    the scheduler and the blocks are real, the outputs are made up. Prompts are random token ids.
    knobs: first values, by the names of FIRST, such as policy="mixed" or seats=4.
    Raises ValueError for a value that a knob does not have. Section 21.3.
    """
    if llm is not None and not isinstance(llm, LLM):
        raise ValueError(f"llm has type {type(llm).__name__}; give an LLM, or None")
    if unknown := knobs.keys() - FIRST.keys():
        raise ValueError(f"there is no knob {min(unknown)!r}; there are {', '.join(FIRST)}")
    first = {**FIRST, **knobs}
    controls = [
        Choice("arrivals", "Arrivals", first["arrivals"], tuple(WORKLOADS)),
        Choice("policy", "Policy", first["policy"], POLICIES),
        Choice("compare", "Compare with", first["compare"], COMPARISONS),
        Choice("admission", "Admission", first["admission"], CHOICES["admission"]),
        Choice("order", "Order", first["order"], CHOICES["order"]),
        Steps("seats", "Seats (max_num_seqs)", first["seats"], SEATS),
        Steps("budget", "Token budget of a step", first["budget"], BUDGETS),
        Steps("chunk", "Longest prefill chunk", first["chunk"], CHUNKS),
        Steps("pool", f"Pool, blocks of {block_size}", first["pool"], POOLS),
    ]
    compute = partial(knobs_result, llm, block_size)
    return LiveEditor(compute, controls, "Schedule knobs", PRESETS, own="your own knobs")


def knobs_result(llm: LLM | None, block_size: int, **knobs: object) -> dict:
    """The editor's pure function: lines and view of one run, or of two."""
    one = {name: value for name, value in knobs.items() if name != "compare"}
    runs = [one, *_compared(one, knobs["compare"])]
    logs = [run_once(llm, block_size, **settings) for settings in runs]
    view = schedule_payload(*logs, titles=_titles(runs))
    lines = [[run["title"], run["summary"], "plain"] for run in view["runs"]]
    lines.append(["About", " ".join(_notes(llm, runs, knobs["compare"])), "plain"])
    return {"lines": lines, "view": view}


def _compared(knobs: Mapping, compare: str) -> list[dict]:
    """The second run's knobs, if there is one that differs."""
    if compare == OTHER_ADMISSION:
        other = {"current": "reserved", "reserved": "current"}[knobs["admission"]]
        return [{**knobs, "admission": other}]
    if compare in (NOTHING, knobs["policy"]):
        return []
    return [{**knobs, "policy": compare}]


def _titles(runs: Sequence[Mapping]) -> list[str]:
    if len({run["policy"] for run in runs}) < len(runs):
        return [f"admission {run['admission']}" for run in runs]
    return [run["policy"] for run in runs]


def _notes(llm: LLM | None, runs: Sequence[Mapping], compare: str) -> list[str]:
    if llm is None:
        told = ["Real scheduler and blocks, no model: all tokens are made up."]
    else:
        told = [f"Run by the model {llm.name!r} on random prompts."]
    told.append("Delays are in steps; not all last equally long.")
    if any(run["policy"] == "continuous" for run in runs):
        told.append("Continuous ignores the chunk knob.")
    if runs[0]["order"] == "priority":
        told.append("The chat and the short requests are the urgent ones.")
    if compare == runs[0]["policy"]:
        told.append(f"The policy is {compare} already, so there is one run.")
    return told


def run_once(
    llm: LLM | None,
    block_size: int,
    *,
    arrivals: str,
    policy: str,
    admission: str,
    order: str,
    seats: int,
    budget: int,
    chunk: int,
    pool: int,
) -> Schedule:
    """One workload through one engine to its end, on the step clock.

    Raises ValueError where a request can never run with these knobs, with the engine's remedy.
    """
    scheduling = {
        "policy": policy,
        "admission": admission,
        "order": order,
        "max_num_seqs": seats,
        "max_num_batched_tokens": budget,
        "prefill_chunk": None if policy == "continuous" else chunk,
    }
    engine, vocab_size = _engine(llm, block_size, pool, scheduling)
    with ScheduleLog(engine.scheduler) as log:
        played = play(engine, workload(arrivals, vocab_size), mode="step")
    for request in played.requests:
        if request.refused:
            raise ValueError(f"{policy}: {request.refused}")
    return log


def _engine(
    llm: LLM | None, block_size: int, pool: int, scheduling: Mapping
) -> tuple[LLMEngine, int]:
    """An engine with an empty cache of its own, and how many token ids there are."""
    if llm is None:
        manager = KVCacheManager(BlockPool(pool), block_size)
        runner = SimulatedRunner(lambda work: 1.0, VirtualClock(), MADE_UP_VOCABULARY)
        scheduler = Scheduler(manager, SchedulerConfig(**scheduling))
        return LLMEngine(scheduler, runner), MADE_UP_VOCABULARY
    fresh = LLM(
        llm.model,
        block_size=block_size,
        num_blocks=pool,
        dtype=llm.model.dtype,
        cache_dtype=llm.cache.dtype,
        device=llm.device,
        **scheduling,
    )
    return fresh.engine, llm.model.config.vocab_size
