"""The same keys and values in one rectangle and in scattered blocks, read by the real kernels.

Paging changes where keys lie, not what attention computes (section 21.5).
"""

import random
from collections.abc import Callable

import torch
from torch import Tensor

from kvlab.core.checked import whole
from kvlab.core.kv_cache_manager import cdiv
from kvlab.core.scheduler_output import ScheduledRequest
from kvlab.tensors.attention import attend_masked, causal_mask
from kvlab.tensors.input_batch import build_input_batch
from kvlab.tensors.kv_cache import ContiguousCache, PagedCache
from kvlab.tensors.ops import PagedAttention

Read = Callable[[int], Tensor]  # layer -> mixtures of one query, [num_query_heads, head_dim]


def rectangle_read(rectangle: ContiguousCache, query: Tensor) -> Read:
    """The formula over a rectangle of one request: its newest position reads all of them.

    query: [num_query_heads, head_dim], used in every layer; of the keys' dtype. Raises ValueError
    for more than one request, for padding, and for a query or layer that the rectangle has not.
    """
    _check_rectangle(rectangle)
    _check_query(query, rectangle, rectangle.keys[0].dtype)

    def read(layer: int) -> Tensor:
        _check_layer(layer, rectangle)
        return attend_masked(
            query[None, :, None],
            rectangle.keys[layer],
            rectangle.values[layer],
            causal_mask(1, rectangle.width, query.device),
        )[0, :, 0]

    return read


def scattered_read(
    rectangle: ContiguousCache, query: Tensor, block_size: int, num_blocks: int, seed: int = 0
) -> tuple[list[int], Read]:
    """The engine's kernel over the same keys and values, copied into blocks of a larger pool.

    Every other slot of the pool is NaN, so a read that goes astray shows. Blocks are drawn by
    `seed`; the kernel computes in float32, and so is the query. Returns the block table and the
    read. Raises ValueError as rectangle_read, and for a pool that is too small.
    """
    _check_rectangle(rectangle)
    _check_query(query, rectangle, torch.float32)
    whole("block_size", block_size, 1)
    whole("num_blocks", num_blocks, 1)
    whole("seed", seed)
    length = rectangle.width
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
    every, newest = (build_input_batch((row,), block_size, query.device) for row in rows)
    cache = PagedCache(rectangle.config, num_blocks, block_size, query.dtype, query.device)
    by_layer = [
        (k[0].transpose(0, 1), v[0].transpose(0, 1))  # [length, H_kv, d_h]
        for k, v in zip(rectangle.keys, rectangle.values, strict=True)
    ]
    for tensor in (cache.key_cache, cache.value_cache):
        tensor.fill_(float("nan"))
    for layer, (keys, values) in enumerate(by_layer):
        cache.write(layer, keys, values, every.slot_mapping)
    attention = PagedAttention(cache, torch.float32)
    attention.begin(newest)

    def read(layer: int) -> Tensor:
        _check_layer(layer, rectangle)
        return attention(layer, query[None], *(x[-1:] for x in by_layer[layer]))[0]

    return table, read


def _check_rectangle(rectangle: ContiguousCache) -> None:
    if not isinstance(rectangle, ContiguousCache):
        raise ValueError(f"rectangle is {rectangle!r:.60}; give a ContiguousCache")
    if rectangle.batch != 1 or rectangle.width < 1:
        raise ValueError(
            f"the rectangle has {rectangle.batch} requests of {rectangle.width} positions; give "
            "one request of at least one position"
        )
    if not rectangle.valid.all():
        raise ValueError(
            f"of the rectangle's {rectangle.width} positions {rectangle.seq_lens[0]} are no "
            "padding; give one without padding"
        )


def _check_query(query: Tensor, rectangle: ContiguousCache, dtype: torch.dtype) -> None:
    """One vector for each query head of the rectangle's model, where its keys lie."""
    config, device = rectangle.config, rectangle.keys[0].device
    shape = [config.num_query_heads, config.head_dim]
    if not isinstance(query, Tensor):
        raise ValueError(f"query is {query!r:.60}; give a tensor of shape {shape}")
    if list(query.shape) != shape:
        raise ValueError(
            f"query has shape {list(query.shape)}; give [num_query_heads, head_dim], {shape}"
        )
    if query.dtype != dtype or query.device != device:
        raise ValueError(
            f"query is {query.dtype} on {query.device}; give it as {dtype} on {device}"
        )


def _check_layer(layer: int, rectangle: ContiguousCache) -> None:
    count = rectangle.config.num_layers
    if type(layer) is not int or not 0 <= layer < count:
        raise ValueError(f"layer is {layer!r:.60}; give an integer from 0 to {count - 1}")
