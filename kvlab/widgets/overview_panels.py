"""The four panels of the overview as HTML: headings, sentences and tables that stand without CSS.

static/overview.css lays the same tables out as pictures.
"""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

from kvlab.widgets.growth_words import count
from kvlab.widgets.overview_story import Moment, Pass, Served, Story

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
    took = "One pass takes" if len(passes) == 1 else f"{len(passes)} passes take"
    told = (
        f"{took} {request.letter}'s prompt: {count(prompt, 'position')} side by side, "
        f"{count(layers, 'layer')} one after another. Each position leaves a key and a value (KV) "
        f"in every layer: {last.nbytes:,} bytes measured. The logits of position {last.end - 1} "
        f"select the first output, {chosen}."
    )
    return _paragraph(told) + _table("kvo-prefill", rows)


def decode(story: Story) -> str:
    """One column a pass; each adds one position, and with it the same number of bytes."""
    request = story.shown
    shown = [request.prompt_passes()[-1], *request.decode_passes()]
    added = sorted({b.nbytes - a.nbytes for a, b in pairwise(shown)})
    drawn, more = shown[:MOST_PASSES], len(shown) - MOST_PASSES
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
    each = " or ".join(f"{n:,}" for n in added)
    left_out = f" {more} more pass{'' if more == 1 else 'es'} not drawn." if more > 0 else ""
    told = (
        f"Each later pass reads one token of {request.letter} and adds its column, {each} bytes "
        f"each time: from {shown[0].nbytes:,} to {shown[-1].nbytes:,} bytes in "
        f"{len(shown) - 1} passes. What a pass selects, the next one reads.{left_out}"
    )
    return _paragraph(told) + _table("kvo-decode", rows)


def scheduling(story: Story) -> str:
    """Requests by steps: waiting, a prompt's part of n positions (P n), or one output (d)."""
    ran = [r for r in story.requests if r.passes]
    first, last = min(r.first for r in ran), max(r.last for r in ran)
    steps = list(range(first, last + 1))
    drawn = steps[:MOST_STEPS]
    rows = [[("th", "step", ""), *(("th", str(step), "") for step in drawn)]]
    rows += [
        [("th", r.letter, f"who-{r.letter}"), *(_turn(r, s) for s in drawn)] for r in story.requests
    ]
    loads = {s: sum(p.end - p.start for r in ran for p in r.passes if p.step == s) for s in steps}
    rows.append([("th", "positions", ""), *(("td", str(loads[s]), "n") for s in drawn)])
    busiest = max(steps, key=lambda s: sum(p.step == s for r in ran for p in r.passes))
    together = [r.letter for r in ran if any(p.step == busiest for p in r.passes)]
    left_out = len(steps) - len(drawn)
    told = (
        f"{count(len(story.requests), 'request')} arrive at different times and share the steps: "
        f"step {busiest} runs {_listed(together)} in one pass, {count(loads[busiest], 'position')} "
        f"in all. P n: n positions of a prompt; d: one output is read. {_waits(story.requests)}"
        + (f" {count(left_out, 'later step')} not drawn." if left_out else "")
    )
    return _paragraph(told) + _table("kvo-steps", rows)


def blocks(story: Story) -> str:
    """Physical blocks with their owners, block tables in logical order, the free queue."""
    now, size = story.fullest, story.meta["block_size"]
    free = list(now.free[:MOST_FREE])
    rows = [[("th", name, "") for name in ("block", "owner", "slots filled")]]
    for block in sorted(now.owners):
        owner = now.owners[block]
        kind = f"block who-{owner[0] if ',' not in owner else 'shared'}"
        filled = now.filled[block]
        rows.append([("th", str(block), kind), ("td", owner, ""), ("td", _slots(filled, size), "")])
    rows += [
        [("th", str(b), "block"), ("td", "free", ""), ("td", _slots(0, size), "")] for b in free
    ]
    tables = [
        [("th", letter, f"who-{letter}"), ("td", " → ".join(map(str, table)), "")]
        for letter, table in now.tables.items()
    ]
    queue = ", ".join(map(str, free)) + (", …" if len(now.free) > len(free) else "")
    tables.append([("th", "next free", ""), ("td", queue or "none", "")])
    return (
        _paragraph(_blocks_told(now, size))
        + _table("kvo-blocks", rows)
        + _table("kvo-tables", [[("th", "", ""), ("th", "block table", "")], *tables])
    )


def _blocks_told(now: Moment, size: int) -> str:
    held, filled = len(now.owners), sum(now.filled.values())
    whose = [f"{letter} {len(table)}" for letter, table in now.tables.items()]
    return (
        f"At its fullest, in step {now.step}, {held} of {held + len(now.free)} blocks are held: "
        f"{_listed(whose)}. {filled:,} of their {held * size:,} slots hold a position. A table "
        "lists a request's blocks in the order of its positions, wherever they lie."
    )


def _turn(request: Served, step: int) -> tuple[str, str, str]:
    """A request's cell in a step."""
    for one in request.passes:
        if one.step == step:
            many = one.end - one.start
            if one.start < request.num_prompt_tokens or many > 1:
                return "td", f"P {many}", f"P who-{request.letter}"
            return "td", "d", f"d who-{request.letter}"
    ended = bool(request.passes) and step > request.last
    return ("td", "", "") if step <= request.arrived or ended else ("td", "waits", "waits")


def _waits(requests: Sequence[Served]) -> str:
    """Who could have run and did not, before its first step."""
    told = [
        f"{r.letter} waits {count(r.first - r.arrived - 1, 'step')}"
        for r in requests
        if r.passes and r.first > r.arrived + 1
    ]
    return f"{_listed(told)}." if told else "Nobody waits."


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


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else "nobody"


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
