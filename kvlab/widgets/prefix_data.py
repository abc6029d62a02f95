"""What a prompt found in the prefix cache: its blocks, their identities, and where the match ends.

Blocks count from 1 here, as in h_1, h_2, h_3: h_0 is the identity of the configuration, the parent
of every first block. Positions count from 0, as everywhere.
"""

from dataclasses import dataclass

REUSED = "reused"  # found in the cache: nothing is computed
COMPUTED = "computed"
LAST = "last"  # its identity is known, but the prompt's last position lies in it
PARTLY = "partly filled"  # no identity, never shared

FIRST = "nothing came before"
OTHER_SALT = "another salt"
DIFFERS = "a token differs"
LONGER = "it goes on after the earlier prompt"
SHORTER = "it ends inside the earlier prompt"
SAME = "the same tokens"

ROUNDING = 1e-4  # differences below this come from the order of additions


@dataclass(frozen=True)
class PrefixBlock:
    """One block of a prompt.

    tokens: texts of its tokens. identity: the first 8 hex digits of h_number; None where the
    block is partly filled. parent: those of h_(number - 1). block_id: the physical block.
    like: prompt and number of an earlier full block with the same tokens, one of the same
    identity first, then one at the same place. key_difference, value_difference: max |K - K'| and
    max |V - V'| between the two, over all layers, read from the cache; two significant digits,
    0.0 below `ROUNDING`. same_identity: whether the identity is that block's too.
    """

    number: int
    tokens: tuple[str, ...]
    identity: str | None
    parent: str
    block_id: int
    kind: str
    like: tuple[str, int] | None = None
    same_identity: bool = False
    key_difference: float | None = None
    value_difference: float | None = None


@dataclass(frozen=True)
class PrefixRow:
    """One prompt. compared_with: the earlier prompt that it shares most with; num_equal_tokens:
    tokens at the start that are equal there; match_end: why no more of them are."""

    name: str
    salt: str | None
    tokens: tuple[str, ...]
    num_cached_tokens: int
    blocks: tuple[PrefixBlock, ...]
    match_end: str = FIRST
    compared_with: str | None = None
    num_equal_tokens: int = 0

    @property
    def num_computed(self) -> int:
        """Positions that its prompt pass computed."""
        return len(self.tokens) - self.num_cached_tokens

    @property
    def reused(self) -> tuple[int, ...]:
        """Numbers of the blocks that were hits, counted from 1."""
        return tuple(block.number for block in self.blocks if block.kind == REUSED)

    @property
    def identities(self) -> tuple[str, ...]:
        """Of the full blocks, in order."""
        return tuple(block.identity for block in self.blocks if block.identity)


@dataclass(frozen=True)
class PrefixRun:
    """Prompts in the order in which they were served. root: h_0; queries and hits: the engine's
    own counts, in tokens."""

    root: str
    block_size: int
    rows: tuple[PrefixRow, ...]
    queries: int
    hits: int


def two_digits(difference: float) -> float:
    """Rounded so that another order of additions gives the same number."""
    return 0.0 if difference < ROUNDING else float(f"{difference:.2g}")


def num_equal(one: tuple | list, other: tuple | list) -> int:
    """Length of the common start."""
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return i
    return min(len(one), len(other))


def match_end(one: list[int], other: list[int], same_salt: bool) -> str:
    """Why `one` shares no more with the earlier prompt `other`."""
    equal = num_equal(one, other)
    if not same_salt:
        return OTHER_SALT
    if equal == len(one):
        return SAME if equal == len(other) else SHORTER
    return LONGER if equal == len(other) else DIFFERS
