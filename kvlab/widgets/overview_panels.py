"""The four panels of the overview as HTML: headings, sentences and tables that stand without CSS.

static/overview.css lays the same tables out as pictures.
"""

from collections.abc import Iterable, Sequence
from html import escape

from kvlab.widgets import overview_words as words
from kvlab.widgets.growth_words import count
from kvlab.widgets.overview_read import Pass, Served
from kvlab.widgets.overview_story import Story

MOST_POSITIONS = 24  # columns of the prompt; of more, those in the middle are left out
MOST_LAYERS = 4
MOST_PASSES = 7
MOST_STEPS = 14
MOST_FREE = 6
MOST_SQUARES = 8  # slots of a block that are drawn one by one


def prefill(story: Story) -> str:
    """Positions side by side, layers one after another; the last logits select the first output."""
    request, layers = story.shown, story.meta["num_layers"]
    prompt, passes = request.num_prompt_tokens, request.prompt_passes()
    columns = _ends(list(range(prompt)), MOST_POSITIONS)
    head = [("th", "position", ""), *(("th", _dots(p), "") for p in columns)]
    rows = [head]
    for layer in _ends(list(range(layers)), MOST_LAYERS):
        cells = [("td", "…" if None in (layer, p) else "KV", "P") for p in columns]
        rows.append([("th", "…" if layer is None else f"layer {layer}", ""), *cells])
    last = passes[-1]
    chosen = story.text(last.selected)
    note = f"logits of position {last.end - 1} select {chosen}"
    end = [("th", "logits", ""), ("td", "▲", "ring")]
    if len(columns) > 1:
        end.insert(1, (f'td colspan="{len(columns) - 1}"', f"{note} →", "note"))
    rows.append(end)
    return _paragraph(words.prefill_told(story)) + _table("kvo-prefill", rows)


def decode(story: Story) -> str:
    """One column a pass; each adds one position, and with it the same number of bytes."""
    request = story.shown
    shown = [request.prompt_passes()[-1], *request.decode_passes()]
    drawn = shown[:MOST_PASSES]
    prompt = request.num_prompt_tokens

    def column(index: int, one: Pass) -> list[tuple[str, str, str]]:
        adds = f"+{one.nbytes - shown[index - 1].nbytes:,}" if index else ""
        reads = story.text(request.token_ids[one.start]) if index else count(prompt, "token")
        selects = "" if one.selected is None else story.text(one.selected)
        name = f"pass {index}" if index else "prompt"
        return [
            ("th", name, ""),
            ("td", reads, ""),
            ("td", _stack(prompt, one.end), "stack"),
            ("td", f"{one.nbytes:,}", "n"),
            ("td", adds, "n"),
            ("td", selects, ""),
        ]

    names = ("pass", "reads", "cache", "bytes", "adds", "selects")
    columns = [[("th", name, "") for name in names]]
    columns += [column(i, one) for i, one in enumerate(drawn)]
    rows = [list(row) for row in zip(*columns, strict=True)]
    told = words.decode_told(story, len(shown) - len(drawn))
    return _paragraph(told) + _table("kvo-decode", rows)


def scheduling(story: Story) -> str:
    """Requests by steps: waiting, positions of a prompt (P) or again (R), or one output (d)."""
    drawn = story.steps[:MOST_STEPS]
    rows = [[("th", "step", ""), *(("th", str(step), "") for step in drawn)]]
    rows += [
        [("th", r.letter, f"who-{r.letter}"), *(_turn(r, s) for s in drawn)] for r in story.requests
    ]
    passes = [p for r in story.requests for p in r.passes]
    loads = [sum(p.end - p.start for p in passes if p.step == step) for step in drawn]
    rows.append([("th", "positions", ""), *(("td", str(load), "n") for load in loads)])
    told = words.scheduling_told(story, len(story.steps) - len(drawn))
    return _paragraph(told) + _table("kvo-steps", rows)


def blocks(story: Story) -> str:
    """Physical blocks with their owners, block tables in logical order, the free queue."""
    now, size = story.busiest, story.meta["block_size"]
    free = list(now.free[:MOST_FREE])
    rows = [[("th", name, "") for name in ("block", "owner", "slots filled")]]
    for block in sorted(now.owners):
        owners = now.owners[block]
        kind = f"block who-{owners[0] if len(owners) == 1 else 'shared'}"
        slots = _slots(now.filled[block], size)
        rows.append([("th", str(block), kind), ("td", _names(owners), ""), ("td", slots, "")])
    for block in free:
        filled = now.filled.get(block, 0)
        owner = "free, kept" if filled else "free"
        rows.append(
            [("th", str(block), "block"), ("td", owner, ""), ("td", _slots(filled, size), "")]
        )
    tables = [
        [("th", letter, f"who-{letter}"), ("td", " → ".join(map(str, table)), "")]
        for letter, table in now.tables.items()
    ]
    queue = ", ".join(map(str, free)) + (", …" if len(now.free) > len(free) else "")
    tables.append([("th", "next free", ""), ("td", queue or "none", "")])
    return (
        _paragraph(words.blocks_told(story, len(now.free) - len(free)))
        + _table("kvo-blocks", rows)
        + _table("kvo-tables", [[("th", "", ""), ("th", "block table", "")], *tables])
    )


def _names(letters: Sequence[str]) -> str:
    return ", ".join(letters) if len(letters) <= 3 else count(len(letters), "request")


def _turn(request: Served, step: int) -> tuple[str, str, str]:
    """A request's cell in a step."""
    if one := request.pass_in(step):
        many, who = one.end - one.start, f"who-{request.letter}"
        if one.again:
            return "td", f"R {many}", f"R {who}"
        if one.start < request.num_prompt_tokens:
            return "td", f"P {many}", f"P {who}"
        return "td", "d", f"d {who}"
    if step in request.failed:
        return "td", "fails", "waits"
    return ("td", "waits", "waits") if request.waits_in(step) else ("td", "", "")


def _stack(prompt: int, held: int) -> str:
    """The cache's positions: the prompt's as one piece, outputs one by one."""
    return " ".join([f"{prompt} P", *["O"] * (held - prompt)])


def _slots(filled: int, size: int) -> str:
    return "■" * filled + "□" * (size - filled) if size <= MOST_SQUARES else f"{filled}/{size}"


def _ends(items: list[int], most: int) -> list[int | None]:
    """All of a few; of many the first ones, None for a gap, and the last."""
    return items if len(items) <= most else [*items[: most - 2], None, items[-1]]


def _dots(value: int | None) -> str:
    return "…" if value is None else str(value)


def _paragraph(text: str) -> str:
    return f'<p class="kvo-told">{escape(text)}</p>\n'


def _table(name: str, rows: Iterable[Iterable[tuple[str, str, str]]]) -> str:
    """Cells are (tag with attributes, text, class)."""
    lines = [f'<table class="{name}"><tbody>']
    for row in rows:
        cells = []
        for tag, text, kind in row:
            attribute = f' class="{escape(kind)}"' if kind else ""
            cells.append(f"<{tag}{attribute}>{_content(text, kind)}</{tag.split()[0]}>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</tbody></table>\n"])


def _content(text: str, kind: str) -> str:
    """Escaped; a letter of a request and the pieces of a stack are elements of their own."""
    if kind.startswith("who-"):
        return f"<b>{escape(text)}</b>"
    if kind != "stack":
        return escape(text)
    prompt, letter, outputs = text.partition(" P")
    pieces = " <i>O</i>" * outputs.count("O")
    return f"<div><b>{escape(prompt + letter)}</b>{pieces}</div>"
