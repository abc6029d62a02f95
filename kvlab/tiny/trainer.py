"""One training step after another on a decoder: forward, loss, backward, two optimisers.

The decoder is the one that serves requests. Only its attention is another: rows of a batch are
whole documents, nothing is cached, and all positions are computed at once.
"""

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvlab.tensors.attention import causal_mask
from kvlab.tensors.model import Decoder
from kvlab.tiny.batches import Batch
from kvlab.tiny.muon import Muon


class BatchAttention:
    """Causal attention within each of B rows of t tokens; nothing is kept.

    The model hands all tokens over in one flat list, [B * t, heads, head_dim] (`Attention` in
    tensors/model.py).
    """

    def __init__(self, batch: int, length: int) -> None:
        self.shape = (batch, length)

    def __call__(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None = None
    ) -> Tensor:
        group = query.shape[1] // key.shape[1]
        rows = (x.unflatten(0, self.shape).transpose(1, 2) for x in (query, key, value))
        query, key, value = rows  # [B, heads, t, d]
        key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
        if window is None:
            out = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            mask = causal_mask(self.shape[1], self.shape[1], query.device, window)
            out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return out.transpose(1, 2).flatten(0, 1)


@dataclass(frozen=True)
class Rates:
    """Learning rates: muon for the matrices, adam for embedding, head, norms and biases."""

    muon: float = 0.02
    adam: float = 3e-3

    def __post_init__(self) -> None:
        for name, rate in vars(self).items():
            if not 0 < rate < float("inf"):
                raise ValueError(f"{name} is {rate}; a learning rate is above 0 and finite")


class Trainer:
    """Trains a copy of a decoder; `model` is the copy, the given decoder is never changed."""

    def __init__(self, model: Decoder, rates: Rates) -> None:
        self.model = trainable_copy(model)
        matrices, others = parameter_groups(self.model)
        self.muon = Muon(matrices, lr=rates.muon)
        self.adam = torch.optim.AdamW(others, lr=rates.adam, betas=(0.9, 0.95), weight_decay=0.0)
        self.rates = rates

    @property
    def optimisers(self) -> tuple[torch.optim.Optimizer, ...]:
        return self.muon, self.adam

    def step(self, batch: Batch, factor: float = 1.0) -> float:
        """One update on one batch; both rates times `factor`. Returns the loss before it."""
        for optimiser, rate in zip(
            self.optimisers, (self.rates.muon, self.rates.adam), strict=True
        ):
            for group in optimiser.param_groups:
                group["lr"] = rate * factor
        loss = batch_loss(self.model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimiser in self.optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        return loss.item()

    def trained(self) -> Decoder:
        """A decoder for inference with the weights as they are now; training can go on."""
        return copy.deepcopy(self.model).ready()


def trainable_copy(model: Decoder) -> Decoder:
    """The same weights in float32 with gradients, laid out row after row.

    `Decoder.ready()` lays matrices out for products with few rows; a batch has many.
    """
    own = copy.deepcopy(model.converted(torch.float32, model.device))
    for parameter in own.parameters():
        parameter.data = parameter.data.contiguous()
    return own.train().requires_grad_(True)


def parameter_groups(model: Decoder) -> tuple[list[dict], list[dict]]:
    """(groups for Muon, groups for AdamW). q, k, v and gate, up lie stacked in one matrix each;
    Muon gets the number of rows of every part."""
    c = model.config
    heads = [n * c.head_dim for n in (c.num_query_heads, c.num_kv_heads, c.num_kv_heads)]
    groups: dict[str, dict] = {
        "qkv_proj.weight": {"params": [], "splits": heads},
        "gate_up_proj.weight": {"params": [], "splits": [c.intermediate_size] * 2},
        "_proj.weight": {"params": [], "splits": None},
    }
    others = []
    for name, parameter in model.named_parameters():
        home = next((group for end, group in groups.items() if name.endswith(end)), None)
        (others if home is None else home["params"]).append(parameter)
    return list(groups.values()), [{"params": others}]


def batch_logits(model: Decoder, inputs: Tensor) -> Tensor:
    """inputs [B, t] -> logits [B * t, V]."""
    rows, length = inputs.shape
    positions = torch.arange(length, device=inputs.device).repeat(rows)
    hidden = model(inputs.flatten(), positions, BatchAttention(rows, length))
    return model.compute_logits(hidden)


def batch_loss(model: Decoder, batch: Batch) -> Tensor:
    """Mean cross entropy in nats, each target counted by its weight.

    Raises ValueError for a batch in which nothing counts.
    """
    if not batch.weights.any():
        raise ValueError("every weight of the batch is 0; there is nothing to learn from it")
    batch = batch.to(model.device)
    logits = batch_logits(model, batch.inputs).float()
    losses = F.cross_entropy(logits, batch.targets.flatten(), reduction="none")
    return (losses * batch.weights.flatten()).sum() / batch.weights.sum()
