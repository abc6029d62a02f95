"""Section 21.7, worked. Each function is the answer; a value's function says how it comes about."""

from collections import Counter


def empty_slots():
    stored = [prompt + 4 - 1 for prompt in (5, 8, 10)]  # the last output is not stored yet
    return 9 * 4 - sum(stored)


def positions_in_a_gigabyte():
    nbytes = 2 * 32 * 8 * 128 * 2  # K and V, layers, KV heads, width, bytes a number: 131,072
    return [10**9 // nbytes, 2**30 // nbytes]


def released(tables, order):
    ref_cnt = Counter(block for table in tables for block in table)
    found = []
    for i in order:
        ref_cnt.subtract(tables[i])
        found.append(sorted(block for block in tables[i] if ref_cnt[block] == 0))
    return found


def waits_for_the_last(Allocator):
    allocator = Allocator(6)
    allocator.admit("A", [1, 2, 3, 4, 5])
    allocator.admit("B", [1, 2, 3, 4, 6])  # begins alike: it finds A's first block
    shared = allocator.table("A")[0]
    assert allocator.table("B")[0] == shared
    allocator.finish("A")
    assert shared not in allocator.free, "B still reads it"
    allocator.finish("B")
    assert shared in allocator.free, "nobody reads it any more"
    return True


SOLUTIONS = {
    "21.7-1": empty_slots,
    "21.7-2": positions_in_a_gigabyte,
    "21.7-3": released,
    "21.7-4": waits_for_the_last,
}
