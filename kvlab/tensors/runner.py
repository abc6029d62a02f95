"""Carries out a SchedulerOutput: move and copy blocks, one pass of the model, select outputs."""

import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from kvlab.core.kept_logits import LogitsToKeep
from kvlab.core.request import Request
from kvlab.core.scheduler_output import (
    SampledToken,
    ScheduledRequest,
    SchedulerOutput,
)
from kvlab.core.transfers import TransferReport
from kvlab.tensors.attention import attention_weights, causal_mask
from kvlab.tensors.block_copy import copy_blocks
from kvlab.tensors.host_tier import HostTier
from kvlab.tensors.input_batch import InputBatch, build_input_batch
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.model import Decoder
from kvlab.tensors.ops import PagedAttention
from kvlab.tensors.sampling import sample


class ModelRunner:
    """A decoder, its paged cache, and the attention between them.

    host_tier: the CPU tier's tensors; None: there is none.
    on_logits: called with {request_id: logits [V]} for the rows that select an output.
    watch_layers: of these layers, keep the attention weights of each request's last query in
    `watched` ({request_id: {layer: [num_query_heads, length]}}), for views. None costs nothing.
    kept_logits: slot -> logits [V] of a block's last position; the scheduler says which and when.
    logits_at: when this step's logits were there, on `clock`; None where it selects no output.
    """

    def __init__(
        self,
        model: Decoder,
        cache: PagedCache,
        host_tier: HostTier | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.model, self.cache, self.host_tier = model, cache, host_tier
        own = getattr(model, "attention_over", None)  # layers that do not all attend as ours do
        self.attention = PagedAttention(cache, model.dtype) if own is None else own(cache)
        self.on_logits: Callable[[Mapping[str, Tensor]], None] | None = None
        self.watch_layers: frozenset[int] = frozenset()
        self.watched: dict[str, dict[int, Tensor]] = {}
        self.kept_logits: dict[int, Tensor] = {}
        self.clock, self.logits_at = clock, None

    @property
    def kept_logits_nbytes(self) -> int:
        return sum(t.nbytes for t in self.kept_logits.values())

    @torch.inference_mode()
    def execute(self, output: SchedulerOutput) -> dict[str, SampledToken]:
        """One step. Returns the selected token of every request in the rows' samplers."""
        self.logits_at = None
        if self.host_tier is not None:
            self.host_tier.start(output.blocks_to_store, output.blocks_to_load)
        elif output.blocks_to_load or output.blocks_to_store:
            raise RuntimeError("this runner has no second tier to load from or store to")
        copy_blocks(self.cache, output.blocks_to_copy)
        self.watched.clear()
        ready = [row for row in output.requests if row.logits_slot is not None]
        found = [self.kept_logits[row.logits_slot] for row in ready for _ in row.samplers]
        rows = tuple(row for row in output.requests if row.logits_slot is None)
        logits = self._compute(rows, output.logits_to_keep) if rows else None
        if found:
            logits = torch.stack(found if logits is None else [*found, *logits])
        return self._select([r for row in (*ready, *rows) for r in row.samplers], logits)

    def finished_transfers(self, wait: bool = False) -> TransferReport:
        """Copies between the tiers that ended since the last call; wait: all end first."""
        if self.host_tier is None:
            return TransferReport()
        return self.host_tier.finished(wait)

    def _compute(
        self, rows: tuple[ScheduledRequest, ...], to_keep: Sequence[LogitsToKeep]
    ) -> Tensor | None:
        """One pass of the model. Returns logits [samplers, V], one row a sampler, if there are any.

        Besides each row's last position, those of `to_keep` get logits too.
        """
        batch = build_input_batch(rows, self.cache.block_size, self.model.device)
        self.attention.begin(batch)
        attention = self._watching(rows, batch) if self.watch_layers else self.attention
        hidden = self.model(batch.input_ids, batch.positions, attention)
        ends = dict(zip((row.request_id for row in rows), batch.last_rows, strict=True))
        start = {row.request_id: ends[row.request_id] + 1 - row.end for row in rows}
        wanted = [ends[row.request_id] for row in rows for _ in row.samplers]
        count = len(wanted)
        wanted += [start[kept.request_id] + kept.position for kept in to_keep]
        if not wanted:
            return None
        every = wanted == list(range(len(hidden)))
        logits = self.model.compute_logits(hidden if every else hidden[wanted])
        for kept, row in zip(to_keep, logits[count:], strict=True):
            self.kept_logits[kept.slot] = row.clone()
        return logits[:count]

    def _select(self, requests: list[Request], logits: Tensor | None) -> dict[str, SampledToken]:
        """One draw a request from its row of logits [requests, V]."""
        if not requests:
            return {}
        if logits.is_cuda:  # the scores exist, not only their order; selecting waits for them too
            torch.cuda.current_stream(logits.device).synchronize()
        self.logits_at = self.clock()
        if self.on_logits is not None:
            self.on_logits({r.request_id: x for r, x in zip(requests, logits, strict=True)})
        return {
            r.request_id: token for r, token in zip(requests, sample(logits, requests), strict=True)
        }

    def _watching(
        self, rows: Sequence[ScheduledRequest], batch: InputBatch
    ) -> Callable[..., Tensor]:
        """The same attention, which also notes watched layers' weights by the specification."""

        def attend(
            layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None = None
        ) -> Tensor:
            mixed = self.attention(layer, query, key, value, window)
            if layer in self.watch_layers:
                for row, last in zip(rows, batch.last_rows, strict=True):
                    keys, _ = self.cache.read(list(row.block_ids), row.end)
                    last_query = query[last : last + 1].transpose(0, 1)  # [Hq, 1, d]
                    weights = self._last_weights(
                        layer, last_query, keys[layer].to(query.dtype), window
                    )
                    self.watched.setdefault(row.request_id, {})[layer] = weights[:, 0]
            return mixed

        return attend

    def _last_weights(self, layer: int, query: Tensor, keys: Tensor, window: int | None) -> Tensor:
        """Weights of a request's last query [Hq, 1, d] over its keys [Hkv, T, d]: [Hq, 1, T]."""
        if hasattr(self.attention, "last_weights"):
            return self.attention.last_weights(layer, query, keys)
        mask = causal_mask(1, keys.shape[1], query.device, window)
        return attention_weights(query, keys, mask)


def rounded_weights(weights: Tensor, digits: int = 4) -> list[list[float]]:
    """[num_query_heads, length] as plain numbers: a weight is between 0 and 1."""
    return [[round(w, digits) for w in head] for head in weights.tolist()]
