"""The prefix blocks without scripts: the story, and a table of each prompt's blocks."""

from collections.abc import Mapping
from html import escape

from kvlab.widgets.growth_table import SCROLLS
from kvlab.widgets.growth_words import count
from kvlab.widgets.html import table
from kvlab.widgets.prefix_spelling import seen

HEAD = ("block", "identity", "tokens", "what happened", "physical", "like", "max |ΔK|", "max |ΔV|")


def prefix_content(payload: Mapping) -> str:
    """The sentence, then one table a prompt; h0 is the identity of the configuration."""
    parts = [f"<p>{escape(payload['sentence'])}</p>", f"<div {SCROLLS}>"]
    for row in payload["rows"]:
        salt = f", salt “{row['salt']}”" if row["salt"] else ""
        caption = (
            f"Prompt {row['name']}{salt}: {row['cached']} of {count(row['tokens'], 'token')} "
            f"reused. h0 = {payload['root']}."
        )
        rows = [_cells(block) for block in row["blocks"]]
        parts.append(table(caption, HEAD, rows))
    return "\n".join([*parts, "</div>"])


def _cells(block: Mapping) -> tuple:
    like, differences = block.get("like"), block.get("differences", ("", ""))
    where = f"{like[0]}, block {like[1]}" if like else ""
    texts = "|".join(seen(token) for token in block["tokens"])
    return (
        f"h{block['number']}",
        block["identity"] or "none",
        texts,
        block["kind"],
        block["block_id"],
        where,
        *differences,
    )
