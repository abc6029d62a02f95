"""Two layouts of one state: keys and values of every layer and processed position.

`ContiguousCache` is eq 21.1, one rectangle [B, H_kv, T, d_h] a layer that grows by appending.
`PagedCache` is a pool of blocks allocated once; block tables say which slots belong to whom
(section 21.5). In both the stored dtype is apart from the dtype that computes. A paged cache may
store fewer bits than any dtype that computes has: fp8, int8, q4_0 (tensors/stored.py).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from kvlab.tensors.attention import attend_masked, causal_mask
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.model import Decoder
from kvlab.tensors.stored import StoredRows, cache_format, calibrated_scale


class PagedCache:
    """key_cache, value_cache: [num_layers, num_blocks, block_size, num_kv_heads, head_dim].

    Slot `block_id * block_size + offset` of a layer holds one position. The cache knows no
    request: what is where is the manager's business (core/kv_cache_manager.py).

    key_scale, value_scale: None; one number a layer (fp8); [num_layers, num_blocks, block_size,
    num_kv_heads], float32 (int8), or one more dimension of head_dim / 32, float16 (q4_0, whose
    caches are head_dim / 2 bytes wide).
    """

    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype | str = torch.float32,
        device: str | torch.device = "cpu",
        scales: tuple[Sequence[float], Sequence[float]] | None = None,
    ) -> None:
        """Allocates the whole pool.

        dtype: of torch, or "fp32", "fp16", "bf16", "fp8", "int8", "q4_0" ("int4"). scales: for fp8,
        of keys and of values, one a layer (`calibrated_scales`); None: 1.0, which saturates.
        Raises ValueError for a count below 1, and for a format or scales that do not fit.
        """
        self.format = cache_format(dtype)
        if num_blocks < 1 or block_size < 1:
            raise ValueError(
                f"PagedCache: {num_blocks} blocks of {block_size} slots; both must be at least 1"
            )
        vectors = (config.num_layers, num_blocks, block_size, config.num_kv_heads)
        self.config, self.num_blocks, self.block_size = config, num_blocks, block_size
        wide, scaled = self.format.shapes(config.head_dim)
        codes = {"dtype": self.format.dtype, "device": device}
        self.key_cache, self.value_cache = (torch.zeros(*vectors, *wide, **codes) for _ in "KV")
        self.key_scale, self.value_scale = _tensor_scales(self.format.name, config, scales)
        if scaled is not None:
            kind = {"dtype": self.format.scale_dtype, "device": device}
            self.key_scale, self.value_scale = (
                torch.zeros(*vectors, *scaled, **kind) for _ in "KV"
            )
        # the same memory as rows of slots: for each layer, K and V as [slots, heads * width]
        self.slots = [(self._rows(n, "key"), self._rows(n, "value")) for n in range(vectors[0])]

    def _rows(self, layer: int, name: str) -> Tensor | StoredRows:
        codes = getattr(self, f"{name}_cache")[layer].flatten(0, 1)  # [slots, heads, ...]
        if self.format.is_plain:
            return codes.flatten(1)
        scale = getattr(self, f"{name}_scale")[layer]
        scale = scale.flatten(0, 1) if isinstance(scale, Tensor) else scale
        return StoredRows(self.format, codes, scale, self.config.head_dim)

    @property
    def tensors(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """All that a block has, of keys and of values: [num_layers, num_blocks, ...] each."""
        both = [(self.key_cache, self.value_cache)]
        if isinstance(self.key_scale, Tensor):
            both.append((self.key_scale, self.value_scale))
        return tuple(both)

    @property
    def dtype(self) -> torch.dtype | str:
        """What to give for another cache of this format: "int8" and "q4_0" go by name."""
        return self.format.asked

    @property
    def nbytes(self) -> int:
        """The whole pool, used or not, scales of positions included."""
        return sum(tensor.nbytes for pair in self.tensors for tensor in pair)

    @property
    def bytes_per_position(self) -> int:
        return self.nbytes // (self.num_blocks * self.block_size)

    @property
    def bytes_per_value(self) -> int | float:
        """Bytes a number of the keys and values, its share of a scale included."""
        c = self.config
        each = self.bytes_per_position / (2 * c.num_layers * c.num_kv_heads * c.head_dim)
        return int(each) if each == int(each) else each

    def fill_with_nan(self) -> None:
        """Every slot reads as NaN until it is written: what is read too early shows."""
        for tensor in self.tensors[-1]:  # the scales, where there are any
            tensor.fill_(float("nan"))

    def write(self, layer: int, key: Tensor, value: Tensor, slot_mapping: Tensor) -> None:
        """Store new positions. key, value: [N, num_kv_heads, head_dim]; slot_mapping: [N] slots."""
        heads, width = self.config.num_kv_heads, self.config.head_dim
        assert key.shape == value.shape == (len(slot_mapping), heads, width)
        for rows, new in zip(self.slots[layer], (key, value), strict=True):
            rows.index_copy_(0, slot_mapping, new.flatten(1).to(rows.dtype))

    def read(self, block_ids: list[int], length: int) -> tuple[Tensor, Tensor]:
        """K and V of a request's first `length` positions in logical order.

        Both have shape [num_layers, num_kv_heads, length, head_dim]; copies, in the stored dtype,
        or in float32 where codes are stored: then it is what they stand for.
        """
        pairs = self._held(block_ids, length)
        scales = pairs[1] if len(pairs) > 1 else (self.key_scale, self.value_scale)
        keys, values = (self._numbers(*both) for both in zip(pairs[0], scales, strict=True))
        return keys, values

    def stored_nbytes(self, block_ids: list[int], length: int) -> int:
        """Bytes of the real tensors that hold a request's first `length` positions."""
        return sum(t.nbytes for pair in self._held(block_ids, length) for t in pair)

    def _held(self, block_ids: list[int], length: int) -> list[tuple[Tensor, Tensor]]:
        """As `tensors`, of a request's first positions: [num_layers, length, ...] each."""
        table = torch.tensor(block_ids, dtype=torch.long, device=self.key_cache.device)
        return [
            tuple(tensor[:, table].flatten(1, 2)[:, :length] for tensor in pair)
            for pair in self.tensors
        ]

    def _numbers(self, codes: Tensor, scale: Tensor | tuple[float, ...] | None) -> Tensor:
        """[num_layers, num_kv_heads, length, head_dim]."""
        if isinstance(scale, tuple):
            scale = torch.tensor(scale, device=codes.device)[:, None, None, None]
        return self.format.decode(codes, scale).transpose(1, 2).contiguous()


def _tensor_scales(
    name: str, config: ModelConfig, asked: tuple[Sequence[float], Sequence[float]] | None
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """fp8's scales of keys and of values, one a layer. Raises ValueError for what is none."""
    if name != "fp8":
        if asked is not None:
            raise ValueError(f"scales with {name}; only fp8 has one a layer, leave them out")
        return None, None
    scales = ((1.0,) * config.num_layers,) * 2 if asked is None else tuple(map(tuple, asked))
    right = len(scales) == 2 and all(len(each) == config.num_layers for each in scales)
    if not right or not all(0 < scale < float("inf") for each in scales for scale in each):
        raise ValueError(
            f"scales is {asked!r:.60}; give two lists, of keys and of values, of one number above "
            f"0 for each of {config.num_layers} layers"
        )
    return scales


def calibrated_scales(cache: PagedCache, block_ids: list[int], length: int) -> tuple:
    """fp8 scales from real keys and values: those of a request's positions in another cache.

    Returns what PagedCache(..., "fp8", scales=...) takes: each layer's largest value becomes 448.
    """
    return tuple(
        [calibrated_scale(layer) for layer in both] for both in cache.read(block_ids, length)
    )


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
