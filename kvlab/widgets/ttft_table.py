"""TTFT taken apart, without scripts: parts across, boundaries down, and the sentences."""

from collections.abc import Mapping
from html import escape

from kvlab.widgets.html import html_form, table

OUTSIDE = "–"  # a part that a boundary does not hold


def ttft_html(payload: Mapping) -> str:
    """The HTML form of a payload made by `ttft_payload`."""
    return html_form(payload, ttft_content(payload))


def ttft_content(payload: Mapping) -> str:
    """The table of parts and boundaries, then one sentence a stop."""
    told = "".join(f"<li>{escape(sentence)}</li>" for sentence in payload["said"])
    about = f": {payload['about']}" if payload["about"] else ""
    head = ("boundary", *(part["name"] for part in payload["parts"]), "remainder", "TTFT")
    caption = (
        f"Parts in {payload['unit']}, in the order of time; {OUTSIDE} means outside the boundary; "
        "the remainder is what equation 21.4 has no term for"
    )
    rows = [
        (row["boundary"], *cells(row, payload["parts"]), row["remainder"], row["text"])
        for row in payload["rows"]
    ]
    whole = payload["equation"]
    if whole:
        rows.append(("eq 21.4", *cells(whole, payload["parts"]), OUTSIDE, whole["text"]))
    return "\n".join(
        [
            f"<p><strong>{escape(payload['title'])}</strong>{escape(about)}</p>",
            table(caption, head, rows),
            f'<ol start="0">{told}</ol>',
        ]
    )


def cells(row: Mapping, parts: list[Mapping]) -> list[str]:
    """The parts of a boundary, or of equation 21.4, as texts."""
    return [
        part["text"] if row["first"] <= i <= row["last"] else OUTSIDE
        for i, part in enumerate(parts)
    ]
