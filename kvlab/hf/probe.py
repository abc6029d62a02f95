"""A trial before a model is accepted: what its layers hand to attention, and whether that is all.

One pass shows shapes, scales, caps and masks. Then two prompts, one of them in two chunks and
packed beside the other, go through a small paged cache and have to give the logits of
transformers' own attention: a model with a state besides keys and values does not pass.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from kvlab.core.scheduler_output import ScheduledRequest
from kvlab.hf.bridge import attending, configs_of, implementation, layers_of
from kvlab.hf.family import Unsupported, longest
from kvlab.hf.layers import LayerAttention
from kvlab.tensors.input_batch import build_input_batch
from kvlab.tensors.kv_cache import PagedCache

TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}  # of the largest logit
HALF_TOLERANCE = 0.25  # half precision differs by rounding; a missing state by about 1
SAME_PASS = 0.01  # as above, where the same pass is run twice
_KNOWN_TENSORS = ("position_ids", "cache_position", "s_aux")


@dataclass(frozen=True)
class Geometry:
    """num_query_heads, num_kv_heads and head_dim, the same in every layer."""

    num_query_heads: int
    num_kv_heads: int
    head_dim: int


class _Watching:
    """Attends within one sequence by each layer's formula, and notes what was handed over."""

    def __init__(self, name: str, horizon: int) -> None:
        self.name, self.horizon = name, horizon
        self.layers: dict[int, LayerAttention] = {}
        self.geometries: set[Geometry] = set()
        self._windows: list[tuple[object, int | None]] = []  # layers share their masks

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: object,
        settings: dict[str, object],
    ) -> Tensor:
        layer = getattr(module, "layer_idx", None)
        if type(layer) is not int or layer in self.layers:
            raise Unsupported(self.name, f"layer {layer} attends more than once a pass")
        if key.shape != value.shape:
            raise Unsupported(
                self.name,
                f"keys of width {key.shape[-1]} and values of width {value.shape[-1]} do not "
                "share one head_dim",
            )
        if unknown := unknown_tensors(settings):
            raise Unsupported(self.name, f"its layers hand {', '.join(unknown)} to attention")
        self.geometries.add(Geometry(query.shape[1], key.shape[1], key.shape[2]))
        own = layer_attention(query.shape[-1], settings, self._window(layer, mask))
        self.layers[layer] = own
        n = range(query.shape[0])
        q, k, v = (x.transpose(0, 1) for x in (own.scaled(query), key, value))
        return own.attend(q, k, v, own.mask(n, n, query.device)).transpose(0, 1)

    def _window(self, layer: int, mask: object) -> int | None:
        if not hasattr(mask, "allows"):
            raise Unsupported(self.name, f"layer {layer} does not use transformers' causal mask")
        for known, window in self._windows:
            if known is mask:
                return window
        window = window_of(mask, self.horizon, self.name)
        self._windows.append((mask, window))
        return window


def unknown_tensors(settings: dict[str, object]) -> list[str]:
    """Names of what would change attention in a way that is not done here."""
    return [k for k, v in settings.items() if isinstance(v, Tensor) and k not in _KNOWN_TENSORS]


def layer_attention(
    head_dim: int, settings: dict[str, object], window: int | None
) -> LayerAttention:
    """A layer's settings as transformers passes them; an absent scaling is 1 / sqrt(head_dim)."""
    scaling = settings.get("scaling")
    scaling = head_dim**-0.5 if scaling is None else float(scaling)
    return LayerAttention(scaling, window, settings.get("softcap"), settings.get("s_aux"))


