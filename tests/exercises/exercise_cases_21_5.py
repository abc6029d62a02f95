"""As exercise_cases.py, for section 21.5: answers written apart from the package's."""

import numpy as np
import torch

# ---- functions that are right


def append_with_while(table, num_computed, free, block_size):
    while len(table) * block_size <= num_computed:
        if len(free) == 0:
            return None
        table += free[:1]
        del free[0]
    return (table[num_computed // block_size], num_computed % block_size)


def append_by_places(table, num_computed, free, block_size):
    places = [(b, s) for b in table for s in range(block_size)]
    if num_computed >= len(places):
        if not free:
            return
        table.extend([free.pop(0)])
        places += [(table[-1], s) for s in range(block_size)]
    return np.array(places[num_computed])


def append_tensors(table, num_computed, free, block_size):
    found = append_with_while(table, num_computed, free, block_size)
    table[:] = [np.int64(block) for block in table]
    return found if found is None else torch.tensor(found)


def shared_in_steps(table, num_computed, free, ref_cnt, block_size):
    i, source = num_computed // block_size, None
    if i < len(table) and ref_cnt[table[i]] == 1:
        return [table[i], num_computed % block_size, source]
    try:
        new = free[0]
    except IndexError:
        return None
    if i < len(table):
        source = table.pop(i)
        ref_cnt[source] = ref_cnt[source] - 1
    table.insert(i, new)
    free.remove(new)
    ref_cnt[new] += 1
    return [new, num_computed % block_size, source]


def eviction_by_order(Allocator):
    """A chain of four in a large pool: where its blocks stand in the free queue."""
    a = Allocator([3, 1, 4, 15, 9, 2, 6])
    a.admit("A", range(100, 117))
    table = a.table("A")[:4]
    a.finish("A")
    a.admit("B", [1])
    return [block for block in a.free if block in table] == table[::-1]


def eviction_by_assertions(Allocator):
    a = Allocator(4, block_size=2)
    a.admit("A", range(8))
    a.finish("A")
    for i in range(4):
        assert a.hits(range(9)) == 8 - 2 * i
        assert a.admit(str(i), [50 + i]) == 0


def fork_by_assertions(Allocator):
    a = Allocator(20)
    a.admit("A", [1, 2, 3, 4, 5])
    for name in "BCD":
        a.fork("A", name)
    for token in (60, 61):
        for name in "ABCD":
            a.append(name, token + ord(name))
    for name in "ABCD":
        assert a.read(name) == [1, 2, 3, 4, 5, 60 + ord(name), 61 + ord(name)]


def fork_backwards(Allocator):
    a = Allocator(20, 16)
    a.admit("A", range(20))
    a.fork("A", "B"), a.fork("B", "C")
    ends = {name: (a.append(name, i) and i) for i, name in enumerate("CBA")}
    return all(a.read(name) == [*range(20), end] for name, end in ends.items())


RIGHT = {
    "21.5-1": [[2, 4, 2], (2, 4, 2), np.array([2, 4, 2])],
    "21.5-2": [[0, 3, 15, 31], [-33 % n for n in (1, 4, 16, 64)]],
    "21.5-3": [append_with_while, append_by_places, append_tensors],
    "21.5-4": [shared_in_steps, lambda *a: tuple(shared_in_steps(*a) or ()) or None],
    "21.5-5": [eviction_by_order, eviction_by_assertions],
    "21.5-6": [fork_by_assertions, fork_backwards],
    "21.5-7": ["b", "B", "the prompts' first 7 tokens are the same"],
}


# ---- answers that are wrong


def early(table, n, free, size):
    """P14: the length with its new token fills the block."""
    length = n + 1
    if length % size == 0:
        if not free:
            return None
        table.append(free.pop(0))
    return table[-1], n % size


def at_boundary(table, n, free, size):
    if n % size == 0:
        if not free:
            return None
        table.append(free.pop(0))
    return table[-1], n % size


def unguarded(table, n, free, size):
    if n // size == len(table):
        table.append(free.pop(0))
    return table[n // size], n % size


def rebound(table, n, free, size):
    if n // size == len(table):
        if not free:
            return None
        table = [*table, free.pop(0)]
    return table[n // size], n % size


def on_copies(table, n, free, size):
    return append_with_while(list(table), n, list(free), size)


def spoiled(table, n, free, size):
    found = append_with_while(table, n, free, size)
    table.append(object())
    return found


def takes_though_refused(table, n, free, size):
    found = append_with_while(table, n, free, size)
    return found if found or not table else table.pop()


def endless(table, n, free, size):
    while len(table) <= n // size:
        if free:
            table.append(free.pop(0))
    return table[n // size], n % size


def writes_into_shared(table, n, free, ref_cnt, size):
    found = append_with_while(table, n, free, size)
    if n % size == 0 and found:
        ref_cnt[found[0]] = 1
    return found and (*found, None)


def copies_always(table, n, free, ref_cnt, size):
    i = n // size
    if not free:
        return None
    new, source = free.pop(0), None
    ref_cnt[new] = 1
    if i == len(table):
        table.append(new)
    else:
        source, table[i] = table[i], new
        ref_cnt[source] -= 1
    return new, n % size, source


def forgets_to_lower(*a):
    before = list(a[3])
    found = shared_in_steps(*a)
    if found and found[2] is not None:
        a[3][found[2]] = before[found[2]]
    return found


def lowers_though_refused(table, n, free, ref_cnt, size):
    i = n // size
    if i < len(table) and ref_cnt[table[i]] > 1:
        ref_cnt[table[i]] -= 1
        if not free:
            return None
        ref_cnt[table[i]] += 1
    return shared_in_steps(table, n, free, ref_cnt, size)


def takes_at_slot_0(table, n, free, ref_cnt, size):
    """Wrong where a block was taken ahead."""
    if n % size == 0 and n // size < len(table):
        table.pop()
    return shared_in_steps(table, n, free, ref_cnt, size)


def takes_the_last(table, n, free, ref_cnt, size):
    """Wrong where the table is ahead."""
    found = shared_in_steps(table, n, free, ref_cnt, size)
    return found and (table[-1], *found[1:])


def copies_full_tail(table, n, free, ref_cnt, size):
    source = None
    if table and ref_cnt[table[-1]] > 1:
        if not free:
            return None
        source, table[-1] = table[-1], free.pop(0)
        ref_cnt[source] -= 1
        ref_cnt[table[-1]] = 1
    if n // size == len(table):
        if not free:
            return None
        table.append(free.pop(0))
        ref_cnt[table[-1]] = 1
    return table[n // size], n % size, source


def swap_one(Allocator):
    a = Allocator(3)
    a.admit("A", range(12))
    a.finish("A")
    a.admit("B", [99])
    return a.hits(range(13)) == 8


def asks_for_the_last_position(Allocator):
    a = Allocator(3)
    a.admit("A", range(8))
    a.finish("A")
    a.admit("B", [99])
    assert a.hits(range(8)) == 8


def looks_and_takes_none(Allocator):
    """The queue's order alone: who takes from its end is not found."""
    a = Allocator(3)
    a.admit("A", range(12))
    table = a.table("A")
    a.finish("A")
    return a.free == table[::-1]


def fork_once(Allocator):
    a = Allocator(9)
    a.admit("A", range(6))
    a.fork("A", "B")
    return (a.append("A", 1) != a.append("B", 2)) and a.read("A")[-1] == 1


def one_fork(Allocator):
    a = Allocator(9)
    a.admit("A", range(6))
    a.fork("A", "B")
    a.append("A", 60), a.append("B", 70)
    return a.read("A") == [*range(6), 60] and a.read("B") == [*range(6), 70]


WRONG = {
    "21.5-1": [
        ([6, 6, 0], "blocks of its own"),
        ([2, 5, 3], "alone with the original"),
        ([2, 2, 0], "into one slot"),
        ([2, 6, 4], "copies the full block"),
        ([2, 4, 3], "entry 1 and entry 2"),
        ([2, 5, 2], "needs no fifth"),
        ([3, 5, 2], "need ⌈6/4⌉ = 2 blocks"),
    ],
    "21.5-2": [
        ([1, 1, 1, 33], "filled in the last block"),
        ([0, 1, 1, 33], "remainders"),
        ([33, 9, 3, 1], "blocks in the table"),
        ([0.5, 2, 8, 32], "on average"),
        ([0, 3, 15, 0], "entry 1 and entry 2 and entry 3"),
    ],
    "21.5-3": [
        (early, "counted already, and not stored yet"),
        (lambda t, n, f, b: early(t, n, f, b) if t else append_with_while(t, n, f, b),
         "at its position 3 it still goes into the first block of four"),
        (at_boundary, "holds, too, where the table has a block"),
        (unguarded, "Return None before anything is changed"),
        (rebound, "is not in the table"),
        (on_copies, "leaves both lists as they were"),
        (spoiled, "left an object of type object in table"),
        (takes_though_refused, "block_size=4) gives 2 and leaves table=[7], free=[]; the real"),
        (endless, "was still running after"),
        (lambda t, n, f, b: append_with_while(t, n, f, b) or (None, None),
         "gives [None, None] and leaves table=[7, 2], free=[]; the real allocator gives None"),
        (lambda t, n, f, b: (t[n // b], n % b), "IndexError"),
        (lambda t, n, f, b: append_with_while(t, n + 1, f, b), "append(table=[], num_computed=0"),
        (lambda t, n, f, b: append_with_while(t, n, f, b) and t[n // b] * b + n % b,
         "counts slots through the pool"),
        (lambda t, n, f, b: append_with_while(t, n, f, b) and (n // b, n % b), "logical block"),
    ],
    "21.5-4": [
        (writes_into_shared, "writes into a shared block"),
        (copies_always, "append_shared(table=[7, 2], num_computed=6"),
        (forgets_to_lower, "goes down by one"),
        (lowers_though_refused, "the count is lowered already"),
        (copies_full_tail, "append_shared(table=[7, 2], num_computed=8"),
        (takes_at_slot_0, "append_shared(table=[7, 2], num_computed=4"),
        (takes_the_last, "append_shared(table=[7, 2, 5], num_computed=5"),
        (lambda *a: (found := shared_in_steps(*a)) and (*found[:2], found[2] or None),
         "append_shared(table=[7, 0], num_computed=6"),
        (lambda *a: (found := shared_in_steps(*a)) and found[:2], "block and slot alone"),
        (lambda *a: (found := shared_in_steps(*a)) and found[: 2 + (found[2] is not None)],
         "where nothing is copied, too, return (block, slot, None)"),
        (lambda t, n, f, r, b: (found := writes_into_shared(t, n, f, r, b)) and found[:2],
         "two entries. The third names the block to copy from, or is None. And a block"),
        (lambda t, n, f, r, b: append_with_while(t, n, f, b), "That is append of 21.5-3"),
        (lambda *a: (found := shared_in_steps(*a)) and (found if found[2] is None else found[::-1]
                     if found[1] == found[0] else [found[2], found[1], found[0]]),
         "other way round"),
    ],
    "21.5-5": [
        (lambda A: True, "says True to all of them"),
        (lambda A: A(3).free == [2, 1, 0], "says False to all of them"),
        (asks_for_the_last_position, "hits(range(8)) is 4, and hits(range(9)) is 8"),
        (lambda A: not eviction_by_order(A), "other way round"),
        (swap_one, "Take a second block"),
        (lambda A: A(3).finish("A"), "there is no request 'A'; there are []"),
        (looks_and_takes_none,
         "TakesTheNewest (takes the block that was freed last)) gives True"),
    ],
    "21.5-6": [
        (lambda A: True, "says True to all of them"),
        (lambda A: A(0), "a pool needs one or more"),
        (one_fork, "Fork twice"),
        (fork_once, "fork_is_right(Allocator="),
        (lambda A: not fork_backwards(A), "other way round"),
    ],
    "21.5-7": [
        ("a", "only full blocks are found"),
        ("c", "5 would be in use"),
        ("d", "3 would be in use"),
    ],
}  # fmt: skip
