"""What a latency report says in words: the verdict on a metric, and under which conditions."""

import statistics
from collections.abc import Mapping, Sequence

from kvlab.core.arrivals import in_words
from kvlab.core.latency_record import LatencyRecord
from kvlab.core.latency_summary import LatencySummary
from kvlab.widgets.growth_words import count
from kvlab.widgets.latency_figures import METRICS, Unit, shown, three

EXPECTED = ("model", "hardware", "arrivals", "concurrency")
FEW = 100  # values, below which no value lies above the 99th percentile but the longest
FEW_SAID = "Of fewer than 100 values, p99 lies between the two longest."
ONE_SAID = "Of one value alone, every percentile is that value."
FAR = 3  # times the mean from which on p99 is said to lie far above it


def verdict(
    metric: str, figures: Mapping, counts: Mapping, unit: Unit, target: float | None
) -> str:
    """One metric of one subset in a sentence or three: mean beside p99, who missed, who is out."""
    if not figures["count"]:
        return f"{METRICS[metric]}: nobody has a value here. {_left_out(figures, counts)}".strip()
    over = count(figures["count"], "gap") + " in " if metric == "itl" else ""
    who = f"{METRICS[metric]} of {over}{count(figures['requests'], 'request')}"
    judged = _beside(figures, unit) if target is None else _judged(metric, figures, unit, target)
    few = "" if figures["count"] >= FEW else FEW_SAID if figures["count"] > 1 else ONE_SAID
    return " ".join(filter(None, (f"{who}: {judged}", few, _left_out(figures, counts))))


def _judged(metric: str, figures: Mapping, unit: Unit, target: float) -> str:
    mean, p99 = (f"{name} {_beyond(figures[name], unit, target)}" for name in ("mean", "p99"))
    kept = [figures[name] <= target for name in ("mean", "p99")]
    goal = f"target of {unit.text(target)}"
    if all(kept):
        said = f"{mean} and {p99} keep the {goal}."
    elif not any(kept):
        said = f"{mean} and {p99} both miss the {goal}."
    elif kept[0]:
        said = f"{mean} keeps the {goal}, {p99} does not."
    else:
        said = f"{mean} misses the {goal}, though {p99} keeps it."
    verbs = (
        ("has a longer gap", "have a longer gap") if metric == "itl" else ("misses it", "miss it")
    )
    what = verbs[figures["misses"] != 1]
    if not figures["misses"]:
        return f"{said} No request {verbs[0]}."
    share = 100 * figures["misses"] / figures["requests"]
    number = f"{figures['misses']:,} of {count(figures['requests'], 'request')}"
    return f"{said} {number} ({shown(three(share))}%) {what}."


def _beyond(value: float, unit: Unit, target: float) -> str:
    """The value as text; one that misses the target by less than is shown says so."""
    hidden = value > target and unit(value) <= unit(target)
    return f"{unit.text(value)} (rounded)" if hidden else unit.text(value)


def _beside(figures: Mapping, unit: Unit) -> str:
    mean, p50, p99 = (unit.text(figures[name]) for name in ("mean", "p50", "p99"))
    times = figures["p99"] / figures["mean"] if figures["mean"] else 1
    late = "99 in a hundred are at most" if figures["count"] >= FEW else "p99"
    far = f", {times:.0f} times the mean" if times >= FAR else ""
    return f"mean {mean}; half are at most {p50}; {late} {p99}{far}."


def _left_out(figures: Mapping, counts: Mapping) -> str:
    out = []
    if counts["failed"]:
        out.append(f"{counts['failed']:,} failed")
    if figures["undefined"]:
        out.append(f"{figures['undefined']:,} without a value")
    return f"Outside these figures: {' and '.join(out)}." if out else ""


def conditions_of(
    records: Sequence[LatencyRecord],
    summary: LatencySummary,
    given: Mapping[str, object],
    clock: str,
) -> list[tuple[str, str]]:
    """Name and text of each condition; those that nobody stated are named last."""
    done = [record for record in records if record.error is None]
    found = [(str(name), _stated(value)) for name, value in given.items() if value is not None]
    prompts = [r.num_prompt_tokens for r in done if r.num_prompt_tokens is not None]
    found.append(("prompts", _lengths(prompts)))
    found.append(("outputs", _lengths([r.times.num_output_tokens for r in done])))
    found.append(("cached", _cached(done)))
    found.append(("observed", _observed(summary, clock)))
    missing = [name for name in EXPECTED if given.get(name) is None]
    return found + ([("not stated", ", ".join(missing))] if missing else [])


def _stated(value: object) -> str:
    """A condition as text: a process in words, other fields one after the other."""
    if not isinstance(value, Mapping):
        return str(value)
    numbers = (number for name, number in value.items() if name != "kind")
    if "kind" in value and all(isinstance(n, int | float | None) for n in numbers):
        return in_words({name: n for name, n in value.items() if n is not None})
    return ", ".join(f"{name} {_stated(part)}" for name, part in value.items())


def _lengths(lengths: Sequence[int]) -> str:
    if not lengths:
        return "lengths not recorded"
    low, high = min(lengths), max(lengths)
    if low == high:
        return count(low, "token") + " each"
    return f"{low:,} to {high:,} tokens, median {statistics.median_low(lengths):,}"


def _cached(done: Sequence[LatencyRecord]) -> str:
    told = [r for r in done if None not in (r.num_cached_tokens, r.num_prompt_tokens)]
    total = sum(r.num_prompt_tokens for r in told)
    if not total:
        return "hits not recorded"
    hits = sum(r.num_cached_tokens for r in told)
    return f"{hits:,} of {total:,} prompt tokens ({shown(three(100 * hits / total))}%)"


def _observed(summary: LatencySummary, clock: str) -> str:
    one = "step" if clock == "steps" else "s"
    parts = [f"{shown(three(summary.duration))} {clock}"]
    if summary.request_throughput is not None:
        parts.append(f"{shown(three(summary.request_throughput))} requests/{one}")
        parts.append(f"{shown(three(summary.output_throughput))} output tokens/{one}")
    if summary.request_goodput is not None:
        parts.append(f"goodput {shown(three(summary.request_goodput))} requests/{one}")
    return ", ".join(parts)
