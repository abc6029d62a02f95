"""Section 21.5's known mistakes where blocks are shared: in `append_shared`, and in checks."""

from collections.abc import Callable
from dataclasses import dataclass

from kvlab.exercises.allocator import Allocator
from kvlab.exercises.exercise import Mistake
from kvlab.exercises.wrong_21_4 import verdict_mistakes

Table = list[int]


@dataclass(frozen=True)
class Flaw:
    """append_shared with a fault; all of it right where nothing else is said."""

    copies: Callable[[int], bool] = lambda count: count > 1  # from the block's reference count
    copies_full: bool = False  # a shared block that is full, before the next one is taken
    is_guarded: bool = True  # looks whether a block is free before it takes one
    counts_first: bool = False  # lowers the count before it looks
    lowers: Callable[[int], int] = lambda count: count - 1
    raises: Callable[[str], bool] = lambda why: True  # counts the table's hold on what it took
    replaces: bool = True  # the copy takes the shared block's place
    frees: bool = False  # gives the shared block back
    answer: Callable[..., object] = lambda block, slot, source: (block, slot, source)

    def __call__(
        self, table: Table, n: int, free: Table, ref_cnt: Table, size: int
    ) -> object | None:
        place, slot = divmod(n, size)
        tail = place if place < len(table) else len(table) - 1
        source = None
        if place == len(table):
            if self.is_guarded and not free:
                return None
            if self.copies_full and table and self.copies(ref_cnt[table[tail]]):
                source = self._copy(table, tail, free, ref_cnt)
            table.append(free.pop(0))
            ref_cnt[table[place]] += self.raises("new")
        elif self.copies(ref_cnt[table[place]]):
            if self.counts_first:
                ref_cnt[table[place]] -= 1
            if self.is_guarded and not free:
                return None
            if self.counts_first:
                ref_cnt[table[place]] += 1
            source = self._copy(table, place, free, ref_cnt)
        block = table[place] if self.replaces or source is None else table[-1]
        return self.answer(block, slot, source)

    def _copy(self, table: Table, place: int, free: Table, ref_cnt: Table) -> int:
        shared, private = table[place], free.pop(0)
        ref_cnt[shared] = self.lowers(ref_cnt[shared])
        ref_cnt[private] += self.raises("copy")
        if self.frees:
            free.append(shared)
        if self.replaces:
            table[place] = private
        else:
            table.append(private)
        return shared


def _fault(says: str, **fault: object) -> Mistake:
    return Mistake(says, Flaw(**fault))


def _pair(block: int, slot: int, source: int | None) -> tuple[int, int]:
    return block, slot


def _pair_without_source(block: int, slot: int, source: int | None) -> tuple[int, ...]:
    return (block, slot) if source is None else (block, slot, source)


def _source_first(block: int, slot: int, source: int | None) -> tuple:
    return (block, slot, None) if source is None else (source, slot, block)


THREE = (
    "That is block and slot alone, two entries. The third names the block to copy from, or is None"
)
NEW_COUNT = "The table holds the block that it took: its count is 1 now."

