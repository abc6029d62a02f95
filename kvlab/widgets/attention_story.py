"""The story of the view "attention read": the passes of one request, and what each query read.

From a trace each pass is one stop. From padded reads each pass is two: with the padding masked,
and with the mask taken away. Weights are kept in ten-thousandths, as whole numbers, so that a sum
is the same in Python and in the browser; NaN, which JSON has no sign for, is None. Section 21.1.
"""

import math
from collections.abc import Mapping, Sequence

from kvlab.core.attention_read import PaddedPass, PaddedReads, whole_number
from kvlab.core.trace import Event, State, Trace
from kvlab.widgets.attention_words import keys_read, word
from kvlab.widgets.byte_tokens import with_named_bytes
from kvlab.widgets.growth_story import chosen_request, states
from kvlab.widgets.growth_words import count, span

UNIT = 10_000  # of the weights in a payload
Source = Trace | PaddedReads


def attention_payload(
    source: Source,
    request_id: str | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> dict:
    """What the view draws: plain data, the same for the same source.

    request_id: needed where a trace has several. layer, head: what is shown first; None takes
    the first layer, and all heads. Raises ValueError for what was not recorded.

    columns: [position, token id, text] each, in the cache's order; None where there is none.
    stops: own (the query's column), known and slots (columns with a token, columns in blocks),
    open (whether padding may be read), weights {layer: [head][column up to own]} in whole
    ten-thousandths, None for NaN, intro, outro.
    lengths, row: of a padded batch, the prompt tokens of each row, and which row is drawn.
    """
    if isinstance(source, PaddedReads):
        payload = _padded(source)
    elif isinstance(source, Trace):
        payload = _traced(source, request_id)
    else:
        raise ValueError(f"{type(source).__name__} is neither a Trace nor PaddedReads")
    layers, heads = payload["layers"], payload["heads"][0]
    first = layers[0] if layer is None else whole_number(layer)
    if first not in layers:
        raise ValueError(f"layer {layer!r} was not recorded; there are {layers}")
    if head is not None and whole_number(head) not in range(heads):
        raise ValueError(f"head {head!r} does not exist; give 0 to {heads - 1}, or None for all")
    shown = {"layer": first, "head": None if head is None else whole_number(head)}
    return {"view": "attention_read", **payload, **shown}


# ---- from a trace


def _traced(trace: Trace, request_id: str | None) -> dict:
    request = chosen_request(trace, request_id)
    passes = [
        (event, state["requests"][request])
        for _, event, state in states(trace)
        if event.kind == "computed" and event.request_id == request and "attention" in event.data
    ]
    if not passes:
        raise ValueError(
            f"the trace holds no attention weights of request {request}; "
            "record it with LLM.start_trace(attention_layers=[0])"
        )
    size, last = trace.meta["block_size"], passes[-1][1]
    width = max(max(event.data["end"], _slots(now, size)) for event, now in passes)
    vocab = with_named_bytes(trace.meta.get("vocab", {}))
    columns = _columns(last["token_ids"], vocab, max(width, len(last["token_ids"])))
    return {
        "title": f"Attention read of request {request}",
        "heads": [trace.meta["num_query_heads"], trace.meta["num_kv_heads"]],
        "layers": sorted(map(int, passes[0][0].data["attention"])),
        "prompt": last["num_prompt_tokens"],
        "columns": columns,
        "stops": [_pass_stop(event, now, size, columns) for event, now in passes],
    }


def _slots(now: State, size: int) -> int:
    return len(now["block_table"]) * size


def _columns(
    token_ids: Sequence[int | None], vocab: Mapping[str, str], width: int
) -> list[list[object]]:
    """Real tokens are counted by position; padding and empty slots have no token."""
    columns: list[list[object]] = []
    position = 0
    for token in token_ids:
        columns.append([None if token is None else position, token, vocab.get(str(token))])
        position += token is not None
    empty = range(position, position + width - len(columns))
    return [*columns, *([p, None, None] for p in empty)]


def _pass_stop(event: Event, now: State, size: int, columns: list) -> dict:
    start, end, prompt = event.data["start"], event.data["end"], now["num_prompt_tokens"]
    query, reads = word(columns[end - 1]), count(end, "key")
    if end - start == 1 and start >= prompt:
        intro = f"Pass {start - prompt + 1}: the query of {query} reads {reads}, its own included."
    else:
        name = "The prompt pass"
        if end < prompt or start:
            name += f" over {span(start, end)}"
        if end > prompt:
            name = f"A pass over {span(start, end)}"
        intro = f"{name}: its last query, that of {query}, reads {reads}."
    return {
        "tick": "P" if start < prompt else "O",
        "intro": intro,
        "outro": "",
        "own": end - 1,
        "known": len(now["token_ids"]),
        "slots": _slots(now, size),
        "open": False,
        "weights": _whole(event.data["attention"]),
    }


def _whole(weights: Mapping) -> dict:
    """Weights in ten-thousandths; None for NaN."""
    return {
        str(layer): [[None if math.isnan(w) else round(w * UNIT) for w in head] for head in heads]
        for layer, heads in weights.items()
    }


# ---- from a padded rectangle


def _padded(reads: PaddedReads) -> dict:
    vocab = with_named_bytes(reads.vocab)
    columns = _columns(reads.slots, vocab, len(reads.slots))
    stops = []
    for index, one in enumerate(reads.passes):
        stops.append(_masked_stop(reads, index, one, columns, vocab))
        if index:  # the prompt pass cannot see the padding: it lies after its query
            stops.append(_unmasked_stop(index, one, columns, vocab))
    own = reads.lengths[reads.request]
    return {
        "title": f"Attention read of request {reads.request} of a padded batch",
        "heads": [reads.num_query_heads, reads.num_kv_heads],
        "layers": sorted(map(int, reads.passes[0].masked)),
        "prompt": own,
        "columns": columns,
        "lengths": list(reads.lengths),
        "row": reads.request,
        "stops": stops,
    }


def _stop(one: PaddedPass, is_open: bool) -> dict:
    return {
        "own": one.query,
        "known": one.query + 1,
        "slots": 0,
        "open": is_open,
        "weights": _whole(one.unmasked if is_open else one.masked),
    }


def _masked_stop(
    reads: PaddedReads, index: int, one: PaddedPass, columns: list, vocab: Mapping
) -> dict:
    stop = _stop(one, False)
    query, keys = word(columns[one.query]), count(keys_read(columns, stop), "key")
    outro = f"The next token is {_text(one.masked_token, vocab)}."
    if index:
        intro = (
            f"Pass {index}, as it should be, the padding masked: the query of {query} reads {keys}."
        )
    else:
        pads = count(reads.slots.count(None), "slot")
        intro = (
            f"The prompt pass: request {reads.request} has "
            f"{count(reads.lengths[reads.request], 'token')}, "
            f"a neighbour {max(reads.lengths)}, so {pads} of its row "
            f"{'is' if pads == '1 slot' else 'are'} padding. "
            f"Its last query, that of {query}, reads {keys}: the padding lies after it."
        )
        outro += f" Without the mask, its logits would move by {_moved(one)}."
    return {"tick": "O" if index else "P", "intro": intro, "outro": outro, **stop}


def _unmasked_stop(index: int, one: PaddedPass, columns: list, vocab: Mapping) -> dict:
    stop = _stop(one, True)
    query, keys = word(columns[one.query]), count(keys_read(columns, stop), "key")
    right, wrong = _text(one.masked_token, vocab), _text(one.unmasked_token, vocab)
    token = f"stays {right}" if right == wrong else f"changes from {right} to {wrong}"
    return {
        "tick": "X",
        "intro": f"Pass {index}, the mask taken away: the same query of {query} reads {keys}.",
        "outro": f"The logits move by up to {_moved(one)}; the next token {token}.",
        **stop,
    }


def _moved(one: PaddedPass) -> str:
    return "NaN" if math.isnan(one.logit_difference) else f"{one.logit_difference:.2f}"


def _text(token: int, vocab: Mapping[str, str]) -> str:
    return word([None, token, vocab.get(str(token))])
