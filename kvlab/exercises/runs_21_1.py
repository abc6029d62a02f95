"""Section 21.1's expectations, from real tensors: caches, masks and attention of kvlab.

torch is imported when one of them runs. Each list of cases is made afresh at every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvlab.exercises.shapes import config_of

if TYPE_CHECKING:
    from torch import Tensor

LAYERS, QUERY_HEADS, KV_HEADS, WIDTH, BYTES_PER_VALUE = 3, 6, 2, 2, 4
LARGE = {"layers": 32, "batch": 3, "kv_heads": 4, "seq_len": 4096, "head_dim": 128}  # 2 bytes


def bytes_at_three_moments() -> list[int]:
    """Bytes of a real cache after the prompt, after a selection, after the next pass."""
    import torch

    from kvlab.tensors.kv_cache import ContiguousCache, contiguous_forward
    from kvlab.tensors.model import Decoder

    config = config_of(LAYERS, QUERY_HEADS, KV_HEADS, WIDTH)
    model, cache = Decoder.random(config), ContiguousCache(config)
    logits = contiguous_forward(model, torch.tensor([[5, 9, 2]]), cache)
    sizes = [cache.nbytes]
    selected = logits[:, -1].argmax(-1, keepdim=True)
    sizes.append(cache.nbytes)
    contiguous_forward(model, selected, cache)
    return [*sizes, cache.nbytes]


def bytes_of_a_real_cache(
    layers: int,
    batch: int,
    kv_heads: int,
    seq_len: int,
    head_dim: int,
    bytes_per_value: int,
) -> int:
    """What the arrays of a cache of this shape say of their size."""
    import torch

    from kvlab.tensors.kv_cache import ContiguousCache

    dtype = {1: torch.int8, 2: torch.float16, 4: torch.float32}[bytes_per_value]
    config = config_of(layers, kv_heads, kv_heads, head_dim)
    cache = ContiguousCache(config, batch, dtype)
    for layer in range(layers):
        new = torch.empty(batch, kv_heads, seq_len, head_dim, dtype=dtype)
        cache.append(layer, new, new)
    return cache.nbytes


def cache_shapes() -> Sequence[tuple]:
    return (
        (1, 1, 1, 3, 2, 2),
        (1, 1, 1, 4, 2, 2),
        (1, 1, 1, 4, 2, 4),
        (1, 2, 1, 4, 2, 2),
        (2, 1, 4, 5, 8, 2),
        (3, 2, 2, 6, 4, 1),
        (4, 3, 2, 17, 16, 4),
    )


def gib_of_large_arrays() -> float:
    """One layer of real arrays, 25 MB, as often as there are layers: they are all alike."""
    one_layer = bytes_of_a_real_cache(**(LARGE | {"layers": 1}), bytes_per_value=2)
    return LARGE["layers"] * one_layer / 2**30


def kv_head_that_attention_reads(h: int, num_query_heads: int, num_kv_heads: int) -> int:
    """Let the values of each KV head say its number, and look at what query head h mixes."""
    import torch

    from kvlab.tensors.attention import attend_masked

    numbers = torch.arange(num_kv_heads, dtype=torch.float32)
    values = numbers[:, None, None].expand(num_kv_heads, 1, 2)  # [H_kv, T, d_h]
    query = torch.zeros(num_query_heads, 1, 2)
    mixed = attend_masked(query, torch.zeros_like(values), values, torch.ones(1, 1).bool())
    return int(mixed[h, 0, 0])


def head_cases() -> Sequence[tuple]:
    shapes = ((1, 1), (2, 1), (2, 2), (3, 1), (4, 2), (6, 2), (6, 3), (8, 2), (8, 4))
    return tuple((h, queries, heads) for queries, heads in shapes for h in range(queries))


def mask_of_the_real_pass(lengths: list[int], new: int) -> Tensor:
    """[B, new, T + new]: the mask that a pass over `new` tokens a request attends with."""
    import torch

    from kvlab.tensors.kv_cache import ContiguousAttention, ContiguousCache, contiguous_forward
    from kvlab.tensors.model import Decoder

    config = config_of(1, 1, 1, 2)
    model, cache = Decoder.random(config), ContiguousCache(config, batch=len(lengths))
    prompts = torch.ones(len(lengths), max(lengths), dtype=torch.long)
    contiguous_forward(model, prompts, cache, lengths)
    contiguous_forward(model, torch.ones(len(lengths), new, dtype=torch.long), cache)
    return ContiguousAttention(cache, new).mask


def mask_cases() -> Sequence[tuple]:
    return (([1], 1), ([2, 1], 1), ([1, 2], 1), ([2], 2), ([2, 1], 2), ([2, 1], 3), ([3, 1, 2], 1))


def attention_over_a_real_cache(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    """[d]: append to a cache of one head, then attend over all of it."""
    from kvlab.tensors.attention import attend_masked, causal_mask
    from kvlab.tensors.kv_cache import ContiguousCache

    cache = ContiguousCache(config_of(1, 1, 1, len(q)))
    cache.append(0, keys[None, None], values[None, None])
    cache.append(0, k[None, None, None], v[None, None, None])
    mask = causal_mask(1, cache.width)
    return attend_masked(q[None, None, None], cache.keys[0], cache.values[0], mask)[0, 0, 0]


def decode_cases() -> Sequence[tuple]:
    """q, k, v [d], keys, values [T, d]: halves, so that they can be read in a message."""
    import torch

    draw = torch.Generator().manual_seed(7)
    shapes = [((d,), (d,), (d,), (t, d), (t, d)) for t, d in ((1, 2), (2, 2), (3, 4), (6, 8))]
    return tuple(
        tuple(torch.randint(-3, 4, shape, generator=draw) / 2 for shape in five) for five in shapes
    )
