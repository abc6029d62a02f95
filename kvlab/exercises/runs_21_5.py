"""Section 21.5's expectations, from the engine's own pool and manager. Cases are made afresh."""

from collections.abc import Sequence

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.request import Request
from kvlab.exercises.allocator import Allocator
from kvlab.exercises.errors_21_5 import EVICTING, FORKING
from kvlab.exercises.namesakes import labelled, namesake
from kvlab.exercises.reading import show_argument

LENGTH, BLOCK_SIZES = 33, (1, 4, 16, 64)
IDS = range(10)  # the reference counts of append_shared are a list over these block ids
ONE_OF_THEM = "an allocator: the engine's own, or one with a mistake"
ELSEWHERE = 1000  # a block of another request, so that no pool is empty


def blocks_of_three_continuations() -> list[int]:
    """Blocks in use after the prompt and after one token each; blocks copied."""
    allocator, copied = Allocator(9), []
    allocator.manager.observer = lambda kind, request, **data: copied.extend(
        [data] if kind == "copied" else []
    )
    allocator.admit("A", range(6))
    allocator.fork("A", "B")
    allocator.fork("A", "C")
    in_use = [9 - len(allocator.free)]
    for token, name in enumerate("ABC", 60):
        allocator.append(name, token)
    return [*in_use, 9 - len(allocator.free), len(copied)]


def unused_slots() -> list[int]:
    """Slots of the table's blocks that hold no position."""
    found = []
    for size in BLOCK_SIZES:
        allocator = Allocator(LENGTH, size)
        allocator.admit("A", range(LENGTH))
        found.append(len(allocator.table("A")) * size - LENGTH)
    return found


def _holding(
    table: Sequence[int], n: int, free: Sequence[int], size: int, ref_cnt: dict[int, int]
) -> tuple[KVCacheManager, Request]:
    """A manager with one request of n processed positions, which holds `table`.

    ref_cnt: how many tables hold a block; where it says nothing, one holds it.
    """
    others = [ELSEWHERE, *(i for i in ref_cnt if i not in table)]
    pool = BlockPool([*others, *table, *free])
    pool.get_new_blocks(len(others))
    manager = KVCacheManager(pool, size, enable_prefix_caching=False)
    request = Request("A", range(n + 1))
    if table:  # taken for all positions up to the first of the last block, or to n
        manager.allocate_slots(request, max(n, (len(table) - 1) * size + 1))
    assert manager.block_table("A") == list(table)
    for block_id in table:
        pool.touch([pool.blocks[block_id]] * (ref_cnt.get(block_id, 1) - 1))
    request.num_computed_tokens = n
    manager.commit_step()
    return manager, request


def append_in_a_real_pool(
    table: list[int], num_computed: int, free: list[int], block_size: int
) -> tuple:
    """(block, slot) or None; then the table and the free queue as they are left."""
    manager, request = _holding(table, num_computed, free, block_size, {})
    found = None
    if manager.allocate_slots(request, 1) is not None:
        block_id = manager.block_table("A")[num_computed // block_size]
        found = block_id, num_computed % block_size
    return found, manager.block_table("A"), manager.pool.free_block_ids


def append_cases() -> Sequence[tuple[list[int], int, list[int], int]]:
    """From the first position on; boundaries, an empty pool, blocks taken ahead, block 0."""
    return (
        ([], 0, [7, 2], 4),
        ([7], 1, [2, 9], 4),
        ([7], 3, [2, 9], 4),
        ([7], 4, [2, 9], 4),
        ([7, 2], 6, [5], 4),
        ([7, 2], 8, [5], 4),
        ([7, 2], 8, [], 4),
        ([7, 2], 7, [], 4),
        ([], 0, [], 4),
        ([7, 2], 4, [5], 4),
        ([7, 2, 5], 8, [9, 1], 4),
        ([7, 2, 5], 5, [9], 4),
        ([3, 0, 8], 6, [1, 4], 2),
        ([6], 1, [0, 5], 1),
        ([6, 0], 31, [2], 16),
        ([6, 0], 32, [2, 1], 16),
        ([7], 4, [0, 5], 4),
        ([0], 2, [5], 4),
    )


def append_to_a_shared_table(
    table: list[int], num_computed: int, free: list[int], ref_cnt: list[int], block_size: int
) -> tuple:
    """(block, slot, source) or None; then table, free queue and counts as they are left."""
    counts = {i: count for i, count in enumerate(ref_cnt) if count}
    manager, request = _holding(table, num_computed, free, block_size, counts)
    found = None
    if manager.allocate_slots(request, 1) is not None:
        block_id = manager.block_table("A")[num_computed // block_size]
        (source,) = [copy.src for copy in manager.step_copies()] or [None]
        found = block_id, num_computed % block_size, source
    blocks = manager.pool.blocks
    left = [blocks[i].ref_cnt if i in blocks else 0 for i in IDS]
    return found, manager.block_table("A"), manager.pool.free_block_ids, left


def shared_cases() -> Sequence[tuple[list[int], int, list[int], list[int], int]]:
    """As in append_cases, with tails that are shared, full or partly filled; block 0 among them."""

    def case(table: list, n: int, free: list, counts: dict[int, int], size: int = 4) -> tuple:
        return table, n, free, [counts.get(i, 0) for i in IDS], size

    return (
        case([7, 2], 6, [5], {7: 1, 2: 1, 9: 1}),
        case([7, 2], 6, [5], {7: 2, 2: 2, 9: 1}),
        case([7, 2], 7, [5, 1], {7: 3, 2: 3}),
        case([7, 2], 6, [5], {7: 2, 2: 1}),
        case([7, 2], 8, [5, 1], {7: 2, 2: 2}),
        case([7, 2], 8, [5, 1], {7: 1, 2: 1}),
        case([7, 2], 6, [], {7: 2, 2: 2}),
        case([7, 2], 6, [], {7: 2, 2: 1}),
        case([7, 2], 8, [], {7: 2, 2: 2}),
        case([], 0, [3, 4], {9: 1}),
        case([7], 1, [2, 5], {7: 2}),
        case([3, 0, 8], 5, [1], {3: 2, 0: 2, 8: 2, 6: 1}, 2),
        case([3, 0], 4, [1], {3: 2, 0: 2}, 2),
        case([6], 9, [4], {6: 4}, 16),
        case([7, 0], 6, [5], {7: 2, 0: 2}),
        case([7, 2], 6, [0], {7: 2, 2: 2}),
        case([7, 2], 8, [0, 1], {7: 1, 2: 1}),
        case([7, 2], 4, [5], {7: 1, 2: 1}),
        case([7, 2, 5], 5, [9], {7: 1, 2: 1, 5: 1}),
    )


def fresh(kinds: Sequence[type[Allocator]]) -> Sequence[tuple[type[Allocator]]]:
    """Each as a class of its own, which a check may change without harm; all have one name."""

    def own(kind: type[Allocator]) -> type[Allocator]:
        pool = namesake(kind.Pool, BlockPool)
        manager = namesake(kind.Manager, KVCacheManager)
        made = namesake(kind, Allocator, __doc__=ONE_OF_THEM, Pool=pool, Manager=manager)
        return labelled(made, show_argument(kind))

    return tuple((own(kind),) for kind in kinds)


def evicting() -> Sequence[tuple[type[Allocator]]]:
    return fresh(EVICTING)


def forking() -> Sequence[tuple[type[Allocator]]]:
    return fresh(FORKING)
