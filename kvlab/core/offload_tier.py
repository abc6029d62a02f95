"""The CPU tier's blocks: which are free, findable, being written or being read (section 21.3).

A CPU block is in exactly one of four states:
- free:             ref_cnt = 0, no identity
- cached and free:  ref_cnt = 0, findable by its identity, the least recently used taken first
- being written:    a store into it is under way; not findable, not read until it has ended
- held:             ref_cnt > 0, for an offloaded request or as the source of a load under way

It is one more `BlockPool`: what differs is that its content arrives and leaves by copies that may
take several steps, and may fail. A block is findable once its store has ended well, never before.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kvlab.core.block_pool import BlockPool, KVCacheBlock
from kvlab.core.checked import shown
from kvlab.core.hashing import BlockContent, BlockHash
from kvlab.core.transfers import BlockCopy, OffloadStats, TransferReport

MOST_BLOCKS = 1 << 20  # each is an object of its own


@dataclass(frozen=True)
class Store:
    """One block on its way to the tier, and the identity it gets on arrival, if any."""

    copy: BlockCopy
    block_hash: BlockHash | None
    content: BlockContent | None


class CPUTier:
    """A pool of CPU blocks and the stores under way into it. It knows no request."""

    def __init__(self, num_blocks: int) -> None:
        """Raises ValueError for a count below 1, and above a million or so."""
        if type(num_blocks) is not int or not 1 <= num_blocks <= MOST_BLOCKS:
            raise ValueError(
                f"the CPU tier has {shown(num_blocks)} blocks; give an integer of at least 1 "
                f"and at most {MOST_BLOCKS:,}, or None for no tier"
            )
        self.pool = BlockPool(num_blocks)
        self.retain = True  # whether a block that nobody holds any more keeps its identity
        self.stats = OffloadStats()
        self.new_stores: list[BlockCopy] = []  # of the step being scheduled
        self._stores: dict[int, Store] = {}  # under way, by the CPU block they write to

    @property
    def stores_under_way(self) -> int:
        return len(self._stores)

    def is_being_written(self, block: KVCacheBlock) -> bool:
        return block.block_id in self._stores

    # ---- storing

    def store_evicted(self, block: KVCacheBlock) -> BlockCopy | None:
        """A device block is about to lose its identity: keep its content, if there is room.

        What the tier holds already is only marked as used; both cases without a copy give None.
        """
        assert block.block_hash is not None
        known = self.pool.get_cached_block(block.block_hash, block.content)
        if known is not None:
            self.hold([known])
            self.drop([known])  # to the end of the queue: the most recently used
            return None
        if not self.pool.num_free_blocks:
            self.stats.evicted_lost += 1
            return None
        self.stats.evicted_stored += 1
        (target,) = self.pool.get_new_blocks(1)  # held by the store alone
        return self._begin(block.block_id, target, block.block_hash, block.content)

    def store_table(
        self,
        block_ids: Sequence[int],
        identities: Sequence[tuple[BlockHash, BlockContent | None] | None],
    ) -> list[KVCacheBlock] | None:
        """CPU blocks that hold, or are going to hold, these device blocks; None if room is short.

        Blocks whose identity the tier has are shared instead of stored again.
        """
        known = [i and self.pool.get_cached_block(*i) for i in identities]
        shared = [b for b in known if b is not None]
        new = len(known) - len(shared)
        if new > self.pool.num_free_blocks - sum(b.ref_cnt == 0 for b in shared):
            return None
        self.hold(shared)
        table = []
        for block_id, block, identity in zip(block_ids, known, identities, strict=True):
            if block is None:
                (block,) = self.pool.get_new_blocks(1)
                self.pool.touch([block])  # the store holds it too
                self._begin(block_id, block, *(identity or (None, None)))
            table.append(block)
        return table

    def _begin(
        self,
        src: int,
        target: KVCacheBlock,
        block_hash: BlockHash | None,
        content: BlockContent | None,
    ) -> BlockCopy:
        copy = BlockCopy(src, target.block_id)
        self._stores[copy.dst] = Store(copy, block_hash, content)
        self.new_stores.append(copy)
        return copy

    def take_report(self, report: TransferReport) -> list[KVCacheBlock]:
        """Stores that ended. Returns the CPU blocks whose store failed: their content is none."""
        self.stats.add(report)
        for copy in report.stored:
            self._end(copy, arrived=True)
        return [self._end(copy, arrived=False) for copy in report.failed_stores]

    def _end(self, copy: BlockCopy, arrived: bool) -> KVCacheBlock:
        store, block = self._stores.pop(copy.dst), self.pool.blocks[copy.dst]
        assert store.copy == copy, f"{copy} ended and {store.copy} was under way"
        if arrived and store.block_hash is not None:
            self._register(block, store.block_hash, store.content)
        self.drop([block])
        return block

    def _register(
        self, block: KVCacheBlock, block_hash: BlockHash, content: BlockContent | None
    ) -> None:
        if self.pool.get_cached_block(block_hash, content) is None:  # one of each is enough
            self.pool.cache_full_blocks([block], [block_hash], [content])

    def take_back_new(self) -> list[KVCacheBlock]:
        """The step being scheduled is not carried out: its stores did not happen."""
        copies, self.new_stores = self.new_stores, []
        return [self._end(copy, arrived=False) for copy in copies if copy.dst in self._stores]

    # ---- holding

    def hold(self, blocks: Iterable[KVCacheBlock]) -> None:
        """One more user of each block."""
        self.pool.touch(blocks)

    def drop(self, blocks: Sequence[KVCacheBlock]) -> None:
        """One user fewer, the deepest block first out. Nobody's blocks without an identity are
        free; the others stay findable until they are taken."""
        if not self.retain:
            for block in blocks:
                if block.ref_cnt == 1:
                    self.pool.uncache(block)
        self.pool.free_blocks(reversed(blocks))

    def discard(self, block: KVCacheBlock) -> None:
        """Its content cannot be read: nobody shall find it again."""
        self.pool.uncache(block)

    def check_invariants(self, held: Callable[[int], int]) -> None:
        """Raise AssertionError where a count is wrong. held: users of a block besides its store."""
        self.pool.check_invariants()
        for block_id, block in self.pool.blocks.items():
            users = held(block_id) + (block_id in self._stores)
            assert block.ref_cnt == users, f"CPU block {block_id}: {block.ref_cnt}, users {users}"
            if block_id in self._stores:
                assert block.block_hash is None, f"CPU block {block_id}: found before it is written"
