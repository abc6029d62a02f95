"""Two layouts without scripts: what happened, and the fullest stop as a table."""

from collections.abc import Mapping
from html import escape

from kvlab.core.layouts import LayoutRun, LayoutState
from kvlab.widgets.growth_words import count
from kvlab.widgets.html import html_form, table
from kvlab.widgets.layouts_story import (
    blocks_formula,
    fullest,
    layouts_stops,
    rectangle_formula,
)

SCROLLS = 'style="max-height:26em;overflow:auto"'
HEAD = (
    "request",
    "prompt",
    "outputs processed",
    "rectangle: slots",
    "of these padding",
    "blocks",
    "block slots",
    "empty tail",
)


def layouts_html(payload: Mapping) -> str:
    """The HTML form of a payload made by `layouts_payload`."""
    return html_form(payload, layouts_content(payload))


def layouts_content(payload: Mapping) -> str:
    """Sentences of all stops, then the stop at which both layouts together hold the most."""
    run = LayoutRun.from_dict(payload["layouts"])
    stops = layouts_stops(run)
    told = "".join(f"<li>{escape(stop.sentence)}</li>" for stop in stops)
    shown = fullest(stops)
    return "\n".join(
        [
            f"<p><strong>{escape(payload['title'])}</strong></p>",
            f"<div {SCROLLS}>",
            f'<ol start="0">{told}</ol>',
            "</div>",
            layouts_table(run, stops[shown].state, f"Stop {shown} of {len(stops) - 1}."),
        ]
    )


def layouts_table(run: LayoutRun, state: LayoutState, where: str) -> str:
    """One row a request, one for the totals; the caption sets both formulas beside the bytes."""
    rows = [_row(run, state, i) for i in range(len(run.requests))]
    held, taken = state.rectangle_nbytes, sum(state.block_nbytes)
    rows.append(
        (
            "together",
            sum(row[1] for row in rows),
            sum(row[2] for row in rows),
            f"{state.rectangle_slots:,} ({held:,} bytes)",
            state.padding,
            state.num_blocks,
            f"{state.block_slots:,} ({taken:,} bytes)",
            sum(state.tails),
        )
    )
    formulas = (
        _agreement("Rectangle", held, *rectangle_formula(run.meta, state)),
        _agreement("Blocks", taken, *blocks_formula(run.meta, state)),
    )
    same = f"The same in {layers_in_words(run.meta['num_layers'])}, for K and for V."
    return table(" ".join((where, *formulas, same)), HEAD, rows)


def layers_in_words(layers: int) -> str:
    """1 layer has nothing to be the same as."""
    return "the one layer" if layers == 1 else f"all {count(layers, 'layer')}"


def _agreement(what: str, measured: int, words: str, product: int) -> str:
    if measured == product:
        return f"{what}: {measured:,} bytes in the tensors = {words}: they agree."
    return f"{what}: {measured:,} bytes in the tensors, {words} = {product:,}: THEY DISAGREE."


def _row(run: LayoutRun, state: LayoutState, i: int) -> tuple:
    letters, ids = state.rows[i], state.block_tables[i]
    blocks = ", ".join(str(block_id) for block_id in ids)
    if not state.running[i]:
        blocks = "given back"
    return (
        run.requests[i].name,
        letters.count("P"),
        letters.count("O"),
        f"{len(letters):,}" + ("" if state.running[i] else " (still held)"),
        letters.count("-"),
        blocks or "none",
        len(ids) * state.block_size,
        state.tails[i],
    )
