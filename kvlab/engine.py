"""The engine's loop: schedule, run, record. Token ids in, token ids out.

    add_request -> [ schedule -> runner.execute -> update_from_output ] per step -> outputs

The runner computes (tensors/runner.py does it with torch); the scheduler decides; the engine
connects them, keeps the times and undoes a step that fails. Section 21.6.
"""

import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from kvlab.core.checked import function, integer, moment, tokens
from kvlab.core.recorder import Recorder
from kvlab.core.request import FinishReason, Request, SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_output import SampledToken, SchedulerOutput
from kvlab.core.trace import Trace
from kvlab.core.transfers import TransferReport


class Runner(Protocol):
    """What computes a step. It may raise: then the engine takes the step back."""

    def execute(self, output: SchedulerOutput) -> Mapping[str, SampledToken]:
        """Compute all rows; one selected token for each request in the rows' `samplers`.

        Copies to and from another tier are started, in the order SchedulerOutput gives. One that
        fails is reported, and does not make the step fail.
        """
        ...

    def finished_transfers(self, wait: bool = False) -> TransferReport:
        """Copies that ended since the last call. Asked only of a scheduler with a second tier.

        wait: first wait for the end of all that are under way.
        """
        ...


@dataclass(frozen=True)
class StepOutput:
    """What one request got from one step.

    new_token_ids has one id, or none for a request that ended without one.
    """

    request_id: str
    new_token_ids: tuple[int, ...]
    finish_reason: FinishReason | None
    stop_reason: int | str | None = None


