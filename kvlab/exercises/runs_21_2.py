"""Section 21.2's expectations, from kvlab's own times, summaries, counts and simulated engine.

torch is imported by the one that counts a model's bytes. Cases are made afresh at every call.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from kvlab.core.latency_record import LatencyRecord, records_of
from kvlab.core.latency_summary import Targets, summarize
from kvlab.core.metrics import RequestTimes

Events = Sequence[Sequence[float]]  # [time, tokens] of each
STREAM = ((180, 0), (420, 1), (500, 4), (590, 4), (690, 4))  # the first one: a role
SHORT, LONG = (4, 80), (58, 20)  # tokens, ms between two
WEIGHTS, WIDTH, BATCH, CONTEXT, BANDWIDTH = 8_000_000_000, 2, 25, 1_250, 2e12
LAYERS, KV_HEADS, HEAD_DIM = 32, 8, 128
NUM_REQUESTS, PER_SECOND, SERVICE = 9, 5, 0.35  # one at a time


def noted(events: Events, arrival: float = 0) -> RequestTimes:
    """The engine's record of a stream."""
    times = RequestTimes(arrival)
    for time, tokens in events:
        times.note(time, tokens)
    return times


def three_figures() -> list[float]:
    """TTFT, mean gap between events and TPOT of STREAM, in ms."""
    times = noted(STREAM)
    return [times.ttft, statistics.mean(times.itl), times.tpot]


# ---- time per output token, of any stream


def tpot(events: Events) -> float | None:
    return noted(events).tpot


def streams() -> Sequence[tuple[list[list[float]]]]:
    """[time, tokens]: one token an event; several; none in some; one event; no token at all; two
    events at one moment, whose TPOT is 0 and not undefined."""
    found = (
        [[0.10, 1], [0.12, 1], [0.14, 1], [0.16, 1], [0.18, 1]],
        [[0.5, 1], [0.6, 1]],
        [[0.1, 1]],
        [[0.5, 1], [0.6, 4], [0.7, 4]],
        [[0.5, 1], [0.6, 2], [1.2, 1]],
        [[0.2, 4], [0.6, 4], [0.9, 1]],
        [[0.9, 0], [2.2, 1], [2.22, 1]],
        [[0.1, 0], [0.3, 1], [0.4, 0], [0.8, 3], [1.3, 0]],
        [[0.2, 1], [0.9, 0]],
        [[0.4, 7]],
        [[0.1, 0], [0.4, 7], [0.5, 0]],
        [[0.1, 0]],
        [],
        [[3.0, 1], [3.0, 1], [3.5, 2]],
        [[2.0, 1], [2.0, 3]],
    )
    return tuple((events,) for events in found)


# ---- two means


def two_means() -> list[float]:
    """Mean TPOT over the two requests, and the mean over all their gaps, in ms."""
    records = []
    for tokens, gap in (SHORT, LONG):
        times = noted([(100 + gap * i, 1) for i in range(tokens)])
        times.finished = times.events[-1].time
        records.append(LatencyRecord(f"{tokens} tokens", times, "client"))
    summary = summarize(records)
    return [summary.tpot.mean, summary.itl.mean]


# ---- which requests were good


def good_requests(requests: Sequence[Sequence], ttft: float, itl: float) -> int:
    """How many met both targets. Each request: [start, times of its events, what failed or None]"""
    targets, good = Targets(ttft=ttft, itl=itl), 0
    for i, (start, times, error) in enumerate(requests):
        came = noted([(time, 1) for time in times], start)
        good += targets.met_by(LatencyRecord(str(i), came, "client", error=error))
    return good


