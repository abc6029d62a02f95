"""The HTML form of a view: its payload as JSON beside a plain table, in one element.

A page with scripts mounts the view's module on the element; without scripts, on a hosting site or
in a notebook reopened without a kernel, the table is what one sees.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape

LESS_THAN = "\\u003c"  # so that no text inside the JSON can end the script element


def payload_json(payload: Mapping[str, object]) -> str:
    """One line of JSON, the same for the same payload, without the sign `<`."""
    text = json.dumps(payload, separators=(",", ":"), sort_keys=True)
    return text.replace("<", LESS_THAN)


def html_form(payload: Mapping[str, object], content: str) -> str:
    """content: HTML that stands there without scripts. No line of the result is blank."""
    view = escape(str(payload["view"]))
    lines = [
        f'<div class="kvlab-view" data-view="{view}">',
        f'<script type="application/json">{payload_json(payload)}</script>',
        *(line for line in content.splitlines() if line.strip()),
        "</div>",
    ]
    return "\n".join(lines)


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A captioned table; the first cell of each row is its heading. All texts are escaped."""
    cells = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = []
    for first, *rest in rows:
        others = "".join(f"<td>{escape(str(cell))}</td>" for cell in rest)
        body.append(f'<tr><th scope="row">{escape(str(first))}</th>{others}</tr>')
    return "\n".join(
        [
            f"<table><caption>{escape(caption)}</caption>",
            f"<thead><tr>{cells}</tr></thead>",
            "<tbody>",
            *body,
            "</tbody></table>",
        ]
    )
