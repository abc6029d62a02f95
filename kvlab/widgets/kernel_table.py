"""The view "watch a kernel" without scripts: a row a turn, the shares of the splits, the story."""

from collections.abc import Mapping
from html import escape

from kvlab.widgets.growth_table import SCROLLS
from kvlab.widgets.html import html_form, table
from kvlab.widgets.kernel_words import ranges

TURNS = (
    *("request, KV head, split", "turn", "positions", "blocks", "slots read, in order", "masked"),
    *("running max2 of each query head", "running sum of each query head"),
)


def kernel_html(payload: Mapping) -> str:
    """The HTML form of a payload made by `kernel_payload`."""
    return html_form(payload, kernel_content(payload))


def kernel_content(payload: Mapping) -> str:
    """The table of turns, that of the splits, and one sentence a stop."""
    rows = [
        _turn(payload, program, i)
        for program in payload["programs"]
        for i in range(len(program["turns"]))
    ]
    caption = f"Turns of the programs of {payload['file']}, in the order in which they ran"
    parts = [
        f"<p><strong>{escape(payload['title'])}</strong>: {escape(payload['about'])}</p>",
        f"<div {SCROLLS}>",
        table(caption, TURNS, rows),
    ]
    if payload["reduces"]:
        head = ("request, query head", *(f"split {i}" for i in range(payload["splits"])))
        shares = [
            (f"{request}, {head}", *("NaN" if w is None else f"{w:.2f}" for w in weights))
            for request, head, weights in payload["reduces"]
        ]
        parts.append(table("Each split's share of the result", head, shares))
    told = "".join(f"<li>{escape(stop['sentence'])}</li>" for stop in payload["stops"])
    return "\n".join([*parts, "</div>", f"<div {SCROLLS}>", f'<ol start="0">{told}</ol>', "</div>"])


def _turn(payload: Mapping, program: Mapping, i: int) -> tuple[object, ...]:
    turn = program["turns"][i]
    pairs = list(zip(turn["positions"], turn["keys"], strict=True))
    return (
        ", ".join(map(str, program["ids"])),
        f"{i + 1} of {len(program['turns'])}",
        ranges(turn["positions"]),
        ", ".join(str(block) for _, block in turn["lookups"]),
        ranges([slot for _, slot in pairs if slot is not None]),
        ranges([position for position, slot in pairs if slot is None]) or "none",
        _change(turn["max2"]),
        _change(turn["sums"]),
    )


def _change(pair: list) -> str:
    before, after = pair
    return "; ".join(f"{b[1]} → {a[1]}" for b, a in zip(before, after, strict=True))
