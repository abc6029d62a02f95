"""A causal language model of transformers in the place of kvlab's own `Decoder`."""

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from kvlab.hf.bridge import attending, configs_of, layers_of
from kvlab.hf.family import (
    Unsupported,
    description,
    eos_token_ids,
    longest,
    refuse_early,
)
from kvlab.hf.layers import LayerAttention
from kvlab.hf.paged import LayeredPagedAttention
from kvlab.hf.probe import Geometry, check, layer_attention, look, unknown_tensors
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.kv_cache import ContiguousAttention, PagedCache
from kvlab.tensors.model import Attention, Decoder
from kvlab.tensors.ops import NoCache, PagedAttention

_PLAIN_ONLY = (NoCache, ContiguousAttention)


@dataclass(frozen=True)
class TransformersConfig(ModelConfig):
    """The sizes that kvlab needs, and the model's own configuration in full.

    transformers: it as JSON. buffers: sha256 of stored tensors that are no parameters. Both are
    part of every block's identity, as all of this is. windows: one a layer, which may differ.
    """

    transformers: str = ""
    buffers: str = ""
    windows: tuple[int | None, ...] = (None,)

    def window_of(self, layer: int) -> int | None:
        """The keys that a query of this layer reads at most; None: all up to its own."""
        return self.windows[layer]

    @property
    def widest_window(self) -> int | None:
        """How far the layer that reaches furthest reads; None: one reads all of its past."""
        return None if None in self.windows else max(self.windows)


