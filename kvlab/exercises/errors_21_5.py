"""Allocators with one mistake each, and what tells them from a right one. Section 21.5."""

import random
from collections.abc import Iterable
from itertools import pairwise

from kvlab.core.block_pool import BlockPool, KVCacheBlock
from kvlab.core.kv_cache_manager import BlockCopy, KVCacheManager
from kvlab.core.request import Request
from kvlab.exercises.allocator import Allocator

# ---- the order of eviction


class FrontToBack(Allocator):
    """frees the front of a table first"""

    class Pool(BlockPool):
        def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> list[KVCacheBlock]:
            # The manager gives a table backwards, its deepest block first.
            return super().free_blocks(reversed(list(ordered_blocks)))


class AllToTheHead(Allocator):
    """puts each freed block at the head of the queue, full or not"""

    class Pool(BlockPool):
        def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> list[KVCacheBlock]:
            released = super().free_blocks(ordered_blocks)
            for block in released:
                self._free.move_to_end(block.block_id, last=False)
            return released


class TakesTheNewest(Allocator):
    """takes the block that was freed last"""

    class Pool(BlockPool):
        def get_new_blocks(self, count: int) -> list[KVCacheBlock]:
            for block_id in self.free_block_ids[-count:]:
                self._free.move_to_end(block_id, last=False)
            return super().get_new_blocks(count)


class DeepestThenFront(Allocator):
    """frees the deepest block first, and the others from the front on"""

    class Pool(BlockPool):
        def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> list[KVCacheBlock]:
            deepest, *others = [*ordered_blocks]
            return super().free_blocks([deepest, *reversed(others)])


# ---- shared blocks that are partly filled


class NoCopy(Allocator):
    """shares a partly filled block and never copies it"""

    class Manager(KVCacheManager):
        def _tail_is_shared(self, request: Request) -> bool:
            return False


class EmptyCopy(Allocator):
    """takes a private block, and copies nothing into it"""

    class Manager(KVCacheManager):
        def step_copies(self) -> tuple[BlockCopy, ...]:
            return ()


class CopiesForTwo(Allocator):
    """copies a block that two share, but not one that three share"""

    class Manager(KVCacheManager):
        def _tail_is_shared(self, request: Request) -> bool:
            count = [block.ref_cnt for block in self.blocks_of(request.request_id)[-1:]]
            return super()._tail_is_shared(request) and count == [2]


class LateCopy(Allocator):
    """copies after the new position was written"""

    def _compute(self, request: Request, start: int) -> None:
        copies = self.manager.step_copies()
        super()._compute(request, start)
        self._copy(copies)


EVICTING = (Allocator, FrontToBack, AllToTheHead, TakesTheNewest, DeepestThenFront)
FORKING = (Allocator, NoCopy, EmptyCopy, CopiesForTwo, LateCopy)


# ---- many requests at random

SEEDS, STEPS = 8, 60


def _random_step(allocator: Allocator, draw: random.Random, expected: dict[str, list[int]]) -> None:
    """One request comes, goes on, is forked or ends. expected: each one's own tokens."""
    names, fresh = sorted(expected), f"r{draw.random()}"
    what = draw.choice(("admit", "append", "append", "fork", "finish"))
    if what == "admit" or not names:
        tokens = [draw.randrange(2)] * draw.randint(1, 14)  # prompts that begin alike
        if allocator.admit(fresh, tokens) is not None:
            expected[fresh] = tokens
        return
    name, token = draw.choice(names), draw.randrange(100, 999)
    if what == "append" and allocator.append(name, token) is not None:
        expected[name] = [*expected[name], token]
    elif what == "fork":
        allocator.fork(name, fresh)
        expected[fresh] = expected[name]
    elif what == "finish":
        allocator.finish(name)
        del expected[name]


def _loses_a_parent(allocator: Allocator, chains: set[tuple[bytes, ...]]) -> bool:
    """Whether an identity can be found, and the one before it in its chain can not."""
    found = allocator.pool.get_cached_block
    links = {link for chain in chains for link in pairwise(chain)}
    return any(found(child) and not found(parent) for parent, child in links)


def keeps_parents(kind: type[Allocator]) -> bool:
    """Whether, in many requests at random, each cached block has its parent in the cache."""
    for seed in range(SEEDS):
        draw, allocator = random.Random(seed), kind(8)
        expected: dict[str, list[int]] = {}
        chains = set()
        for _ in range(STEPS):
            _random_step(allocator, draw, expected)
            chains |= {tuple(r.block_hashes) for r in allocator.requests.values()}
            if _loses_a_parent(allocator, chains):
                return False
    return True


def keeps_apart(kind: type[Allocator]) -> bool:
    """Whether, in many requests at random, each reads its own tokens and no other's."""
    for seed in range(SEEDS):
        draw, allocator = random.Random(seed), kind(12)
        expected: dict[str, list[int]] = {}
        for _ in range(STEPS):
            _random_step(allocator, draw, expected)
            if any(allocator.read(name) != mine for name, mine in expected.items()):
                return False
    return True
