"""Section 21.7's known mistakes: each written out, with what to say to it."""

from collections import Counter
from collections.abc import Callable

from kvlab.exercises.allocator import Allocator
from kvlab.exercises.exercise import Mistake
from kvlab.exercises.wrong_21_4 import verdict_mistakes

Tables = list[list[int]]


def _counting(
    tables: Tables, order: list[int], left: Callable[[int], bool] = lambda count: count == 0
) -> Tables:
    """Right, where `left` asks for a count of 0."""
    counts, found = Counter(block for table in tables for block in table), []
    for i in order:
        counts.subtract(tables[i])
        found.append(sorted(block for block in tables[i] if left(counts[block])))
    return found


def _never_shared(tables: Tables, order: list[int]) -> Tables:
    """Looks into all tables, those of requests that have ended included."""
    counts = Counter(block for table in tables for block in table)
    return [sorted(block for block in tables[i] if counts[block] == 1) for i in order]


def _at_the_first_end(tables: Tables, order: list[int]) -> Tables:
    gone: set[int] = set()
    found = []
    for i in order:
        found.append(sorted(set(tables[i]) - gone))
        gone |= set(tables[i])
    return found


def _all_free(tables: Tables, order: list[int]) -> Tables:
    """Everything that is free by then, not what came free by this end."""
    free: list[int] = []
    found = []
    for blocks in _counting(tables, order):
        free = sorted([*free, *blocks])
        found.append(free)
    return found


def _in_table_order(tables: Tables, order: list[int]) -> Tables:
    freed = _counting(tables, order)
    return [[b for b in tables[i] if b in new] for i, new in zip(order, freed, strict=True)]


RELEASED = (
    Mistake(
        "That gives the whole table back. A block that another table names is still in use.",
        lambda tables, order: [sorted(tables[i]) for i in order],
    ),
    Mistake(
        "That counts the tables of requests that have ended, too. A shared block would never come "
        "free.",
        _never_shared,
    ),
    Mistake(
        "That frees a shared block with the first of its requests. The last one decides.",
        _at_the_first_end,
    ),
    Mistake(
        "That is what is still in use of the table. Asked for are the blocks that are not.",
        lambda tables, order: _counting(tables, order, lambda count: count > 0),
    ),
    Mistake(
        "That is all that is free by then. Asked for is what each end adds.",
        _all_free,
    ),
    Mistake(
        "The blocks are right, in the order of the table. Give them in ascending order.",
        _in_table_order,
    ),
    Mistake(
        "That is one list of all blocks. Give one for each end.",
        lambda tables, order: [block for blocks in _counting(tables, order) for block in blocks],
    ),
    Mistake(
        "That is right for requests that end in the order of their numbers. Go by order.",
        lambda tables, order: _counting(tables, sorted(order)),
    ),
)


def _waits(kind: type[Allocator], first: bool = True, last: bool = True) -> bool:
    """Share a block and look after the first end, after the last, or after both."""
    allocator = kind(6)
    allocator.admit("A", [1, 2, 3, 4, 5])
    allocator.admit("B", [1, 2, 3, 4, 6])
    shared = allocator.table("A")[0]
    allocator.finish("A")
    if first and shared in allocator.free:
        return False
    allocator.finish("B")
    return shared in allocator.free or not last


def _alone(kind: type[Allocator]) -> bool:
    allocator = kind(6)
    allocator.admit("A", [1, 2, 3, 4, 5])
    allocator.finish("A")
    return len(allocator.free) == 6


def _nothing_shared(kind: type[Allocator]) -> bool:
    """Equal prompts of one full block: nothing follows it, so each has its own. A KeyError."""
    allocator = kind(6)
    for name in "AB":
        allocator.admit(name, [1, 2, 3, 4])
    shared = {*allocator.table("A")} & {*allocator.table("B")}
    return shared.pop() in allocator.free


ACCEPTS_ALL, REFUSES_ALL, OTHER_WAY = verdict_mistakes(_waits)
NOT_SHARED = (
    "Have the two tables a block in common? A full block is shared only if more tokens follow it: "
    "[1, 2, 3, 4, 5] and [1, 2, 3, 4, 6] share one."
)
LAST_REFERENCE = (
    ACCEPTS_ALL,
    Mistake(f"{REFUSES_ALL.says} {NOT_SHARED}", REFUSES_ALL.gives),
    OTHER_WAY,
    Mistake(NOT_SHARED, _nothing_shared),
    Mistake(
        "That looks after the first end alone. Some of the wrong allocators never free the block: "
        "look after the last end, too.",
        lambda kind: _waits(kind, last=False),
    ),
    Mistake(
        "That looks at the end alone. Some of the wrong allocators free the block while another "
        "request reads it: look after the first end, too.",
        lambda kind: _waits(kind, first=False),
    ),
    Mistake(
        "That is one request, and it shares nothing. Let two prompts begin with the same block.",
        _alone,
    ),
)