class TransformersDecoder(Decoder):
    """input_ids, positions -> hidden states -> logits, by the layers of a transformers model.

    All requests of a step stand in one row, [1, N], with their positions; only attention knows
    which positions belong together. `lm` is the model itself, not a copy: it is put into
    evaluation mode, and outside a pass it attends as before. `attentions` holds each layer's own
    scale, window, cap and sinks.

    Raises ValueError (`Unsupported`) for a model that cannot run so, with its name and the reason.
    """

    def __init__(self, lm: PreTrainedModel) -> None:
        nn.Module.__init__(self)
        if not isinstance(lm, PreTrainedModel):
            raise ValueError(f"model has type {type(lm).__name__}; give a model of transformers")
        name = type(lm).__name__
        refuse_early(lm.config, type(lm), name)
        _refuse_places(lm, name)
        self.lm, self.has_weights = lm.eval().requires_grad_(False), True
        self._configs = configs_of(lm)
        try:
            geometry, self.attentions = look(lm)
            self.config = _config(lm, geometry, self.attentions)
            check(self)
        except (Unsupported, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # models are many; what fails in a trial is refused
            raise Unsupported(
                name, f"a trial pass failed, {type(error).__name__}: {error}"
            ) from error

    def attention_over(self, cache: PagedCache) -> LayeredPagedAttention:
        """The paged attention for this model's layers; the runner asks for it."""
        return LayeredPagedAttention(cache, self.dtype, self.attentions)

    def forward(self, input_ids: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """input_ids, positions: [N] integers. Returns hidden states after the last norm, [N, D]."""
        assert input_ids.shape == positions.shape and input_ids.dim() == 1
        self._refuse_plain_attention(attention)
        if self.lm.training:
            raise RuntimeError("the model is in training mode, where dropout acts; call its eval()")

        def attend(
            module: nn.Module,
            query: Tensor,
            key: Tensor,
            value: Tensor,
            mask: object,
            settings: dict,
        ) -> Tensor:
            own = self.attentions[module.layer_idx]
            found = layer_attention(query.shape[-1], settings, own.window)
            masked = isinstance(mask, Tensor) and not hasattr(mask, "allows")  # the model's own
            if found != own or masked or unknown_tensors(settings):
                raise RuntimeError(f"layer {module.layer_idx} changed how it attends: {found}")
            reach = {} if own.window is None else {"window": own.window}
            return attention(module.layer_idx, own.scaled(query), key, value, **reach)

        with attending(self._configs, attend):
            output = layers_of(self.lm)(
                input_ids=input_ids[None], position_ids=positions[None], use_cache=False
            )
        self._output_type = type(output)
        return output.last_hidden_state[0]

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """hidden [R, D] -> logits [R, V], by what the model itself does after its last layer.

        Its head may scale or cap logits, so the model is run as a whole with layers that are
        done already: for this call they answer with `hidden`.
        """
        layers = layers_of(self.lm)
        output = self._output_type(last_hidden_state=hidden[None])
        before = vars(layers).get("forward")  # accelerate, for one, puts its own there
        layers.forward = lambda *args, **kwargs: output
        try:
            ids = torch.zeros((1, len(hidden)), dtype=torch.long, device=hidden.device)
            return self.lm(input_ids=ids, use_cache=False).logits[0]
        finally:
            del layers.forward
            if before is not None:
                layers.forward = before

    def converted(self, dtype: torch.dtype, device: str | torch.device) -> "TransformersDecoder":
        """This decoder if it fits, else a copy. Buffers (rotary frequencies) keep theirs."""
        where = torch.device(device)  # "cuda" without a number is any of them
        same = where.type == self.device.type and where.index in (None, self.device.index)
        if same and self.dtype == dtype:
            return self
        lm = copy.deepcopy(self.lm).to(device)
        for parameter in lm.parameters():
            if parameter.is_floating_point():
                parameter.data = parameter.data.to(dtype)
        return TransformersDecoder(lm)

    @property
    def device(self) -> torch.device:
        return self.lm.device

    @property
    def dtype(self) -> torch.dtype:
        return self.lm.dtype

    def _refuse_plain_attention(self, attention: Attention) -> None:
        if type(attention) is not PagedAttention and not isinstance(attention, _PLAIN_ONLY):
            return
        for layer, own in enumerate(self.attentions):
            if not own.is_plain:
                raise ValueError(
                    f"{type(attention).__name__} neither caps scores nor knows sinks, and layer "
                    f"{layer} does; use attention_over(cache)"
                )


def _refuse_places(lm: PreTrainedModel, name: str) -> None:
    """Weights have to be there, all on one device."""
    devices = {parameter.device for parameter in lm.parameters()}
    if torch.device("meta") in devices:
        raise Unsupported(name, "it has no weights yet; load it with from_pretrained")
    if len(devices) > 1:
        found = ", ".join(sorted(map(str, devices)))
        raise Unsupported(name, f"its weights lie on several devices ({found})")


def _config(
    lm: PreTrainedModel, geometry: Geometry, layers: Sequence[LayerAttention]
) -> ModelConfig:
    """Heads as the layers showed them, the rest as the configuration says."""
    text = lm.config.get_text_config(decoder=True)
    inner = getattr(text, "intermediate_size", None)
    window, layer_types = _windows(layers)
    return TransformersConfig(
        vocab_size=text.vocab_size,
        hidden_size=text.hidden_size,
        intermediate_size=inner if isinstance(inner, int) else 4 * text.hidden_size,  # GPT-2's
        num_layers=len(layers),
        num_query_heads=geometry.num_query_heads,
        num_kv_heads=geometry.num_kv_heads,
        head_dim=geometry.head_dim,
        max_model_len=longest(text),
        tie_word_embeddings=bool(getattr(text, "tie_word_embeddings", False)),
        eos_token_ids=eos_token_ids(lm),
        architecture=type(lm).__name__,
        sliding_window=window,
        layer_types=layer_types,
        transformers=description(lm.config),
        buffers=_digest_of_buffers(lm),
        windows=tuple(own.window for own in layers),
    )


def _windows(layers: Sequence[LayerAttention]) -> tuple[int | None, tuple[str, ...]]:
    """For ModelConfig: the window and which layers have it. Windows of several widths are not
    named there; the layers attend by their own in any case."""
    widths = {own.window for own in layers} - {None}
    if len(widths) != 1:
        return None, ()
    kinds = ("full_attention" if own.window is None else "sliding_attention" for own in layers)
    return widths.pop(), tuple(kinds)


def _digest_of_buffers(lm: PreTrainedModel) -> str:
    """sha256 over what a checkpoint stores besides parameters."""
    parameters = {name for name, _ in lm.named_parameters(remove_duplicate=False)}
    digest = hashlib.sha256()
    for name, tensor in sorted(lm.state_dict().items()):
        if name not in parameters:
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
