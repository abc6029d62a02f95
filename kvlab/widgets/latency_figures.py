"""The latency report's numbers: units, three digits, and the figures of each filtered subset."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvlab.core.goodput import Targets
from kvlab.core.latency_record import LatencyRecord
from kvlab.core.latency_summary import distribution

METRICS = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl": "ITL",
    "e2el": "E2EL",
}
FIGURES = ("mean", "p50", "p90", "p99", "max")
SCALES = (("µs", 1e6, 2e-3), ("ms", 1e3, 2.0), ("s", 1.0, float("inf")))  # up to which largest


def values(record: LatencyRecord, metric: str) -> list[float | None]:
    """What a request brings to a metric: one value or None, and for itl each gap it had."""
    found = getattr(record.times, metric)
    return list(found) if metric == "itl" else [found]


def worst(record: LatencyRecord, metric: str) -> float | None:
    """What stands for the request as one dot: its value, and for itl its longest gap."""
    return max((v for v in values(record, metric) if v is not None), default=None)


def three(value: float | None) -> float | int | None:
    """Rounded to three digits; None stays None."""
    if value is None:
        return None
    rounded = float(f"{value:.3g}")
    return int(rounded) if rounded == int(rounded) else rounded


def shown(value: float | int | None) -> str:
    """A rounded number as text: 5,240 or 0.41; a dash where there is none."""
    return "–" if value is None else f"{value:,}"


@dataclass(frozen=True)
class Unit:
    """Of one metric: its name, and what a value of the clock is multiplied by."""

    name: str
    scale: float

    @classmethod
    def of(cls, largest: float, clock: str) -> "Unit":
        """clock: "s" or "steps". Seconds become ms or µs by the largest value."""
        if clock == "steps":
            return cls("steps", 1.0)
        name, scale, _ = next(s for s in SCALES if largest < s[2])
        return cls(name, scale)

    def __call__(self, value: float | None) -> float | int | None:
        return three(None if value is None else value * self.scale)

    def text(self, value: float | None) -> str:
        return f"{shown(self(value))} {self.name}"


@dataclass(frozen=True)
class Subset:
    """The requests that a filter keeps: figures of those that completed, counts of the others."""

    records: Sequence[LatencyRecord]
    targets: Targets

    @property
    def done(self) -> list[LatencyRecord]:
        return [record for record in self.records if record.error is None]

    def figures(self, metric: str) -> dict[str, float | int | None]:
        """count, undefined, misses (requests, None without a target), and FIGURES, unrounded."""
        done, target = self.done, getattr(self.targets, metric)
        found = distribution(v for record in done for v in values(record, metric))
        bests = [worst(record, metric) for record in done]
        late = None if target is None else sum(v is not None and v > target for v in bests)
        return {
            "count": found.count,
            "requests": sum(v is not None for v in bests),
            "undefined": sum(v is None for v in bests),
            "misses": late,
            **{name: getattr(found, name) for name in FIGURES},
        }

    def counts(self) -> dict[str, int | None]:
        """Requests by what became of them. good: kept all targets; None without any."""
        done, stated = self.done, bool(self.targets.stated())
        return {
            "done": len(done),
            "failed": len(self.records) - len(done),
            "estimated": sum(record.estimated for record in done),
            "good": sum(map(self.targets.met_by, done)) if stated else None,
        }
