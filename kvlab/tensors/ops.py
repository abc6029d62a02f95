"""Attention over the paged cache, fast: which way is taken depends on the work.

The formula is that of tensors/attention.py. Two facts decide the speed on a CPU: copying K/V out
of the pool costs as much as reading them, so buffers are allocated once, and a long past is copied
in chunks (tensors/decode_chunks.py); and the query heads of a group are packed into the query
length, so K/V are read once a group instead of once a head.
A layer with a window gathers the positions that its queries can reach and no others.
Kernels for GPUs, and which engine takes what: tensors/backends.py. Section 21.5.
"""

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from kvlab.tensors.attention import causal_mask
from kvlab.tensors.decode_chunks import attend_in_chunks, in_chunks
from kvlab.tensors.input_batch import InputBatch
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.stored import StoredRows

GATHER_TOGETHER = 1 << 19  # values: below, one gather for the whole batch is faster than one each
SCORES_TOGETHER = 1 << 20  # scores: the same bound for the mask of such a batch
QUERY_TILE = 512  # rows of a prompt that attend at once; bounds the mask


class PagedAttention:
    """The model's attention over a `PagedCache` for one step after another.

    Call `begin(batch)` before each step. Buffers live as long as this object.

    A window saves reading in its layer. It saves memory where every layer has one: the manager
    then frees the blocks that fell out of the widest (core/windows.py), and nothing here reads
    them. A block is one block in all layers, so a single layer that attends to everything keeps
    them all. The memory calculator calls the two policies `freed` and `reserve_full`.
    """

    def __init__(self, cache: PagedCache, dtype: torch.dtype) -> None:
        """dtype: the arithmetic's; the cache keeps its own."""
        self.cache, self.dtype = cache, dtype
        self._buffers: dict[tuple[str, torch.dtype], Tensor] = {}

    @property
    def buffer_nbytes(self) -> int:
        """Bytes of the buffers that K/V are gathered into."""
        return sum(buffer.nbytes for buffer in self._buffers.values())

    def begin(self, batch: InputBatch) -> None:
        """A new step. What its layers share is worked out once a window, at its first use."""
        self.batch = batch
        self._rectangles: dict[int | None, tuple[Tensor, Tensor | None] | None] = {}

    def __call__(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None = None
    ) -> Tensor:
        """Write K/V of the new positions, then let each query read its past. Shapes: model.py."""
        self.cache.write(layer, key, value, self.batch.slot_mapping)
        if window is not None and window >= max(self.batch.seq_lens):
            window = None  # reaches everything
        if window not in self._rectangles:
            self._rectangles[window] = self._rectangle(window)
        rectangle = self._rectangles[window]
        if rectangle is not None:
            return self._all_at_once(layer, query, *rectangle)
        return self._one_by_one(layer, query, window)

    def _rectangle(self, window: int | None) -> tuple[Tensor, Tensor | None] | None:
        """Slots and mask of the batch in one padded rectangle; None where that does not pay."""
        batch, config = self.batch, self.cache.config
        n, group = batch.query_lens[0], config.num_query_heads // config.num_kv_heads
        longest = max(batch.seq_lens)
        if window is not None:
            longest = min(longest, window + n - 1)
        positions = len(batch.seq_lens) * longest  # padded to the longest
        if (
            positions * config.num_kv_heads * config.head_dim > GATHER_TOGETHER
            or positions * n * group > SCORES_TOGETHER
            or any(length != n for length in batch.query_lens)
        ):
            return None
        slots, mask = _padded_slots(batch, n, self.dtype, window)
        return slots, None if mask is None else mask.repeat(1, 1, group, 1)

    def _all_at_once(self, layer: int, query: Tensor, slots: Tensor, mask: Tensor | None) -> Tensor:
        """Requests with equally many queries, in one padded rectangle of keys.

        Each group's heads and queries are packed as rows: [R, Hkv, G * n, d].
        """
        requests, heads = len(self.batch.seq_lens), self.cache.config.num_kv_heads
        keys, values = (
            self._gather(name, rows, slots).view(requests, -1, heads, query.shape[-1])
            for name, rows in zip(("key", "value"), self.cache.slots[layer], strict=True)
        )  # [R, T, Hkv, d]
        n = query.shape[0] // requests
        packed = query.view(requests, n, heads, -1, query.shape[-1])  # [R, n, Hkv, G, d]
        packed = packed.permute(0, 2, 3, 1, 4).flatten(2, 3)
        out = F.scaled_dot_product_attention(
            packed, keys.transpose(1, 2), values.transpose(1, 2), attn_mask=mask
        )
        return out.unflatten(2, (-1, n)).permute(0, 3, 1, 2, 4).reshape(query.shape)

    def _one_by_one(self, layer: int, query: Tensor, window: int | None) -> Tensor:
        """Request by request, whole blocks copied into the buffer, cut at the real length (and
        where the first query's window begins). A long past comes in chunks."""
        batch, out, row = self.batch, torch.empty_like(query), 0
        size, heads, width = batch.block_size, self.cache.config.num_kv_heads, query.shape[-1]
        copy = functools.partial(self._copy_blocks, layer)
        for i, (n, length) in enumerate(zip(batch.query_lens, batch.seq_lens, strict=True)):
            first = 0 if window is None else max(0, length - n - window + 1)
            blocks = batch.block_table[i, first // size : -(-length // size)]
            seen = range(first % size, first % size + length - first)
            mine = query[row : row + n]
            if n == 1 and in_chunks(mine, blocks, size * heads * width):
                out[row] = attend_in_chunks(mine[0], heads, blocks, size, seen, copy)
                row += 1
                continue
            keys, values = (
                copy(name, blocks)[seen.start : seen.stop].transpose(0, 1)
                for name in ("key", "value")
            )  # [Hkv, length - first, d]
            if n == 1:
                out[row] = _decode_one(mine, keys, values)[0]
            else:
                out[row : row + n] = _prefill_one(mine, keys, values, window)
            row += n
        return out

    def _copy_blocks(self, layer: int, name: str, blocks: Tensor) -> Tensor:
        """Keys or values of whole blocks, one after another: [blocks * block_size, Hkv, d]."""
        rows, config = self.cache.slots[layer][name == "value"], self.cache.config
        rows = rows.view(-1, self.batch.block_size * rows.shape[1])
        return self._gather(name, rows, blocks).view(-1, config.num_kv_heads, config.head_dim)

    def _gather(self, name: str, source: Tensor | StoredRows, index: Tensor) -> Tensor:
        """source[index] in the computing dtype, written into a buffer that is kept."""
        shape = (index.shape[0], source.shape[1])
        if isinstance(source, StoredRows):  # codes with scales
            return self._buffer(name, shape, self.dtype).copy_(source.index_select(0, index))
        buffer = self._buffer(name, shape, source.dtype)
        torch.index_select(source, 0, index, out=buffer)
        if source.dtype == self.dtype:
            return buffer
        return self._buffer(name, shape, self.dtype).copy_(buffer)

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        count, kept = math.prod(shape), self._buffers.get((name, dtype))
        if kept is None or kept.numel() < count:
            kept = torch.empty(count * 2, dtype=dtype, device=self.cache.key_cache.device)
            self._buffers[name, dtype] = kept
        return kept[:count].view(shape)


def _padded_slots(
    batch: InputBatch, n: int, dtype: torch.dtype, window: int | None = None
) -> tuple[Tensor, Tensor | None]:
    """Slots of all requests' positions, padded to the longest, [R * T]; and what to add to scores,
    [R, 1, n, T], for the n queries of each request: minus infinity where one must not read.
    With a window, T counts from the first position that the first query reads.

    Query i is at position length - n + i and reads up to there. A padded place points at the
    request's own last slot, which is written and held: whatever lies in unwritten slots, or in
    blocks that fell out of the window (it may be NaN), is never read.
    """
    longest, device = max(batch.seq_lens), batch.block_table.device
    offsets = torch.arange(batch.block_size, device=device)
    slots = batch.block_table[:, :, None] * batch.block_size + offsets
    slots = slots.flatten(1)[:, :longest]  # [R, T]
    if n == 1 and min(batch.seq_lens) == longest and window is None:
        return slots.reshape(-1), None
    last = torch.tensor(batch.seq_lens, device=device)[:, None] - 1  # [R, 1]
    own = slots.gather(1, last)
    places = torch.arange(longest, device=device)[None]
    if window is not None:  # T shrinks to what the n queries of a request can reach
        places = (last - n - window + 2).clamp(min=0) + places[:, : window + n - 1]  # [R, T]
        slots = slots.gather(1, places.clamp(max=longest - 1))
        if n == 1 and min(batch.seq_lens) >= window:
            return slots.reshape(-1), None
    slots = torch.where(places > last, own, slots)
    reach = last - n + 1 + torch.arange(n, device=device)  # [R, n]
    hidden = places[:, None] > reach[:, :, None]  # [R, n, T]
    if window is not None:
        hidden |= places[:, None] <= reach[:, :, None] - window
    mask = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, -math.inf)
    return slots.reshape(-1), mask[:, None]


