"""The thread that owns the engine: takes requests in between two steps, steps, hands results over.

    inbox:  begin, abort, call ...      every message is a function that this thread runs
    loop:   [ inbox | step | hand over ] [ inbox | step | hand over ] ...    nothing to do: it waits

An `LLM` may be used by one thread at a time, so everything that touches it goes through the inbox.
The event loop of the server is never in a step: it hears of each one through a single call.
"""

import asyncio
import logging
import queue
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from kvlab.llm import LLM
from kvlab.serve.errors import ApiError, engine_failed, stopping
from kvlab.serve.job import Item, Job, Running
from kvlab.serve.metrics import Metrics
from kvlab.serve.models import Models, not_served
from kvlab.tensors.out_of_memory import NotEnoughMemory

T = TypeVar("T")
SENDING_SECONDS = 0.05  # at most, for a step's results to be sent before the next step
log = logging.getLogger("kvlab.serve")


class EngineLoop:
    """Start, submit, abort, close. A job is in `_running` from its acceptance to its last piece."""

    def __init__(
        self, llm: LLM, models: Models, metrics: Metrics, stream_interval: int = 1
    ) -> None:
        self._llm, self._models = llm, models
        self._metrics, self._interval = metrics, stream_interval
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._running: dict[str, Running] = {}
        self._outbox: list[tuple[Job, Item]] = []
        self._stopping = False
        self._gate = threading.Lock()  # held to look whether the thread goes on, and to end it
        self._thread = threading.Thread(target=self._run, name="kvlab engine", daemon=True)

    # ---- from any thread

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._stopping

    @property
    def has_run(self) -> bool:
        """Whether it was started, whatever became of it: a thread starts once."""
        return self._thread.ident is not None

    @property
    def is_here(self) -> bool:
        """Whether the caller is in the engine's thread, where waiting for it would never end."""
        return threading.current_thread() is self._thread

    def submit(self, job: Job) -> None:
        """Hand a job over. Its items tell what becomes of it."""
        job.submitted = job.clock()
        if not self._tell(partial(self._begin, job)):
            job.put(stopping())

    def abort(self, job: Job) -> None:
        """End a job that nobody waits for any more; one that has ended is left alone."""
        self._tell(partial(self._abort, job.request_id))

    def abort_all(self) -> None:
        """End all jobs; their clients are told that the server is stopping."""
        self._tell(partial(self._fail_all, stopping()))

    def _tell(self, message: Callable[[], None]) -> bool:
        """Into the inbox; False where nobody would read it, so that nobody waits for an answer."""
        with self._gate:
            if self.is_alive:
                self._inbox.put(message)
                return True
            return False

    def call(self, function: Callable[[LLM], T]) -> "Future[T]":
        """Run function(llm) between two steps. Raises RuntimeError where no thread would."""
        if self.is_here:
            raise RuntimeError("call() within call(): use the LLM that the function was given")
        done: Future[T] = Future()

        def carry_out() -> None:
            try:
                done.set_result(function(self._llm))
            except BaseException as error:
                done.set_exception(error)

        if not self._tell(carry_out):
            raise RuntimeError("the server does not run, so the LLM is yours: use it directly")
        return done

    def close(self) -> None:
        """End all jobs and the thread; returns when both have ended."""
        self._tell(self._stop)
        self._thread.join()

    # ---- the thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._take_inbox()
                if self._llm.engine.has_unfinished_requests() and not self._stopping:
                    self._step()
                self._hand_over()
        finally:
            with self._gate:
                self._stopping = True
            self._take_inbox()  # what came while it ended; nothing comes after
            self._fail_all(stopping())
            self._hand_over()

    def _take_inbox(self) -> None:
        """Carry out what was asked for; wait for it where there is nothing to compute."""
        wait = not self._stopping and not self._llm.engine.has_unfinished_requests()
        try:
            while True:
                self._inbox.get(block=wait)()
                wait = False
        except queue.Empty:
            return

    def _step(self) -> None:
        try:
            self._llm.step()
        except Exception as error:
            self._step_failed(error)
        for running in list(self._running.values()):
            if pieces := running.take():
                self._outbox.append((running.job, pieces))
            if running.done:
                self._end(running)
        self._metrics.note_step(self._llm)

    def _step_failed(self, error: Exception) -> None:
        """The engine took the step back; the jobs that were in it end, the others go on."""
        stack = "".join(traceback.format_tb(error.__traceback__))
        said = f": {error}" if isinstance(error, NotEnoughMemory) else ""
        log.error("%s in a step of the engine%s\n%s", type(error).__name__, said, stack)
        step = self._llm.engine.scheduler.step_index
        jobs = list(self._running.values())
        for running in [r for r in jobs if r.took_part(step)] or jobs:
            self._fail(running, engine_failed(error))

    def _hand_over(self) -> None:
        """One call into the event loop for all that a step gave, and a wait until it is sent.

        Two threads share one interpreter. Without the wait the next step would hold it, and each
        token would reach its client some 5 ms late, Python's interval for taking turns.
        """
        outbox, self._outbox = self._outbox, []
        for loop in {job.event_loop for job, _ in outbox}:
            mine = [(job, item) for job, item in outbox if job.event_loop is loop]
            try:
                handed = threading.Event()
                loop.call_soon_threadsafe(_deliver, loop, mine, handed)
            except RuntimeError:  # the event loop has ended, and with it who waited
                continue
            handed.wait(SENDING_SECONDS)

    # ---- messages

    def _begin(self, job: Job) -> None:
        """Queue a job's prompts. A prompt that can never run refuses the whole job."""
        asked, streams = job.asked, []
        if asked.model not in self._models.names:  # unloaded since the request was checked
            self._outbox.append((job, not_served(asked.model, self._models.names)))
            return
        limit = self._llm.engine.scheduler.config.max_model_len
        try:
            for number, prompt in enumerate(job.prompts):
                name = job.request_id if len(job.prompts) == 1 else f"{job.request_id}-{number}"
                streams.append(
                    self._llm.stream(
                        prompt,
                        job.params(prompt, limit),
                        request_id=name,
                        adapter=job.adapter,
                        cache_salt=asked.cache_salt,
                        priority=asked.priority,
                    )
                )
        except Exception as error:
            for stream in streams:
                stream.close()
            refused = ApiError(400, str(error), code="invalid_value")
            known = isinstance(error, ValueError)
            self._outbox.append((job, refused if known else engine_failed(error)))
            return
        job.requests = [request for stream in streams for request in stream.requests]
        for request in job.requests:  # it waited for this step to end as well
            request.times.arrival = job.submitted
        self._running[job.request_id] = Running(job, streams, self._interval)

    def _abort(self, request_id: str) -> None:
        if (running := self._running.get(request_id)) is not None:
            running.close()
            self._end(running)

    def _fail(self, running: Running, error: ApiError) -> None:
        running.close()
        self._outbox.append((running.job, error))
        self._end(running)

    def _fail_all(self, error: ApiError) -> None:
        for running in list(self._running.values()):
            self._fail(running, error)

    def _end(self, running: Running) -> None:
        del self._running[running.job.request_id]
        self._metrics.note_end(running.job)

    def _stop(self) -> None:
        self._stopping = True


def _deliver(
    loop: asyncio.AbstractEventLoop, items: list[tuple[Job, Item]], handed: threading.Event
) -> None:
    """In the event loop: wake the handlers, and after them say that they have had their turn."""
    for job, item in items:
        job.put(item)
    loop.call_soon(handed.set)