class LLMEngine:
    """One scheduler, one runner, one clock. State is its own: two engines live side by side."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        clock: Callable[[], float] = time.perf_counter,
        eos_token_ids: Iterable[int] = (),
        seed: int = 0,
    ) -> None:
        """seed: where requests that draw without a seed of their own take theirs from."""
        integer("seed", seed)
        function("clock", clock, "time.perf_counter")
        self.scheduler, self.runner, self.clock = scheduler, runner, clock
        self.eos_token_ids = tokens("eos_token_ids", eos_token_ids)
        self.requests: dict[str, Request] = {}  # not yet finished and reported
        self._random = random.Random(seed)
        self._recorder: Recorder | None = None
        self._unreported: list[StepOutput] = []
        self._stepping = False
        self._asked_to_end: list[tuple[str, FinishReason, int | str | None]] = []
        self._counter = 0

    # ---- requests

    def add_request(
        self,
        prompt_token_ids: Iterable[int],
        sampling_params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        arrival_time: float | None = None,
        adapter: str | None = None,
        cache_salt: str | None = None,
        priority: int = 0,
    ) -> list[Request]:
        """Queue a prompt. Returns its requests: one, or n of them for n continuations.

        priority: the lower goes first, where the scheduler's order is "priority".
        Raises ValueError, changing nothing, for an id in use or a prompt that can never run.
        """
        params = SamplingParams() if sampling_params is None else sampling_params
        if not isinstance(params, SamplingParams):
            raise ValueError(f"sampling_params is {params!r}; give a SamplingParams")
        prompt = tokens("prompt_token_ids", prompt_token_ids)
        arrival = self.clock() if arrival_time is None else moment("arrival_time", arrival_time)
        extras = {"adapter": adapter, "cache_salt": cache_salt, "priority": priority}
        asked = Request(request_id or "new", prompt, params, **extras)
        if adapter is not None and hasattr(self.runner, "check_adapter"):
            self.runner.check_adapter(adapter)
        self.scheduler.check_can_run(asked, params.n)
        ids = self._unused_ids(request_id, params.n)
        if params.temperature > 0 and params.seed is None:
            params = replace(params, seed=self._random.getrandbits(63))
        requests = [
            Request(
                name,
                prompt,
                params,
                arrival,
                parent_id=ids[0] if i else None,
                sample_index=i,
                eos_token_ids=self.eos_token_ids,
                **extras,
            )
            for i, name in enumerate(ids)
        ]
        self.scheduler.add_request(requests[0], requests[1:])
        self.requests |= {request.request_id: request for request in requests}
        return requests

    def _unused_ids(self, request_id: str | None, count: int) -> list[str]:
        """Of a request and its continuations: A, A.1, A.2 ... Raises ValueError if one is taken."""
        if request_id == "" or not isinstance(request_id, str | None):
            raise ValueError(f"request_id is {request_id!r}; give a text that is not empty")
        first = self._new_id() if request_id is None else request_id
        ids = [first, *(f"{first}.{i}" for i in range(1, count))]
        if taken := [i for i in ids if i in self.requests]:
            raise ValueError(f"request id {taken[0]!r} is in use; give another or leave it out")
        return ids

    def _new_id(self) -> str:
        """The next of r1, r2, ... that nobody uses."""
        self._counter += 1
        while f"r{self._counter}" in self.requests:
            self._counter += 1
        return f"r{self._counter}"

    def abort(self, request_id: str) -> bool:
        """End a request and free its blocks. False if there is no such unfinished request."""
        return self.finish(request_id, FinishReason.ABORT)

    def finish(
        self, request_id: str, reason: FinishReason, stop_reason: int | str | None = None
    ) -> bool:
        """End a request for a reason the engine cannot see (a stop string, the caller's wish)."""
        if not isinstance(reason, FinishReason):
            raise ValueError(f"reason is {reason!r}; give a FinishReason")
        if (request := self._unfinished(request_id)) is None:
            return False
        if self._stepping:  # asked from inside a step: it ends before the next one
            self._asked_to_end.append((request_id, reason, stop_reason))
            return True
        self._take_back_interrupted()
        self.scheduler.finish(request, reason, stop_reason)
        self._close(request, self.clock())
        return True

    def suspend(self, request_id: str) -> bool:
        """Put a request aside, its keys and values in the CPU tier if there is one and it has
        room. It is not waited for until `resume`. False if there is no such request, or if it
        is a continuation that waits for its prompt. Raises RuntimeError inside a step.
        """
        return self._between_steps(request_id, self.scheduler.suspend)

    def resume(self, request_id: str) -> bool:
        """Let a request that was put aside go on. False if there is none of this id."""
        return self._between_steps(request_id, self.scheduler.resume)

    def _between_steps(self, request_id: str, change: Callable[[Request], bool]) -> bool:
        if self._stepping:
            raise RuntimeError(f"request {request_id!r}: suspend and resume between steps")
        self._take_back_interrupted()
        request = self._unfinished(request_id)
        return request is not None and change(request)

    def _unfinished(self, request_id: object) -> Request | None:
        request = self.requests.get(request_id) if isinstance(request_id, str) else None
        return None if request is None or request.is_finished else request

    def _take_back_interrupted(self) -> None:
        """A step between its schedule and its update: what it was to write must not be found."""
        if self.scheduler.step_is_open:
            self._take_transfers(wait=True)  # no copy goes on into blocks that are given back
            self.scheduler.fail_open_step()

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes and their counts. False, changing nothing, while a request
        holds blocks."""
        return self.scheduler.reset_prefix_cache()

    def has_unfinished_requests(self) -> bool:
        """Whether a step has something to do or to report."""
        return self.scheduler.has_unfinished_requests() or bool(self._unreported)

    # ---- steps

    def step(self) -> list[StepOutput]:
        """One step. An exception of the runner undoes the step and is raised on; the engine
        stays usable and loses no request."""
        while self._asked_to_end:
            self.finish(*self._asked_to_end.pop())
        self._stepping = True
        try:
            return self._step()
        finally:
            self._stepping = False

    def _step(self) -> list[StepOutput]:
        self._take_transfers(wait=self.scheduler.step_is_open)
        output = self.scheduler.schedule()
        self._note_ended()
        if output.is_empty:
            self._take_transfers(wait=True)  # nobody can go on before a copy ends
            return self._take_unreported()
        start = self.clock()
        try:
            sampled = self.runner.execute(output)
        except BaseException:
            self._take_transfers(wait=True)  # no copy goes on into blocks that are given back
            self.scheduler.fail_step(output)
            raise
        touched = self.scheduler.update_from_output(output, sampled)
        self._take_transfers()
        self._note_times(output, touched, start, self.clock())
        return self._take_unreported() + [
            StepOutput(r.request_id, (r.output_token_ids[-1],), r.finish_reason, r.stop_reason)
            for r in touched
        ]

    def _take_transfers(self, wait: bool = False) -> None:
        """Tell the scheduler which copies between the tiers have ended."""
        if self.scheduler.offload is not None:
            self.scheduler.take_transfers(self.runner.finished_transfers(wait))

    def _note_times(
        self, output: SchedulerOutput, touched: list[Request], start: float, now: float
    ) -> None:
        first = [self.requests[row.request_id] for row in output.requests]
        for request in (*first, *touched):
            if request.times.first_scheduled is None:
                request.times.first_scheduled = start
        for request in touched:
            if not request.times.events:  # its first output; not every runner notes the moment
                request.times.first_logits = getattr(self.runner, "logits_at", None)
            request.times.note(now)
            if request.is_finished:
                self._close(request, now)

    def _note_ended(self) -> None:
        """Requests that scheduling itself ended (no block left for the last one running).

        They are kept until a step returns: a step that fails must not swallow them.
        """
        for request in [r for r in self.requests.values() if r.is_finished]:
            self._close(request, self.clock())
            self._unreported.append(
                StepOutput(request.request_id, (), request.finish_reason, request.stop_reason)
            )

    def _take_unreported(self) -> list[StepOutput]:
        taken, self._unreported = self._unreported, []
        return taken

    def _close(self, request: Request, now: float) -> None:
        request.times.finished = now
        del self.requests[request.request_id]

    def run(self) -> None:
        """Step until nothing is left to do."""
        while self.has_unfinished_requests():
            self.step()

    # ---- traces

    def start_trace(self, *, real_clock: bool = False, **options: object) -> None:
        """Record from now on; `options` go to `Recorder` (meta, probe).

        Raises RuntimeError if a trace is being recorded already.
        """
        if self._recorder is not None:
            raise RuntimeError("a trace is being recorded already; call stop_trace() first")
        self._recorder = Recorder(
            self.scheduler, clock=self.clock if real_clock else None, **options
        )

    def stop_trace(self) -> Trace:
        """Stop recording and return what was recorded. Raises RuntimeError if nothing was."""
        if self._recorder is None:
            raise RuntimeError("no trace is being recorded; call start_trace() first")
        recorder, self._recorder = self._recorder, None
        recorder.detach()
        return recorder.trace()
