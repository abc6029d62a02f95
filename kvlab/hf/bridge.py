"""The two places where transformers lets others in: its registries of attention and of masks.

A layer of transformers computes queries, keys and values, looks its configuration's attention up
by name and calls it. Under the name "kvlab" stands `_attend`, which hands everything to whoever is
`attending` at that time. The mask registered under the same name allocates nothing: it is a
`Mask`, which says what the model would have masked.

Source: transformers, AttentionInterface and AttentionMaskInterface; its continuous batching puts
a paged cache of its own behind the same registry.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PretrainedConfig,
    PreTrainedModel,
)

NAME = "kvlab"

# (module, query, key, value, mask, settings) -> mixed; [N, heads, head_dim] each
LayerCall = Callable[[nn.Module, Tensor, Tensor, Tensor, object, dict[str, object]], Tensor]
_current: ContextVar[LayerCall | None] = ContextVar("kvlab_attention", default=None)


class Mask(Tensor):
    """What a model asks to be masked: `allows(query, key)` for whole tensors of positions.

    As a tensor it is empty, of shape [1, 1, 0, 0]: a model that changes it loses `allows`.
    """

    allows: Callable[[Tensor, Tensor], Tensor]


def _describe(mask_function: Callable[..., Tensor], device: object = None, **_: object) -> Mask:
    """transformers calls this once a kind of mask and pass."""
    mask = torch.empty((1, 1, 0, 0), dtype=torch.bool).as_subclass(Mask)
    zero = torch.zeros((), dtype=torch.long, device=device)
    mask.allows = lambda query, key: mask_function(zero, zero, query.to(device), key.to(device))
    return mask


def _attend(
    module: nn.Module,
    query: Tensor,  # [1, H_q, N, d]
    key: Tensor,  # [1, H_kv, N, d]
    value: Tensor,
    attention_mask: object = None,
    **settings: object,
) -> tuple[Tensor, None]:
    """One layer's attention. Returns [1, N, H_q, d], as transformers wants it, and no weights."""
    call = _current.get()
    if call is None:
        raise RuntimeError(
            "attention 'kvlab' runs inside a TransformersDecoder only; for transformers alone "
            "choose another, such as model.set_attn_implementation('sdpa')"
        )
    rows = (x[0].transpose(0, 1) for x in (query, key, value))  # [N, heads, d]
    return call(module, *rows, attention_mask, settings).contiguous()[None], None


def layers_of(model: PreTrainedModel) -> PreTrainedModel:
    """The part that turns token ids into hidden states, without the head.

    Some classes, Llama-4's among them, say that they are this part themselves, head and all.
    """
    found = model.get_decoder()
    found = getattr(model, "model", found) if found is model else found
    return found if isinstance(found, PreTrainedModel) else model.base_model


def configs_of(model: PreTrainedModel) -> list[PretrainedConfig]:
    """Every configuration that one of the model's modules looks its attention up in."""
    return list({id(m.config): m.config for m in model.modules() if hasattr(m, "config")}.values())


@contextmanager
def attending(configs: Sequence[PretrainedConfig], call: LayerCall) -> Iterator[None]:
    """Inside, the layers of these configurations attend through `call`; afterwards as before."""
    token = _current.set(call)
    try:
        with implementation(configs, NAME):
            yield
    finally:
        _current.reset(token)


@contextmanager
def implementation(configs: Sequence[PretrainedConfig], name: str) -> Iterator[None]:
    """Inside, attention is looked up under `name`."""
    before = [(config, config._attn_implementation) for config in configs]
    try:
        for config in configs:
            config._attn_implementation = name
        yield
    finally:
        for config, kept in before:
            config._attn_implementation = kept


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, _describe)
