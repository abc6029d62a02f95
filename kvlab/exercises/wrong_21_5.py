"""Section 21.5's known mistakes in `append`: each written out, with what to say to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvlab.exercises.exercise import Mistake

if TYPE_CHECKING:
    from collections.abc import Callable

Table = list[int]

EARLY = (
    "That asks whether the length with the new token fills a block. The token is counted already, "
    "and not stored yet: at its position 3 it still goes into the first block of four, and the one "
    "at position 4 needs another."
)
AHEAD = (
    "num_computed % block_size == 0 holds, too, where the table has a block for the position "
    "already: it may be ahead, since slots are taken before the pass, for several positions at "
    "once. Compare with the number of blocks in the table."
)
REFUSED = (
    "Where a block is needed and none is free, the list is empty and taking from it fails. Return "
    "None before anything is changed."
)


def _is_missing(table: Table, n: int, size: int) -> bool:
    return n // size >= len(table)


def _with_its_token(table: Table, n: int, size: int) -> bool:
    return (n + 1) % size == 0


def _with_its_token_or_first(table: Table, n: int, size: int) -> bool:
    return not table or (n + 1) % size == 0


def _at_a_boundary(table: Table, n: int, size: int) -> bool:
    return n % size == 0


def _append(
    table: Table, n: int, free: Table, size: int, *,
    needs: Callable[[Table, int, int], bool] = _is_missing,
    take: Callable[[Table, Table], None] = lambda table, free: table.append(free.pop(0)),
    last: bool = False,
) -> tuple[int, int] | None:  # fmt: skip
    """append with a fault: `needs` decides when, `take` how a block is taken."""
    if needs(table, n, size):
        if not free:
            return None
        take(table, free)
    return table[-1 if last else n // size], n % size


def _unguarded(table: Table, n: int, free: Table, size: int) -> tuple[int, int]:
    if _is_missing(table, n, size):
        table.append(free.pop(0))
    return table[n // size], n % size


def _answer(change: Callable[[int, int, int], object]) -> Callable[..., object]:
    """append that changes the lists rightly and returns something else."""

    def append(table: Table, n: int, free: Table, size: int) -> object:
        found = _append(table, n, free, size)
        return found and change(*found, n)

    return append


def _not_in_the_table(table: Table, n: int, free: Table, size: int) -> tuple[int, int] | None:
    return _append(list(table), n, free, size)


def _fault(says: str, **fault: object) -> Mistake:
    return Mistake(says, lambda *a: _append(*a, **fault))


APPEND = (
    _fault(EARLY, needs=_with_its_token_or_first, last=True),
    _fault(EARLY, needs=_with_its_token_or_first),
    _fault(EARLY, needs=_with_its_token, last=True),
    _fault(EARLY, needs=_with_its_token),
    _fault(AHEAD, needs=_at_a_boundary),
    _fault(AHEAD, needs=_at_a_boundary, last=True),
    Mistake(REFUSED, _unguarded),
    _fault(
        "That takes a block for every position. One is needed only where the table ends before it.",
        needs=lambda *a: True,
    ),
    _fault(
        "That takes a block for every position. One is needed only where the table ends before it.",
        needs=lambda *a: True,
        last=True,
    ),
    _fault(
        "That takes from the end of the free list. The next one stands first.",
        take=lambda table, free: table.append(free.pop()),
    ),
    _fault(
        "The block that was taken is still in the free list: another request will get it, too.",
        take=lambda table, free: table.append(free[0]),
    ),
    Mistake(
        "The block that was taken is not in the table. Change the list that was given, with "
        "table.append; `table = table + [...]` makes another.",
        _not_in_the_table,
    ),
    Mistake(
        "That answers rightly and leaves both lists as they were. Change the lists that were "
        "given, with table.append and free.pop.",
        lambda table, n, free, size: _append(list(table), n, list(free), size),
    ),
    Mistake(
        "That refuses although there is room. A free block counts only where one is needed.",
        lambda table, n, free, size: _append(table, n, free, size) if free else None,
    ),
    Mistake("Slots count from 0.", _answer(lambda block, slot, n: (block, slot + 1))),
    Mistake(
        "That is the logical block. The table says which physical block it is.",
        lambda table, n, free, size: _append(table, n, free, size) and (n // size, n % size),
    ),
    Mistake(
        "That is the logical position. Inside a block it is the rest, num_computed % block_size.",
        _answer(lambda block, slot, n: (block, n)),
    ),
    Mistake(
        "That counts slots through the pool. Asked for is the pair of block and slot inside it.",
        lambda table, n, free, size: (
            (found := _append(table, n, free, size)) and found[0] * size + found[1]
        ),
    ),
    Mistake("Block and slot have changed places.", _answer(lambda block, slot, n: (slot, block))),
    _fault(
        "The new block stands first in the table. Logical order wants it last.",
        take=lambda table, free: table.insert(0, free.pop(0)),
    ),
    _fault(
        "That takes the last block of the table. Where blocks were taken ahead, the position "
        "lies in an earlier one.",
        last=True,
    ),
)
