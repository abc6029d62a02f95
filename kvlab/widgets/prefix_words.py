"""The prefix blocks in words: where each prompt's match ends and why, and one text a block."""

from collections.abc import Sequence

from kvlab.widgets.growth_words import count
from kvlab.widgets.prefix_data import (
    DIFFERS,
    LAST,
    LONGER,
    OTHER_SALT,
    PARTLY,
    REUSED,
    SAME,
    PrefixBlock,
    PrefixRow,
    PrefixRun,
)
from kvlab.widgets.prefix_spelling import seen, spelled


def story(run: PrefixRun) -> str:
    """All of the picture in a few sentences."""
    by_name = {row.name: row for row in run.rows}
    told = [_row_sentence(row, by_name.get(row.compared_with), run) for row in run.rows]
    return " ".join([*told, *_last_position(run.rows), *_other_prefix(run), *_pieces(run)])


def lines(run: PrefixRun) -> list[list[str]]:
    """Always three: reused of each prompt, computed of each, and the engine's hit rate."""
    reused = [f"{row.name} {row.num_cached_tokens} of {len(row.tokens)}" for row in run.rows]
    computed = [f"{row.name} {row.num_computed}" for row in run.rows]
    share = round(100 * run.hits / run.queries)
    rate = f"{share}% ({run.hits} of {count(run.queries, 'token')})"
    return [
        ["Reused tokens", " · ".join(reused), "plain"],
        ["Computed", " · ".join(computed), "plain"],
        ["Hit rate", rate, "plain"],
    ]


def numbered(numbers: Sequence[int]) -> str:
    """block 1; blocks 1 and 2; blocks 1 to 5."""
    first, last = numbers[0], numbers[-1]
    if first == last:
        return f"block {first}"
    return f"blocks {first} {'and' if last == first + 1 else 'to'} {last}"


def quoted(text: str) -> str:
    """A token, without the space before it."""
    shown = seen(text)
    return f"“{shown.strip() or shown.replace(' ', '␣')}”"


def salt_words(salt: str | None) -> str:
    return "no salt" if salt is None else f"the salt “{spelled(salt)}”"


def difference(value: float) -> str:
    """A measured difference; what rounding makes of equal inputs is not told in digits."""
    return digits(value) if value else "less than 0.0001"


def by_difference(value: float) -> str:
    """by up to 0.90; by less than 0.0001."""
    return f"by {'up to ' if value else ''}{difference(value)}"


def digits(value: float) -> str:
    """Two significant digits: 0.90, 4.0, 12, 120; 0 for 0."""
    text = f"{value:#.2g}"
    return f"{value:g}" if "e" in text or not value else text.rstrip(".")


# ---- one sentence a prompt


def _row_sentence(row: PrefixRow, other: PrefixRow | None, run: PrefixRun) -> str:
    every = count(len(row.tokens), "token")
    if other is None:
        return f"{row.name} is served first, into an empty cache: {every} computed."
    matched = _matched(row)
    at, size = row.num_equal_tokens, run.block_size
    if row.match_end == OTHER_SALT:
        return (
            f"{row.name} has {salt_words(row.salt)}, {other.name} {salt_words(other.salt)}. The "
            "salt is in the first block's identity, and every later one includes the first: "
            f"{matched}"
        )
    if row.match_end == DIFFERS:
        new, old = quoted(row.tokens[at]), quoted(other.tokens[at])
        where = f"position {at}, in block {at // size + 1}"
        return (
            f"{row.name} first differs from {other.name} at {where} ({new}, not {old}): {matched}"
        )
    if row.match_end == LONGER:
        every = "the one token" if at == 1 else f"all {at} tokens"
        said = f"{row.name} has {every} of {other.name} and goes on: {matched}"
        return said + _never_shared(other)
    if row.match_end == SAME:
        same = "token" if at == 1 else f"{at} tokens"
        said = f"{row.name} has the same {same} as {other.name}: {matched}"
        return said + _never_shared(other)
    first = "token" if at == 1 else f"{at} tokens"
    return f"{row.name} is the first {first} of {other.name}: {matched}"


