"""The story of requests in two layouts: where to stop, what to say there, what the view draws."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvlab.core.layouts import LayoutRun, LayoutState
from kvlab.widgets.byte_tokens import with_named_bytes
from kvlab.widgets.growth_words import count
from kvlab.widgets.layouts_words import (
    ended_sentence,
    output_sentence,
    prompt_sentence,
    start_sentence,
)


@dataclass(frozen=True)
class Stop:
    """passes: how many have run; kind: "start", "pass" or "ended"."""

    passes: int
    kind: str
    sentence: str
    state: LayoutState


def layouts_payload(run: LayoutRun) -> dict:
    """What the view draws: plain data, the same for the same run."""
    document = run.to_dict()
    document["meta"]["vocab"] = with_named_bytes(document["meta"].get("vocab", {}))
    return {
        "view": "cache_layouts",
        "title": f"{count(len(run.requests), 'request')}, stored in two layouts",
        "layouts": document,
        "stops": [[stop.passes, stop.kind, stop.sentence] for stop in layouts_stops(run)],
    }


def layouts_stops(run: LayoutRun) -> list[Stop]:
    """The start, every pass, and a stop of its own where requests end."""
    return [Stop(done, kind, _told(run, done, kind, s), s) for done, kind, s in run.states()]


def fullest(stops: list[Stop]) -> int:
    """Index of the first stop at which both layouts together hold the most bytes."""
    held = [s.state.rectangle_nbytes + sum(s.state.block_nbytes) for s in stops]
    return held.index(max(held))


def rectangle_formula(meta: Mapping, state: LayoutState) -> tuple[str, int]:
    """2 (K and V) · L · B · H_kv · T · d_h · s, in words and as a product (eq 21.2)."""
    layers, heads = meta["num_layers"], meta["num_kv_heads"]
    requests, width, size = len(state.rows), meta["head_dim"], meta["bytes_per_value"]
    words = (
        f"2 · {count(layers, 'layer')} · {count(requests, 'request')} · "
        f"{count(heads, 'KV head')} · {count(state.width, 'slot')} · {width} width · {size} B"
    )
    return words, 2 * layers * requests * heads * state.width * width * size


def blocks_formula(meta: Mapping, state: LayoutState) -> tuple[str, int]:
    """Each request's positions rounded up to whole blocks, times the bytes of a position."""
    block_size = state.block_size
    per_slot = (
        2 * meta["num_layers"] * meta["num_kv_heads"] * meta["head_dim"] * meta["bytes_per_value"]
    )
    done = [n for n in state.num_computed_tokens if n]
    each = " + ".join(f"⌈{n}/{block_size}⌉" for n in done) or "0"
    each = f"({each})" if len(done) > 1 else each
    words = f"{each} · {count(block_size, 'slot')} · {per_slot:,} B"
    return words, sum(-(-n // block_size) for n in done) * block_size * per_slot


def _told(run: LayoutRun, done: int, kind: str, state: LayoutState) -> str:
    if kind == "start":
        return start_sentence(run)
    if kind == "ended":
        return ended_sentence(run, done, state)
    return prompt_sentence(run, state) if done == 1 else output_sentence(run, done, state)
