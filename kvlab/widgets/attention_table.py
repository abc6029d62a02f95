"""The view "attention read" without scripts: what happened, and the weights of its last read."""

from collections.abc import Mapping
from html import escape

from kvlab.widgets.attention_words import decimal, padded, sentence, total
from kvlab.widgets.byte_tokens import byte_name
from kvlab.widgets.growth_table import MAX_ROWS, SCROLLS
from kvlab.widgets.growth_words import count, visible
from kvlab.widgets.html import html_form, table


def attention_html(payload: Mapping) -> str:
    """The HTML form of a payload made by `attention_payload`: the sentences of all stops, then the
    weights of the last one; of a padded read also those of the stop before it, where it is masked.
    """
    stops, layer, head = payload["stops"], payload["layer"], payload["head"]
    told = [sentence(payload, stop, layer, head) for stop in stops]
    shown = range(len(stops) - (2 if stops[-1]["open"] else 1), len(stops))
    parts = [f"<p><strong>{escape(payload['title'])}</strong></p>", f"<div {SCROLLS}>"]
    parts += [f'<ol start="0">{"".join(f"<li>{escape(one)}</li>" for one in told)}</ol>', "</div>"]
    for i in shown:
        caption = f"Stop {i} of {len(stops) - 1}. {told[i]}"
        parts += [f"<div {SCROLLS}>", attention_table(payload, stops[i], caption), "</div>"]
    return html_form(payload, "\n".join(parts))


def attention_table(payload: Mapping, stop: Mapping, caption: str) -> str:
    """One row a key, the weights of each query head of the chosen layer beside it."""
    heads, layer = payload["heads"], payload["layer"]
    group, weights = heads[0] // heads[1], stop["weights"][str(layer)]
    names = [f"layer {layer}, query head {h}, KV head {h // group}" for h in range(heads[0])]
    rows = [_row(payload["columns"], stop, weights, p) for p in range(stop["own"] + 1)]
    if len(rows) > MAX_ROWS:
        half, left_out = MAX_ROWS // 2, len(rows) - MAX_ROWS
        middle = ("…", count(left_out, "key") + " left out", "", *("" for _ in names))
        rows = [*rows[:half], middle, *rows[-half:]]
    rows.append(("sum", "", "", *(decimal(total(head)) for head in weights)))
    return table(caption, ("position", "token", "what it is", *names), rows)


def _row(columns: list, stop: Mapping, weights: list, p: int) -> tuple:
    position, token, text = columns[p]
    shares = (decimal(head[p]) for head in weights)
    if p in padded(columns, stop["own"]):
        return (f"slot {p}", "pad", "padding, readable" if stop["open"] else "padding", *shares)
    name = f"token {token}" if text is None else byte_name(text) or visible(text)
    return (position, name, "own key" if p == stop["own"] else "key", *shares)
