"""Words for blocks, slots and positions; the sentences of `blocks_tell.py` are made of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kvlab.core.trace import State
from kvlab.widgets.byte_tokens import byte_name
from kvlab.widgets.growth_words import count, span, visible

NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
MOST_NAMED = 4  # blocks or requests that a sentence names one by one
LONGEST_NAME = 40  # signs of a request id in a sentence


def number(n: int) -> str:
    """Three, or 11: at the beginning of a sentence."""
    return NUMBERS[n] if n < len(NUMBERS) else f"{n:,}"


def and_list(words: Iterable[object]) -> str:
    """a; a and b; a, b and c."""
    *first, last = map(str, words)
    return f"{', '.join(first)} and {last}" if first else last


def is_are(things: Sequence[object]) -> str:
    return "is" if len(things) == 1 else "are"


def shortened(words: Sequence[object]) -> str:
    """As `and_list`, but of many the first three and how many more."""
    if len(words) <= MOST_NAMED:
        return and_list(words)
    return and_list([*words[:3], f"{len(words) - 3:,} more"])


def blocks_named(block_ids: Sequence[int]) -> str:
    """block 7; blocks 7 and 2; blocks 7, 2, 9 and 11 more."""
    word = "block" if len(block_ids) == 1 else "blocks"
    return f"{word} {shortened(block_ids)}"


def logical_named(indices: Sequence[int]) -> str:
    """logical block 2; logical blocks 0 and 1; logical blocks 0 to 6."""
    if len(indices) == 1:
        return f"logical block {indices[0]}"
    if len(indices) > 2 and indices[-1] - indices[0] == len(indices) - 1:
        return f"logical blocks {indices[0]} to {indices[-1]}"
    return f"logical blocks {shortened(indices)}"


def slots_named(start: int, end: int) -> str:
    """slot 2; slots 0 to 3 (end excluded)."""
    return span(start, end).replace("position", "slot")


def references(n: int) -> str:
    return count(n, "reference")


def unused(n: int, where: str) -> str:
    """Three slots of it stay unused."""
    return f"{number(n)} slot{'' if n == 1 else 's'} of {where} stay{'s' if n == 1 else ''} unused."


def now_full(block_ids: Sequence[int], state: State) -> str:
    """Full blocks and the identities that they carry."""
    identities = [identity_of(b, state) for b in block_ids]
    one = len(block_ids) == 1
    if len(block_ids) > 3:
        text = f"{number(len(block_ids))} blocks are full now"
        return text + (" and get an identity each." if all(identities) else ".")
    text = f"{blocks_named(block_ids).capitalize()} {is_are(block_ids)} full now"
    if not all(identities):
        return text + "."
    word = "gets identity" if one else "get identities"
    return f"{text} and {word} {and_list(identities)}."


def identity_of(block_id: int, state: State) -> str | None:
    return state["blocks"].get(str(block_id), {}).get("identity")


def refs_of(block_id: int, state: State) -> int:
    return state["blocks"].get(str(block_id), {}).get("ref_cnt", 0)


def owners(block_id: int, state: State) -> list[str]:
    """Ids of the requests whose tables hold the block."""
    return [name for name, r in state["requests"].items() if block_id in r["block_table"]]


def token_text(vocab: Mapping[str, str], token: int) -> str:
    """The token in quotes, a byte by its name, or its number without a text."""
    text = vocab.get(str(token))
    if text is None:
        return f"token {token}"
    return byte_name(text) or f"'{visible(text)}'"


def name_in_words(name: str, letter: str) -> str:
    """A, or A (request r1): where the request is introduced."""
    if name == letter:
        return letter
    seen = visible(name)
    cut = seen if len(seen) <= LONGEST_NAME else seen[: LONGEST_NAME - 1] + "…"
    return f"{letter} (request {cut})"


@dataclass(frozen=True)
class Piece:
    """Slots first to after - 1 of a logical block and of the physical block behind it."""

    logical: int
    block: int
    first: int
    after: int


def pieces(table: Sequence[int], start: int, end: int, block_size: int) -> list[Piece]:
    """Where positions start to end - 1 lie.

    Position t is in logical block t // block_size, slot t % block_size. Positions beyond the
    table lie nowhere and are left out.
    """
    found = []
    for logical in range(start // block_size, min(-(-end // block_size), len(table))):
        first = max(start - logical * block_size, 0)
        after = min(end - logical * block_size, block_size)
        found.append(Piece(logical, table[logical], first, after))
    return found
