"""Many requests' latencies in a few numbers, with what the numbers leave out (section 21.2).

A mean says nothing of the longest wait, so each quantity comes with percentiles; a request without
a value is counted as undefined, never averaged as 0; a failed one is counted and left out. Mean
TPOT averages over requests and mean ITL over gaps: both are right, and differ (T02).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from kvlab.core.checked import number
from kvlab.core.goodput import Targets
from kvlab.core.latency_record import LatencyRecord


@dataclass(frozen=True)
class Distribution:
    """count values, and how many were undefined. Everything else is None where count is 0.

    std: of these values themselves (divided by count). p50, p90, p99: `percentile`.
    """

    count: int
    undefined: int = 0
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Of values in rising order: percent 0 is the first, 100 the last, linear in between.

    With n values, value i stands at 100 * i / (n - 1) percent. Raises ValueError for no values and
    for a percent outside 0 to 100. Source: numpy.percentile, its default method.
    """
    if not ordered:
        raise ValueError("there are no values; a percentile needs one at least")
    if not 0 <= percent <= 100:
        raise ValueError(f"percent is {percent!r}; give a number from 0 to 100")
    place = (len(ordered) - 1) * percent / 100
    below = min(int(place), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    return min(low + (high - low) * (place - below), high)


def distribution(values: Iterable[float | None]) -> Distribution:
    """Count, mean, spread and percentiles. None is an undefined value, counted apart.

    Raises ValueError for a value that is negative or no finite number.
    """
    given = list(values)
    found = sorted(number("a duration", value) for value in given if value is not None)
    undefined = len(given) - len(found)
    if not found:
        return Distribution(0, undefined)
    count = len(found)
    mean = min(max(math.fsum(found) / count, found[0]), found[-1])
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in found) / count)
    middle = [percentile(found, percent) for percent in (50, 90, 99)]
    return Distribution(count, undefined, mean, spread, found[0], *middle, found[-1])


@dataclass(frozen=True)
class LatencySummary:
    """A run in numbers, durations in the clock's unit (seconds).

    Totals, rates and latencies are those of completed requests; `failed` are the others. Rates are
    per unit of `duration`, None where that is 0. ttft, e2el and normalized begin at the intended
    start; service_ttft and service_e2el when the request really left, so they hide what it waited
    in the client (wait_before_sending). good: completed requests that met the targets;
    None without targets. estimated: completed requests whose output tokens are a guess.
    total_input_tokens is None where a completed request does not tell its prompt's length.
    """

    completed: int
    failed: int
    duration: float
    total_input_tokens: int | None
    total_output_tokens: int
    estimated: int
    request_throughput: float | None
    output_throughput: float | None
    total_token_throughput: float | None
    request_goodput: float | None
    good: int | None
    ttft: Distribution
    tpot: Distribution
    itl: Distribution
    itl_by_token: Distribution
    e2el: Distribution
    normalized: Distribution
    wait_before_sending: Distribution
    service_ttft: Distribution
    service_e2el: Distribution

    def to_dict(self) -> dict[str, object]:
        """Everything by our names, as JSON types."""
        return asdict(self)

    def to_bench_serve(self) -> dict[str, float | int | None]:
        """By the names of the result file of `vllm bench serve`, latencies in milliseconds.

        The clock must count seconds. Their ttft and e2el begin when a request is sent; the wait
        before that has names of its own. What has no value is None. `kvlab.core.bench_serve` lists
        where the two programs differ.
        """
        result = {name: getattr(self, name) for name in _SHARED_NAMES}
        for name, ours in _BENCH_SERVE.items():
            for theirs, figure in _FIGURES.items():
                value = getattr(getattr(self, ours), figure)
                result[f"{theirs}_{name}_ms"] = None if value is None else 1000 * value
        return result


_FIGURES = {"mean": "mean", "median": "p50", "std": "std", "p50": "p50", "p90": "p90", "p99": "p99"}
_BENCH_SERVE = {
    "ttft": "service_ttft",
    "tpot": "tpot",
    "itl": "itl",
    "e2el": "service_e2el",
    "client_queue_time": "wait_before_sending",
    "e2el_including_client_queue": "e2el",
}
_SHARED_NAMES = (
    "duration",
    "completed",
    "failed",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "request_goodput",
    "output_throughput",
    "total_token_throughput",
)


def summarize(
    records: Iterable[LatencyRecord],
    *,
    duration: float | None = None,
    targets: Targets | None = None,
) -> LatencySummary:
    """The numbers of a run. Their order does not matter.

    duration: the observation's length; None takes the first intended start to the last event, the
    failed requests' among them. Raises ValueError for a request that neither ended nor failed, for
    two boundaries in one summary, and for a duration shorter than what the records span.
    """
    given = list(records)
    done = [record for record in given if record.error is None]
    _check_comparable(given, done)
    length = _duration(given, duration)
    prompts = [record.num_prompt_tokens for record in done]
    inputs = None if None in prompts else sum(prompts)
    outputs = sum(record.times.num_output_tokens for record in done)
    total = None if inputs is None else inputs + outputs
    stated = targets is not None and bool(targets.stated())
    good = sum(map(targets.met_by, done)) if stated else None
    rates = [
        None if count is None or not length else count / length
        for count in (len(done), outputs, total, good)
    ]
    figures = _distributions(done)
    return LatencySummary(
        len(done),
        len(given) - len(done),
        length,
        inputs,
        outputs,
        sum(record.estimated for record in done),
        *rates,
        good,
        **figures,
    )


def _distributions(done: list[LatencyRecord]) -> dict[str, Distribution]:
    """Requests' values, and all their gaps together, by the summary's names."""
    times = [record.times for record in done]
    return {
        "ttft": distribution(t.ttft for t in times),
        "tpot": distribution(t.tpot for t in times),
        "itl": distribution(gap for t in times for gap in t.itl),
        "itl_by_token": distribution(gap for t in times for gap in t.itl_by_token),
        "e2el": distribution(t.e2el for t in times),
        "normalized": distribution(t.normalized_latency for t in times),
        "wait_before_sending": distribution(record.wait_before_sending for record in done),
        "service_ttft": distribution(r.since_sent(r.times.first_token) for r in done),
        "service_e2el": distribution(r.since_sent(r.times.finished) for r in done),
    }


def _check_comparable(given: list[LatencyRecord], done: list[LatencyRecord]) -> None:
    boundaries = sorted({record.boundary for record in given})
    if len(boundaries) > 1:
        raise ValueError(
            f"the records were timed at {' and '.join(boundaries)}; summarise each boundary alone"
        )
    for record in done:
        if record.times.finished is None:
            raise ValueError(
                f"request {record.request_id!r} has no end and no error; wait for its end, or say "
                "in `error` why there is none"
            )


def _duration(given: list[LatencyRecord], duration: float | None) -> float:
    """The observation's length, checked against what the records span."""
    starts = [record.times.arrival for record in given]
    span = max(map(_last, given)) - min(starts) if given else 0.0
    if duration is None:
        return span
    number("duration", duration, above=0)
    if duration < span * (1 - 1e-9):
        raise ValueError(
            f"duration is {duration!r}, and the records span {span!r}; give the whole time from "
            "the first start to the last event, or leave it out"
        )
    return float(duration)


def _last(record: LatencyRecord) -> float:
    times = record.times
    seen = [times.arrival, times.first_scheduled, times.first_logits, times.finished]
    seen += [record.sent, record.first_event, *(event.time for event in times.events[-1:])]
    return max(moment for moment in seen if moment is not None)
