"""What the memory calculator says: its lines, figures, notices, and the picture in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvlab.core.budget import STEP_TOKENS
from kvlab.core.reasons import layer_reasons, length_notices, rank_notices
from kvlab.core.sizes import both_units
from kvlab.widgets.growth_words import count
from kvlab.widgets.memory_models import PASTED

if TYPE_CHECKING:
    from kvlab.widgets.memory_story import Question


def binary(nbytes: int) -> str:
    """The size in binary units alone: 14.96 GiB."""
    return both_units(nbytes).partition(" (")[0]


def payload_name(asked: Question) -> str:
    """What the positions keep."""
    latent = asked.storage.spec.is_latent and asked.storage.mla == "latent"
    return "latents" if latent else "K/V payload"


def lines(asked: Question) -> list[list[str]]:
    """Always two: whether it fits, and what the layers keep."""
    found, storage = asked.budget, asked.storage
    used = f"{binary(found.used)} of {both_units(found.total)} used"
    if found.fits:
        verdict = f"✓ fits: {used}, {both_units(found.free)} free"
    else:
        verdict = f"✗ does not fit: {both_units(found.missing)} missing of {binary(found.total)}"
    return [
        ["One GPU", verdict, "answer"],
        ["Layers", " · ".join([*layer_reasons(storage), storage.stored.description]), "plain"],
    ]


def figures(asked: Question) -> list[list[str]]:
    """Rows of figure, value, and the choice or policy that the value stands on."""
    storage, room = asked.storage, asked.capacity
    who = count(asked.requests, "request")
    rows = [["a token", f"{storage.bytes_per_token:,} bytes", _token_reason(asked)]]
    if storage.spec.is_latent and storage.mla == "latent":
        rows += _expanded(asked)
    if storage.state_bytes_per_request:
        state = both_units(storage.state_bytes_per_request)
        rows.append(["state a request", state, "of one size, whatever the length"])
    whole = storage.nbytes(asked.context, asked.requests)
    rows.append(["whole cache", both_units(whole), _window_reason(asked)])
    if storage.ranks > 1:
        rows.append(["on this GPU", both_units(asked.nbytes), _rank_reason(asked)])
    grows = storage.growth(asked.context, asked.requests)
    rows.append(["next position", f"{grows:,} bytes", f"{who}, each by one position"])
    rows.append(["room for it", both_units(asked.room), "GPU − weights − other"])
    held = f"{asked.layout.block_bytes:,} bytes each"
    if room.tokens is not None:
        held += f", {asked.layout.block_size:,} positions"
    rows.append(["blocks in it", f"{room.num_blocks:,}", held])
    rows += [_tokens(asked), _concurrency(asked), _longest(asked)]
    return rows


def _token_reason(asked: Question) -> str:
    full = ", no window full" if asked.storage.spec.windows else ""
    return f"stored as {asked.storage.stored.name}{full}"


def _expanded(asked: Question) -> list[list[str]]:
    """What a token would take without MLA, where the configuration says enough."""
    spec, stored = asked.storage.spec, asked.storage.stored
    if any(layer.vectors and not layer.expanded for layer, _ in spec.groups):
        return []
    nbytes = sum(
        n * sum(v.heads * stored.vector_bytes(v.width) for v in layer.expanded)
        for layer, n in spec.groups
    )
    return [["MLA expanded", f"{nbytes:,} bytes", "a token, with K/V of every head"]]


def _window_reason(asked: Question) -> str:
    """The policy for windows, or that none is needed."""
    policy = asked.storage.policy
    if not asked.storage.spec.windows:
        return "no windows: any policy"
    kept = {
        "capped": "a window keeps min(T, W)",
        "dynamic": "a window keeps min(T, W − 1)",
        "reserve_full": "a window keeps all T",
        "freed": "all windows: min(T, widest − 1), else all T",
    }
    return f"{policy}: {kept[policy]}"


def _rank_reason(asked: Question) -> str:
    heads, ranks = asked.storage.heads_per_rank, asked.storage.ranks
    if heads is None or isinstance(heads, list):
        return f"one of {ranks} ranks"
    what = "latent" if payload_name(asked) == "latents" else "KV head"
    return f"one of {ranks} ranks: {count(heads, what)} each"


def _tokens(asked: Question) -> list[str]:
    tokens, groups = asked.capacity.tokens, len(asked.layout.groups)
    if tokens is None:
        return ["tokens that fit", "any number", "no position takes memory"]
    held = f"{groups} groups of layers" if groups > 1 else "the blocks' slots"
    full = ", no window full" if asked.storage.spec.windows else ""
    return ["tokens that fit", f"{tokens:,}", f"{held}{full}"]


def _concurrency(asked: Question) -> list[str]:
    room = asked.capacity
    why = f"vLLM's concurrency: {count(room.blocks_per_request, 'block')} each"
    if any(group.window for group in asked.layout.groups):
        why += f", steps of {STEP_TOKENS:,}"
    return ["requests in it", f"{float(room.concurrency):,.2f}", why]


def _longest(asked: Question) -> list[str]:
    longest = "any" if asked.limit is None else f"{asked.limit:,}"
    return ["longest context", longest, f"{count(asked.requests, 'request')}, no block tails"]


def notices(asked: Question) -> list[str]:
    """What a reader should beware of."""
    storage = asked.storage
    said = [*storage.spec.notices, *asked.layout.notices, *rank_notices(storage)]
    said += length_notices(storage.spec.max_model_len, asked.context)
    if asked.mla_asked == "expanded" and not storage.spec.is_latent:
        said.append("this model has no latent: the choice of an MLA form changes nothing")
    if asked.unused_text:
        said.append(f"your config.json is not used; choose {PASTED!r} as the model")
    if asked.weights is None:
        said.append("a config.json does not say how large the weights are: counted as 0 bytes")
    return said


def weights_name(asked: Question) -> str:
    """What is known of the weights' size, and the share that is assumed for a rank."""
    if asked.weights is None:
        return "weights, unknown"
    ranks = asked.storage.ranks
    return f"weights, 1/{ranks} of all" if ranks > 1 else "weights, published"


