"""What came of a workload: each request's times, and each step's work and duration.

Times count from the start of the play, in its unit: seconds, or steps on a step clock.
Sections 21.2 and 21.3.
"""

import statistics
from dataclasses import dataclass, field

from kvlab.core.metrics import RequestTimes
from kvlab.core.step_cost import StepWork

LATENCIES = ("queue_time", "ttft", "tpot", "e2el")


@dataclass(frozen=True)
class PlayedStep:
    """One pass of the model: when it began and ended, and what it did."""

    begin: float
    end: float
    work: StepWork

    @property
    def duration(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class PlayedRequest:
    """One request of the workload. Its `times.arrival` is the intended one, also where the engine
    was busy and took it later: waiting for a step to end is part of its delay.

    finish_reason: "stop", "length", "abort" or "capacity". refused: why the engine never took it;
    then nothing else is known. simulated: the times are those of a cost model.
    """

    request_id: str
    num_prompt_tokens: int
    times: RequestTimes
    output_token_ids: tuple[int, ...] = ()
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    finish_reason: str | None = None
    refused: str | None = None
    simulated: bool = False

    def to_dict(self) -> dict[str, object]:
        """Counts and latencies by name, as JSON types."""
        return {
            "request_id": self.request_id,
            "num_prompt_tokens": self.num_prompt_tokens,
            "num_output_tokens": len(self.output_token_ids),
            "num_cached_tokens": self.num_cached_tokens,
            "num_preemptions": self.num_preemptions,
            "finish_reason": self.finish_reason,
            "refused": self.refused,
            "simulated": self.simulated,
            "arrival": self.times.arrival,
            "finished": self.times.finished,
            **self.times.to_dict(),
        }


@dataclass(frozen=True)
class Played:
    """A workload played to its end. unit: "s" or "steps"; requests in the workload's order."""

    requests: tuple[PlayedRequest, ...]
    steps: tuple[PlayedStep, ...] = field(repr=False)
    unit: str = "s"
    simulated: bool = False

    def __repr__(self) -> str:
        refused = sum(r.refused is not None for r in self.requests)
        parts = [f"{len(self.requests)} requests", f"{len(self.steps)} steps"]
        parts += [f"{refused} refused"] if refused else []
        parts += ["simulated"] if self.simulated else []
        return f"Played({', '.join(parts)})"

    def __getitem__(self, request_id: str) -> PlayedRequest:
        """Raises KeyError for an id that the workload does not have."""
        for request in self.requests:
            if request.request_id == request_id:
                return request
        raise KeyError(request_id)

    @property
    def duration(self) -> float:
        """From the start to the end of the last step."""
        return self.steps[-1].end if self.steps else 0.0

    def latencies(self, name: str) -> dict[str, float]:
        """{request id: queue_time, ttft, tpot or e2el}; a request that has none is left out.

        Raises ValueError for another name.
        """
        if name not in LATENCIES:
            raise ValueError(f"latency is {name!r}; give one of {', '.join(LATENCIES)}")
        values = {r.request_id: getattr(r.times, name) for r in self.requests}
        return {key: value for key, value in values.items() if value is not None}

    def gaps(self) -> dict[str, list[float]]:
        """{request id: the gaps between its outputs}, where it has two or more."""
        return {r.request_id: r.times.itl for r in self.requests if r.times.itl}


def relative_errors(real: Played, simulated: Played, name: str = "e2el") -> dict[str, float]:
    """{request id: |simulated - real| / real} of one latency, where both have it and the real one
    is above 0. Raises ValueError where that is nowhere.
    """
    wanted, found = real.latencies(name), simulated.latencies(name)
    errors = {
        key: abs(found[key] / value - 1)
        for key, value in wanted.items()
        if key in found and value > 0
    }
    if not errors:
        raise ValueError(f"the two plays have no {name} in common; play the same workload twice")
    return errors


def median_error(real: Played, simulated: Played, name: str = "e2el") -> float:
    """The median of `relative_errors`: half of the requests are nearer than that."""
    return statistics.median(relative_errors(real, simulated, name).values())
