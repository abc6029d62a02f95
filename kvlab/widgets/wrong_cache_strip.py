"""What a damaged cache looks like: a prompt's tokens, block by block, the changed ones marked."""

from collections.abc import Mapping, Sequence
from html import escape

from kvlab.widgets.growth_words import count, span
from kvlab.widgets.html import table


def runs(positions: Sequence[int]) -> list[tuple[int, int]]:
    """Rising positions as half-open ranges: 3 4 5 9 -> (3, 6), (9, 10)."""
    found: list[list[int]] = []
    for position in positions:
        if found and found[-1][1] == position:
            found[-1][1] += 1
        else:
            found.append([position, position + 1])
    return [(start, end) for start, end in found]


def where(positions: Sequence[int], block_size: int) -> str:
    """positions 48 to 63 (block 3); empty where there are none."""
    if not positions:
        return ""
    blocks = sorted({position // block_size for position in positions})
    first, last = blocks[0], blocks[-1]
    named = f"block {first}" if first == last else f"blocks {first} to {last}"
    if len(blocks) < last - first + 1:
        named = count(len(blocks), "block")
    spans = [span(*run).removeprefix("positions ") for run in runs(positions)]
    if len(positions) == 1:
        return f"position {positions[0]} ({named})"
    return f"positions {' and '.join(spans)} ({named})"


def strip_payload(
    tokens: Sequence[str],
    block_size: int,
    context: int,
    changed: Sequence[int],
    fact: range,
    mark: str,
    sentence: str,
    padding: int = 0,
) -> dict:
    """Plain data for the view. context: positions before the question; the rest is the question's.

    changed: positions with the mark. padding: slots between context and question.
    """
    return {
        "view": "wrong_cache",
        "title": "The prompt, block by block",
        "tokens": list(tokens),
        "block_size": block_size,
        "context": context,
        "changed": [list(run) for run in runs(changed)],
        "fact": [fact.start, fact.stop],
        "mark": mark,
        "padding": padding,
        "sentence": sentence,
    }


def strip_content(payload: Mapping) -> str:
    """Without scripts: one row a block, and the sentence."""
    size, tokens = payload["block_size"], payload["tokens"]
    changed = {p for start, end in payload["changed"] for p in range(start, end)}
    rows = []
    for start in range(0, len(tokens), size):
        held = range(start, min(start + size, len(tokens)))
        marked = where([p for p in held if p in changed], size).rpartition(" (")[0]
        told = f"{payload['mark']}: {marked}" if marked else ""
        rows.append((start // size, " ".join(tokens[p] for p in held), told))
    head = ("block", "tokens", "changed")
    return f"<p>{escape(payload['sentence'])}</p>\n{table(payload['title'], head, rows)}"
