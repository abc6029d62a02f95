"""The story of one request's cache, told from its trace: where to stop, and what to say there.

Every number is read off the trace: positions from the state, bytes from the real tensors, which
the engine asks at each pass. Selecting an output and processing it are two stops (section 21.6).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kvlab.core.trace import Event, State, Trace, apply_patch
from kvlab.widgets.byte_tokens import with_named_bytes
from kvlab.widgets.growth_words import Teller

NEEDED = ("block_size", "num_layers", "num_kv_heads", "head_dim", "bytes_per_value")
MOST_LAYERS = 4  # of more, the first two and the last are drawn
UNMEASURED_AFTER = ("admitted", "freed", "preempted", "step_failed")


@dataclass(frozen=True)
class Stop:
    """One stop of the story. index: of the frame in the trace.

    nbytes: what the last pass found in the tensors; None if no pass has looked since the request
    took its blocks or gave them back.
    """

    index: int
    kind: str
    sentence: str
    request: State
    nbytes: int | None

    @property
    def held(self) -> int:
        """Positions whose keys and values the request holds."""
        return self.request["num_computed_tokens"] if self.request["block_table"] else 0


def growth_payload(
    trace: Trace, request_id: str | None = None, layers: Sequence[int] | None = None
) -> dict:
    """What the view draws: plain data, the same for the same trace.

    request_id: needed where the trace has several. layers: the rows to draw; None draws all of
    up to four, else the first two and the last. Raises ValueError for what is not in the trace.
    """
    if missing := [key for key in NEEDED if key not in trace.meta]:
        raise ValueError(
            f"the trace does not say {', '.join(missing)}; record it with LLM.start_trace()"
        )
    request = chosen_request(trace, request_id)
    stops = growth_stops(trace, request)
    return {
        "view": "cache_growth",
        "title": f"Cache growth of request {request}",
        "request": request,
        "layers": chosen_layers(trace.meta["num_layers"], layers),
        "trace": reduced(trace, request, stops[-1].request["token_ids"]),
        "stops": [[stop.index, stop.sentence] for stop in stops],
    }


def chosen_request(trace: Trace, request_id: str | None) -> str:
    """The request asked for, or the only one there is."""
    known = list(dict.fromkeys(e.request_id for e in trace.events if e.request_id is not None))
    if request_id is None and len(known) == 1:
        return known[0]
    if request_id not in known:
        asked = "no request is named"
        if request_id is not None:
            asked = f"there is no request {request_id!r}"
        raise ValueError(f"{asked}; the trace has {', '.join(known) or 'none'}")
    return request_id


def chosen_layers(count: int, layers: Sequence[int] | None) -> list[int]:
    """The layers to draw of `count`."""
    if layers is None:
        return list(range(count)) if count <= MOST_LAYERS else [0, 1, count - 1]
    drawn = sorted(set(layers))
    if not drawn or drawn[0] < 0 or drawn[-1] >= count:
        raise ValueError(f"layers {list(layers)} are not all between 0 and {count - 1}")
    return drawn


def growth_stops(trace: Trace, request_id: str) -> list[Stop]:
    """Start, passes, selections and the end; sharing, copying and preemption where they happen."""
    stops: list[Stop] = []
    teller = Teller(trace.meta.get("vocab", {}), trace.meta["block_size"])
    before: State | None = None  # the request, with the last block table that it held
    nbytes: int | None = None
    for index, event, state in states(trace):
        now = state["requests"].get(request_id)
        if now is None:
            continue
        sentence = None
        own = event.request_id == request_id
        if own and event.kind in UNMEASURED_AFTER:
            nbytes = None
        if event.kind == "computed" and request_id in event.patch.get("requests", {}):
            earlier, nbytes = nbytes, event.data.get("nbytes")
            sentence = teller.computed(event, now, earlier, nbytes, own)
        elif own or before is None:
            sentence = teller.tell(event, now, before, nbytes)
        if sentence is not None:
            stops.append(Stop(index, event.kind, sentence, now, nbytes))
        table = now["block_table"] or (before["block_table"] if before else [])
        before = {**now, "block_table": table}
    return stops


def states(trace: Trace) -> Iterator[tuple[int, Event, State]]:
    """(frame index, event, state after it); the states share what does not change."""
    state = trace.initial
    for index, event in enumerate(trace.events, 1):
        state = apply_patch(state, event.patch)
        yield index, event, state


def reduced(trace: Trace, request_id: str, token_ids: Sequence[int]) -> dict:
    """A trace document with the same frames, of one request and the blocks alone."""
    document = trace.to_dict()
    document["initial"] = _kept(document["initial"], request_id)
    for event in document["events"]:
        event["patch"] = _kept(event["patch"], request_id)
        event["data"] = {k: v for k, v in event["data"].items() if k != "attention"}
    used = {str(token) for token in token_ids}
    vocab = with_named_bytes(document["meta"].get("vocab", {}))
    document["meta"]["vocab"] = {token: text for token, text in vocab.items() if token in used}
    return document


def _kept(state: Mapping, request_id: str) -> dict:
    """Of a state or a patch, what the view draws."""
    kept = {"blocks": state["blocks"]} if "blocks" in state else {}
    if "requests" in state:
        mine = {k: v for k, v in state["requests"].items() if k == request_id}
        kept["requests"] = mine
    return kept
