"""Which request computes how many positions in the next step.

There is no prefill phase and no decode phase here. Each request has `num_computed_tokens`
chasing `num_tokens`, and a step hands out a budget of positions:

    | num_computed_tokens | scheduled now | left for later steps |
    |<------------------- num_tokens ------------------------->|

A whole prompt, a chunk of one, what a prefix hit left over, and the single pending token of a
decoding request are all the same rule. Requests that need one position go first, so a long
prompt cannot starve them (section 21.3).
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.request import FinishReason, Request, RequestStatus
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.scheduler_output import SampledToken, ScheduledRequest, SchedulerOutput


def _decode_first(request: Request) -> tuple[bool, int]:
    """Requests with one pending position first, of these the longest waiting; then prompts."""
    long = request.num_pending_tokens > 1
    return (long, 0 if long else request.last_step)


class Scheduler:
    """First come, first served; continuous batching; preemption by recomputing.

    A request is in exactly one of: `waiting` (holds no block), `running` (holds blocks),
    finished. Continuations of a prompt (n > 1) wait in `forks` until its prompt is computed.
    """

    def __init__(self, manager: KVCacheManager, config: SchedulerConfig | None = None) -> None:
        self.manager = manager
        self.config = config or SchedulerConfig()
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.forks: dict[str, list[Request]] = {}
        self.step_index = 0
        self.observer: Callable[..., None] | None = None
        self._open: SchedulerOutput | None = None  # the step between schedule and update
        self._in_step: dict[str, tuple[Request, int]] = {}  # request and positions handed out

    # ---- submission and ending

    def add_request(self, request: Request, forks: Sequence[Request] = ()) -> None:
        """Queue a request and its further continuations. Refuses what can never run.

        Raises ValueError naming both numbers: prompt beyond the model's context, beyond the
        whole pool, beyond the budget with chunking off, or n beyond max_num_seqs.
        """
        self.check_can_run(request, 1 + len(forks))
        self.waiting.append(request)
        if forks:
            self.forks[request.request_id] = list(forks)
        self._emit("added", request, prompt_tokens=request.num_prompt_tokens)

    def check_can_run(self, request: Request, count: int) -> None:
        """Raise ValueError if no schedule could ever run it; see SchedulerConfig."""
        pool, block_size = self.manager.pool, self.manager.block_size
        self.config.check_can_run(request, count, pool.num_blocks, block_size)

    def finish(
        self, request: Request, reason: FinishReason, stop_reason: int | str | None = None
    ) -> None:
        """End a request wherever it is; its blocks are given back. A finished one is left alone."""
        if request.is_finished:
            return
        if request.status is RequestStatus.RUNNING:
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)
        self._leave_forks(request)
        request.status, request.finish_reason = RequestStatus.FINISHED, reason
        if stop_reason is not None:
            request.stop_reason = stop_reason
        self.manager.free(request)
        self._emit("finished", request, reason=reason.value)

    def _leave_forks(self, request: Request) -> None:
        """Where the leader of continuations ends before the fork, the next of them leads."""
        for group in self.forks.values():
            if request in group:
                group.remove(request)
        orphans = self.forks.pop(request.request_id, [])
        if orphans:
            heir, *rest = orphans
            self.waiting.appendleft(heir)
            self.forks[heir.request_id] = rest

    def has_unfinished_requests(self) -> bool:
        return bool(self.waiting or self.running)

    # ---- one step

    def schedule(self) -> SchedulerOutput:
        """Hand out the step's budget. The result may be empty: then nothing is left to do."""
        if self._open is not None:  # interrupted between its schedule and its update
            self.fail_step(self._open)
        self.step_index += 1
        self._in_step = {}
        budget, preempted = self._schedule_running(self.config.max_num_batched_tokens)
        if not preempted:
            self._schedule_waiting(budget)
        rows = tuple(self._row(r, count) for r, count in self._in_step.values())
        kept = self.manager.step_logits([r for r, _ in self._in_step.values()])
        copies = self.manager.step_copies()
        self._open = SchedulerOutput(self.step_index, rows, copies, logits_to_keep=kept)
        return self._open

    def _schedule_running(self, budget: int) -> tuple[int, bool]:
        """Running requests, decodes first. Returns budget left and whether one was preempted."""
        preempted = False
        order = sorted(self.running, key=_decode_first)
        for request in order:
            if budget == 0:
                break
            if request.status is not RequestStatus.RUNNING:  # preempted for an earlier one
                continue
            count = min(request.num_pending_tokens, budget)
            while self.manager.allocate_slots(request, count) is None:
                victim = self.running[-1]
                if victim is request and len(self.running) == 1:
                    self._end_for_capacity(request)
                    break
                budget += self._preempt(victim)
                preempted = True
                if victim is request:
                    break
            else:
                budget -= self._put_in_step(request, count)
        return budget, preempted

    def _schedule_waiting(self, budget: int) -> None:
        """Admit from the head of the queue while budget, seats and blocks last."""
        while self.waiting and budget > 0:
            request = self.waiting[0]
            if self._seats(self.running) + self._seats([request]) > self.config.max_num_seqs:
                break
            hits, num_hit = self.manager.get_computed_blocks(request)
            count = request.num_tokens - num_hit
            first_run = request.status is RequestStatus.WAITING
            if count > budget and not self.config.enable_chunked_prefill and first_run:
                break  # a whole prompt waits for a whole budget; a preempted one may come in parts
            count = min(count, budget)
            if self.manager.allocate_slots(request, count, hits) is None:
                break
            self.waiting.popleft()
            self.running.append(request)
            request.num_computed_tokens = request.num_cached_tokens = num_hit
            request.status = RequestStatus.RUNNING
            self._emit("admitted", request, cached=num_hit)
            budget -= self._put_in_step(request, count)
        if self.waiting and not self.running:  # the whole pool is free and not enough for the head
            self._end_for_capacity(self.waiting[0])
            self._schedule_waiting(budget)

    def _seats(self, requests: Sequence[Request]) -> int:
        """Each request and each of its continuations that still wait for the fork."""
        return len(requests) + sum(len(self.forks.get(r.request_id, ())) for r in requests)

    def _put_in_step(self, request: Request, count: int) -> int:
        self._in_step[request.request_id] = (request, count)
        request.last_step = self.step_index
        start = request.num_computed_tokens
        if count:
            self._emit("scheduled", request, start=start, end=start + count)
        return count

    def _row(self, request: Request, count: int) -> ScheduledRequest:
        start = request.num_computed_tokens
        last = start + count == request.num_tokens
        samplers = (request, *self._fork_now(request)) if last else ()
        return ScheduledRequest(
            request.request_id,
            start,
            request.all_token_ids[start : start + count],
            self.manager.block_table(request.request_id),
            samplers,
            None if count else self.manager.use_kept_logits(request),
        )

    def _fork_now(self, request: Request) -> list[Request]:
        """The step computes the last of the prompt: its further continuations begin here."""
        forks = self.forks.pop(request.request_id, [])
        for child in forks:
            self.manager.fork(request, child)
            child.num_cached_tokens = request.num_cached_tokens
            child.status = RequestStatus.RUNNING
            self.running.append(child)
        return forks

    def _preempt(self, request: Request) -> int:
        """Take a request's blocks; it waits at the head of the queue. Returns budget given back."""
        _, count = self._in_step.pop(request.request_id, (request, 0))
        self.running.remove(request)
        self.waiting.appendleft(request)
        self.manager.undo_step(request)
        request.status = RequestStatus.PREEMPTED
        request.num_preemptions += 1
        self._emit("preempted", request)
        return count

    def _end_for_capacity(self, request: Request) -> None:
        pool = self.manager.pool.num_blocks
        sentence = (
            f"{request.num_tokens} positions need more than the pool's {pool} blocks of "
            f"{self.manager.block_size}"
        )
        self.finish(request, FinishReason.CAPACITY, sentence)

    # ---- after the model

    def update_from_output(
        self, output: SchedulerOutput, sampled: Mapping[str, SampledToken]
    ) -> list[Request]:
        """Record what the step computed, then what it selected. Returns those with new output."""
        self.manager.commit_step()
        self._record_processed(output)
        touched = [r for row in output.requests for r in row.samplers]
        self._record_selected(touched, sampled)
        for request in touched:
            reason = request.check_stop(self.config.max_model_len)
            if reason is not None:
                self.finish(request, reason)
        self._open = None
        return touched

    def _record_processed(self, output: SchedulerOutput) -> None:
        """Keys and values of these positions exist now."""
        for row in output.requests:
            request, _ = self._in_step[row.request_id]
            for r in (request, *row.samplers[1:]):
                r.num_computed_tokens = row.end
            if row.token_ids:
                self._emit("computed", request, start=row.start, end=row.end)
        for kept in output.logits_to_keep:
            request, _ = self._in_step[kept.request_id]
            self._emit("logits_kept", request, position=kept.position)

    def _record_selected(
        self, requests: Sequence[Request], sampled: Mapping[str, SampledToken]
    ) -> None:
        """One more token is known of each request; the cache does not change."""
        for request in requests:
            token = sampled[request.request_id]
            request.append_output(token.token_id)
            if token.logprobs is not None:
                request.output_logprobs.append(dict(token.logprobs))
            position = request.num_tokens - 1
            self._emit("selected", request, token_id=token.token_id, position=position)

    def fail_step(self, output: SchedulerOutput) -> None:
        """The model pass did not happen or cannot be trusted: every row is to be computed again.

        Requests go back to the head of the queue in their order, continuations wait to fork
        again, and identities registered for this step are taken back.
        """
        self._open = None
        forks = [r for row in output.requests for r in row.samplers[1:]]
        forked = [r for r in forks if r.status is RequestStatus.RUNNING]
        for request in forked:
            self.running.remove(request)
            self.manager.undo_step(request)
            request.status = RequestStatus.WAITING
        back = [r for r in self.running if r.request_id in self._in_step]
        for request in reversed(back):
            self.running.remove(request)
            self.waiting.appendleft(request)
            self.manager.undo_step(request)
            request.status = RequestStatus.PREEMPTED
        for row in output.requests:
            group = [r for r in row.samplers[1:] if r in forked]
            if group:
                self.forks[row.request_id] = group
        self.manager.commit_step()
        for request in back:
            self._emit("step_failed", request)

    def _emit(self, kind: str, request: Request, **data: object) -> None:
        if self.observer:
            self.observer(kind, request, **data)

    def check_invariants(self) -> None:
        """Raise AssertionError where a request is in two places or holds blocks it should not."""
        waiting, running = list(self.waiting), list(self.running)
        everyone = waiting + running + [r for forks in self.forks.values() for r in forks]
        assert len({id(r) for r in everyone}) == len(everyone), "a request stands in two places"
        assert all(not self.manager.blocks_of(r.request_id) for r in everyone if r not in running)
        assert all(r.status is RequestStatus.RUNNING for r in running)
        assert len(running) <= self.config.max_num_seqs
        self.manager.check_invariants(running)
