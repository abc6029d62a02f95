"""The same keys and values in one rectangle and in scattered blocks, read by the real kernels.

Paging changes where keys lie, not what attention computes (section 21.5).
"""

import random
from collections.abc import Callable

import torch
from torch import Tensor

from kvlab.core.kv_cache_manager import cdiv
from kvlab.core.scheduler_output import ScheduledRequest
from kvlab.tensors.attention import attend_masked, causal_mask
from kvlab.tensors.input_batch import build_input_batch
from kvlab.tensors.kv_cache import ContiguousCache, PagedCache
from kvlab.tensors.ops import PagedAttention

Read = Callable[[int], Tensor]  # layer -> mixtures of one query, [num_query_heads, head_dim]


def rectangle_read(rectangle: ContiguousCache, query: Tensor) -> Read:
    """The formula over a rectangle of one request: its newest position reads all of them.

    query: [num_query_heads, head_dim], used in every layer.
    """
    return lambda layer: attend_masked(
        query[None, :, None],
        rectangle.keys[layer],
        rectangle.values[layer],
        causal_mask(1, rectangle.width, query.device),
    )[0, :, 0]


def scattered_read(
    rectangle: ContiguousCache, query: Tensor, block_size: int, num_blocks: int, seed: int = 0
) -> tuple[list[int], Read]:
    """The engine's kernel over the same keys and values, copied into blocks of a larger pool.

    Every other slot of the pool is NaN, so a read that goes astray shows. Blocks are drawn by
    `seed`. Returns the block table and the read. Raises ValueError for more than one request and
    for a pool that is too small.
    """
    length = rectangle.width
    if rectangle.batch != 1 or length < 1:
        raise ValueError(
            f"the rectangle has {rectangle.batch} requests of {length} positions; give one "
            "request of at least one position"
        )
    if cdiv(length, block_size) > num_blocks:
        raise ValueError(
            f"{length} positions need {cdiv(length, block_size)} blocks of {block_size} and the "
            f"pool has {num_blocks}; give more blocks"
        )
    table = random.Random(seed).sample(range(num_blocks), cdiv(length, block_size))
    rows = [
        ScheduledRequest("A", start, [0] * n, table, ())
        for start, n in ((0, length), (length - 1, 1))
    ]
    whole, newest = (build_input_batch((row,), block_size, query.device) for row in rows)
    cache = PagedCache(rectangle.config, num_blocks, block_size, query.dtype, query.device)
    by_layer = [
        (k[0].transpose(0, 1), v[0].transpose(0, 1))  # [length, H_kv, d_h]
        for k, v in zip(rectangle.keys, rectangle.values, strict=True)
    ]
    for tensor in (cache.key_cache, cache.value_cache):
        tensor.fill_(float("nan"))
    for layer, (keys, values) in enumerate(by_layer):
        cache.write(layer, keys, values, whole.slot_mapping)
    attention = PagedAttention(cache, torch.float32)
    attention.begin(newest)
    return table, lambda layer: attention(layer, query[None], *(x[-1:] for x in by_layer[layer]))[0]
