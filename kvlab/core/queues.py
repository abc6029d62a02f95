"""Where each request stands: waiting, running, or still to fork; how it comes and how it goes."""

from bisect import insort
from collections.abc import Callable, Sequence

from kvlab.core.admission import watermark_blocks
from kvlab.core.block_pool import KVCacheBlock
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.policies import rank
from kvlab.core.request import FinishReason, Request, RequestStatus
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.windows import positions_that_fit


class RequestQueues:
    """A request is in exactly one of: `waiting` (holds no block), `running` (holds blocks),
    finished. Continuations of a prompt (n > 1) wait in `forks` until its prompt is computed.

    `waiting` is sorted by rank, the next to be admitted first; `running` in order of admission.
    """

    def __init__(self, manager: KVCacheManager, config: SchedulerConfig | None = None) -> None:
        self.manager = manager
        self.config = config or SchedulerConfig()
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.forks: dict[str, list[Request]] = {}
        self.step_index = 0
        self.observer: Callable[..., None] | None = None
        self._num_arrived = 0

    # ---- coming

    def add_request(self, request: Request, forks: Sequence[Request] = ()) -> None:
        """Queue a request and its further continuations. Refuses what can never run.

        Raises ValueError naming both numbers: prompt beyond the model's context, beyond the
        whole pool, beyond the budget where it is computed whole, or n beyond max_num_seqs.
        """
        self.check_can_run(request, 1 + len(forks))
        for each in (request, *forks):
            each.arrival_index, each.arrival_step = self._num_arrived, self.step_index
            self._num_arrived += 1
        self._wait(request)
        if forks:
            self.forks[request.request_id] = list(forks)
        self._emit("added", request, prompt_tokens=request.num_prompt_tokens)

    def check_can_run(self, request: Request, count: int) -> None:
        """Raise ValueError if no schedule could ever run it; see SchedulerConfig."""
        manager = self.manager
        blocks = manager.pool.num_blocks
        self.config.check_can_run(request, count, blocks, manager.block_size, manager.window)

    def _cut_to_room(self, request: Request, count: int, hits: Sequence[KVCacheBlock] = ()) -> int:
        """Of `count` positions after the hits those that the next step computes, with a window.

        Blocks come free behind it, so a prompt takes the room that there is now and goes on in
        later steps, however long it is: 1 position at least, for which others may have to give
        way. A prompt that must be computed whole waits for its room.
        """
        if request.status is RequestStatus.WAITING and not self.config.splits_prompts:
            return count
        kept = 0
        if request.status is not RequestStatus.RUNNING and self.running:
            kept = watermark_blocks(self.manager, self.config)
        return min(count, max(1, positions_that_fit(self.manager, request, hits, kept)))

    def _wait(self, request: Request) -> None:
        """Into the queue at its rank: a request that comes back takes its old place again."""
        insort(self.waiting, request, key=self._rank)

    def _rank(self, request: Request) -> tuple[int, int]:
        return rank(request, self.config)

    # ---- going

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
            self._wait(heir)
            self.forks[heir.request_id] = rest

    def _end_for_capacity(self, request: Request) -> None:
        pool = self.manager.pool.num_blocks
        sentence = (
            f"{request.num_tokens} positions need more than the pool's {pool} blocks of "
            f"{self.manager.block_size}"
        )
        self.finish(request, FinishReason.CAPACITY, sentence)

    # ---- looking

    def has_unfinished_requests(self) -> bool:
        return bool(self.waiting or self.running)

    def _seats(self, requests: Sequence[Request]) -> int:
        """Each request and each of its continuations that still wait for the fork."""
        if not self.forks:
            return len(requests)
        return len(requests) + sum(len(self.forks.get(r.request_id, ())) for r in requests)

    def _emit(self, kind: str, request: Request, **data: object) -> None:
        if self.observer:
            self.observer(kind, request, **data)

    def check_invariants(self) -> None:
        """Raise AssertionError where a request is in two places or holds blocks it should not."""
        waiting, running = self.waiting, self.running
        everyone = waiting + running + [r for forks in self.forks.values() for r in forks]
        assert len({id(r) for r in everyone}) == len(everyone), "a request stands in two places"
        assert all(not self.manager.blocks_of(r.request_id) for r in everyone if r not in running)
        assert {r.status for r in running} <= {RequestStatus.RUNNING, RequestStatus.LOADING}
        assert waiting == sorted(waiting, key=self._rank), "the queue is out of order"
        assert len(running) <= self.config.max_num_seqs
        computed = [r for r in running if r.status is RequestStatus.RUNNING]
        self.manager.check_invariants(computed, self._detached_tables())

    def _detached_tables(self) -> list[list[KVCacheBlock]]:
        """Blocks that no table names and that are not given back yet."""
        return []
