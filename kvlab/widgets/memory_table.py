"""The memory calculator without scripts: plain tables of every figure."""

from collections.abc import Mapping
from html import escape

from kvlab.widgets.html import table


def budget_content(payload: Mapping) -> str:
    """The story, the GPU by parts, the figures, the corners of the curve, the sum, the notices."""
    bar, curve = payload["bar"], payload["curve"]
    parts = [(f"{letter} {name}", f"{size:,}", text) for letter, name, size, text in bar["parts"]]
    if bar["missing"]:
        parts.append(("missing", f"{bar['missing']:,}", bar["missing_text"]))
    parts.append(("one GPU", f"{bar['total']:,}", bar["total_text"]))
    corners = [(f"{length:,}", f"{size:,}") for length, size in curve["points"]]
    return "\n".join(
        [
            f"<p>{escape(payload['sentence'])}</p>",
            table(payload["title"], ("part", "bytes", "size"), parts),
            table("Figures", ("figure", "value", "stands on"), payload["figures"]),
            table(f"{curve['caption']} ({curve['end']})", ("positions", "bytes"), corners),
            _list("The sum", payload["formula"]),
            *([_list("Notes", payload["notices"])] if payload["notices"] else []),
        ]
    )


def _list(name: str, entries: list[str]) -> str:
    items = "".join(f"<li>{escape(entry)}</li>" for entry in entries)
    return f"<p>{name}</p>\n<ul>{items}</ul>"