def judged_runs() -> Sequence[tuple]:
    """Milliseconds. A gap too long, a late start, limits met exactly, one event, none, failures;
    last a long first gap, a long last one, and a long one behind 119 short ones."""
    steady, one_gap = [300, 350, 400, 450], [200, 210, 220, 320, 330]
    return (
        ([[0, steady, None]], 400, 60),
        ([[0, one_gap, None]], 400, 60),
        ([[100, [600, 650], None], [0, steady, None]], 400, 60),
        ([[1000, [1300, 1350], None]], 400, 60),
        ([[0, [100, 130, 400], None]], 400, 60),
        ([[0, [400, 460], None]], 400, 60),
        ([[0, [300], None], [0, [500], None]], 400, 60),
        ([[0, steady, "an error event after 4 tokens"], [0, steady, None]], 400, 60),
        ([[0, [], "HTTP 429"], [0, steady, None]], 400, 60),
        ([[0, [], None], [0, [50], None]], 400, 60),
        ([[0, [900, 910, 920], None], [0, [10, 900], None], [0, one_gap, None]], 400, 60),
        ([[0, [10, 20, 30], None], [5, [20, 200], None], [7, [17, 37], None]], 10, 20),
        ([], 400, 60),
        ([[0, [300, 700, 710], None]], 400, 60),
        ([[0, [390, 400, 700], None]], 400, 60),
        ([[0, [*range(100, 220), 400], None]], 400, 60),
    )


# ---- what a step cannot do without


def bytes_read(context: int, batch: int = BATCH) -> tuple[int, int]:
    """Of one decode step: bytes of the weights, and of the K/V of `batch` such contexts."""
    from kvlab.exercises.shapes import config_of
    from kvlab.measure.step_work import step_nbytes

    shape = config_of(LAYERS, KV_HEADS, KV_HEADS, HEAD_DIM)
    parts = step_nbytes(shape, [1] * batch, [context] * batch, batch, WIDTH, WIDTH)
    return WEIGHTS * WIDTH, parts["keys and values read"]


def least_step() -> list[float]:
    """Milliseconds of a step at least; the first context at which K/V are more than the weights."""
    from kvlab.measure.roofline import bound_seconds

    least = 1000 * bound_seconds(sum(bytes_read(CONTEXT)), BANDWIDTH)
    too_few, enough = 0, 1 << 20
    while enough - too_few > 1:
        context = (too_few + enough) // 2
        weights, keys_and_values = bytes_read(context)
        too_few, enough = (too_few, context) if keys_and_values > weights else (context, enough)
    return [least, enough]


# ---- the seven reports


def what_each_hides() -> list[str]:
    """For reports A to G: the number of what has to be amiss for the report to mislead."""
    from kvlab.exercises.one_fault_21_2 import one_fault
    from kvlab.exercises.seven_reports import HIDDEN, REPORTS

    found = []
    for report in REPORTS:
        runs = enumerate(map(one_fault, HIDDEN), 1)
        (number,) = [str(n) for n, records in runs if report.misleads(records)]
        found.append(number)
    return found


def exchanged(one: str, other: str) -> list[str]:
    """The same with two letters' numbers in each other's place."""
    found, (i, j) = what_each_hides(), ("ABCDEFG".index(one), "ABCDEFG".index(other))
    found[i], found[j] = found[j], found[i]
    return found


# ---- a queue before the first byte


def waits() -> list[float]:
    """Mean wait and mean end-to-end time in ms, of the real scheduler with a single seat."""
    from kvlab.core.arrivals import Regular
    from kvlab.core.block_pool import BlockPool
    from kvlab.core.kv_cache_manager import KVCacheManager
    from kvlab.core.scheduler import Scheduler
    from kvlab.core.scheduler_config import SchedulerConfig
    from kvlab.core.step_cost import CostModel
    from kvlab.core.workload import generate
    from kvlab.playing import play
    from kvlab.simulated_engine import SimulatedEngine

    steps = 7  # the prompt's gives the first token
    asked = generate(
        NUM_REQUESTS,
        arrivals=Regular(PER_SECOND),
        prompt_tokens=4,
        output_tokens=steps,
        vocab_size=1000,
    )
    scheduler = Scheduler(KVCacheManager(BlockPool(64), 16), SchedulerConfig(max_num_seqs=1))
    engine = SimulatedEngine(scheduler, CostModel(per_step=SERVICE / steps))
    times = [record.times for record in records_of(play(engine, asked))]
    found = (statistics.mean(t.queue_time for t in times), statistics.mean(t.e2el for t in times))
    return [1000 * seconds for seconds in found]
