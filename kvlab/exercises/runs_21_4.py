"""Section 21.4's expectations, from real lookups in a real pool. Cases are made afresh."""

from collections.abc import Sequence

from kvlab.exercises.allocator import Allocator

LENGTHS = (64, 65, 63, 17, 16, 1)
GROUPS: tuple[dict[str, str], ...] = (
    {},
    {"cache_salt": "a"},
    {"cache_salt": "a"},
    {"cache_salt": "b"},
    {"adapter": "a"},
    {},
)


def num_hits(cached: Sequence[int], new: Sequence[int], block_size: int) -> int:
    """Serve one prompt, then look another up."""
    allocator = Allocator(20, block_size)
    allocator.admit("first", cached)
    allocator.finish("first")
    return allocator.hits(new)


def hits_of_a_served_prompt() -> list[int]:
    return [num_hits(range(n), range(n), 16) for n in LENGTHS]


def hit_cases() -> Sequence[tuple[list[int], list[int], int]]:
    """Small prompts: equal, longer, shorter; a difference at each place; look-alikes."""
    return (
        ([1, 2, 3], [1, 2, 3], 2),
        ([1, 2, 3], [1, 9, 3], 2),
        ([1, 2, 3, 4], [1, 2, 3, 4], 2),
        ([1, 2, 3, 4], [1, 2, 3, 4, 5], 2),
        ([1, 2, 3, 4, 5], [1, 2, 3, 4], 2),
        ([1, 2, 3, 4, 5, 6, 7], [1, 2, 9, 4, 5, 6, 7], 2),
        ([1, 2, 3, 4, 5, 6, 7], [9, 2, 3, 4, 5, 6, 7], 2),
        ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 9, 7], 2),
        ([1, 2, 3, 4, 5, 6], [3, 4, 1, 2, 5, 6, 7], 2),
        ([1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1], 2),
        ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7, 8], 4),
        ([1, 2, 3], [1, 2, 3], 4),
        ([1, 2, 3, 4], [1, 2, 3], 1),
        ([1, 2, 3], [1, 2, 3], 1),
        ([1], [1], 1),
        (list(range(40)), list(range(33)), 16),
        (list(range(40)), [*range(31), 99, *range(32, 40)], 16),
        ([1, 2, 3, 4, 5], [2, 1, 3, 4, 5], 2),  # the same tokens in another order
        ([1, 4, 3, 9, 5], [2, 3, 3, 9, 5], 2),  # the same sum
        ([1, 23, 4, 5], [12, 3, 4, 5], 2),  # the same digits
    )


def hits_of_six_groups() -> list[int]:
    """One prompt, six times in turn, under different salts and adapters."""
    allocator, found = Allocator(60, 16), []
    for i, extras in enumerate(GROUPS):
        found.append(allocator.admit(f"request {i}", range(35), **extras))
        allocator.finish(f"request {i}")
    return found


def free_queue_of_two() -> list[int]:
    """A and B, of 12 and 9 tokens, have both ended; the pool's free queue."""
    allocator = Allocator(6, 4)
    allocator.admit("A", range(12))
    allocator.admit("B", range(50, 59))
    allocator.finish("A")
    allocator.finish("B")
    return allocator.free
