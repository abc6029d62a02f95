"""What each step did to each request, as plain data: a thousand steps in a few kilobytes.

A `Trace` keeps the whole state after every event. To see who waits, less is enough: for each
request, stretches of steps in which the same happened to it, and a few counts a step.
core/schedule_log.py writes them (section 21.3).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise

KINDS = (
    "waiting",  # in the queue, never admitted so far
    "prefill",  # positions of its prompt were computed, or of what it lost by a preemption
    "decode",  # its one pending output was processed
    "idle",  # admitted, and not part of this step
    "preempted",  # in the queue again: it lost its blocks
    "offloaded",  # its blocks lie in another tier
    "loading",  # they are on their way back
    "suspended",  # put aside by the caller
    "failed",  # its part of the step was taken back
)
QUEUED = ("waiting", "preempted", "offloaded")


@dataclass(frozen=True)
class Span:
    """`count` steps in a row, from step number `first`, in which one request fared alike.

    tokens: positions computed in them all together, equally many in each; start: the first of them.
    """

    kind: str
    first: int
    count: int
    tokens: int = 0
    start: int = 0

    @property
    def end(self) -> int:
        """The step after its last one."""
        return self.first + self.count

    def position(self, step: int) -> int:
        """The first position that this step computed."""
        return self.start + self.tokens // self.count * (step - self.first)


@dataclass(frozen=True)
class StepRecord:
    """One step: begin and end on the log's clock, who waited and ran, free blocks at its end."""

    step: int
    begin: float
    end: float
    waiting: int
    running: int
    free_blocks: int


@dataclass
class RequestRecord:
    """One request: when it arrived, got outputs and ended, and what happened to it step by step.

    Times are those of the log's clock; selected and spans count steps.
    """

    request_id: str
    num_prompt_tokens: int
    arrival: float
    spans: list[Span] = field(default_factory=list)
    num_cached_tokens: int = 0
    selected_steps: list[int] = field(default_factory=list)
    selected_times: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    finished: float | None = None

    @property
    def ttft(self) -> float | None:
        return self.selected_times[0] - self.arrival if self.selected_times else None

    @property
    def gaps(self) -> list[float]:
        """Between outputs that follow each other, on the log's clock."""
        times = self.selected_times
        return [b - a for a, b in pairwise(times)]

    @property
    def step_gaps(self) -> list[int]:
        """The same in steps: 1 where an output came in every step."""
        steps = self.selected_steps
        return [b - a for a, b in pairwise(steps)]

    @property
    def e2el(self) -> float | None:
        return None if self.finished is None else self.finished - self.arrival

    def steps_in(self, *kinds: str) -> int:
        """How many steps it spent in these kinds together."""
        return sum(span.count for span in self.spans if span.kind in kinds)

    def add(self, kind: str, step: int, tokens: int, start: int) -> None:
        """What step number `step` did; alike steps in a row become one span."""
        last = self.spans[-1] if self.spans else Span("", 0, 1)
        alike = (last.kind, last.end, last.tokens) == (kind, step, tokens * last.count)
        if alike and (not tokens or last.start + last.tokens == start):
            self.spans[-1] = replace(last, count=last.count + 1, tokens=last.tokens + tokens)
        else:
            self.spans.append(Span(kind, step, 1, tokens, start))


@dataclass(repr=False)
class Schedule:
    """A run as plain data: what views draw and exercises count.

    meta: clock ("step", or another name where times are measured), block_size, num_blocks,
    max_num_seqs, policy. steps: those in which somebody was there. requests: by id, as they came.
    """

    meta: dict
    steps: list[StepRecord]
    requests: dict[str, RequestRecord]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.requests)} requests, {len(self.steps)} steps)"

    def to_dict(self) -> dict:
        """Everything as JSON types."""
        steps = [[s.step, s.begin, s.end, s.waiting, s.running, s.free_blocks] for s in self.steps]
        requests = []
        for record in self.requests.values():
            spans = [[s.kind, s.first, s.count, s.tokens, s.start] for s in record.spans]
            requests.append({**asdict(record), "spans": spans})
        return {"meta": dict(self.meta), "steps": steps, "requests": requests}

    @classmethod
    def from_dict(cls, document: Mapping) -> "Schedule":
        """The inverse of `to_dict`. Raises ValueError for anything else."""
        try:
            steps = [StepRecord(*step) for step in document["steps"]]
            records = [RequestRecord(**request) for request in document["requests"]]
            for record in records:
                record.spans = [Span(*span) for span in record.spans]
            return cls(dict(document["meta"]), steps, {r.request_id: r for r in records})
        except (KeyError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"not a schedule as to_dict() gives it; {reason}") from None
