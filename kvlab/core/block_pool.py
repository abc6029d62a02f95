"""The pool of physical blocks: who is free, in which order, and which identities can be found.

A usable block is in exactly one of three states:
- in use:           ref_cnt > 0, not in the free queue (with or without an identity)
- free:             ref_cnt = 0, in the free queue, no identity
- cached and free:  ref_cnt = 0, in the free queue, findable by its identity until it is taken

The free queue is the eviction order: blocks are taken from its head. A freed block without an
identity goes to the head (nothing is lost by taking it), one with an identity to the tail.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kvlab.core.hashing import BlockContent, BlockHash, same_content


def cdiv(a: int, b: int) -> int:
    """Division rounded up: blocks needed for `a` positions of `b` slots each."""
    return -(-a // b)


@dataclass(slots=True, eq=False)
class KVCacheBlock:
    """Bookkeeping of one block; its keys and values lie in tensors/kv_cache.py under block_id."""

    block_id: int | None  # None of a marker, which stands in tables alone (core/windows.py)
    ref_cnt: int = 0  # request tables that hold it
    block_hash: BlockHash | None = None
    content: BlockContent | None = None  # what the identity stands for
    logits_slot: int | None = None  # where its last position's logits are kept, if they are

    def __repr__(self) -> str:
        return f"KVCacheBlock({self.block_id}, ref_cnt={self.ref_cnt})"


_NONE: dict[int, KVCacheBlock] = {}


class BlockPool:
    """Blocks, their reference counts, the free queue, and the map from identity to block."""

    def __init__(self, block_ids: int | Iterable[int]) -> None:
        """block_ids: a count N (ids 0 .. N-1), or the ids themselves in their free order."""
        ids = range(block_ids) if isinstance(block_ids, int) else list(block_ids)
        if len(ids) == 0 or len(set(ids)) != len(ids) or min(ids) < 0:
            raise ValueError(
                f"a pool needs one or more different, non-negative block ids, not {block_ids!r}"
            )
        self.blocks = {i: KVCacheBlock(i) for i in ids}
        self._free: OrderedDict[int, KVCacheBlock] = OrderedDict(self.blocks)
        self._cached: dict[BlockHash, dict[int, KVCacheBlock]] = {}
        self.on_evict: Callable[[KVCacheBlock, BlockHash], None] | None = None  # afterwards
        self.before_evict: Callable[[KVCacheBlock], None] | None = None  # identity still there

    @property
    def num_blocks(self) -> int:
        return len(self.blocks)

    @property
    def num_free_blocks(self) -> int:
        return len(self._free)

    @property
    def free_block_ids(self) -> list[int]:
        """The free queue, next to be taken first."""
        return list(self._free)

    def get_cached_block(
        self, block_hash: BlockHash, content: BlockContent | None = None
    ) -> KVCacheBlock | None:
        """The block with this identity; where several have it, the one registered first.

        content: what the block and those before it must hold; one of equal identity that holds
        something else is no hit. None: the identity alone decides.
        """
        for block in self._cached.get(block_hash, _NONE).values():
            if content is None or same_content(content, block.content):
                return block
        return None

    def get_new_blocks(self, count: int) -> list[KVCacheBlock]:
        """Take `count` blocks from the head of the free queue; identities they carry are evicted.

        Raises ValueError, changing nothing, if fewer are free.
        """
        if count > len(self._free):
            raise ValueError(
                f"{count} blocks asked for, {len(self._free)} free; free or preempt a request first"
            )
        taken = []
        for _ in range(count):
            _, block = self._free.popitem(last=False)
            block.ref_cnt = 1
            if block.block_hash is not None:
                evicted = block.block_hash
                if self.before_evict:
                    self.before_evict(block)
                self.uncache(block)
                if self.on_evict:
                    self.on_evict(block, evicted)
            taken.append(block)
        return taken

    def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
        """One more table holds these blocks; those that were free leave the queue."""
        for block in blocks:
            if block.ref_cnt == 0:
                del self._free[block.block_id]
            block.ref_cnt += 1

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> list[KVCacheBlock]:
        """One table fewer holds these blocks. Returns those that nobody holds any more.

        Give a table backwards: then the deepest block of a chain is evicted first, and no cached
        block loses its cached parent.
        """
        released = []
        for block in ordered_blocks:
            if block.ref_cnt == 0:
                raise ValueError(f"block {block.block_id} is freed twice")
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                released.append(block)
        without = [b for b in released if b.block_hash is None]
        for block in reversed(without):  # the first one freed ends up at the very head
            self._free[block.block_id] = block
            self._free.move_to_end(block.block_id, last=False)
        for block in released:
            if block.block_hash is not None:
                self._free[block.block_id] = block
        return released

    def cache_full_blocks(
        self,
        blocks: Sequence[KVCacheBlock],
        hashes: Sequence[BlockHash],
        contents: Sequence[BlockContent | None] | None = None,
    ) -> list[KVCacheBlock]:
        """Register full blocks under their identities. Returns the newly registered ones."""
        new = []
        contents = [None] * len(blocks) if contents is None else contents
        for block, block_hash, content in zip(blocks, hashes, contents, strict=True):
            if block.block_hash is None:
                block.block_hash, block.content = block_hash, content
                self._cached.setdefault(block_hash, {})[block.block_id] = block
                new.append(block)
        return new

    def uncache(self, block: KVCacheBlock) -> None:
        """Take the block's identity away, and what is kept with it; equal content on other blocks
        stays findable."""
        if block.block_hash is None:
            return
        holders = self._cached[block.block_hash]
        del holders[block.block_id]
        if not holders:
            del self._cached[block.block_hash]
        block.block_hash = block.content = block.logits_slot = None

    def release_unregistered(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Take identities away from blocks whose content was never written (a failed step)."""
        for block in blocks:
            self.uncache(block)
            if block.ref_cnt == 0:
                self._free.move_to_end(block.block_id, last=False)

    def reset_prefix_cache(self) -> bool:
        """Forget every identity. Returns False, changing nothing, while blocks are in use."""
        if len(self._free) != len(self.blocks):
            return False
        for block in self.blocks.values():
            self.uncache(block)
        return True

    def check_invariants(self) -> None:
        """Raise AssertionError where a block is in no state, in two, or an index is stale."""
        for block_id, block in self.blocks.items():
            assert block.block_id == block_id
            assert block.ref_cnt >= 0, f"block {block_id}: ref_cnt {block.ref_cnt}"
            in_queue = block_id in self._free
            assert in_queue == (block.ref_cnt == 0), (
                f"block {block_id}: ref_cnt {block.ref_cnt}, in free queue: {in_queue}"
            )
            if block.block_hash is not None:
                assert block_id in self._cached.get(block.block_hash, _NONE), (
                    f"block {block_id}: identity not indexed"
                )
            else:
                assert block.content is None and block.logits_slot is None, (
                    f"block {block_id}: keeps something without an identity"
                )
        for block_hash, holders in self._cached.items():
            assert holders, "an identity without a block"
            assert all(b.block_hash == block_hash for b in holders.values()), (
                "index names another identity"
            )
        in_use = sum(b.ref_cnt > 0 for b in self.blocks.values())
        assert in_use + len(self._free) == len(self.blocks)
