"""The payload of the view "latency report": one dot a request, and figures for each filter.

Every figure is computed here, by kvlab.core.latency_summary, for every choice of the two filters:
the browser draws and shows, and has no second way to compute a percentile.
"""

from collections.abc import Iterable, Mapping, Sequence

from kvlab.core.goodput import Targets
from kvlab.core.latency_record import LatencyRecord
from kvlab.core.latency_summary import summarize
from kvlab.widgets.latency_figures import FIGURES, METRICS, Subset, Unit, worst
from kvlab.widgets.latency_filters import Choice, label_choices, length_choices
from kvlab.widgets.latency_words import conditions_of, verdict

MOST_RECORDS = 2000  # one dot each
UNITS = ("s", "steps")
STARTS = {  # what a boundary's times are counted from
    "engine": "from the request's arrival",
    "server": "from the request's arrival",
    "client": "from the intended start",
}


def latency_payload(
    records: Iterable[LatencyRecord],
    targets: Targets | None = None,
    *,
    title: str | None = None,
    duration: float | None = None,
    unit: str | None = None,
    conditions: Mapping[str, object] | None = None,
    metric: str | None = None,
) -> dict:
    """What the view draws: plain data, the same for the same records. See `latency_report`."""
    given = sorted(_checked(records, unit), key=lambda record: record.times.arrival)
    if metric is not None and metric not in METRICS:
        raise ValueError(f"metric is {metric!r}; give one of {', '.join(METRICS)}")
    unit = unit or ("steps" if given[0].labels.get("unit") == "steps" else "s")
    goals = Targets() if targets is None else targets
    summary = summarize(given, duration=duration, targets=goals)
    units = {name: Unit.of(_largest(given, name, goals), unit) for name in METRICS}
    labels, common, crowded = label_choices(given)
    lengths = length_choices(given)
    start = given[0].times.arrival
    came = Unit.of(given[-1].times.arrival - start, unit)
    stated = conditions_of(given, summary, {**common, **(conditions or {})}, unit)
    if crowded:
        stated.append(("no filter for", f"{', '.join(crowded)}: too many values"))
    subsets = [
        [_subset(given, (label, length), goals, units) for length in lengths] for label in labels
    ]
    return {
        "view": "latency_report",
        "title": "Latency report" if title is None else str(title),
        "boundary": given[0].boundary,
        "starts": STARTS[given[0].boundary],
        "opens": metric or most_missed(subsets[0][0]["metrics"]),
        "clock": unit,
        "came": came.name,
        "metrics": [_metric(name, units[name], goals) for name in METRICS],
        "labels": [choice.text for choice in labels],
        "lengths": [choice.text for choice in lengths],
        "subsets": subsets,
        "conditions": [list(pair) for pair in stated],
        "records": [
            _record(r, came(r.times.arrival - start), units, labels, lengths, goals) for r in given
        ],
    }


def _checked(records: Iterable[LatencyRecord], unit: str) -> list[LatencyRecord]:
    given = list(records)
    if unit is not None and unit not in UNITS:
        raise ValueError(f"unit is {unit!r}; give one of {', '.join(UNITS)}")
    if not given:
        raise ValueError("there are no records; a report needs one request at least")
    if len(given) > MOST_RECORDS:
        raise ValueError(
            f"{len(given):,} records; the view draws {MOST_RECORDS:,} at most, give a part of them"
        )
    for record in given:
        if not isinstance(record, LatencyRecord):
            raise ValueError(
                f"a record has type {type(record).__name__}; give LatencyRecords, for example "
                "records_of(played)"
            )
    return given


def _largest(records: Sequence[LatencyRecord], metric: str, targets: Targets) -> float:
    found = [worst(record, metric) for record in records if record.error is None]
    largest = max([v for v in found if v is not None], default=0.0)
    return largest or getattr(targets, metric) or 0.0


def _metric(name: str, unit: Unit, targets: Targets) -> dict:
    target = unit(getattr(targets, name))
    return {"name": name, "short": METRICS[name], "unit": unit.name, "target": target}


def most_missed(metrics: Mapping[str, Mapping]) -> str:
    """The metric whose target most requests miss; "ttft" where none is missed."""
    return max(METRICS, key=lambda name: metrics[name]["misses"] or 0)  # METRICS begins with ttft


# ---- figures of what two filters keep


def _subset(
    records: Sequence[LatencyRecord],
    filters: Sequence[Choice],
    targets: Targets,
    units: Mapping[str, Unit],
) -> dict:
    """Counts, and for each metric its rounded figures and its verdict."""
    kept = [record for record in records if all(choice.keeps(record) for choice in filters)]
    subset = Subset(kept, targets)
    counts, metrics = subset.counts(), {}
    for name, unit in units.items():
        figures = subset.figures(name)
        target = getattr(targets, name)
        metrics[name] = {
            **{key: figures[key] for key in ("count", "requests", "undefined", "misses")},
            **{key: unit(figures[key]) for key in FIGURES},
            "kept": [key for key in FIGURES if _keeps(figures[key], target)],
            "said": verdict(name, figures, counts, unit, target),
        }
    return {**counts, "metrics": metrics}


# ---- one request


def _record(
    record: LatencyRecord,
    came: float,
    units: Mapping[str, Unit],
    labels: Sequence[Choice],
    lengths: Sequence[Choice],
    targets: Targets,
) -> list:
    """Id, arrival, prompt, outputs, cached, error, estimated, choices that keep it, values, and
    for each value whether it keeps the metric's target (1, 0, or None where either is missing).
    """
    alive = record.error is None
    values = {name: worst(record, name) if alive else None for name in units}
    return [
        record.request_id,
        came,
        record.num_prompt_tokens,
        record.times.num_output_tokens,
        record.num_cached_tokens,
        record.error,
        int(record.estimated),
        [i for i, choice in enumerate(labels) if i and choice.keeps(record)],
        next((i for i, choice in enumerate(lengths) if i and choice.keeps(record)), 0),
        [unit(values[name]) for name, unit in units.items()],
        [_keeps(values[name], getattr(targets, name)) for name in units],
    ]


def _keeps(value: float | None, target: float | None) -> int | None:
    return None if None in (value, target) else int(value <= target)
