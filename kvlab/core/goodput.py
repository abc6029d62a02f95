"""Targets for one request, and which requests keep them: goodput (section 21.2).

Throughput counts every request; goodput only those that were good for the person who waited.
Source: Zhong et al., DistServe, OSDI 2024; `--goodput` of `vllm bench serve`.
"""

from dataclasses import asdict, dataclass

from kvlab.core.checked import number
from kvlab.core.latency_record import LatencyRecord


@dataclass(frozen=True)
class Targets:
    """What a request must keep to be a good one, each in the clock's unit (seconds); None: unasked.

    itl: the longest gap between two output events. Raises ValueError unless a target is above 0.
    """

    ttft: float | None = None
    tpot: float | None = None
    itl: float | None = None
    e2el: float | None = None

    def __post_init__(self) -> None:
        for name, value in self.stated().items():
            number(f"target {name}", value, above=0)

    def stated(self) -> dict[str, float]:
        """The targets that are asked for, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def met_by(self, record: LatencyRecord) -> bool:
        """Whether a request kept every stated target.

        One that failed keeps none. A request without a second token has no TPOT and no gap that
        could be too long, so it keeps those two; without output or end it keeps no other.
        """
        times = record.times
        if record.error is not None:
            return False
        reached = {
            "ttft": times.ttft,
            "tpot": times.tpot or 0.0,
            "itl": max(times.itl, default=0.0),
            "e2el": times.e2el,
        }
        return all(
            reached[name] is not None and reached[name] <= limit
            for name, limit in self.stated().items()
        )
