"""The view "prefix blocks" as plain data: each prompt's row of blocks, and all texts."""

from kvlab.widgets.prefix_data import (
    COMPUTED,
    DIFFERS,
    OTHER_SALT,
    REUSED,
    PrefixBlock,
    PrefixRow,
    PrefixRun,
)
from kvlab.widgets.prefix_spelling import spelled
from kvlab.widgets.prefix_words import block_words, digits, root_words, story


def prefix_payload(run: PrefixRun, num_rows: int) -> dict:
    """num_rows: rows that the picture keeps room for."""
    by_name = {row.name: row for row in run.rows}
    return {
        "view": "prefix_blocks",
        "title": "Prefix blocks",
        "root": run.root,
        "root_say": root_words(run.root),
        "block_size": run.block_size,
        "room": num_rows,
        "rows": [_row(row, by_name.get(row.compared_with), run.block_size) for row in run.rows],
        "sentence": story(run),
    }


def first_difference(row: PrefixRow, other: PrefixRow | None) -> int | None:
    """The position of the first token that is another one there; None where none is."""
    at = row.num_equal_tokens
    differs = row.match_end in (DIFFERS, OTHER_SALT) and other is not None
    return at if differs and at < min(len(row.tokens), len(other.tokens)) else None


def _row(row: PrefixRow, other: PrefixRow | None, size: int) -> dict:
    return {
        "name": row.name,
        "salt": row.salt and spelled(row.salt),
        "cached": row.num_cached_tokens,
        "tokens": len(row.tokens),
        "difference": first_difference(row, other),
        "blocks": [_block(row, block, size) for block in row.blocks],
    }


def _block(row: PrefixRow, block: PrefixBlock, size: int) -> dict:
    found = {
        "number": block.number,
        "tokens": list(block.tokens),
        "identity": block.identity,
        "block_id": block.block_id,
        "kind": kind_of(block),
        "say": block_words(row, block, size),
    }
    if block.like:
        differences = (block.key_difference, block.value_difference)
        exact = block.kind == REUSED  # the very same memory
        found["like"] = list(block.like)
        found["differences"] = [digits(d) if d or exact else "≈0" for d in differences]
    return found


def kind_of(block: PrefixBlock) -> str:
    """As in `PrefixBlock.kind`, and "other identity" for equal tokens that may not be shared."""
    other = block.kind == COMPUTED and block.like is not None
    return "other identity" if other else block.kind
