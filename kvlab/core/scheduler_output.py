"""The messages between bookkeeping and tensors: what to compute, and what was selected.

Section 21.5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvlab.core.kept_logits import LogitsToKeep
from kvlab.core.request import Request
from kvlab.core.transfers import BlockCopy


@dataclass(frozen=True)
class ScheduledRequest:
    """One row of a step: compute positions [start, start + len(token_ids)) of a request.

    block_ids: the request's table; None where a block is out of the window (core/windows.py).
    samplers: the requests that select an output from the row's last logits. None for a chunk
    that ends before the last known token; several where a prompt has n continuations.
    logits_slot: a prompt that is cached whole computes nothing and selects from the logits that
    were kept in this slot. adapter: identity of the weights' change that the row computes with.
    """

    request_id: str
    start: int
    token_ids: Sequence[int]
    block_ids: Sequence[int | None]
    samplers: tuple[Request, ...]
    logits_slot: int | None = None
    adapter: str | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)


@dataclass(frozen=True)
class SchedulerOutput:
    """The only message from bookkeeping to tensors.

    Order within a step: `blocks_to_store` to the CPU tier, `blocks_to_load` from it,
    `blocks_to_copy` (copy-on-write), kept logits are read, the model pass over `requests`,
    `logits_to_keep`. Stores come first: a block that was evicted, or taken from an offloaded
    request, may be loaded into or written to in the same step. Stores and loads may end steps
    later; the runner reports them (core/transfers.py).
    """

    step: int
    requests: tuple[ScheduledRequest, ...]
    blocks_to_copy: tuple[BlockCopy, ...] = ()
    blocks_to_load: tuple[BlockCopy, ...] = ()
    blocks_to_store: tuple[BlockCopy, ...] = ()
    logits_to_keep: tuple[LogitsToKeep, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether a runner has nothing to do."""
        return not (self.requests or self.blocks_to_load or self.blocks_to_store)

    @property
    def num_scheduled_tokens(self) -> int:
        return sum(len(r.token_ids) for r in self.requests)


@dataclass(frozen=True)
class SampledToken:
    """An output selected by the runner. logprobs: token id -> log-probability, where asked for."""

    token_id: int
    logprobs: Mapping[int, float] | None = None
