"""Writes a schedule while an engine runs, from the scheduler's own events (section 21.3).

An event belongs to a step, or lies between two: arrivals, and what a caller asks for. What a step
was does not change any more by what comes after it.
"""

from collections.abc import Callable, Mapping

from kvlab.core.request import FinishReason, Request, RequestStatus
from kvlab.core.schedule_spans import QUEUED, RequestRecord, Schedule, StepRecord
from kvlab.core.scheduler import Scheduler

_TURNS_INTO = {
    "admitted": "idle",
    "preempted": "preempted",
    "offloaded": "offloaded",
    "loading": "loading",
    "loaded": "idle",
    "suspended": "suspended",
    "resumed": None,  # what its status says
}


class ScheduleLog(Schedule):
    """A schedule that grows: it listens to one scheduler until `detach`; a context manager too.

    clock: None counts steps, else a function giving the time. A second request with an id that
    was there before is entered as "A (2)". Raises RuntimeError where something listens already: a
    scheduler has one observer.
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
        self._names: dict[str, str] = {}  # of the record of each request that has not ended
        self._live: dict[str, tuple[str, int]] = {}  # what it is between steps, and since which
        self._work: dict[str, tuple[str, int, int]] = {}  # this step's: kind, positions, from where
        self._sure: set[str] = set()  # whose work of this step can no longer be taken back
        self._ended: list[str] = []  # in this step, or after it
        self._happened = False  # something that belongs to this step
        self._step, self._begin = scheduler.step_index, self._now()
        self._first = self._step + 1  # the first step that this log tells about
        self._free = manager.pool.num_free_blocks  # when something was heard for the last time
        self._last = (self._begin, self._free)  # the step's end as far as it is known
        for request in (*scheduler.running, *scheduler.waiting, *scheduler.suspended.values()):
            self._arrive(request, _standing(request), self._first)  # a log may start midway
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
        now, between = self._now(), self._is_between(kind, request)
        if self._scheduler.step_index != self._step:
            self._close_step()
            while self._step + 1 < self._scheduler.step_index:
                self._open_step(self._last[0])
                self._close_step()  # nothing was heard: everybody waits, maybe for a copy
            self._open_step(self._last[0] if between else now)
        self._free = self._scheduler.manager.pool.num_free_blocks
        if not between:
            updated = self._sure and not self._scheduler.step_is_open  # only copies end after it
            self._last = (self._last[0] if updated else now, self._free)
            self._happened |= request is not None
        if request is not None and not (between and kind == "offloaded"):  # "suspended" follows
            self._note(self._name(kind, request), kind, request, now, between, data)

    def _is_between(self, kind: str, request: Request | None) -> bool:
        """Whether this lies between two steps, and is no part of either."""
        scheduler = self._scheduler
        if kind == "finished":  # a step ends what it has run, or what has no block left
            return not (scheduler.step_is_open or request.finish_reason is FinishReason.CAPACITY)
        if kind == "offloaded" and request is not None:  # who stands nowhere is being put aside
            return request not in (*scheduler.running, *scheduler.waiting)
        return kind in ("added", "suspended", "resumed")

    def _name(self, kind: str, request: Request) -> str:
        """Of its record; the first event of a request begins one."""
        if request.request_id not in self._names:
            if kind in ("added", "finished"):  # the first step that can find it is the next
                self._arrive(request, "waiting", self._step + 1)
            else:  # a continuation that begins by a fork
                self._arrive(request, "idle", self._step)
        return self._names[request.request_id]

    def _arrive(self, request: Request, kind: str, since: int) -> None:
        name, number = request.request_id, 1
        while name in self.requests:
            number += 1
            name = f"{request.request_id} ({number})"
        arrival = max(request.arrival_step, self._first - 1)
        if self._clock is not None:
            arrival = request.arrival_time
        self.requests[name] = RequestRecord(name, request.num_prompt_tokens, arrival)
        self._names[request.request_id] = name
        self._live[name] = (kind, since)

    def _note(
        self,
        name: str,
        kind: str,
        request: Request,
        now: float,
        between: bool,
        data: Mapping[str, object],
    ) -> None:
        record = self.requests[name]
        if kind in _TURNS_INTO:
            self._turn(name, kind, _TURNS_INTO[kind] or request.status.value, between)
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
            self._end(name, request, between)
        if kind == "admitted":
            record.num_cached_tokens = request.num_cached_tokens

    def _turn(self, name: str, kind: str, into: str, between: bool) -> None:
        """From this step on it is something else; what the step did for it before, it did."""
        was, since = self._live[name]
        here = since <= self._step  # else it is told of already: what follows is for the next step
        if kind in ("loading", "loaded"):
            self._work[name] = ("loading", 0, 0)  # it takes part when the copies have ended
        elif between and here:
            self._work.setdefault(name, (was, 0, 0))
        elif not between and here and kind != "admitted" and name not in self._sure:
            self._work.pop(name, None)  # a preempted one may have been part of the step
        later = between or not here or name in self._sure
        self._live[name] = (into, self._step + later)

    def _end(self, name: str, request: Request, between: bool) -> None:
        """It is gone after this step. Where it led continuations, the next one waits from now."""
        self._ended.append(name)
        del self._names[request.request_id]
        for heir in self._scheduler.waiting:
            if heir.request_id not in self._names:
                self._arrive(heir, "waiting", self._step + between)

    # ---- a step's bracket

    def _open_step(self, begin: float) -> None:
        """The next one; until something is heard of it, it ends as it begins."""
        self._step += 1
        self._begin = begin if self._clock is not None else self._step
        self._last = (self._begin, self._free)

    def _close_step(self) -> None:
        """Write down what the step did to everybody who was there."""
        present = {n: kind for n, (kind, since) in self._live.items() if since <= self._step}
        present |= {n: self._live[n][0] for n in self._work if n in self._live}
        did = {n: self._work.get(n, (kind, 0, 0)) for n, kind in present.items()}
        if (self._happened or present) and self._step >= self._first:
            for name, (kind, tokens, start) in did.items():
                self.requests[name].add(kind, self._step, tokens, start)
            out = {n for n in did if self.requests[n].finish_reason == "capacity"}
            queued = sum(kind in QUEUED and n not in out for n, (kind, _, _) in did.items())
            running = sum(kind not in (*QUEUED, "suspended") for kind, _, _ in did.values())
            end, free = self._last
            self.steps.append(StepRecord(self._step, self._begin, end, queued, running, free))
        for name in self._ended:
            self._live.pop(name, None)
        self._work, self._sure, self._ended, self._happened = {}, set(), [], False


def _standing(request: Request) -> str:
    """What it is between two steps."""
    return "idle" if request.status is RequestStatus.RUNNING else request.status.value
