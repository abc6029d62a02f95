"""Section 21.3's known mistakes in `schedule_waiting`: each written out, with what to say to it."""

from collections.abc import Sequence

from kvlab.exercises.exercise import Mistake

Queue = Sequence[Sequence[int]]  # [num_tokens, num_cached] of each


def _admit(
    waiting: Queue, budget: int, seats: int, free: int, size: int, chunked: bool, *,
    bypass: bool = False, has_seats: bool = True, limits: bool = True, spends: bool = True,
    has_blocks: bool = True, takes: bool = True, skips_cached: bool = True,
    holds_cached: bool = True, rounds_up: bool = True, splits: bool | None = None,
    whole: bool = False, cuts: bool = False,
) -> list[int]:  # fmt: skip
    """schedule_waiting with a fault: each option that is not its default leaves something out."""
    found, is_open = [0] * len(waiting), True
    may_split = chunked if splits is None else splits
    for i, (num_tokens, cached) in enumerate(waiting):
        pending = num_tokens - cached if skips_cached else num_tokens
        count = min(pending, budget) if limits else pending
        if cuts:
            count = min(count, free * size)
        stored = num_tokens - cached if whole else count
        stored += 0 if holds_cached or not skips_cached else cached
        need = -(-stored // size) if rounds_up else stored // size
        fits = count > 0 and (count == pending or may_split)
        fits = fits and (seats > 0 or not has_seats) and (need <= free or not has_blocks)
        if not fits and not bypass:
            is_open = False
        if fits and is_open:
            found[i] = count
            seats -= 1
            budget -= count if spends else 0
            free -= need if takes else 0
    return found


def _fault(says: str, **fault: bool) -> Mistake:
    return Mistake(says, lambda *a: _admit(*a, **fault))


def _until_the_first(*a: object) -> list[int]:
    """Counts of those admitted alone."""
    return [count for count in _admit(*a) if count]


def _budget_left(waiting: Queue, budget: int, *a: object) -> int:
    return budget - sum(_admit(waiting, budget, *a))


def _restarts(waiting: Queue, *a: object) -> list[int]:
    return [_admit([one], *a)[0] for one in waiting]


SCHEDULE_WAITING = (
    _fault(
        "That passes a request that does not fit and goes on with those behind it. Nobody may "
        "overtake here: a stream of small ones would keep a large one waiting for ever.",
        bypass=True,
    ),
    _fault("That forgets the seats: each one that is admitted takes one.", has_seats=False),
    _fault(
        "That forgets the budget: no request computes more positions than the step has left.",
        limits=False,
        spends=False,
    ),
    _fault(
        "Each gets up to the whole budget. What one has been given is gone for the next.",
        spends=False,
    ),
    _fault(
        "That admits without looking at the free blocks. A position without a slot cannot be "
        "stored.",
        has_blocks=False,
    ),
    _fault("The blocks that one takes are no longer free for the next.", takes=False),
    _fault(
        "That forgets the cached prefix: its positions are there, and only the others are "
        "computed and stored.",
        skips_cached=False,
    ),
    _fault(
        "That takes blocks for the cached prefix, too. It lies in blocks that exist.",
        holds_cached=False,
    ),
    _fault(
        "That rounds blocks down. A block that is partly filled is taken whole.", rounds_up=False
    ),
    _fault("With chunking off a prompt is not split: it waits for a whole budget.", splits=True),
    _fault("With chunking on a prompt may begin with what is left of the budget.", splits=False),
    _fault(
        "That asks for the blocks of the whole prompt. This step needs those of its chunk.",
        whole=True,
    ),
    _fault(
        "That shrinks a chunk to the blocks that are free. The budget cuts a prompt; where blocks "
        "are short, it waits.",
        cuts=True,
    ),
    Mistake(
        "That looks at each request as if it were alone: budget, seats and blocks are shared.",
        _restarts,
    ),
    Mistake(
        "Give one number for each waiting request: 0 for those that go on waiting.",
        _until_the_first,
    ),
    Mistake(
        "That is the budget that is left. Asked for are the positions of each request.",
        _budget_left,
    ),
    Mistake(
        "That lists the places of those admitted. Asked for are the positions of each request.",
        lambda *a: [i for i, count in enumerate(_admit(*a)) if count],
    ),
    Mistake(
        "That says who is admitted. Asked for are the positions that each computes.",
        lambda *a: [int(count > 0) for count in _admit(*a)],
    ),
)
