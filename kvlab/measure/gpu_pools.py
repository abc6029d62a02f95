"""K/V of random requests, in scattered blocks of a pool and, the same numbers, in one rectangle."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kvlab.measure.gpu_setting import Setting
from kvlab.tensors import launch
from kvlab.tensors.stored import CacheFormat, cache_format, calibrated_scale

PIECE = 1 << 24  # numbers that are drawn or quantised at a time


@dataclass(frozen=True)
class Pool:
    """One layer's pool with equally long requests, and the settings that its scales need."""

    key_cache: Tensor  # [num_blocks, block_size, Hkv, d]
    value_cache: Tensor
    block_table: Tensor  # [R, W] shuffled
    seq_lens: Tensor  # [R]
    query: Tensor  # [N, Hq, d]
    scales: dict[str, object]
    window: int | None = None

    @property
    def nbytes(self) -> int:
        """Of K and V, and of each position's scales: what one decode step has to read."""
        tensors = [self.key_cache, self.value_cache]
        tensors += [x for x in self.scales.values() if isinstance(x, Tensor)]
        return sum(x.nbytes for x in tensors)

    def decode(self, **settings: object) -> Tensor:
        """By the kernel, [R, Hq, d]."""
        return launch.paged_decode(
            self.query, self.key_cache, self.value_cache, self.block_table, self.seq_lens,
            window=self.window, **self.scales, **settings,
        )  # fmt: skip

    def prefill(self, **settings: object) -> Tensor:
        """By the kernel, as many queries of each request: [N, Hq, d]."""
        each = len(self.query) // len(self.seq_lens)
        starts = torch.arange(len(self.seq_lens) + 1, device=self.query.device) * each
        return launch.paged_prefill(
            self.query, self.key_cache, self.value_cache, self.block_table, starts,
            self.seq_lens, max_query_len=each, window=self.window, **self.scales, **settings,
        )  # fmt: skip

    def rectangle(self) -> tuple[Tensor, Tensor]:
        """K and V as [R, Hkv, T, d]; for a pool of plain numbers."""
        length = int(self.seq_lens[0])
        keys, values = (
            cache[self.block_table].flatten(1, 2)[:, :length].transpose(1, 2).contiguous()
            for cache in (self.key_cache, self.value_cache)
        )
        return keys, values


def make_pool(
    setting: Setting,
    requests: int,
    length: int,
    *,
    queries: int = 1,
    heads: tuple[int, int] | None = None,
    head_dim: int | None = None,
    block: int | None = None,
    dtype: torch.dtype | None = None,
    stored: str | None = None,
    window: int | None = None,
    seed: int = 0,
) -> Pool:
    """`requests` of `length` positions, of which the last `queries` ask. None: the setting's.

    stored: a format's name; None: as computed.
    """
    sizes, device = setting.sizes, setting.device
    query_heads, kv_heads = heads or sizes.heads
    width, size = head_dim or sizes.head_dim, block or sizes.block
    dtype = dtype or setting.dtype
    blocks = -(-length // size)
    generator = torch.Generator(device).manual_seed(seed)
    order = torch.randperm(requests * blocks, generator=generator, device=device)
    kind = cache_format(dtype if stored is None else stored)
    shape = (requests * blocks, size, kv_heads, width)
    keys, key_scale = _filled(shape, kind, generator)
    values, value_scale = _filled(shape, kind, generator, bounded=True)
    query = torch.randn(
        requests * queries, query_heads, width, generator=generator, device=device, dtype=dtype
    )
    return Pool(
        keys,
        values,
        order.view(requests, blocks),
        torch.full((requests,), length, device=device),
        query,
        {} if key_scale is None else {"key_scale": key_scale, "value_scale": value_scale},
        window,
    )


def _filled(
    shape: tuple[int, ...],
    kind: CacheFormat,
    generator: torch.Generator,
    bounded: bool = False,
) -> tuple[Tensor, Tensor | float | None]:
    """Normal numbers, or even ones from -1 to 1, as a format stores them, with their scales."""
    device = generator.device
    codes = torch.empty(shape, dtype=kind.dtype, device=device)
    rows = codes.view(-1, shape[-1])
    scales = torch.empty(shape[:-1], device=device) if kind.name == "int8" else None
    one = None
    for start in range(0, len(rows), PIECE // shape[-1]):
        part = rows[start : start + PIECE // shape[-1]]
        draw = torch.rand if bounded else torch.randn
        drawn = draw(part.shape, generator=generator, device=device)
        drawn = drawn * 2 - 1 if bounded else drawn
        if kind.name == "fp8" and one is None:
            one = calibrated_scale(drawn)
        encoded, scale = kind.encode(drawn, one)
        part.copy_(encoded)
        if scales is not None:
            scales.view(-1)[start : start + len(part)] = scale
    return codes, scales if one is None else one
