"""Attention over the paged cache for layers that each attend in their own way."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kvlab.hf.layers import LayerAttention
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.ops import QUERY_TILE, PagedAttention


class LayeredPagedAttention(PagedAttention):
    """`PagedAttention`; for layers with capped scores or sinks, the layer's own formula.

    Queries come scaled for a division by sqrt(head_dim) (`LayerAttention.scaled`), so the fast
    ways of tensors/ops.py serve every other layer as they are.
    """

    def __init__(
        self, cache: PagedCache, dtype: torch.dtype, layers: Sequence[LayerAttention]
    ) -> None:
        super().__init__(cache, dtype)
        self.layers = tuple(layers)

    def __call__(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None = None
    ) -> Tensor:
        """Write K/V of the new positions, then let each query read its past."""
        if self.layers[layer].is_plain:
            return super().__call__(layer, query, key, value, window)
        self.cache.write(layer, key, value, self.batch.slot_mapping)
        out, row = torch.empty_like(query), 0
        for i, (n, length) in enumerate(
            zip(self.batch.query_lens, self.batch.seq_lens, strict=True)
        ):
            out[row : row + n] = self._one(layer, i, query[row : row + n], length)
            row += n
        return out

    def _one(self, layer: int, request: int, query: Tensor, length: int) -> Tensor:
        """query [n, H_q, d], the last n of `length` positions, in tiles: returns its shape."""
        attention, outputs = self.layers[layer], []
        for start in range(length - query.shape[0], length, QUERY_TILE):
            end = min(start + QUERY_TILE, length)
            first, keys, values = self._read(layer, request, attention.first_key(start), end)
            mask = attention.mask(range(start, end), range(first, end), query.device)
            begin = start - length + query.shape[0]
            tile = query[begin : begin + end - start].transpose(0, 1)  # [Hq, n, d]
            outputs.append(attention.attend(tile, keys, values, mask).transpose(0, 1))
        return torch.cat(outputs)

    def _read(self, layer: int, request: int, first: int, end: int) -> tuple[int, Tensor, Tensor]:
        """K and V of positions up to `end`, [H_kv, T, d], from the block that holds `first` on.

        Blocks before it are not read: that is what a window saves. Returns that block's first
        position too.
        """
        size, config = self.cache.block_size, self.cache.config
        skipped = first // size
        blocks = self.batch.block_table[request, skipped : -(-end // size)]
        keys, values = (
            rows.view(-1, size * rows.shape[1])
            .index_select(0, blocks)
            .view(-1, config.num_kv_heads, config.head_dim)[: end - skipped * size]
            .transpose(0, 1)
            .to(self.dtype)
            for rows in self.cache.slots[layer]
        )
        return skipped * size, keys, values

    def last_weights(self, layer: int, query: Tensor, keys: Tensor) -> Tensor:
        """Of a request's last query [H_q, 1, d] over its keys [H_kv, T, d]: [H_q, 1, T]."""
        attention, length = self.layers[layer], keys.shape[1]
        mask = attention.mask(range(length - 1, length), range(length), query.device)
        return attention.weights(query, keys, mask)
