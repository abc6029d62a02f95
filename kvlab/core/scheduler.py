"""Which request computes how many positions in the next step.

There is no prefill phase and no decode phase here. Each request has `num_computed_tokens`
chasing `num_tokens`, and a step hands out a budget of positions:

    | num_computed_tokens | scheduled now | left for later steps |
    |<------------------- num_tokens ------------------------->|

A whole prompt, a chunk of one, what a prefix hit left over, and the single pending token of a
decoding request are all the same rule. Whose turn it is, is for core/policies.py to say, and who
may begin for core/admission.py (section 21.3).
"""

from collections.abc import Mapping, Sequence

from kvlab.core.admission import has_room
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.offload_queues import OffloadQueues
from kvlab.core.offload_tier import CPUTier
from kvlab.core.policies import Turns, Work, chunk, whose_turn
from kvlab.core.request import Request, RequestStatus
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.scheduler_output import SampledToken, ScheduledRequest, SchedulerOutput


class Scheduler(OffloadQueues):
    """One step after the other: `schedule`, then `update_from_output` or `fail_step`."""

    def __init__(
        self,
        manager: KVCacheManager,
        config: SchedulerConfig | None = None,
        tier: CPUTier | None = None,
    ) -> None:
        """tier: where preempted requests and evicted prefixes go; None: there is no other."""
        super().__init__(manager, config, tier)
        self.turns = Turns()
        self._open: SchedulerOutput | None = None  # the step between schedule and update
        self._in_step: dict[str, tuple[Request, int]] = {}  # request and positions handed out
        self._preempted = self._short = False  # in this step: any, and a prompt without budget

    @property
    def step_is_open(self) -> bool:
        """Whether the last step was interrupted between its schedule and its update."""
        return self._open is not None and not self._open.is_empty

    # ---- one step

    def schedule(self) -> SchedulerOutput:
        """Hand out the step's budget. The result may be empty: then nothing is left to do."""
        self.fail_open_step()
        self.step_index += 1
        self._in_step, self._preempted, self._short = {}, False, False
        budget, took = self.config.max_num_batched_tokens, None
        plan = self.turns.plan(self.config, self.running)
        for work in plan.order:
            budget = self._schedule_running(work, budget)
            if work is Work.PREFILL and plan.admits and not self._preempted:
                budget = self._schedule_waiting(budget)
            if self._in_step and not plan.shared:
                took = work
                break
        requests = [r for r, _ in self._in_step.values()]
        self.turns.note(self.config.policy, took, self.running, requests, self._short)
        rows = tuple(self._row(r, count) for r, count in self._in_step.values())
        kept = self.manager.step_logits(requests)
        copies = self.manager.step_copies()
        loads, stores = self._step_transfers()
        self._open = SchedulerOutput(self.step_index, rows, copies, loads, stores, kept)
        return self._open

    def _schedule_running(self, work: Work, budget: int) -> int:
        """Running requests whose turn it is. Where blocks run out, the last by rank lose theirs.

        Returns the budget that is left.
        """
        bounded = self.manager.window is not None
        for request in whose_turn(self.running, work, self.config):
            if budget == 0:
                self._short |= work is Work.PREFILL
                break
            if request.status is not RequestStatus.RUNNING:  # preempted for an earlier one
                continue
            count = chunk(request.num_pending_tokens, budget, self.config)
            if bounded:
                count = self._cut_to_room(request, count)
            while self.manager.allocate_slots(request, count) is None:
                victim = self._victim()
                if victim is request and self._awaits_blocks():
                    break
                if victim is request and len(self.running) == 1:
                    self._end_for_capacity(request)
                    break
                budget += self._preempt(victim)
                if victim is request:
                    break
            else:
                budget -= self._put_in_step(request, count)
        return budget

    def _schedule_waiting(self, budget: int) -> int:
        """Admit from the head of the queue while budget, seats and blocks last.

        Those that do not fit may be overtaken `max_bypass` times, then all behind them wait.
        Returns the budget that is left.
        """
        passed: list[Request] = []
        while len(passed) < len(self.waiting):
            if budget == 0:
                self._short = True
                break
            request = self.waiting[len(passed)]
            if (count := self._admit(request, budget)) is not None:
                budget -= count
                for other in passed:
                    other.num_bypassed += 1
            elif not (self.running or self._copies_under_way()):  # the whole pool is not enough
                self._end_for_capacity(request)
            else:
                passed.append(request)
            most = self.config.max_bypass
            if len(passed) > most or any(r.num_bypassed >= most for r in passed):
                break
        return budget

    def _admit(self, request: Request, budget: int) -> int | None:
        """Begin with a waiting request: positions handed out, or None if it does not fit."""
        if self._seats(self.running) + self._seats([request]) > self.config.max_num_seqs:
            return None
        hits, num_hit = self.manager.get_computed_blocks(request)
        if found := self._found_in_tier(request, hits):
            return self._start_load(request, found, budget)
        pending, first_run = request.num_tokens - num_hit, request.status is RequestStatus.WAITING
        if pending > budget and not self.config.splits_prompts and first_run:
            self._short = True
            return None  # a whole prompt waits for a whole budget; a preempted one comes in parts
        count = chunk(pending, budget, self.config)
        if self.manager.window is not None:
            count = self._cut_to_room(request, count, hits)
        manager, config = self.manager, self.config
        if not has_room(manager, config, request, count, hits, self.running, self.forks):
            return None
        if manager.allocate_slots(request, count, hits) is None:
            return None
        self._begin(request)
        request.num_computed_tokens = request.num_cached_tokens = num_hit
        request.status = RequestStatus.RUNNING
        self._emit("admitted", request, cached=num_hit)
        return self._put_in_step(request, count)

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
            request.adapter,
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
        """Take a request's blocks; it waits again. Returns the budget given back."""
        _, count = self._in_step.pop(request.request_id, (request, 0))
        self._preempted = True
        request.num_preemptions += 1
        if not self._preempt_to_tier(request):
            self._take_back(request)
            self._emit("preempted", request)
        return count

    def _take_back(self, request: Request) -> None:
        """From `running` to `waiting`: what it computed is dropped, and computed again later."""
        self.running.remove(request)
        self.manager.undo_step(request)
        request.status = RequestStatus.PREEMPTED
        self._wait(request)

    # ---- after the model

    def update_from_output(
        self, output: SchedulerOutput, sampled: Mapping[str, SampledToken]
    ) -> list[Request]:
        """Record what the step computed, then what it selected. Returns those with new output."""
        self.manager.commit_step()
        self._commit_copies()
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
        """Keys and values of these positions exist now; what no query reads any more goes."""
        for row in output.requests:
            request, _ = self._in_step[row.request_id]
            group = (request, *row.samplers[1:])
            for r in group:
                r.num_computed_tokens = row.end
            if row.token_ids:
                self._emit("computed", request, start=row.start, end=row.end)
            if self.manager.window is not None:
                for r in group:
                    self.manager.release_unreadable(r)
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

    def fail_open_step(self) -> None:
        """`fail_step` of one that was interrupted between its schedule and its update, if any."""
        if self._open is not None:
            self.fail_step(self._open)

    def fail_step(self, output: SchedulerOutput) -> None:
        """The model pass did not happen or cannot be trusted: every row is to be computed again.

        Requests go back to their places in the queue, continuations wait to fork again, and
        identities registered for this step are taken back.
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
            self._take_back(request)
        for row in output.requests:
            group = [r for r in row.samplers[1:] if r in forked]
            if group:
                self.forks[row.request_id] = group
        self.manager.commit_step()
        self._take_back_copies()
        for request in back:
            self._emit("step_failed", request)
