"""What each step did to each request: a run of a thousand steps in a few kilobytes.

A `Trace` keeps the whole state after every event. To see who waits, less is enough: for each
request, stretches of steps in which the same happened to it, and a few counts a step. The log is
written from the scheduler's own events (section 21.3).
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise

from kvlab.core.request import Request
from kvlab.core.scheduler import Scheduler

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
_TURNS_INTO = {
    "admitted": "idle",
    "preempted": "preempted",
    "offloaded": "offloaded",
    "loading": "loading",
    "loaded": "idle",
    "suspended": "suspended",
    "resumed": None,  # what its status says
}
_BETWEEN_STEPS = ("added", "finished", "suspended", "resumed")


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


class ScheduleLog(Schedule):
    """A schedule that grows: it listens to one scheduler until `detach`; a context manager too.

    clock: None counts steps, else a function giving the time. Raises RuntimeError where something
    listens already: a scheduler has one observer.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        clock: Callable[[], float] | None = None,
        meta: Mapping[str, object] | None = None,
    ) -> None:
        if scheduler.observer is not None:
            raise RuntimeError("the scheduler has an observer; stop its trace or log first")
        manager = scheduler.manager
        about = {
            "clock": "step" if clock is None else "real",
            "block_size": manager.block_size,
            "num_blocks": manager.pool.num_blocks,
            "max_num_seqs": scheduler.config.max_num_seqs,
            "policy": scheduler.config.policy,
        }
        super().__init__({**about, **(meta or {})}, [], {})
        self._scheduler, self._clock = scheduler, clock
        self._live: dict[str, tuple[str, int]] = {}  # what it is between steps, and since which
        self._work: dict[str, tuple[str, int, int]] = {}  # this step's: kind, positions, from where
        self._sure: set[str] = set()  # whose work of this step can no longer be taken back
        self._ended: list[str] = []  # in this step
        self._happened = False  # something besides arrivals and aborts
        self._step, self._begin = scheduler.step_index, self._now()
        self._last = (self._begin, manager.pool.num_free_blocks)
        for request in (*scheduler.running, *scheduler.waiting):  # a log may start midway
            self._arrive(request, request.arrival_time if clock else self._begin)
            if request in scheduler.running:
                self._live[request.request_id] = ("idle", self._step + 1)
        scheduler.observer = self._heard

    def __enter__(self) -> "ScheduleLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def detach(self) -> None:
        """Stop listening and close the last step. A second call does nothing."""
        if self._scheduler.observer == self._heard:
            self._scheduler.observer = None
            self._close_step()

    # ---- hearing

    def _now(self) -> float:
        return self._scheduler.step_index if self._clock is None else self._clock()

    def _heard(self, kind: str, request: Request | None, **data: object) -> None:
        now = self._now()
        if self._scheduler.step_index != self._step:
            self._close_step()
            while self._step + 1 < self._scheduler.step_index:
                self._step += 1
                self._close_step()  # nothing was heard: everybody waits, maybe for a copy
            self._step, self._begin = self._scheduler.step_index, now
        self._last = (now, self._scheduler.manager.pool.num_free_blocks)
        if request is None:
            return
        if kind == "added":
            self._arrive(request, request.arrival_time if self._clock else now)
        elif request.request_id not in self.requests:  # a continuation that begins by a fork
            self._arrive(request, now)
            self._live[request.request_id] = ("idle", self._step)
        self._note(kind, request, now, data)

    def _arrive(self, request: Request, now: float) -> None:
        """Between two steps: the first one that can find it waiting is the next."""
        name = request.request_id
        self.requests[name] = RequestRecord(name, request.num_prompt_tokens, now)
        self._live[name] = ("waiting", self._step + 1)

    def _note(self, kind: str, request: Request, now: float, data: Mapping[str, object]) -> None:
        name, record = request.request_id, self.requests[request.request_id]
        self._happened |= kind not in _BETWEEN_STEPS
        if kind in _TURNS_INTO:
            self._turn(name, kind, _TURNS_INTO[kind] or request.status.value)
        elif kind == "scheduled":
            start, end = data["start"], data["end"]
            known_outputs = request.num_tokens > request.num_prompt_tokens
            decodes = end - start == 1 and end == request.num_tokens and known_outputs
            self._work[name] = ("decode" if decodes else "prefill", end - start, start)
        elif kind == "computed":
            self._sure.add(name)
        elif kind == "selected":
            self._work.setdefault(name, ("prefill", 0, 0))  # others computed what it selects from
            self._sure.add(name)
            record.selected_steps.append(self._step)
            record.selected_times.append(now)
        elif kind == "step_failed":
            self._work[name] = ("failed", 0, 0)
            self._live[name] = ("preempted", self._step + 1)
        elif kind == "finished":
            record.finish_reason, record.finished = request.finish_reason.value, now
            self._ended.append(name)
        if kind == "admitted":
            record.num_cached_tokens = request.num_cached_tokens

    def _turn(self, name: str, kind: str, into: str) -> None:
        """From this step on it is something else; what the step did for it before, it did."""
        was, since = self._live[name]
        if kind in ("loading", "loaded"):
            self._work[name] = ("loading", 0, 0)  # it takes part when the copies have ended
        elif kind in _BETWEEN_STEPS and since <= self._step:
            self._work.setdefault(name, (was, 0, 0))
        elif kind != "admitted" and name not in self._sure:
            self._work.pop(name, None)  # a preempted one may have been part of the step
        later = kind in _BETWEEN_STEPS or name in self._sure
        self._live[name] = (into, self._step + later)

    def _close_step(self) -> None:
        """Write down what the step did to everybody who was there."""
        present = {n: kind for n, (kind, since) in self._live.items() if since <= self._step}
        present |= {n: self._live[n][0] for n in self._work if n in self._live}
        did = {n: self._work.get(n, (kind, 0, 0)) for n, kind in present.items()}
        if self._happened or present:
            for name, (kind, tokens, start) in did.items():
                self.requests[name].add(kind, self._step, tokens, start)
            kinds = [kind for kind, _, _ in did.values()]
            queued, aside = sum(map(kinds.count, QUEUED)), kinds.count("suspended")
            end, free = self._last
            running = len(kinds) - queued - aside
            self.steps.append(StepRecord(self._step, self._begin, end, queued, running, free))
        for name in self._ended:
            self._live.pop(name, None)
        self._work, self._sure, self._ended, self._happened = {}, set(), [], False
        self._begin = self._last[0]
