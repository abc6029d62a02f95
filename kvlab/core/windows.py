"""Where every layer has a window, a block that no coming query reads is given back at once.

A query at position p of a layer with window w reads positions p - w + 1 to p. The widest of the
layers' windows decides: a block is *out* when its last position lies before all that the next
query can read. Block size 4, window 8, 14 positions computed:

    logical block   |  0  1  2  3 |  4  5  6  7 |  8  9 10 11 | 12 13       |
                         out           held          held        held
    query at 14                              7    8  9 10 11   12 13 [14]

The table keeps its length, so slots are found as before; in the place of a block that is out
stands a marker, which has no block_id and belongs to no pool. Markers lead the table, and the
block of the last computed position is never out, even with a window of 1.

One block is one block in all layers. If a single layer attends to everything, every block may be
read until its request ends: then there is no `SlidingWindow`, and nothing is given back early.

Source: vLLM, v1/core/single_type_kv_cache_manager.py, SlidingWindowManager. Sections 21.1, 21.5.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvlab.core.block_pool import KVCacheBlock, cdiv
from kvlab.core.hashing import BlockContent
from kvlab.core.request import Request

if TYPE_CHECKING:
    from kvlab.core.kv_cache_manager import KVCacheManager


@dataclass(frozen=True)
class SlidingWindow:
    """The widest window of a model in which every layer has one.

    size: positions that a query reads, its own included; at least 1 (a ValueError says so).
    """

    size: int
    block_size: int

    def __post_init__(self) -> None:
        if type(self.size) is not int or self.size < 1:
            raise ValueError(
                f"window is {self.size!r}; give an integer of at least 1, or None where a layer "
                "attends to everything"
            )

    @property
    def _reach(self) -> int:
        """`size`, and 2 for a window of 1: the last computed position stays."""
        return max(self.size, 2)

    def first_held(self, next_position: int) -> int:
        """How many leading blocks are out for a request that goes on at this position."""
        return max(0, next_position - self._reach + 1) // self.block_size

    def most_blocks(self, length: int, step_tokens: int = 1) -> int:
        """Blocks that a request holds at once at most, on its way to `length` positions.

        In a step that computes n positions, they and the w - 1 before them are held; a span of s
        positions touches at most ceil((s - 1) / block_size) + 1 blocks.
        """
        span = self._reach + step_tokens - 1
        return min(cdiv(length, self.block_size), cdiv(span - 1, self.block_size) + 1)

    def take_out(self, table: list[KVCacheBlock], next_position: int) -> list[KVCacheBlock]:
        """Put markers in the place of blocks that are out now; these are returned, in order."""
        end = min(self.first_held(next_position), len(table))
        start = end
        while start and is_held(table[start - 1]):
            start -= 1
        gone = table[start:end]
        table[start:end] = [marker(block.content) for block in gone]
        return gone


def marker(content: BlockContent | None = None) -> KVCacheBlock:
    """Stands where a block is out. content: what the block stood for; its successor's follows."""
    return KVCacheBlock(None, ref_cnt=1, content=content)


def is_held(block: KVCacheBlock) -> bool:
    """Whether it is a block of the pool, and no marker."""
    return block.block_id is not None


def held(table: Iterable[KVCacheBlock]) -> list[KVCacheBlock]:
    """The blocks of a table without its markers."""
    return [block for block in table if block.block_id is not None]


def beyond(hits: Sequence[KVCacheBlock], places: int, last: BlockContent | None = None) -> list:
    """Hits as far as they matter to a request that goes on when `places` blocks are out.

    The first `places` entries are markers, even where there were fewer hits.
    last: what the last of these blocks stood for.
    """
    if not places:
        return list(hits)
    return [*(marker() for _ in range(places - 1)), marker(last), *hits[places:]]


def positions_that_fit(
    manager: "KVCacheManager", request: Request, hits: Sequence[KVCacheBlock] = (), kept: int = 0
) -> int:
    """Positions after the computed ones and the hits that the free blocks have room for.

    kept: free blocks that are not to be used. The copy of a shared tail takes one of its own.
    """
    places = len(manager.blocks_of(request.request_id)) + len(hits)
    free = manager.pool.num_free_blocks - kept - manager.blocks_needed(request, 0, hits)
    start = request.num_computed_tokens + len(hits) * manager.block_size
    return (places + free) * manager.block_size - start
