"""The CPU tier's tensors, and the copies between it and the device (section 21.3).

On CUDA the host tensors are pinned and the copies run on a stream of their own, beside the model
pass; an event tells when a step's copies have ended. Elsewhere they are plain copies, ended when
`start` returns. Which block goes where is the bookkeeping's business (core/offload.py).
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kvlab.core.transfers import BlockCopy, TransferReport
from kvlab.tensors.kv_cache import PagedCache


@dataclass
class _OnItsWay:
    """One step's copies in one direction; `began` and `ended` are CUDA events."""

    report: TransferReport
    began: torch.cuda.Event
    ended: torch.cuda.Event
    staging: tuple[Tensor, ...]  # kept until the copies that read or fill it have ended


class HostTier:
    """blocks: [num_blocks, 2, num_layers, block_size, num_kv_heads, head_dim] in host memory.

    Index 1 is 0 for keys, 1 for values: one block is one stretch of memory, so that one copy moves
    it. The values are those of the paged cache to the bit, in the same dtype. Where its positions
    have scales (int8, q4_0), `scales` holds them in the same order and one more copy moves them.

    Stores gather their blocks on the compute stream before they leave, and loads scatter theirs
    on the copy stream after everything before them: whatever the pass then writes to a stored
    block, the copy has what was there. Copies run in the order in which they were started.
    """

    def __init__(self, cache: PagedCache, num_blocks: int) -> None:
        """Allocates the whole tier. Raises ValueError for a count below 1."""
        if num_blocks < 1:
            raise ValueError(f"HostTier: {num_blocks} blocks; give at least 1")
        self.cache = cache
        self.on_cuda = cache.key_cache.is_cuda
        self.parts = tuple(self._like(keys, num_blocks) for keys, _ in cache.tensors)
        self._stream = torch.cuda.Stream(cache.key_cache.device) if self.on_cuda else None
        self._on_their_way: list[_OnItsWay] = []
        self._ended: list[TransferReport] = []

    def _like(self, keys: Tensor, num_blocks: int) -> Tensor:
        layers, _, *rest = keys.shape
        shape = (num_blocks, 2, layers, *rest)
        return torch.zeros(shape, dtype=keys.dtype, pin_memory=self.on_cuda)

    @property
    def blocks(self) -> Tensor:
        return self.parts[0]

    @property
    def scales(self) -> Tensor | None:
        """[num_blocks, 2, num_layers, block_size, num_kv_heads, ...]; None: there are none."""
        return self.parts[1] if len(self.parts) > 1 else None

    @property
    def num_blocks(self) -> int:
        return len(self.blocks)

    @property
    def nbytes(self) -> int:
        """The whole tier, used or not."""
        return sum(part.nbytes for part in self.parts)

    @property
    def block_nbytes(self) -> int:
        """What one copy moves: keys and values of one block, all layers."""
        return self.nbytes // self.num_blocks

    # ---- starting copies

    def start(self, stores: Sequence[BlockCopy], loads: Sequence[BlockCopy]) -> None:
        """Stores first, then loads. A copy that fails is reported as failed, never raised."""
        for copies, begin, failed in (
            (stores, self._begin_store, "failed_stores"),
            (loads, self._begin_load, "failed_loads"),
        ):
            if copies:
                try:
                    begin(tuple(copies))
                except RuntimeError:  # what torch raises for memory, devices and pinning
                    if self._stream is not None:
                        self._stream.synchronize()  # no part of it goes on
                    self._ended.append(TransferReport(**{failed: tuple(copies)}))

    def _begin_store(self, copies: tuple[BlockCopy, ...]) -> None:
        report = TransferReport(stored=copies, bytes_stored=len(copies) * self.block_nbytes)
        if self._stream is None:
            self._now(report, lambda: self._to_host(copies))
            return
        by_copy = [[torch.stack(pair) for pair in self._halves(c.src)] for c in copies]
        gathered = tuple(map(torch.stack, zip(*by_copy, strict=True)))  # as it is now
        self._later(report, gathered, lambda: self._to_pinned(copies, gathered))

    def _begin_load(self, copies: tuple[BlockCopy, ...]) -> None:
        report = TransferReport(loaded=copies, bytes_loaded=len(copies) * self.block_nbytes)
        if self._stream is None:
            there = [[part[c.src] for c in copies] for part in self.parts]
            self._now(report, lambda: self._to_device(copies, there))
            return
        staging = tuple(
            torch.empty(
                (len(copies), *part.shape[1:]),
                dtype=part.dtype,
                device=self.cache.key_cache.device,
            )
            for part in self.parts
        )
        self._later(report, staging, lambda: self._from_pinned(copies, staging))

    def _now(self, report: TransferReport, copy: Callable[[], None]) -> None:
        began = time.perf_counter()
        copy()
        self._ended.append(_with_seconds(report, time.perf_counter() - began))

    def _later(
        self, report: TransferReport, staging: tuple[Tensor, ...], copy: Callable[[], None]
    ) -> None:
        """On the copy stream, after all that the compute stream was given so far."""
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self._stream.wait_stream(torch.cuda.current_stream(staging[0].device))
        with torch.cuda.stream(self._stream):
            events[0].record()
            copy()
            events[1].record()
        self._on_their_way.append(_OnItsWay(report, *events, staging))

    def _halves(self, block_id: int) -> list[tuple[Tensor, Tensor]]:
        """A device block's keys and values, each [num_layers, block_size, heads, width]; then,
        where positions have scales, both halves of these."""
        return [(k[:, block_id], v[:, block_id]) for k, v in self.cache.tensors]

    def _to_host(self, copies: Sequence[BlockCopy]) -> None:
        for copy in copies:
            for part, pair in zip(self.parts, self._halves(copy.src), strict=True):
                for half, source in zip(part[copy.dst], pair, strict=True):
                    half.copy_(source)

    def _to_pinned(self, copies: Sequence[BlockCopy], gathered: tuple[Tensor, ...]) -> None:
        for part, blocks in zip(self.parts, gathered, strict=True):
            for copy, block in zip(copies, blocks, strict=True):
                part[copy.dst].copy_(block, non_blocking=True)

    def _from_pinned(self, copies: Sequence[BlockCopy], staging: tuple[Tensor, ...]) -> None:
        for part, blocks in zip(self.parts, staging, strict=True):
            for copy, block in zip(copies, blocks, strict=True):
                block.copy_(part[copy.src], non_blocking=True)
        self._to_device(copies, staging)

    def _to_device(self, copies: Sequence[BlockCopy], parts: Iterable[Sequence[Tensor]]) -> None:
        """parts: of `self.parts` each, one block a copy."""
        for i, blocks in enumerate(parts):
            for copy, block in zip(copies, blocks, strict=True):
                for half, source in zip(self._halves(copy.dst)[i], block, strict=True):
                    half.copy_(source)

    # ---- ending them

    def finished(self, wait: bool = False) -> TransferReport:
        """Copies that ended since the last call; wait: all that are under way end first."""
        while self._on_their_way and (wait or self._on_their_way[0].ended.query()):
            oldest = self._on_their_way.pop(0)
            oldest.ended.synchronize()
            seconds = oldest.began.elapsed_time(oldest.ended) / 1000
            self._ended.append(_with_seconds(oldest.report, seconds))
        ended, self._ended = self._ended, []
        return sum(ended, TransferReport())


def _with_seconds(report: TransferReport, seconds: float) -> TransferReport:
    name = "seconds_storing" if report.stored else "seconds_loading"
    return replace(report, **{name: seconds})
