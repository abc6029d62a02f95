"""The queues with a CPU tier beside them: who is being loaded, who was put aside (section 21.3).

A request whose blocks are on their way back stands in `running` with status LOADING: it has its
seat and its blocks, and no turn until the last copy has ended. One that the caller put aside
stands in `suspended` alone. Without a tier nobody is ever loading, and whoever is put aside is
computed again when it is resumed.
"""

from collections.abc import Sequence

from kvlab.core.admission import has_room
from kvlab.core.block_pool import KVCacheBlock
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.offload import Offload
from kvlab.core.offload_records import Arrivals, Found
from kvlab.core.offload_tier import CPUTier
from kvlab.core.policies import chunk
from kvlab.core.queues import RequestQueues
from kvlab.core.request import FinishReason, Request, RequestStatus
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.transfers import BlockCopy, TransferReport


class OffloadQueues(RequestQueues):
    """`waiting`, `running` and `forks`, and what a second tier adds to them."""

    def __init__(
        self,
        manager: KVCacheManager,
        config: SchedulerConfig | None = None,
        tier: CPUTier | None = None,
    ) -> None:
        """Raises ValueError where preemption is to offload and there is no tier."""
        super().__init__(manager, config)
        if self.config.preempt_by == "offload" and tier is None:
            raise ValueError(
                "SchedulerConfig: preempt_by is 'offload' and there is no CPU tier; give one "
                "(LLM: cpu_blocks), or use 'recompute'"
            )
        self.offload = None if tier is None else Offload(manager, tier, self._emit)
        self.suspended: dict[str, Request] = {}

    # ---- put aside and resumed by the caller

    def suspend(self, request: Request) -> bool:
        """Put a request aside until `resume`; what is computed of it goes to the CPU tier.

        Without a tier, or where the tier is full, it is computed again later. False, with nothing
        changed, for one that has ended, is put aside already or waits for its prompt's fork.
        """
        if request in self.running:
            self.running.remove(request)
            if request.status is RequestStatus.LOADING:
                self.offload.cancel_load(request)
            elif self.offload is None or not self.offload.offload(request):
                self.manager.undo_step(request)
        elif request in self.waiting:
            self.waiting.remove(request)
        else:
            return False
        request.status = RequestStatus.SUSPENDED
        self.suspended[request.request_id] = request
        self._emit("suspended", request)
        return True

    def resume(self, request: Request) -> bool:
        """Back into the queue, at its old rank. False for one that was not put aside."""
        if self.suspended.pop(request.request_id, None) is None:
            return False
        began = request.last_step or request.output_token_ids  # a continuation has its first one
        status = RequestStatus.PREEMPTED if began else RequestStatus.WAITING
        if self.offload is not None and self.offload.record_of(request) is not None:
            status = RequestStatus.OFFLOADED
        request.status = status
        self._wait(request)
        self._emit("resumed", request)
        return True

    # ---- to the tier and back

    def _preempt_to_tier(self, request: Request) -> bool:
        """Preemption by offload. False where it is not asked for, or the tier has no room.

        Nor for one that was found cached whole in this step: it selects from kept logits, which
        do not go to the tier, and its blocks stay findable.
        """
        wanted = self.config.preempt_by == "offload" and request.num_pending_tokens > 0
        if not wanted or not self.offload.offload(request):
            return False
        self.running.remove(request)
        self._wait(request)
        return True

    def _victim(self) -> Request:
        """The last by rank of those that run; blocks under a copy are left alone.

        One whose blocks of this step another request has found already must write them.
        """
        ready = (r for r in self.running if r.status is RequestStatus.RUNNING)
        return max((r for r in ready if not self.manager.prefix.others_await(r)), key=self._rank)

    def _found_in_tier(self, request: Request, hits: Sequence[KVCacheBlock]) -> Found | None:
        return None if self.offload is None else self.offload.lookup(request, hits)

    def _start_load(self, request: Request, found: Found, budget: int) -> int | None:
        """Admit a request whose next blocks lie in the tier; it takes part once they are there.

        Returns the positions handed out, 0, or None if it does not fit yet.
        """
        hits, room = found.hits, chunk(request.num_tokens - found.num_tokens, budget, self.config)
        if self.manager.window is not None:
            room = 1  # more comes free as it goes on
        count = found.num_tokens - len(hits) * self.manager.block_size + room
        rules = (self.manager, self.config, request, count, hits, self.running, self.forks)
        if not found.ready or not has_room(*rules):
            return None
        if not self.offload.begin_load(request, found, room):
            return None
        self.waiting.remove(request)
        self.running.append(request)
        return 0

    def _begin(self, request: Request) -> None:
        """From `waiting` to `running`, with nothing to load."""
        self.waiting.remove(request)
        self.running.append(request)
        if self.offload is not None:
            self.offload.forget(request)  # the device has all of it again

    def take_transfers(self, report: TransferReport) -> None:
        """What the runner says about copies: loaded requests go on, others go back to wait."""
        arrivals = self.offload.take_report(report)
        for request in arrivals.loaded:
            self._emit("admitted", request, cached=request.num_cached_tokens)
        self._queue_again(arrivals)

    def _queue_again(self, arrivals: Arrivals) -> None:
        for request in arrivals.load_failed:
            self.running.remove(request)
            self._wait(request)
        for request in (*arrivals.load_failed, *arrivals.store_failed):
            if request.status is RequestStatus.PREEMPTED:
                self._emit("preempted", request)
            elif request.status is RequestStatus.OFFLOADED:  # what the tier holds is still good
                self._emit("offloaded", request, copies=[])

    def _copies_under_way(self) -> bool:
        """While a copy is under way, in either direction, nobody waits in vain."""
        return self.offload is not None and self.offload.under_way

    def _awaits_blocks(self) -> bool:
        """Whether blocks that are being loaded will come free, or to someone who can lose them.

        Who needs one then misses this step and keeps its own.
        """
        return self.offload is not None and self.offload.is_loading

    # ---- a step's bracket

    def _step_transfers(self) -> tuple[tuple[BlockCopy, ...], tuple[BlockCopy, ...]]:
        """The step's loads and stores."""
        return ((), ()) if self.offload is None else self.offload.step_transfers()

    def _commit_copies(self) -> None:
        if self.offload is not None:
            self.offload.commit_step()

    def _take_back_copies(self) -> None:
        if self.offload is not None:
            self._queue_again(self.offload.take_back_step())

    # ---- going, looking

    def finish(
        self, request: Request, reason: FinishReason, stop_reason: int | str | None = None
    ) -> None:
        """As of any queue. Blocks under a copy are given back when the copy has ended, once."""
        self.suspended.pop(request.request_id, None)
        if self.offload is not None and not request.is_finished:
            if request.status is RequestStatus.LOADING:
                self.running.remove(request)
                self.offload.cancel_load(request)
            self.offload.forget(request)
        super().finish(request, reason, stop_reason)

    def has_unfinished_requests(self) -> bool:
        """Whether a step has something to do. Those put aside are not waited for; copies are."""
        return super().has_unfinished_requests() or self._copies_under_way()

    def reset_prefix_cache(self) -> bool:
        """Forget the identities of both tiers. False, changing nothing, while a block is in use."""
        tier = self.offload and self.offload.tier.pool
        if tier and tier.num_free_blocks < tier.num_blocks:
            return False
        return self.manager.reset_prefix_cache() and (not tier or tier.reset_prefix_cache())

    def _detached_tables(self) -> list[list[KVCacheBlock]]:
        return [] if self.offload is None else self.offload.detached_tables()

    def check_invariants(self) -> None:
        """Raise AssertionError where a request is in two places or a block has a wrong count."""
        super().check_invariants()
        for request_id, request in self.suspended.items():
            assert request.status is RequestStatus.SUSPENDED
            assert request not in (*self.running, *self.waiting), f"{request_id!r} is not put aside"
            assert not self.manager.blocks_of(request_id)
        if self.offload is not None:
            loading = [r for r in self.running if r.status is RequestStatus.LOADING]
            assert loading == self.offload.loading
            self.offload.check_invariants()
