"""Attention over the paged cache, fast: which way is taken depends on the work.

The formula is that of tensors/attention.py. Two facts decide the speed on a CPU: copying K/V out
of the pool costs as much as reading them, so buffers are allocated once; and the query heads of
a group are packed into the query length, so K/V are read once a group instead of once a head.
Kernels for GPUs have their place in `PagedAttention.__call__`, beside the two torch ways.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from kvlab.tensors.input_batch import InputBatch
from kvlab.tensors.kv_cache import PagedCache

GATHER_TOGETHER = 1 << 19  # values: below, one gather for the whole batch is faster than one each
SCORES_TOGETHER = 1 << 20  # scores: the same bound for the mask of such a batch
QUERY_TILE = 512  # rows of a prompt that attend at once; bounds the mask


class PagedAttention:
    """The model's attention over a `PagedCache` for one step after another.

    Call `begin(batch)` before each step. Buffers live as long as this object.
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
        """Work out once a step what all layers share: slots to read, masks, which way to go."""
        self.batch = batch
        config, n = self.cache.config, batch.query_lens[0]
        positions = len(batch.seq_lens) * max(batch.seq_lens)  # padded to the longest
        self._together = (
            positions * config.num_kv_heads * config.head_dim <= GATHER_TOGETHER
            and positions * n * config.num_query_heads // config.num_kv_heads <= SCORES_TOGETHER
            and all(length == n for length in batch.query_lens)
        )
        if self._together:
            self._slots, mask = _padded_slots(batch, n, self.dtype)
            group = config.num_query_heads // config.num_kv_heads
            self._mask = None if mask is None else mask.repeat(1, 1, group, 1)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Write K/V of the new positions, then let each query read its past. Shapes: model.py."""
        self.cache.write(layer, key, value, self.batch.slot_mapping)
        if self._together:
            return self._all_at_once(layer, query)
        return self._one_by_one(layer, query)

    def _all_at_once(self, layer: int, query: Tensor) -> Tensor:
        """Requests with equally many queries, in one padded rectangle of keys.

        Each group's heads and queries are packed as rows: [R, Hkv, G * n, d].
        """
        requests, heads = len(self.batch.seq_lens), self.cache.config.num_kv_heads
        keys, values = (
            self._gather(name, rows, self._slots).view(requests, -1, heads, query.shape[-1])
            for name, rows in zip(("key", "value"), self.cache.slots[layer], strict=True)
        )  # [R, T, Hkv, d]
        n = query.shape[0] // requests
        packed = query.view(requests, n, heads, -1, query.shape[-1])  # [R, n, Hkv, G, d]
        packed = packed.permute(0, 2, 3, 1, 4).flatten(2, 3)
        out = F.scaled_dot_product_attention(
            packed, keys.transpose(1, 2), values.transpose(1, 2), attn_mask=self._mask
        )
        return out.unflatten(2, (-1, n)).permute(0, 3, 1, 2, 4).reshape(query.shape)

    def _one_by_one(self, layer: int, query: Tensor) -> Tensor:
        """Request by request, whole blocks copied into the buffer, cut at the real length."""
        batch, out, row = self.batch, torch.empty_like(query), 0
        size, heads = batch.block_size, self.cache.config.num_kv_heads
        for i, (n, length) in enumerate(zip(batch.query_lens, batch.seq_lens, strict=True)):
            blocks = batch.block_table[i, : -(-length // size)]
            keys, values = (
                self._gather(name, rows.view(-1, size * rows.shape[1]), blocks)
                .view(-1, heads, query.shape[-1])[:length]
                .transpose(0, 1)
                for name, rows in zip(("key", "value"), self.cache.slots[layer], strict=True)
            )  # [Hkv, length, d]
            attend = _decode_one if n == 1 else _prefill_one
            out[row : row + n] = attend(query[row : row + n], keys, values)
            row += n
        return out

    def _gather(self, name: str, source: Tensor, index: Tensor) -> Tensor:
        """source[index] in the computing dtype, written into a buffer that is kept."""
        shape = (index.shape[0], source.shape[1])
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


def _padded_slots(batch: InputBatch, n: int, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Slots of all requests' positions, padded to the longest, [R * T]; and what to add to scores,
    [R, 1, n, T], for the n queries of each request: minus infinity where one must not read.

    Query i is at position length - n + i and reads up to there. A padded place points at the
    request's own first slot, which is written: whatever lies in unwritten slots (it may be NaN)
    is never read.
    """
    longest, device = max(batch.seq_lens), batch.block_table.device
    offsets = torch.arange(batch.block_size, device=device)
    slots = batch.block_table[:, :, None] * batch.block_size + offsets
    slots = slots.flatten(1)[:, :longest]  # [R, T]
    if n == 1 and min(batch.seq_lens) == longest:
        return slots.reshape(-1), None
    last = torch.tensor(batch.seq_lens, device=device)[:, None] - 1  # [R, 1]
    places = torch.arange(longest, device=device)
    slots = torch.where(places > last, slots[:, :1], slots)
    reach = last - n + 1 + torch.arange(n, device=device)  # [R, n]
    hidden = places > reach[:, :, None]  # [R, n, T]
    mask = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, -math.inf)
    return slots.reshape(-1), mask[:, None]


def _decode_one(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """query [1, Hq, d]; keys, values [Hkv, T, d]: the group's heads are packed as query rows."""
    packed = query.view(1, keys.shape[0], -1, query.shape[-1])  # [1, Hkv, G, d]
    return F.scaled_dot_product_attention(packed, keys[None], values[None]).reshape(query.shape)


def _prefill_one(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """query [n, Hq, d], the last n of T positions. A tile of queries reads keys up to its last.

    The heads of a group are laid out as a batch over the same K/V (a stride of 0, no copy).
    """
    n, total = query.shape[0], keys.shape[1]
    grouped = query.unflatten(1, (keys.shape[0], -1)).permute(2, 1, 0, 3)  # [G, Hkv, n, d]
    tiles = []
    for start in range(0, n, QUERY_TILE):
        rows = grouped[:, :, start : start + QUERY_TILE]
        end = total - n + start + rows.shape[2]
        k, v = (x[None, :, :end].expand(grouped.shape[0], -1, -1, -1) for x in (keys, values))
        if rows.shape[2] == end:  # nothing before this tile: plain causal attention
            tiles.append(F.scaled_dot_product_attention(rows, k, v, is_causal=True))
            continue
        ones = torch.ones(rows.shape[2], end, dtype=torch.bool, device=query.device)
        mask = ones.tril(end - rows.shape[2])
        tiles.append(F.scaled_dot_product_attention(rows, k, v, attn_mask=mask))
    return torch.cat(tiles, dim=2).permute(2, 1, 0, 3).reshape(query.shape)


class NoCache:
    """The model's attention with nothing kept: every pass is given the whole sequence again."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return _prefill_one(query, key.transpose(0, 1), value.transpose(0, 1))
