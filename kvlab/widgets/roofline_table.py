"""Prefill against decode, without scripts: the ceilings, the passes, and the sentences."""

from collections.abc import Mapping
from html import escape

from kvlab.widgets.growth_table import SCROLLS
from kvlab.widgets.html import html_form, table

HEAD = (
    *("pass", "FLOPs", "bytes", "FLOPs a byte", "took", "bytes need", "FLOPs need"),
    *("the longer, of the time", "tokens/s", "FLOP/s", "bytes/s", "limit"),
)
IN_CACHE = " (its bytes fit into the processor's cache)"


def phases_html(payload: Mapping) -> str:
    """The HTML form of a payload made by `phases_payload`."""
    return html_form(payload, phases_content(payload))


def phases_content(payload: Mapping) -> str:
    """A row a ceiling, a row a pass, and one sentence a stop."""
    about = f": {payload['about']}" if payload["about"] else ""
    parts = [f"<p><strong>{escape(payload['title'])}</strong>{escape(about)}</p>"]
    parts.append(f"<div {SCROLLS}>")
    if payload["roof"]:
        head = ("ceiling", "median", "from, to", "by")
        parts.append(
            table("What this machine was seen to do at most", head, payload["roof"]["ways"])
        )
    if payload["points"]:
        parts.append(table("Passes that were measured", HEAD, map(_row, payload["points"])))
    told = "".join(f"<li>{escape(sentence)}</li>" for sentence in payload["said"])
    return "\n".join([*parts, f'<ol start="0">{told}</ol>', "</div>"])


def _row(point: Mapping) -> tuple[str, ...]:
    note = IN_CACHE if point["cached"] else ""
    limit = "memory" if point["limit"] == "memory" else "arithmetic"
    return (f"{point['phase']} {point['label']}", *point["cells"], f"{limit}{note}")
