"""Runs for the schedule timeline; needs tests/engine on the path."""

import time

from history_runner import make_engine
from policy_cases import engine_with

from kvlab.core.request import SamplingParams
from kvlab.core.schedule_log import ScheduleLog
from kvlab.core.workload import Arrival, Workload
from kvlab.playing import play

HOSTILE = "<img src=x onerror=alert(1)>"
TWO_SLOTS = Workload(
    (
        Arrival("A", 0, (0, 1, 2), 2),
        Arrival("B", 0, (10, 11, 12), 5),
        Arrival("C", 1, (20, 21, 22), 3),
    )
)
TWELVE = Workload(
    (
        Arrival("A", 0, (0, 1, 2), 9),
        Arrival("B", 0, (10, 11, 12), 9),
        Arrival("C", 1, tuple(range(20, 32)), 4),
    )
)


def played(workload, *, mode="step", meta=None, **config) -> ScheduleLog:
    """A workload's log; with mode "real" its times are measured."""
    engine = engine_with(num_blocks=config.pop("num_blocks", 16), **config)
    if mode == "real":
        engine.clock = time.perf_counter
    clock = engine.clock if mode == "real" else None
    with ScheduleLog(engine.scheduler, clock=clock, meta=meta) as log:
        play(engine, workload, mode=mode, stretch=0.001 if mode == "real" else 1)
    return log


def two_slots(policy: str, **options) -> ScheduleLog:
    """A stops early, B goes on, C arrives when both decode; two seats."""
    return played(TWO_SLOTS, policy=policy, max_num_seqs=2, max_num_batched_tokens=8, **options)


def twelve_beside_two(**config) -> ScheduleLog:
    return played(TWELVE, **config)


def preempted() -> ScheduleLog:
    """B loses its blocks while A grows."""
    engine = make_engine(num_blocks=3, block_size=2, prefix_caching=False)
    with ScheduleLog(engine.scheduler) as log:
        engine.add_request([1, 2], SamplingParams(max_tokens=4), request_id="A")
        engine.add_request([4, 5], SamplingParams(max_tokens=2), request_id="B")
        engine.run()
    return log


def hundred(policy: str) -> ScheduleLog:
    """100 requests over about 1,000 steps, with chunks where the policy has them."""
    arrivals = [
        Arrival(f"request {i}", 3 * i, tuple(range(i, i + 5 + i % 30)), 60 + i % 40)
        for i in range(100)
    ]
    budget = 40 if policy == "continuous" else 16
    return played(
        Workload(tuple(arrivals)),
        num_blocks=400,
        policy=policy,
        max_num_seqs=8,
        max_num_batched_tokens=budget,
    )