def end_of_room(asked: Question) -> str:
    """Where the curve meets the room, in a few words."""
    if not asked.room:
        return "there is no room for it"
    if asked.limit is None:
        return "no length fills the room"
    if asked.limit == 0:
        return "not even one position fits"
    return f"the room is full after {count(asked.limit, 'position')}"


def caption(asked: Question) -> str:
    kept = "States" if not asked.storage.bytes_per_token else "K/V"
    kept = "Latents" if payload_name(asked) == "latents" else kept
    return f"{kept} of {count(asked.requests, 'request')} over the context"


def shape(asked: Question) -> str:
    """The curve in words."""
    if not asked.storage.bytes_per_token:
        return "The curve is flat: a state does not grow"
    above = " above the fixed states" if asked.storage.state_bytes_per_request else ""
    if not asked.bends:
        return f"The curve is straight{above}"
    at = " and ".join(f"{bend:,}" for bend in asked.bends)
    after = "rises more slowly" if asked.storage.spec.full_layers else "stays flat"
    return f"The curve bends at {at}, where windows are full, and then {after}{above}"


def sentence(asked: Question) -> str:
    """The picture in words, complete without it."""
    found, storage = asked.budget, asked.storage
    many = asked.requests != 1
    takes = f"{count(asked.requests, 'request')} of {count(asked.context, 'position')}"
    where = "on each GPU " if storage.ranks > 1 else ""
    parts = [f"weights {binary(found.weights)}", f"block tails {binary(found.tails)}"]
    parts.append(f"other {binary(found.other)}")
    end = f"{binary(found.free)} of {binary(found.total)} stay free"
    if not found.fits:
        end = f"that is {binary(found.missing)} more than the GPU's {binary(found.total)}"
    return (
        f"{asked.title} in {storage.stored.name}: {takes} {'take' if many else 'takes'} "
        f"{both_units(asked.nbytes)} {where}"
        f"({storage.bytes_per_token:,} bytes a token). With {', '.join(parts)}: {end}. "
        f"{shape(asked)}; {end_of_room(asked)}."
    )
