"""As exercise_cases.py, for section 21.7: answers written apart from the package's."""

import numpy as np
import torch


def released_by_looking(tables, order):
    """Looks through the tables of those that still run; counts nothing."""
    running = set(range(len(tables)))
    found = []
    for i in order:
        running.remove(i)
        needed = {block for j in running for block in tables[j]}
        found.append(sorted(set(tables[i]) - needed))
    return found


def released_in_arrays(tables, order):
    return tuple(np.array(blocks, dtype=int) for blocks in released_by_looking(tables, order))


def waits_with_three(Allocator):
    a = Allocator([9, 4, 6, 1, 0, 2], 2)
    for name in "ABC":
        a.admit(name, [5, 5, ord(name)])
    first = a.table("C")[0]
    seen = []
    for name in "BCA":
        a.finish(name)
        seen.append(first in a.free)
    return seen == [False, False, True]


def waits_by_counting(Allocator):
    a = Allocator(8)
    for name in "AB":
        a.admit(name, [*range(4), ord(name)])
    counts = [len(a.free)]
    for name in "AB":
        a.finish(name)
        counts.append(len(a.free))
    assert counts == [5, 6, 8]


RIGHT = {
    "21.7-1": [4, 4.0, torch.tensor(4)],
    "21.7-2": [[7629, 8192], (7629, 8192), np.array([7629, 8192])],
    "21.7-3": [released_by_looking, released_in_arrays],
    "21.7-4": [waits_with_three, waits_by_counting],
}


def first_end_only(Allocator):
    a = Allocator(6)
    a.admit("A", range(5))
    a.admit("B", range(5))
    a.finish("A")
    return len(a.free) == 4


def equal_prompts(Allocator):
    """Each has a block of its own: the first one's is free while B still runs."""
    a = Allocator(6)
    for name in "AB":
        a.admit(name, range(4))
    shared = a.table("A")[0]
    a.finish("A")
    early = shared in a.free
    a.finish("B")
    return not early and shared in a.free


def no_block_in_common(Allocator):
    a = Allocator(6)
    a.admit("A", range(4))
    a.admit("B", range(4))
    shared = (set(a.table("A")) & set(a.table("B"))).pop()
    a.finish("A")
    return shared not in a.free


def counts_tables(tables, order):
    return [len(blocks) for blocks in released_by_looking(tables, order)]


WRONG = {
    "21.7-1": [
        (1, "no pass has read it"),
        (13, "prompts alone"),
        (6, "on average"),
        (32, "positions that are stored"),
        (36, "all slots"),
    ],
    "21.7-2": [
        ([8192, 7629], "other way round"),
        ([8192, 8192], "GB is 10^9 bytes"),
        ([7629, 7629], "GiB is 2^30 bytes"),
        ([7630, 8192], "Round down"),
        ([15258, 16384], "nothing is to be halved"),
        ([7629, 8193], "Right so far: entry 1. Entry 2 is not."),
    ],
    "21.7-3": [
        (lambda tables, order: [sorted(tables[i]) for i in order], "still in use"),
        (lambda tables, order: [tables[i] for i in order], "released(tables="),
        (counts_tables, "the real pool releases"),
        (lambda tables, order: [[] for _ in order], "the real pool releases"),
        (lambda tables, order: released_by_looking(tables, sorted(order)), "Go by order"),
        (lambda tables, order: released_by_looking(tables, order)[0], "the real pool releases"),
        (lambda tables, order: [x[::-1] for x in released_by_looking(tables, order)], "gives"),
    ],
    "21.7-4": [
        (lambda A: True, "says True to all of them"),
        (lambda A: A(6).free == [1], "says False to all of them, the engine's own included. Have"),
        (equal_prompts, "A full block is shared only if more tokens follow it"),
        (no_block_in_common, "Have the two tables a block in common?"),
        (lambda A: not waits_with_three(A), "other way round"),
        (first_end_only, "look after the last end, too"),
        (lambda A: A(6).admit("A", range(4)) == 0, "says True to all of them"),
    ],
}