def _decode_one(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """query [1, Hq, d]; keys, values [Hkv, T, d]: the group's heads are packed as query rows."""
    packed = query.view(1, keys.shape[0], -1, query.shape[-1])  # [1, Hkv, G, d]
    return F.scaled_dot_product_attention(packed, keys[None], values[None]).reshape(query.shape)


def _prefill_one(query: Tensor, keys: Tensor, values: Tensor, window: int | None = None) -> Tensor:
    """query [n, Hq, d], the last n of T positions. A tile of queries reads keys up to its last,
    from where the window of its first begins.

    The heads of a group are laid out as a batch over the same K/V (a stride of 0, no copy).
    """
    n, total = query.shape[0], keys.shape[1]
    grouped = query.unflatten(1, (keys.shape[0], -1)).permute(2, 1, 0, 3)  # [G, Hkv, n, d]
    tiles = []
    for start in range(0, n, QUERY_TILE):
        rows = grouped[:, :, start : start + QUERY_TILE]
        end = total - n + start + rows.shape[2]
        begin = 0 if window is None else max(0, end - rows.shape[2] - window + 1)
        k, v = (x[None, :, begin:end].expand(grouped.shape[0], -1, -1, -1) for x in (keys, values))
        reaches_all = window is None or window >= end
        if rows.shape[2] == end and reaches_all:  # nothing before this tile: plain causal attention
            tiles.append(F.scaled_dot_product_attention(rows, k, v, is_causal=True))
            continue
        mask = causal_mask(rows.shape[2], end - begin, query.device, window)
        tiles.append(F.scaled_dot_product_attention(rows, k, v, attn_mask=mask))
    return torch.cat(tiles, dim=2).permute(2, 1, 0, 3).reshape(query.shape)


class NoCache:
    """The model's attention with nothing kept: every pass is given the whole sequence again."""

    def __call__(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None = None
    ) -> Tensor:
        return _prefill_one(query, key.transpose(0, 1), value.transpose(0, 1), window)
