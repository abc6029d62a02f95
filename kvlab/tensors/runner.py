"""Carries out a SchedulerOutput: copy blocks, one pass of the model, select outputs."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from kvlab.core.scheduler_output import SampledToken, SchedulerOutput
from kvlab.tensors.attention import attention_weights, causal_mask
from kvlab.tensors.block_copy import copy_blocks
from kvlab.tensors.input_batch import InputBatch, build_input_batch
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.model import Decoder
from kvlab.tensors.ops import PagedAttention
from kvlab.tensors.sampling import sample


class ModelRunner:
    """A decoder, its paged cache, and the attention between them.

    on_logits: called with {request_id: logits [V]} for the rows that select an output.
    watch_layers: of these layers, keep the attention weights of each request's last query in
    `watched` ({request_id: {layer: [num_query_heads, length]}}), for views. None costs nothing.
    """

    def __init__(self, model: Decoder, cache: PagedCache) -> None:
        self.model, self.cache = model, cache
        self.attention = PagedAttention(cache, model.dtype)
        self.on_logits: Callable[[Mapping[str, Tensor]], None] | None = None
        self.watch_layers: frozenset[int] = frozenset()
        self.watched: dict[str, dict[int, Tensor]] = {}

    @torch.inference_mode()
    def execute(self, output: SchedulerOutput) -> dict[str, SampledToken]:
        """One step. Returns the selected token of every request in the rows' samplers."""
        if output.blocks_to_load or output.blocks_to_store:
            raise RuntimeError("this runner has no second tier to load from or store to")
        copy_blocks(self.cache, output.blocks_to_copy)
        batch = build_input_batch(output.requests, self.cache.block_size, self.model.device)
        self.attention.begin(batch)
        self.watched.clear()
        attention = self._watching(output, batch) if self.watch_layers else self.attention
        hidden = self.model(batch.input_ids, batch.positions, attention)
        return self._select(output, batch, hidden)

    def _select(
        self, output: SchedulerOutput, batch: InputBatch, hidden: Tensor
    ) -> dict[str, SampledToken]:
        """Logits of the rows that end at the last known token; one draw a sampler."""
        rows, requests = [], []
        for row, last in zip(output.requests, batch.last_rows, strict=True):
            requests.extend(row.samplers)
            rows.extend([last] * len(row.samplers))
        if not requests:
            return {}
        logits = self.model.compute_logits(
            hidden if rows == list(range(len(hidden))) else hidden[rows]
        )
        if self.on_logits is not None:
            self.on_logits({r.request_id: x for r, x in zip(requests, logits, strict=True)})
        return {
            r.request_id: token for r, token in zip(requests, sample(logits, requests), strict=True)
        }

    def _watching(self, output: SchedulerOutput, batch: InputBatch) -> Callable[..., Tensor]:
        """The same attention, which also notes watched layers' weights by the specification."""

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            mixed = self.attention(layer, query, key, value)
            if layer in self.watch_layers:
                for row, last in zip(output.requests, batch.last_rows, strict=True):
                    keys, _ = self.cache.read(list(row.block_ids), row.end)
                    last_query = query[last : last + 1].transpose(0, 1)  # [Hq, 1, d]
                    weights = attention_weights(
                        last_query, keys[layer].to(query.dtype), causal_mask(1, row.end)
                    )
                    self.watched.setdefault(row.request_id, {})[layer] = weights[:, 0]
            return mixed

        return attend


def rounded_weights(weights: Tensor, digits: int = 4) -> list[list[float]]:
    """[num_query_heads, length] as plain numbers: a weight is between 0 and 1."""
    return [[round(w, digits) for w in head] for head in weights.tolist()]
