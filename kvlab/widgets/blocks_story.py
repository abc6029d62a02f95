"""The story of the blocks, told from a trace: where to stop, what to ring, what to say.

Every count, table and identity is read off the trace. Several events of one step can be one stop:
a block is taken, registered under its identity and written in three events, and a reader sees one
(`blocks_merge.py` says which). Sections 21.4 and 21.5.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from kvlab.core.trace import Event, State, Trace
from kvlab.widgets.blocks_merge import told_by
from kvlab.widgets.blocks_notes import Notes
from kvlab.widgets.blocks_tell import start, tell
from kvlab.widgets.byte_tokens import with_named_bytes
from kvlab.widgets.growth_story import states

MOST_SPARE = 8  # blocks that are never taken and drawn all the same
KEPT = ("requests", "blocks", "free")  # of a state, what the view draws
NOT_DRAWN = ("attention", "nbytes")  # of an event's data
OF_REQUEST = ("status", "num_prompt_tokens", "token_ids", "num_computed_tokens", "block_table")


@dataclass(frozen=True)
class BlockStop:
    """One stop. index: of the frame in the trace; request: whose event it is, if anybody's.

    blocks: physical blocks that the event is about, to be ringed; span: positions (start, end)
    that were written or selected, end excluded.
    """

    index: int
    kind: str
    request: str | None
    sentence: str
    blocks: tuple[int, ...]
    span: tuple[int, int] | None


def block_table_payload(
    trace: Trace, requests: Iterable[str] | None = None, at: int | str | None = None
) -> dict:
    """What the view draws: plain data, the same for the same trace.

    requests: ids of those to follow: they stand on the left, in their order of arrival, and only
    their events are stops; memory shows everybody's blocks. None follows all. at: the stop to open
    with, by number or by words of its sentence; None leaves it out. Raises ValueError for an id
    that is not in the trace, for a stop that is not there, and for a trace without block_size.
    """
    if not isinstance(trace.meta.get("block_size"), int):
        raise ValueError(
            "the trace does not say its block_size; record it with LLM.start_trace() or "
            "LLMEngine.start_trace()"
        )
    everyone = arrivals(trace)
    shown = chosen(everyone, requests)
    blocks, left_out = drawn_blocks(trace)
    stops = block_stops(trace, shown)
    return {
        "view": "block_table",
        "title": "Block table",
        "requests": [list(pair) for pair in letters(everyone).items()],
        "shown": shown,
        "blocks": blocks,
        "left_out": left_out,
        "trace": reduced(trace),
        "stops": [_plain(stop) for stop in stops],
        **({} if at is None else {"at": stop_number(stops, at)}),
    }


def stop_number(stops: Sequence[BlockStop], at: int | str) -> int:
    """The number of the stop that `at` names: itself, or the first whose sentence has its words."""
    last = len(stops) - 1
    if isinstance(at, str):
        named = [i for i, stop in enumerate(stops) if at and at in stop.sentence]
    else:
        named = [at] if type(at) is int and 0 <= at <= last else []
    if not named:
        raise ValueError(
            f"at is {at!r}; give the number of a stop, 0 to {last}, or words that stand in its "
            "sentence under the picture"
        )
    return named[0]


def _plain(stop: BlockStop) -> list:
    span = None if stop.span is None else list(stop.span)
    return [stop.index, stop.kind, stop.request, stop.sentence, list(stop.blocks), span]


def arrivals(trace: Trace) -> list[str]:
    """All request ids: those there at the start by name (r2 before r10), then as they came."""

    def by_name(name: str) -> list:
        return [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"([0-9]+)", name)]

    there = sorted(trace.initial["requests"], key=by_name)
    came = (name for e in trace.events for name in _new_first(e))
    return list(dict.fromkeys([*there, *came]))


def _new_first(event: Event) -> list[str]:
    own = [] if event.request_id is None else [event.request_id]
    return own + sorted(event.patch.get("requests", {}))


def letters(request_ids: Sequence[str]) -> dict[str, str]:
    """A, B, C ... in order, then A1, B1 ... Ids that are such letters themselves keep theirs."""
    own = {name for name in request_ids if re.fullmatch("[A-Z]", name)}
    turns = ["", *range(1, len(request_ids) // 26 + 2)]
    others = (f"{a}{turn}" for turn in turns for a in ascii_uppercase if f"{a}{turn}" not in own)
    return {name: name if name in own else next(others) for name in request_ids}


def chosen(everyone: Sequence[str], requests: Iterable[str] | None) -> list[str]:
    """The requests to follow, in their order of arrival."""
    if requests is None:
        return list(everyone)
    asked = [requests] if isinstance(requests, str) else list(requests)
    if unknown := [name for name in asked if name not in everyone]:
        known = ", ".join(everyone) or "none"
        raise ValueError(f"there is no request {unknown[0]!r}; the trace has {known}")
    if not asked:
        raise ValueError("no request is named; give ids, or None for all requests of the trace")
    return [name for name in everyone if name in asked]


def drawn_blocks(trace: Trace) -> tuple[list[int], int]:
    """Block ids to draw, ascending, and how many are left out.

    All that are ever used are drawn, and a few of those that stay free from start to end.
    """
    used = {int(b) for b in trace.last_state()["blocks"]}
    spare = [b for b in trace.initial["free"] if b not in used]
    return sorted(used | set(spare[:MOST_SPARE])), max(len(spare) - MOST_SPARE, 0)


def block_stops(trace: Trace, shown: Sequence[str]) -> list[BlockStop]:
    """The start, then one stop for each event, or group of events, that changes what is drawn."""
    names = letters(arrivals(trace))
    notes = Notes(names, trace.meta["block_size"], trace.meta.get("vocab", {}))
    hosts = told_by(trace.events)
    before: State = trace.initial
    stops = [BlockStop(0, "start", None, start(notes, before), (), None)]
    for index, event, state in states(trace):
        notes.add(event, before)
        if hosts[index - 1] == index - 1:
            told = tell(notes, event, state)
            if event.request_id is None or event.request_id in shown:
                about = event.kind, event.request_id, told.sentence, told.blocks, told.span
                stops.append(BlockStop(index, *about))
        before = state
    return stops


# ---- a trace document with the same frames and what the view draws alone


def reduced(trace: Trace) -> dict:
    """No bytes, no attention; of the vocabulary the tokens that occur."""
    document = trace.to_dict()
    document["initial"] = _kept(document["initial"])
    for event in document["events"]:
        event["patch"] = _kept(event["patch"])
        event["data"] = {k: v for k, v in event["data"].items() if k not in NOT_DRAWN}
    everyone = trace.last_state()["requests"].values()
    used = {str(token) for request in everyone for token in request["token_ids"]}
    vocab = with_named_bytes(trace.meta.get("vocab", {}))
    document["meta"] = {
        "block_size": trace.meta["block_size"],
        "vocab": {token: text for token, text in vocab.items() if token in used},
    }
    return document


def _kept(state: Mapping) -> dict:
    kept = {key: state[key] for key in KEPT if key in state}
    if "requests" in kept:
        kept["requests"] = {
            name: {k: v for k, v in request.items() if k in OF_REQUEST}
            for name, request in kept["requests"].items()
        }
    return kept