def window_of(mask: object, horizon: int, name: str) -> int | None:
    """Positions that a query reads, None where it is all before it, for up to `horizon` positions.

    Raises Unsupported for a mask of another form, such as chunks or both directions.
    """
    window = _count(mask, horizon - 1, name)
    tried = {0, 1, horizon // 3, horizon // 2, horizon - 2}
    tried |= {window - 1, window, window + 1, 2 * window, 2 * window + 1}
    for query in sorted(tried & set(range(horizon))):
        if _count(mask, query, name) != min(query + 1, window):
            raise Unsupported(name, "its mask is neither causal nor a sliding window")
    return None if window == horizon else window


def _count(mask: object, query: int, name: str) -> int:
    """How many keys the query reads: they have to be those up to itself, without a gap."""
    try:
        allowed = mask.allows(torch.tensor(query), torch.arange(query + 2)).cpu()
    except IndexError:  # masks made for this very prompt
        raise Unsupported(name, "its mask depends on the tokens") from None
    allowed = allowed.flatten().expand(query + 2)
    count = int(allowed.sum())
    past = allowed[max(0, query + 1 - count) : query + 1]  # all of them, if there is no gap
    if count == 0 or len(past) < count or not bool(past.all()):
        raise Unsupported(name, "its mask is neither causal nor a sliding window")
    return count


@torch.inference_mode()
def look(model: PreTrainedModel) -> tuple[Geometry, tuple[LayerAttention, ...]]:
    """One pass over four tokens. Raises Unsupported, naming what does not fit."""
    name, text = type(model).__name__, model.config.get_text_config(decoder=True)
    watching = _Watching(name, longest(text))
    ids = torch.tensor([_tokens(4, text.vocab_size)], device=model.device)
    places = torch.arange(4, device=model.device)[None]
    with attending(configs_of(model), watching):
        layers_of(model)(input_ids=ids, position_ids=places, use_cache=False)
    count = text.num_hidden_layers
    if missing := [n for n in range(count) if n not in watching.layers]:
        raise Unsupported(
            name,
            f"layers {missing} of {count} do not attend through transformers' attention registry",
        )
    if len(watching.geometries) > 1:
        raise Unsupported(name, "its layers differ in the number or width of their KV heads")
    (geometry,) = watching.geometries
    return geometry, tuple(watching.layers[n] for n in sorted(watching.layers))


@torch.inference_mode()
def check(decoder: nn.Module) -> None:
    """decoder: a TransformersDecoder. Raises Unsupported unless paged logits equal the model's."""
    model, config = decoder.lm, decoder.config
    _check_positions(decoder)
    a, b = _tokens(9, config.vocab_size), _tokens(5, config.vocab_size)[::-1]
    wanted = torch.cat([_own_logits(model, ids)[-1:] for ids in (a, b)])
    cache = PagedCache(config, 5, 4, decoder.dtype, decoder.device)
    attention = decoder.attention_over(cache)
    for rows in (
        (ScheduledRequest("a", 0, a[:6], (4, 1), ()),),
        (
            ScheduledRequest("b", 0, b, (0, 3), ()),
            ScheduledRequest("a", 6, a[6:], (4, 1, 2), ()),
        ),
    ):
        batch = build_input_batch(rows, cache.block_size, decoder.device)
        attention.begin(batch)
        hidden = decoder(batch.input_ids, batch.positions, attention)
    found = decoder.compute_logits(hidden[[batch.last_rows[1], batch.last_rows[0]]])
    difference = _difference(found, wanted)
    if not difference <= TOLERANCE.get(decoder.dtype, HALF_TOLERANCE):
        raise Unsupported(
            type(model).__name__,
            f"its logits there differ from its own by {difference:.1e} of the largest: something "
            "besides keys and values depends on earlier tokens",
        )


def _check_positions(decoder: nn.Module) -> None:
    """Raises Unsupported for a model that, left alone, does not count its positions from 0.

    Both passes compute the same numbers otherwise, so half precision is told apart as well.
    """
    ids = torch.tensor([_tokens(5, decoder.config.vocab_size)], device=decoder.device)
    places = torch.arange(5, device=decoder.device)[None]
    layers = layers_of(decoder.lm)
    with implementation(configs_of(decoder.lm), "eager"):
        alone, told = (
            layers(input_ids=ids, use_cache=False, **more).last_hidden_state
            for more in ({}, {"position_ids": places})
        )
    if not _difference(told, alone) <= SAME_PASS:
        raise Unsupported(
            type(decoder.lm).__name__,
            "left alone it does not number positions from 0, as kvlab does for it",
        )


def _difference(found: Tensor, wanted: Tensor) -> float:
    """The largest difference, as a part of the largest number."""
    return float((found - wanted).abs().max()) / max(1e-9, float(wanted.abs().max()))


def _own_logits(model: PreTrainedModel, ids: list[int]) -> Tensor:
    """[N, V] of transformers' own forward and eager attention, without a cache."""
    with implementation(configs_of(model), "eager"):
        return model(input_ids=torch.tensor([ids], device=model.device), use_cache=False).logits[0]


def _tokens(count: int, vocab_size: int) -> list[int]:
    return [(7 * i + 3) % vocab_size for i in range(count)]