def _matched(row: PrefixRow) -> str:
    """What was reused, and what was left to compute."""
    if not row.reused:
        few = "" if row.blocks[0].identity else "no block is full, and "
        return f"{few}nothing is reused, {count(row.num_computed, 'token')} computed."
    verb = "is" if len(row.reused) == 1 else "are"
    return (
        f"{numbered(row.reused)} {verb} reused ({count(row.num_cached_tokens, 'token')}), "
        f"{row.num_computed} computed."
    )


def _never_shared(other: PrefixRow) -> str:
    last = other.blocks[-1]
    if last.kind != PARTLY:
        return ""
    return f" The partly filled block {last.number} of {other.name} is never shared."


def _last_position(rows: Sequence[PrefixRow]) -> list[str]:
    """The rule for a prompt that is cached whole, where it applied."""
    for row in rows:
        for block in row.blocks:
            if block.kind == LAST:
                return [
                    f"Block {block.number} of {row.name} is in the cache too and is computed all "
                    "the same: a prompt's last position always is, since K and V give no logits."
                ]
    return []


def _other_prefix(run: PrefixRun) -> list[str]:
    """Equal tokens after something else: one of them told, the others counted."""
    found = [(row, b) for row in run.rows for b in row.blocks if b.like and not b.same_identity]
    if not found:
        return []
    row, block = max(found, key=lambda pair: pair[1].key_difference)
    if not block.key_difference and not block.value_difference:
        return []  # another salt alone: told already
    name, number = block.like
    others = [b for _, b in found if b.key_difference or b.value_difference]
    more = f" ({len(others) - 1} more like it)" if len(others) > 1 else ""
    return [
        f"Block {block.number} of {row.name} has the tokens of block {number} of {name} after "
        f"another prefix, so another identity{more}: its keys differ "
        f"{by_difference(block.key_difference)}, its values "
        f"{by_difference(block.value_difference)}."
    ]


def _pieces(run: PrefixRun) -> list[str]:
    """Blocks count tokens, and a token may be less than a word."""
    inner = (token for row in run.rows for token in row.tokens[1:])
    if not any(token[:1].isalpha() for token in inner):
        return []
    return [f"A block is {count(run.block_size, 'token')}, here also pieces of words."]


# ---- one text a block


def root_words(root: str) -> str:
    return (
        f"h0 = {root} is the hash of the configuration: weights, position scheme, attention "
        "settings, cache format and dtype, block size. It is the parent of every first block: "
        "under another configuration no block matches."
    )


def block_words(row: PrefixRow, block: PrefixBlock, size: int) -> str:
    """Everything about one block, for the line under the picture."""
    head = f"Block {block.number} of {row.name}, {quoted(''.join(block.tokens))}"
    if block.kind == PARTLY:
        return (
            f"{head}: {len(block.tokens)} of {size} slots filled, so it has no identity and is "
            f"never shared. Computed into physical block {block.block_id}, which was free again "
            f"when {row.name} ended."
        )
    salt = f", {salt_words(row.salt)}" if block.number == 1 and row.salt else ""
    chain = (
        f"h{block.number} = hash(h{block.number - 1} {block.parent}, {count(size, 'token')}{salt}) "
        f"= {block.identity}"
    )
    return f"{head}: {chain}. {_fate(block)}"


def _fate(block: PrefixBlock) -> str:
    if block.like is None:
        return (
            f"No earlier block holds these tokens. Computed into physical block {block.block_id}."
        )
    name, number = block.like
    twin = f"block {number} of {name}"
    if block.kind == REUSED:
        return (
            f"The identity of {twin}: reused, nothing computed. Its K and V are read from "
            f"physical block {block.block_id}; difference {digits(block.key_difference)} and "
            f"{digits(block.value_difference)}."
        )
    computed = f"Computed into physical block {block.block_id}"
    measured = (
        f"largest difference of K {difference(block.key_difference)}, "
        f"of V {difference(block.value_difference)}"
    )
    if block.kind == LAST:
        return (
            f"The identity of {twin}, but the prompt ends in it, and its last position must be "
            f"run for its logits. {computed}; {measured}."
        )
    place = "" if number == block.number else " at another place"
    why = "salt" if number == block.number == 1 else "parent"
    return (
        f"The tokens of {twin}{place}, but another {why}, so another identity: not shared. "
        f"{computed}; {measured}."
    )
