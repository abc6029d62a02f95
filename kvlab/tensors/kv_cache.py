"""Two layouts of one state: keys and values of every layer and processed position.

`ContiguousCache` is eq 21.1, one rectangle [B, H_kv, T, d_h] a layer that grows by appending.
`PagedCache` is a pool of blocks allocated once; block tables say which slots belong to whom
(section 21.5). In both the stored dtype is apart from the dtype that computes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from kvlab.tensors.attention import attend_masked, causal_mask
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.model import Decoder


class PagedCache:
    """key_cache, value_cache: [num_layers, num_blocks, block_size, num_kv_heads, head_dim].

    Slot `block_id * block_size + offset` of a layer holds one position. The cache knows no
    request: what is where is the manager's business (core/kv_cache_manager.py).
    """

    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        """Allocates the whole pool. Raises ValueError for a count below 1."""
        if num_blocks < 1 or block_size < 1:
            raise ValueError(
                f"PagedCache: {num_blocks} blocks of {block_size} slots; both must be at least 1"
            )
        shape = (config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim)
        self.config, self.num_blocks, self.block_size = config, num_blocks, block_size
        self.key_cache = torch.zeros(shape, dtype=dtype, device=device)
        self.value_cache = torch.zeros(shape, dtype=dtype, device=device)
        # the same memory as rows of slots: for each layer, K and V as [slots, heads * width]
        self.slots = [
            (k.flatten(0, 1).flatten(1), v.flatten(0, 1).flatten(1))
            for k, v in zip(self.key_cache, self.value_cache, strict=True)
        ]

    @property
    def dtype(self) -> torch.dtype:
        return self.key_cache.dtype

    @property
    def nbytes(self) -> int:
        """The whole pool, used or not."""
        return self.key_cache.nbytes + self.value_cache.nbytes

    @property
    def bytes_per_position(self) -> int:
        return self.config.bytes_per_position(self.key_cache.itemsize)

    def write(self, layer: int, key: Tensor, value: Tensor, slot_mapping: Tensor) -> None:
        """Store new positions. key, value: [N, num_kv_heads, head_dim]; slot_mapping: [N] slots."""
        heads, width = self.config.num_kv_heads, self.config.head_dim
        assert key.shape == value.shape == (len(slot_mapping), heads, width)
        for rows, new in zip(self.slots[layer], (key, value), strict=True):
            rows.index_copy_(0, slot_mapping, new.flatten(1).to(rows.dtype))

    def read(self, block_ids: list[int], length: int) -> tuple[Tensor, Tensor]:
        """K and V of a request's first `length` positions in logical order.

        Both have shape [num_layers, num_kv_heads, length, head_dim]; copies, in the stored dtype.
        """
        table = torch.tensor(block_ids, dtype=torch.long, device=self.key_cache.device)
        read = [
            c[:, table].flatten(1, 2)[:, :length].transpose(1, 2)
            for c in (self.key_cache, self.value_cache)
        ]
        return read[0].contiguous(), read[1].contiguous()

    def stored_nbytes(self, block_ids: list[int], length: int) -> int:
        """Bytes of the real tensors that hold a request's first `length` positions."""
        return sum(t.nbytes for t in self.read(block_ids, length))


class ContiguousCache:
    """keys[layer], values[layer]: [B, num_kv_heads, T, head_dim]; both grow by appending (eq 21.6).

    Requests of unequal length share the rectangle: a padded slot costs its bytes and `valid`
    [B, T] excludes it as a key.
    """

    def __init__(
        self,
        config: ModelConfig,
        batch: int = 1,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        shape = (batch, config.num_kv_heads, 0, config.head_dim)
        self.config, self.batch = config, batch
        self.keys = [
            torch.empty(shape, dtype=dtype, device=device) for _ in range(config.num_layers)
        ]
        self.values = [
            torch.empty(shape, dtype=dtype, device=device) for _ in range(config.num_layers)
        ]
        self.valid = torch.empty((batch, 0), dtype=torch.bool, device=device)

    @property
    def width(self) -> int:
        """T, the stored position width, padding included."""
        return self.keys[-1].shape[2]

    @property
    def seq_lens(self) -> list[int]:
        """Processed positions of each request, padding excluded."""
        return self.valid.sum(dim=1).tolist()

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in (*self.keys, *self.values))

    def append(self, layer: int, key: Tensor, value: Tensor) -> None:
        """cache_t = append(cache_(t-1), K_t, V_t). key, value: [B, num_kv_heads, t, head_dim]."""
        self.keys[layer] = torch.cat((self.keys[layer], key.to(self.keys[layer].dtype)), dim=2)
        self.values[layer] = torch.cat(
            (self.values[layer], value.to(self.values[layer].dtype)), dim=2
        )


class ContiguousAttention:
    """The model's attention over a `ContiguousCache`: append, then read what is valid and past."""

    def __init__(self, cache: ContiguousCache, width: int) -> None:
        """width: new positions of each request in this pass; `cache.valid` counts them already."""
        self.cache, self.width = cache, width
        past = cache.valid.shape[1] - width
        mask = causal_mask(width, past + width, cache.valid.device)  # [t, T]
        self.mask = mask & cache.valid[:, None, :]  # [B, t, T]

    def mask_within(self, window: int | None) -> Tensor:
        """[B, t, T]: `mask`, and no key further back than a window reaches.

        A window counts positions, so slots of padding do not use it up.
        """
        if window is None:
            return self.mask
        places = self.cache.valid.cumsum(dim=1)  # [B, T]; a padded slot repeats the last one
        return self.mask & (places[:, None] > places[:, -self.width :, None] - window)

    def __call__(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None = None
    ) -> Tensor:
        b, t, cache = self.cache.batch, self.width, self.cache
        by_request = (x.unflatten(0, (b, t)).transpose(1, 2) for x in (query, key, value))
        query, key, value = by_request  # [B, H, t, d]
        cache.append(layer, key, value)
        keys, values = cache.keys[layer].to(query.dtype), cache.values[layer].to(query.dtype)
        out = attend_masked(query, keys, values, self.mask_within(window))
        return out.transpose(1, 2).flatten(0, 1)


@torch.no_grad()
def contiguous_forward(
    model: Decoder, input_ids: Tensor, cache: ContiguousCache, lengths: Sequence[int] | None = None
) -> Tensor:
    """One pass over new tokens of every request; the cache grows by their width.

    input_ids: [B, t], padded at the right; lengths: real tokens of each row (None: all of them).
    Positions count real tokens: padding never shifts them. Returns logits [B, t, V]; rows of
    padding mean nothing.
    """
    batch, width = input_ids.shape
    assert batch == cache.batch
    lens = torch.tensor(lengths or [width] * batch, device=input_ids.device)[:, None]
    offsets = torch.arange(width, device=input_ids.device)[None]
    past = cache.valid.sum(dim=1, keepdim=True)
    cache.valid = torch.cat((cache.valid, offsets < lens), dim=1)
    attention = ContiguousAttention(cache, width)
    hidden = model(input_ids.flatten(), (past + offsets).flatten(), attention)
    return model.compute_logits(hidden).unflatten(0, (batch, width))
