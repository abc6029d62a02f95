"""The block table without scripts: what happened, and one stop of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape

from kvlab.core.trace import State, Trace
from kvlab.widgets.blocks_words import owners
from kvlab.widgets.growth_story import states
from kvlab.widgets.growth_table import MAX_ROWS, SCROLLS
from kvlab.widgets.html import html_form, table


@dataclass(frozen=True)
class Moment:
    """One stop's state. used: blocks with a reference; copies: source by block copied into."""

    stop: int
    used: int
    state: State
    copies: Mapping[int, int]


def block_table_html(payload: Mapping) -> str:
    """The HTML form of a payload made by `block_table_payload`."""
    return html_form(payload, blocks_content(payload))


def blocks_content(payload: Mapping) -> str:
    """Sentences of all stops, then requests and blocks where the view opens.

    Where it opens with the start, the stop with most blocks in use: there is most to see of it.
    """
    stops = payload["stops"]
    if opens := payload.get("at"):
        index, which = stops[opens][0], "where it opens"
        moment = next(m for m in moments(payload) if stops[m.stop][0] == index)
    else:
        moment, which = fullest(payload), "with most blocks in use"
    told = "".join(f"<li>{escape(sentence)}</li>" for _, _, _, sentence, _, _ in stops)
    where = f"Stop {moment.stop} of {len(stops) - 1}, {which}"
    free = moment.state["free"]
    queue = ", ".join(map(str, free[:20])) + (f" and {len(free) - 20} more" if free[20:] else "")
    return "\n".join(
        [
            f"<p><strong>{escape(payload['title'])}</strong></p>",
            f'<div {SCROLLS}><ol start="0">{told}</ol></div>',
            f"<div {SCROLLS}>",
            requests_table(payload, moment.state, f"{where}: requests and their block tables."),
            blocks_table(payload, moment, f"{where}: physical blocks."),
            f"<p>Free, next first: {queue or 'none'}.</p>",
            "</div>",
        ]
    )


def fullest(payload: Mapping) -> Moment:
    """The first stop at which most blocks have a reference."""
    return max(moments(payload), key=lambda moment: moment.used)  # the first of equal ones


def moments(payload: Mapping) -> Iterator[Moment]:
    """All stops in order."""
    trace = Trace.from_dict(payload["trace"])
    numbers = {stop[0]: i for i, stop in enumerate(payload["stops"])}
    yield Moment(0, _used(trace.initial), trace.initial, {})
    copies: dict[int, int] = {}
    for index, event, state in states(trace):
        copies = copies_after(copies, event, state)
        if index in numbers:
            yield Moment(numbers[index], _used(state), state, copies)


def copies_after(copies: Mapping[int, int], event: object, state: State) -> dict[int, int]:
    """Blocks that are copies, by their source, as long as somebody holds them."""
    held = {b: src for b, src in copies.items() if state["blocks"][str(b)]["ref_cnt"]}
    if event.kind == "copied":
        held[event.data["dst"]] = event.data["src"]
    return held


def _used(state: State) -> int:
    return sum(block["ref_cnt"] > 0 for block in state["blocks"].values())


def requests_table(payload: Mapping, state: State, caption: str) -> str:
    """One row a request that has arrived: its counts, and the blocks of its table in order."""
    rows = []
    for name, letter in payload["requests"]:
        request = state["requests"].get(name)
        if request is None or name not in payload["shown"]:
            continue
        entries = ", ".join(
            f"{i} → {'given back' if b is None else b}"
            for i, b in enumerate(request["block_table"])
        )
        tokens, stored = len(request["token_ids"]), request["num_computed_tokens"]
        stored = stored if request["block_table"] else 0
        rows.append((letter, name, request["status"], tokens, stored, entries or "none"))
    head = ("request", "id", "status", "tokens", "stored", "logical → physical block")
    return table(caption, head, rows)


def blocks_table(payload: Mapping, moment: Moment, caption: str) -> str:
    """One row a physical block: references, owners, fill, identity."""
    letters, size = dict(payload["requests"]), payload["trace"]["meta"]["block_size"]
    rows = []
    for block_id in payload["blocks"]:
        block = moment.state["blocks"].get(str(block_id))
        if block is None:
            block = {"ref_cnt": 0, "identity": None, "filled": 0}
        held = sorted(letters[name] for name in owners(block_id, moment.state))
        by = ", ".join(held) or ("nobody, evictable" if block["identity"] else "nobody, free")
        if block_id in moment.copies:
            by += f" (copy of block {moment.copies[block_id]})"
        fill = f"{block['filled']} of {size}"
        rows.append((block_id, block["ref_cnt"], by, fill, block["identity"] or "none yet"))
    if len(rows) > MAX_ROWS:
        half, left_out = MAX_ROWS // 2, len(rows) - MAX_ROWS
        rows = [*rows[:half], ("…", f"{left_out} blocks left out", "", "", ""), *rows[-half:]]
    return table(caption, ("block", "references", "held by", "filled", "identity"), rows)
