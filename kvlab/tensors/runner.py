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
from kvlab.tensors.backends import attention_over, choose_backend
from kvlab.tensors.block_copy import copy_blocks
from kvlab.tensors.cuda_graph import DecodeGraphs, why_no_graphs
from kvlab.tensors.host_tier import HostTier
from kvlab.tensors.input_batch import InputBatch, build_input_batch, readable
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.lora import Adapter, adapted_rows
from kvlab.tensors.memory_told import step_told
from kvlab.tensors.model import Decoder
from kvlab.tensors.out_of_memory import explained
from kvlab.tensors.sampling import sample


class ModelRunner:
    """A decoder, its paged cache, and the attention between them.

    host_tier: the CPU tier's tensors; None: there is none.
    on_logits: called with {request_id: logits [V]} for the rows that select an output.
    watch_layers: of these layers, keep the attention weights of each request's last query in
    `watched` ({request_id: {layer: [num_query_heads, length]}}), for views. None costs nothing.
    adapters: by identity, those that requests may use. Without any, none costs anything.
    kept_logits: slot -> logits [V] of a block's last position; the scheduler says which and when.
    logits_at: when this step's logits were there, on `clock`; None where it selects no output.
    backend: how attention is computed, and why so (tensors/backends.py). why_eager: why decode
    steps do not run as CUDA graphs (tensors/cuda_graph.py); None: they do.
    """

    def __init__(
        self,
        model: Decoder,
        cache: PagedCache,
        host_tier: HostTier | None = None,
        clock: Callable[[], float] = time.perf_counter,
        *,
        attention_backend: str | None = None,
        enforce_eager: bool = False,
    ) -> None:
        """Raises ValueError for an attention_backend that is none, or cannot serve here."""
        self.model, self.cache, self.host_tier = model, cache, host_tier
        self.backend = choose_backend(attention_backend, model, cache)
        self.attention = attention_over(self.backend, model, cache)
        self.why_eager = why_no_graphs(self.backend.name, model.device, enforce_eager)
        graphs = None if self.why_eager else DecodeGraphs(model, self.attention)
        self.decode_graphs: DecodeGraphs | None = graphs
        self.on_logits: Callable[[Mapping[str, Tensor]], None] | None = None
        self.watch_layers: frozenset[int] = frozenset()
        self.watched: dict[str, dict[int, Tensor]] = {}
        self.adapters: dict[str, Adapter] = {}
        self.kept_logits: dict[int, Tensor] = {}
        self.clock, self.logits_at = clock, None

    @property
    def kept_logits_nbytes(self) -> int:
        return sum(t.nbytes for t in self.kept_logits.values())

    @property
    def windows(self) -> tuple[int | None, ...]:
        """One a layer: positions that a query reads at most, None: all (core/step_cost.py)."""
        config = self.model.config
        return tuple(map(config.window_of, range(config.num_layers)))

    def check_adapter(self, identity: str) -> None:
        """Raise ValueError for one that is not loaded; the engine asks before it takes requests."""
        if identity not in self.adapters:
            known = ", ".join(repr(one[:8] + "…") for one in self.adapters) or "none"
            raise ValueError(
                f"adapter {identity!r} is not loaded; load it with LLM.load_adapter(), which "
                f"returns the identity to give here (loaded: {known})"
            )

    def execute(self, output: SchedulerOutput) -> dict[str, SampledToken]:
        """One step. Returns the selected token of every request in the rows' samplers.

        Raises NotEnoughMemory where the step's own values do not fit; nothing of them is kept.
        """
        with explained(lambda asked: self._told(output, asked)):
            return self._execute(output)

    def _told(self, output: SchedulerOutput, asked: str) -> str:
        kept = self.kept_logits_nbytes + getattr(self.attention, "buffer_nbytes", 0)
        return step_told(self.model, self.cache, kept, output, asked)

    @torch.inference_mode()
    def _execute(self, output: SchedulerOutput) -> dict[str, SampledToken]:
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
        hidden = self._hidden(rows, batch)
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

    def _hidden(self, rows: tuple[ScheduledRequest, ...], batch: InputBatch) -> Tensor:
        """Hidden states [N, D] of a step: by a graph where there is one for it, else by the model.

        A graph knows the attention that it recorded, no adapters, and nobody who watches.
        """
        adapted = adapted_rows(rows, self.adapters, self.model.device)
        graphs = self.decode_graphs
        plain = adapted is None and not self.watch_layers
        if graphs is not None and plain and graphs.attention is self.attention:
            hidden = graphs(batch)
            if hidden is not None:
                return hidden
        self.attention.begin(batch)
        attention = self._watching(rows, batch) if self.watch_layers else self.attention
        more = () if adapted is None else (adapted,)
        return self.model(batch.input_ids, batch.positions, attention, *more)

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
                    keys, _ = self.cache.read(list(readable(row.block_ids)), row.end)
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
