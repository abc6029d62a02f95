"""Requests and prefixes that leave for the CPU tier and come back (section 21.3).

    running --offload--> offloaded --begin_load--> loading --take_report--> running
                             |                         |
                    tier full, a store failed     a load failed
                             +--------> recomputed <---+

Offloading moves keys and values, it does not change which of them a query reads. What comes back
is equal to the bit, or the request is computed again: nothing is lost either way.

Order within a step: stores, loads, copies, pass. A device block that is evicted, or taken from an
offloaded request, may be used for something else in the same step; its content must be read
first. Stores read device blocks as the step before left them, so nothing that this step computes
is ever part of a store.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from kvlab.core.block_pool import KVCacheBlock, cdiv
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.offload_records import Arrivals, Found, Loading, Offloaded
from kvlab.core.offload_tier import CPUTier
from kvlab.core.request import Request, RequestStatus
from kvlab.core.transfers import BlockCopy, OffloadStats, TransferReport
from kvlab.core.windows import beyond, held


class Offload:
    """A manager's second tier: the records of offloaded requests, and the loads under way.

    Every CPU block's ref_cnt is the number of records and loads that name it, and one more while a
    store writes to it (`check_invariants`).
    """

    def __init__(
        self, manager: KVCacheManager, tier: CPUTier, emit: Callable[..., None] | None = None
    ) -> None:
        """emit(kind, request, **data): told about offloaded, loading, loaded, transfer_failed."""
        self.manager, self.tier = manager, tier
        tier.retain = manager.policy.retain_freed
        self._emit = emit or (lambda *_, **__: None)
        self._records: dict[str, Offloaded] = {}
        self._by_request: dict[str, Loading] = {}
        self._by_target: dict[int, Loading] = {}  # by device block
        self._new_loads: list[Loading] = []  # of the step being scheduled
        manager.pool.before_evict = self._keep_evicted

    @property
    def stats(self) -> OffloadStats:
        return self.tier.stats

    @property
    def loading(self) -> list[Request]:
        """Requests whose blocks are on their way back, in the order they set out."""
        return [loading.request for loading in self._by_request.values()]

    @property
    def under_way(self) -> bool:
        """Whether a copy has not ended, in either direction."""
        return bool(self._by_target or self.tier.stores_under_way)

    @property
    def is_loading(self) -> bool:
        """Whether device blocks are in use for loads alone: they come free, or to a request."""
        return bool(self._by_target)

    def record_of(self, request: Request) -> Offloaded | None:
        """What the tier holds for this request alone; None for one that was not offloaded."""
        return self._records.get(request.request_id)

    # ---- to the tier

    def _keep_evicted(self, block: KVCacheBlock) -> None:
        copy = self.tier.store_evicted(block)
        if copy is not None:
            self._emit("offloaded", None, copies=[[copy.src, copy.dst]])

    def offload(self, request: Request) -> bool:
        """Move a request's computed positions to the tier; its device blocks are free at once.

        False, with nothing changed, where the tier has no room or nothing is computed yet.
        """
        count, size = request.num_computed_tokens, self.manager.block_size
        table = self.manager.blocks_of(request.request_id)
        blocks, full = held(table[: cdiv(count, size)]), held(table[: count // size])
        identities = [(b.block_hash, b.content) if b.block_hash else None for b in full]
        identities += [None] * (len(blocks) - len(full))
        before = len(self.tier.new_stores)
        table = self.tier.store_table(self._readable(blocks), identities) if blocks else None
        if table is None:
            self.stats.refused += bool(blocks)
            return False
        self._records[request.request_id] = Offloaded(request, tuple(table), count)
        self.manager.undo_step(request)
        request.status = RequestStatus.OFFLOADED
        self.stats.requests_offloaded += 1
        copies = [[c.src, c.dst] for c in self.tier.new_stores[before:]]
        self._emit("offloaded", request, copies=copies, cpu_block_ids=[b.block_id for b in table])
        return True

    def _readable(self, blocks: Sequence[KVCacheBlock]) -> list[int]:
        """Where these blocks' content lies now: this step's copy-on-write is still to come."""
        moved = {copy.dst: copy.src for copy in self.manager.step_copies()}
        return [moved.get(b.block_id, b.block_id) for b in blocks]

    # ---- back from the tier

    def lookup(self, request: Request, hits: Sequence[KVCacheBlock]) -> Found | None:
        """What the tier has beyond the device's hits: the request's own record, or a prefix.

        None where it has nothing more. Changes nothing.
        """
        manager, record = self.manager, self.record_of(request)
        size, prefix = manager.block_size, manager.prefix
        if record is not None:
            num_tokens = record.num_tokens
        elif manager.enable_prefix_caching:
            count = (request.num_tokens - 1) // size  # the last position is always computed
            found = prefix.find(request, count, hits, self.tier.pool)
            num_tokens = (len(hits) + len(found)) * size
        else:
            return None
        if num_tokens <= len(hits) * size:
            return None
        out = 0 if manager.window is None else manager.window.first_held(num_tokens)
        blocks = held(found) if record is None else record.table[max(len(hits) - out, 0) :]
        near = beyond(hits, out, prefix.content_before(request, out)) if out else hits
        ready = not any(map(self.tier.is_being_written, blocks))
        return Found(tuple(near), tuple(blocks), num_tokens, ready)

    def begin_load(self, request: Request, found: Found, room: int = 1) -> bool:
        """Take device blocks for what was found and have them filled by this step's loads.

        room: positions beyond these that must fit as well, so that it can go on when it is back.
        False, with nothing changed, where too few device blocks are free.
        """
        assert found.ready, "a block is loaded once its store has ended"
        manager, hits = self.manager, found.hits
        count = found.num_tokens - len(hits) * manager.block_size
        if manager.blocks_needed(request, count + room, hits) > manager.pool.num_free_blocks:
            return False
        self.tier.hold(found.blocks)  # first: what the next line evicts may want a CPU block
        manager.allocate_slots(request, count, hits, delay_cache_blocks=True)
        targets = [b.block_id for b in manager.blocks_of(request.request_id)[len(hits) :]]
        sources = dict(zip(targets, found.blocks, strict=True))
        loading = Loading(request, found.num_tokens, sources, set(targets))
        self._by_request[request.request_id] = loading
        self._by_target.update(dict.fromkeys(targets, loading))
        self._new_loads.append(loading)
        request.status = RequestStatus.LOADING
        if self.record_of(request) is None:
            self.stats.tokens_found += count
        self._emit("loading", request, copies=[[c.src, c.dst] for c in loading.copies()])
        return True

    def forget(self, request: Request) -> None:
        """The request goes on without its record, or has ended."""
        record = self._records.pop(request.request_id, None)
        if record is not None:
            self.tier.drop(record.table)

    def cancel_load(self, request: Request) -> None:
        """The request ended or was put aside: its blocks are given back once the copies ended."""
        loading = self._by_request.pop(request.request_id)
        loading.table = self.manager.detach(request)

    # ---- a step's bracket

    def step_transfers(self) -> tuple[tuple[BlockCopy, ...], tuple[BlockCopy, ...]]:
        """Loads (from CPU blocks to device blocks) and stores (the other way) of this step."""
        loads = tuple(copy for loading in self._new_loads for copy in loading.copies())
        return loads, tuple(self.tier.new_stores)

    def commit_step(self) -> None:
        """The runner has taken the step's copies over; it reports each one when it ends."""
        self.tier.new_stores.clear()
        self._new_loads.clear()

    def take_back_step(self) -> Arrivals:
        """The step failed: those of its copies that are not reported by now did not happen."""
        lost = self._lose(self.tier.take_back_new())
        loads, self._new_loads = self._new_loads, []
        missed = [loading for loading in loads if loading.under_way]
        for loading in missed:
            for target in loading.under_way:
                del self._by_target[target]
            self._close(loading)
        back = tuple(x.request for x in missed if x.table is None)
        return Arrivals(load_failed=back, store_failed=lost)

    def take_report(self, report: TransferReport) -> Arrivals:
        """Copies that ended. Returns the requests that are concerned."""
        failed = [[c.src, c.dst] for c in (*report.failed_stores, *report.failed_loads)]
        lost = self._lose(self.tier.take_report(report))
        ended = [self._end_copy(copy, True) for copy in report.loaded]
        ended += [self._end_copy(copy, False) for copy in report.failed_loads]
        if failed:
            self._emit("transfer_failed", None, copies=failed)
        complete = [x for x in dict.fromkeys(ended) if not x.under_way]
        waiting = [x for x in complete if x.table is None]
        for loading in complete:
            self._close(loading)
        return Arrivals(
            tuple(x.request for x in waiting if not x.failed),
            tuple(x.request for x in waiting if x.failed),
            lost,
        )

    def _end_copy(self, copy: BlockCopy, arrived: bool) -> Loading:
        loading = self._by_target.pop(copy.dst)
        loading.under_way.remove(copy.dst)
        if not arrived:
            loading.failed = True
            self.tier.discard(loading.sources[copy.dst])
        return loading

    def _close(self, loading: Loading) -> None:
        """No copy of this load is under way any more."""
        request, arrived = loading.request, not (loading.failed or loading.under_way)
        if loading.table is not None:  # it ended meanwhile
            self.manager.release(request, loading.table)
        else:
            del self._by_request[request.request_id]
            self._settle(loading, arrived)
        self.tier.drop(tuple(loading.sources.values()))

    def _settle(self, loading: Loading, arrived: bool) -> None:
        """The request runs on, or gives its blocks back and waits to load or compute them."""
        request = loading.request
        if arrived:
            request.num_computed_tokens = request.num_cached_tokens = loading.num_tokens
            request.status = RequestStatus.RUNNING
            self.manager.cache_blocks(request)
            self.stats.requests_loaded += self.record_of(request) is not None
        else:
            self.manager.free(request)
        if arrived or loading.failed:
            self.forget(request)
        if arrived:
            self._emit("loaded", request, num_computed_tokens=loading.num_tokens)
        else:
            kept = self.record_of(request) is not None
            request.status = RequestStatus.OFFLOADED if kept else RequestStatus.PREEMPTED

    def _lose(self, blocks: Sequence[KVCacheBlock]) -> tuple[Request, ...]:
        """Records that name a block which was never written are worth nothing."""
        bad = {b.block_id for b in blocks}
        lost = [r for r in self._records.values() if any(b.block_id in bad for b in r.table)]
        for record in lost:
            self.forget(record.request)
            if record.request.status is RequestStatus.OFFLOADED:
                record.request.status = RequestStatus.PREEMPTED
        return tuple(record.request for record in lost)

    def detached_tables(self) -> list[list[KVCacheBlock]]:
        """Device blocks of ended requests into which copies are still under way."""
        loads = dict.fromkeys(self._by_target.values())
        return [loading.table for loading in loads if loading.table is not None]

    def check_invariants(self) -> None:
        """Raise AssertionError where a CPU block's count or a loading request's table is wrong."""
        loads = dict.fromkeys(self._by_target.values())
        users = Counter(b.block_id for r in self._records.values() for b in r.table)
        users.update(b.block_id for loading in loads for b in loading.sources.values())
        self.tier.check_invariants(lambda block_id: users[block_id])
        for target, loading in self._by_target.items():
            assert target in loading.under_way, f"block {target}: its load has ended"
        for request_id, loading in self._by_request.items():
            table = self.manager.blocks_of(request_id)
            assert len(table) == cdiv(loading.num_tokens, self.manager.block_size)
            assert loading.under_way, f"{request_id!r}: nothing is being loaded"
