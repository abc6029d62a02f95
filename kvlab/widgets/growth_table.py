"""The story of a request's cache without scripts: what happened, and its fullest frame."""

from collections.abc import Mapping
from html import escape

from kvlab.core.trace import Trace
from kvlab.widgets.byte_tokens import byte_name
from kvlab.widgets.growth_story import Stop, growth_stops
from kvlab.widgets.growth_words import count, visible
from kvlab.widgets.html import html_form, table

MAX_ROWS = 120  # positions in the table; of more, those in the middle are left out
SCROLLS = 'style="max-height:26em;overflow:auto"'


def growth_html(payload: Mapping) -> str:
    """The HTML form of a payload made by `growth_payload`."""
    return html_form(payload, growth_content(payload))


def growth_content(payload: Mapping) -> str:
    """Sentences of all stops, then positions, tokens and blocks at the last stop that holds any."""
    trace = Trace.from_dict(payload["trace"])
    stops = growth_stops(trace, payload["request"])
    shown = max((i for i, stop in enumerate(stops) if stop.held), default=len(stops) - 1)
    told = "".join(f"<li>{escape(stop.sentence)}</li>" for stop in stops)
    return "\n".join(
        [
            f"<p><strong>{escape(payload['title'])}</strong></p>",
            f"<div {SCROLLS}>",
            f'<ol start="0">{told}</ol>',
            "</div>",
            f"<div {SCROLLS}>",
            growth_table(trace, stops[shown], f"Stop {shown} of {len(stops) - 1}."),
            "</div>",
        ]
    )


def growth_table(trace: Trace, stop: Stop, where: str) -> str:
    """One row a position, captioned with the stop's sentence and the bytes."""
    head = ("position", "token", "what it is", "keys and values", "block")
    rows = [_row(trace.meta, stop, p) for p in range(len(stop.request["token_ids"]))]
    if len(rows) > MAX_ROWS:
        half, left_out = MAX_ROWS // 2, len(rows) - MAX_ROWS
        middle = (
            f"{half} to {half + left_out - 1}",
            "…",
            f"{left_out:,} positions left out",
            "",
            "",
        )
        rows = [*rows[:half], middle, *rows[-half:]]
    caption = f"{where} {stop.sentence} {bytes_in_words(trace.meta, stop)}"
    return table(caption, head, rows)


def bytes_in_words(meta: Mapping, stop: Stop) -> str:
    """Measured bytes beside the formula, and whether the two agree."""
    formula, product = growth_formula(meta, stop.held)
    if stop.nbytes is None:
        return f"Formula: {formula} = {product:,} bytes."
    if stop.nbytes == product:
        return f"{stop.nbytes:,} bytes in the stored tensors = {formula}: they agree."
    held = f"{stop.nbytes:,} bytes"
    return f"The stored tensors hold {held}, {formula} gives {product:,}: THEY DISAGREE."


def growth_formula(meta: Mapping, positions: int) -> tuple[str, int]:
    """2 (K and V) · layers · requests · KV heads · positions · width · bytes a value."""
    layers, heads = meta["num_layers"], meta["num_kv_heads"]
    width, size = meta["head_dim"], meta["bytes_per_value"]
    words = (
        f"2 · {count(layers, 'layer')} · 1 request · {count(heads, 'KV head')} · "
        f"{count(positions, 'position')} · {width} width · {size} B"
    )
    return words, round(2 * layers * heads * positions * width * size)


def _row(meta: Mapping, stop: Stop, position: int) -> tuple[object, ...]:
    request, size = stop.request, meta["block_size"]
    token = request["token_ids"][position]
    text = meta.get("vocab", {}).get(str(token), f"token {token}")
    text = byte_name(text) or visible(text)
    stored = position < stop.held
    if position < request["num_prompt_tokens"]:
        kind = "prompt"
    else:
        kind = "output" if stored else "output, selected"
    if stored and position < request["num_cached_tokens"]:
        kind += ", reused from the prefix cache"
    state = f"in all {count(meta['num_layers'], 'layer')}" if stored else "none yet"
    table = request["block_table"]
    block = table[position // size] if position // size < len(table) else "none"
    return position, text, kind, state, block
