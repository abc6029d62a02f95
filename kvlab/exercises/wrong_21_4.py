"""Section 21.4's known mistakes in functions: each written out, with what to say to it."""

from collections.abc import Callable, Sequence
from itertools import takewhile

from kvlab.exercises.exercise import Mistake

Tokens = Sequence[int]

ACCEPTS_ALL = "Your check says True to all of them, the wrong ones included."
REFUSES_ALL = "Your check says False to all of them, {} included."
OTHER_WAY = "That is the other way round: True is asked for where the code is right."


def verdict_mistakes(
    right: Callable[..., bool], the_right_one: str = "the engine's own"
) -> tuple[Mistake, ...]:
    """What a check can do wrong, whatever it checks."""
    return (
        Mistake(ACCEPTS_ALL, lambda code: True),
        Mistake(REFUSES_ALL.format(the_right_one), lambda code: False),
        Mistake(OTHER_WAY, lambda code: not right(code)),
    )


def _alike(cached: Tokens, new: Tokens) -> int:
    """Positions before the first difference."""
    pairs = zip(cached, new, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def _blocks(tokens: Tokens, size: int) -> list[tuple[int, ...]]:
    """The full blocks."""
    return [tuple(tokens[i : i + size]) for i in range(0, len(tokens) - size + 1, size)]


def _cap(new: Tokens, size: int) -> int:
    """The most that may be hits: whole blocks before the last position."""
    return (len(new) - 1) // size * size


def _hits(cached: Tokens, new: Tokens, size: int) -> int:
    return min(_alike(cached, new) // size * size, _cap(new, size))


def _by_place(cached: Tokens, new: Tokens, size: int) -> int:
    pairs = zip(_blocks(cached, size), _blocks(new[:-1], size), strict=False)
    return sum(one == other for one, other in pairs) * size


def _anywhere(cached: Tokens, new: Tokens, size: int) -> int:
    known = _blocks(cached, size)
    return sum(block in known for block in _blocks(new[:-1], size)) * size


def _by_look(look: Callable[[Tokens], object]) -> Callable[[Tokens, Tokens, int], int]:
    """num_hits that takes blocks for equal which look alike."""

    def num_hits(cached: Tokens, new: Tokens, size: int) -> int:
        pairs = zip(_blocks(cached, size), _blocks(new[:-1], size), strict=False)
        return len(list(takewhile(lambda pair: look(pair[0]) == look(pair[1]), pairs))) * size

    return num_hits


NUM_HITS = (
    Mistake(
        "A hit may not cover the whole prompt: keys and values give no logits, so at least its "
        "last position is computed.",
        lambda cached, new, size: _alike(cached, new) // size * size,
    ),
    Mistake(
        "That keeps the last position back, but cuts a block in two. A block is a hit whole or "
        "not at all.",
        lambda cached, new, size: min(_alike(cached, new) // size * size, len(new) - 1),
    ),
    Mistake(
        "That counts to the first difference. Only whole blocks are found.",
        lambda cached, new, size: min(_alike(cached, new), len(new) - 1),
    ),
    Mistake(
        "That counts to the first difference. Only whole blocks are found, and at least one "
        "position is computed.",
        lambda cached, new, size: _alike(cached, new),
    ),
    Mistake(
        "That goes on after a difference. A block's keys and values depend on all tokens before "
        "it, so the first miss ends the hits.",
        _by_place,
    ),
    Mistake(
        "That finds a block wherever it stands. Its identity contains the blocks before it.",
        _anywhere,
    ),
    Mistake(
        "That always leaves the last whole block out. It is needed only where it ends the prompt.",
        lambda cached, new, size: max(_alike(cached, new) // size - 1, 0) * size,
    ),
    Mistake(
        "That counts blocks. Asked for are positions.",
        lambda cached, new, size: _hits(cached, new, size) // size,
    ),
    Mistake(
        "Those are the positions that are computed. Asked for are the hit positions.",
        lambda cached, new, size: len(new) - _hits(cached, new, size),
    ),
    Mistake(
        "That rounds up. The block that holds the first difference is no hit.",
        lambda cached, new, size: min(-(-_alike(cached, new) // size) * size, _cap(new, size)),
    ),
    Mistake(
        "That compares which tokens a block has, and not their order. [2, 1] is another text than "
        "[1, 2].",
        _by_look(sorted),
    ),
    Mistake(
        "That compares sums. Different blocks may have one sum, as [1, 4] and [2, 3] have.",
        _by_look(sum),
    ),
    Mistake(
        "That writes the tokens together without a boundary between them: [1, 23] and [12, 3] are "
        "both 123.",
        _by_look(lambda block: "".join(map(str, block))),
    ),
)


def _chain(identities: Callable, *, far: bool = True, same: bool = True, own: bool = True) -> bool:
    """A check of identities that may leave something out."""
    one, other, last = [1, 2, 3, 4], [1, 2, 3, 5], [6, 7, 8, 9]
    first, second = identities(one + last + last), identities(other + last + last)
    differs = first[1] != second[1] and (not far or first[2] != second[2])
    is_own = not own or identities(one + last)[1] != identities(one + one)[1]
    return differs and is_own and (not same or identities(one) == identities(one))


CHAIN = (
    *verdict_mistakes(_chain),
    Mistake(
        "That looks at the block right after the changed one. Go one block further: the change "
        "has to reach it as well.",
        lambda identities: _chain(identities, far=False),
    ),
    Mistake(
        "That looks at the block right after the changed one, and never whether equal prompts "
        "have equal identities. Go one block further, too.",
        lambda identities: _chain(identities, far=False, same=False, own=False),
    ),
    Mistake(
        "That never looks whether equal prompts have equal identities. Without that, nothing is "
        "ever found.",
        lambda identities: _chain(identities, same=False),
    ),
    Mistake(
        "That looks at the blocks after a change, and not whether a change shows in its own block.",
        lambda identities: _chain(identities, own=False),
    ),
    Mistake(
        "That looks at blocks of different tokens. The mistake shows where the tokens of a block "
        "are equal and those before it are not.",
        lambda identities: identities([1, 2, 3, 4])[0] != identities([5, 6, 7, 8])[0],
    ),
    Mistake(
        "That looks only whether equal prompts have equal identities. Where must they differ?",
        lambda identities: identities([1, 2, 3, 4]) == identities([1, 2, 3, 4]),
    ),
)
