"""Allocators that free a shared block too early or never, and what tells them. Section 21.7."""

import random
from collections.abc import Iterable

from kvlab.core.block_pool import BlockPool, KVCacheBlock
from kvlab.exercises.allocator import Allocator


class FreeWithTheFirst(Allocator):
    """frees a block as soon as one of its tables is given back"""

    class Pool(BlockPool):
        def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> list[KVCacheBlock]:
            given = list(ordered_blocks)
            released = super().free_blocks(given)
            for block in given:
                self._free.setdefault(block.block_id, block)
            return released


class SecondNotCounted(Allocator):
    """does not count a second table that names a block"""

    class Pool(BlockPool):
        def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
            super().touch([block for block in blocks if block.ref_cnt == 0])

        def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> list[KVCacheBlock]:
            return super().free_blocks([block for block in ordered_blocks if block.ref_cnt])


class CountedTwice(Allocator):
    """counts a table that shares a block twice"""

    class Pool(BlockPool):
        def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
            blocks = list(blocks)
            super().touch(blocks)
            super().touch(blocks)


class KeptWhileFindable(Allocator):
    """never frees a block that can still be found"""

    class Pool(BlockPool):
        def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> list[KVCacheBlock]:
            released = super().free_blocks(ordered_blocks)
            for block in released:
                if block.block_hash is not None:
                    del self._free[block.block_id]
            return released

        def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
            blocks = list(blocks)
            for block in blocks:
                if block.ref_cnt == 0:
                    self._free[block.block_id] = block
            super().touch(blocks)


RELEASING = (Allocator, FreeWithTheFirst, SecondNotCounted, CountedTwice, KeptWhileFindable)
SEEDS, STEPS = 6, 30


def frees_with_the_last(kind: type[Allocator]) -> bool:
    """Whether, in many requests at random, free is at each moment what no table names."""
    for seed in range(SEEDS):
        draw, allocator = random.Random(seed), kind(9)
        for step in range(STEPS):
            names = sorted(allocator.requests)
            if names and draw.random() < 0.5:
                allocator.finish(draw.choice(names))
            else:
                begun = [draw.randrange(2)] * draw.choice((4, 8))  # prompts that begin alike
                allocator.admit(f"r{step}", [*begun, 100 + step])
            named = {block for name in allocator.requests for block in allocator.table(name)}
            if set(allocator.free) != set(range(9)) - named:
                return False
    return True