APPEND_SHARED = (
    _fault(
        "That writes into a shared block: the others would read this token as theirs. Copy first.",
        copies=lambda count: False,
    ),
    _fault(
        "That copies a block that this table alone holds. With a count of 1 it may be written to.",
        copies=lambda count: True,
    ),
    _fault(
        "That copies for three or more, and not for two. A count of 2 is one other reader.",
        copies=lambda count: count > 2,
    ),
    _fault(
        "That copies a full block as well. Nobody writes to it any more: it stays shared, and the "
        "position goes into a new one.",
        copies_full=True,
    ),
    _fault(
        "A block is needed and none is free: taking from the empty list fails. Return None before "
        "anything is changed.",
        is_guarded=False,
    ),
    _fault(
        "Refused, and the count is lowered already. Look for a free block before anything changes.",
        counts_first=True,
    ),
    _fault(
        "This table no longer holds the block that was copied: its count goes down by one.",
        lowers=lambda count: count,
    ),
    _fault(
        "One table lets go of the block that was copied; the others still hold it.",
        lowers=lambda count: 0,
    ),
    _fault(NEW_COUNT, raises=lambda why: False),
    _fault(f"{NEW_COUNT} Of a copy, too.", raises=lambda why: why == "new"),
    _fault(f"{NEW_COUNT} A block that is taken new, too.", raises=lambda why: why == "copy"),
    _fault(
        "The copy takes the shared block's place in the table. Appended, it would stand for the "
        "positions after it.",
        replaces=False,
    ),
    _fault(
        "The block that was copied is held by others, and does not go back to the free list.",
        frees=True,
    ),
    _fault(
        "The third entry is missing: which block is to be copied into the one that was taken?",
        answer=lambda block, slot, source: (block, slot, None),
    ),
    _fault(f"{THREE}.", answer=_pair),
    _fault(
        f"{THREE}: where nothing is copied, too, return (block, slot, None).",
        answer=_pair_without_source,
    ),
    _fault(
        f"{THREE}. And a block that others hold is copied before it is written to.",
        copies=lambda count: False,
        answer=_pair,
    ),
    _fault(
        f"{THREE}. That is append of 21.5-3: here the counts in ref_cnt change as well, and a "
        "block that others hold is copied before it is written to.",
        copies=lambda count: False,
        raises=lambda why: False,
        answer=_pair,
    ),
    _fault(
        "That is the other way round: the position goes into the block that was taken, and the "
        "shared one is copied from.",
        answer=_source_first,
    ),
    _fault(
        "A copy has its positions in the same slots as the block that it was made of.",
        answer=lambda block, slot, source: (block, slot if source is None else 0, source),
    ),
)


# ---- checks


def _evicting(kind: type[Allocator], taken: int = 2) -> bool:
    """Free a chain of three blocks in a pool of three, then take some of them one by one."""
    allocator = kind(3)
    allocator.admit("A", range(12))
    allocator.finish("A")
    for i in range(taken):
        allocator.admit(f"other {i}", [90 + i])
    return allocator.hits(range(13)) == 4 * (3 - taken)


ACCEPTS_ALL, REFUSES_ALL, OTHER_WAY = verdict_mistakes(_evicting)
EVICTION = (
    ACCEPTS_ALL,
    Mistake(
        f"{REFUSES_ALL.says} Does it ask for hits(range(8)) == 8? A lookup leaves a prompt's last "
        "position to be computed, since its logits are not kept: of two cached blocks "
        "hits(range(8)) is 4, and hits(range(9)) is 8.",
        REFUSES_ALL.gives,
    ),
    OTHER_WAY,
    Mistake(
        "One of the wrong allocators frees the deepest block first, and then the others from the "
        "front on. Take a second block before you look.",
        lambda kind: _evicting(kind, taken=1),
    ),
)


def _forking(kind: type[Allocator], children: int = 2) -> bool:
    """Fork A, let each go on with a token of its own, and read them all."""
    allocator = kind(8)
    allocator.admit("A", range(6))
    names = ["A", *(f"child {i}" for i in range(children))]
    for name in names[1:]:
        allocator.fork("A", name)
    for i, name in enumerate(names):
        allocator.append(name, 60 + i)
    return all(allocator.read(name) == [*range(6), 60 + i] for i, name in enumerate(names))


def _one_writes(kind: type[Allocator]) -> bool:
    allocator = kind(8)
    allocator.admit("A", range(6))
    allocator.fork("A", "B")
    allocator.append("B", 60)
    return [allocator.read(name) for name in "AB"] == [[*range(6)], [*range(6), 60]]


def _last_alone(kind: type[Allocator]) -> bool:
    allocator = kind(8)
    allocator.admit("A", range(6))
    allocator.fork("A", "B")
    allocator.append("A", 60)
    allocator.append("B", 70)
    return [allocator.read(name)[-1] for name in "AB"] == [60, 70]


FORK = (
    *verdict_mistakes(_forking),
    Mistake(
        "One of the wrong allocators copies a block that two requests share, and forgets to where "
        "three share it. Fork twice, so that three do.",
        lambda kind: _forking(kind, children=1),
    ),
    Mistake(
        "With one writer the shared block's old slots stay as they were, copy or not. Let both go "
        "on, and look at both afterwards.",
        _one_writes,
    ),
    Mistake(
        "That looks at the last position alone. Does a copy hold what stood before it?",
        _last_alone,
    ),
)
