"""What a kernel is given, checked before it is launched: a kernel itself checks nothing.

Each function raises a ValueError that names the argument, what it is, and what to give instead.
Values on a GPU are not looked at (that would make the host wait); where the interpreter runs,
block ids, slots and lengths are checked too.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from kvlab.tensors.stored import SMALLEST

COMPUTED = (torch.float32, torch.float16, torch.bfloat16)
STORED = (*COMPUTED, torch.float8_e4m3fn, torch.int8)
WHOLE = (torch.int32, torch.int64)
LARGEST_DIM = 256
MOST_SPLITS = 128
Scale = float | Tensor | None


def expect(name: str, fine: bool, found: object, remedy: str) -> None:
    """Raises ValueError where not `fine`."""
    if not fine:
        raise ValueError(f"{name} is {found}; {remedy}")


def check_rows(name: str, rows: Tensor, num_heads: int | None, cache: Tensor) -> None:
    """rows [N, heads, d] of numbers beside a cache; only the distance of rows is free."""
    heads = "heads" if num_heads is None else num_heads
    width = cache.shape[3]
    shape = f"[rows, {heads}, {width}]"
    fits = (
        rows.dim() == 3 and rows.shape[2] == width and rows.shape[1] == (num_heads or rows.shape[1])
    )
    expect(name, fits, list(rows.shape), f"give {shape}")
    expect(f"{name}.dtype", rows.dtype in COMPUTED, rows.dtype, f"give one of {_names(COMPUTED)}")
    expect(f"{name}.device", rows.device == cache.device, rows.device, f"move it to {cache.device}")
    together = rows.stride(2) == 1 and (rows.stride(1) == width or rows.shape[1] == 1)
    remedy = f"the heads of a row must lie together, (any, {width}, 1); call .contiguous()"
    expect(f"{name}.stride()", together, rows.stride(), remedy)


def check_cache(
    key_cache: Tensor, value_cache: Tensor, key_scale: Scale, value_scale: Scale, compiled: bool
) -> str:
    """One layer's pool and its scales. Returns how they are scaled: none, tensor or position."""
    wanted = "give [num_blocks, block_size, num_kv_heads, head_dim] of one layer"
    expect("key_cache", key_cache.dim() == 4, list(key_cache.shape), wanted)
    _same("value_cache", value_cache, key_cache)
    for name, stored in (("key_cache", key_cache), ("value_cache", value_cache)):
        is_gpu = stored.device.type == "cuda"
        remedy = "Triton compiles for a GPU here: move it there, or start with TRITON_INTERPRET=1"
        expect(f"{name}.device", is_gpu or not compiled, stored.device, remedy)
        remedy = f"give one of {_names(STORED)}"
        expect(f"{name}.dtype", stored.dtype in STORED, stored.dtype, remedy)
        remedy = "slots must follow each other in memory; call .contiguous()"
        expect(f"{name}.stride()", stored.is_contiguous(), stored.stride(), remedy)
    width = key_cache.shape[3]
    remedy = f"the kernels take a multiple of 8 up to {LARGEST_DIM}"
    expect("head_dim", width % 8 == 0 and 0 < width <= LARGEST_DIM, width, remedy)
    if compiled and key_cache.dtype == torch.float8_e4m3fn and not torch.version.hip:
        capability = torch.cuda.get_device_capability(key_cache.device)
        remedy = "this GPU has no float8 (it takes 8.9 or more): store int8 or bfloat16"
        expect("compute capability", capability >= (8, 9), capability, remedy)
    return _check_scales(key_cache, key_scale, value_scale)


def _check_scales(key_cache: Tensor, key_scale: Scale, value_scale: Scale) -> str:
    for name, scale in (("key_scale", key_scale), ("value_scale", value_scale)):
        if key_cache.dtype == torch.int8:
            shape = list(key_cache.shape[:3])
            fits = isinstance(scale, Tensor) and list(scale.shape) == shape
            fits = fits and scale.dtype == torch.float32 and scale.device == key_cache.device
            found = _describe(scale)
            remedy = f"an int8 cache has one a position and head: float32 {shape}, contiguous"
            expect(name, fits and scale.is_contiguous(), found, remedy)
        elif key_cache.dtype == torch.float8_e4m3fn:
            fits = scale is None or (
                isinstance(scale, int | float) and SMALLEST <= scale < float("inf")
            )
            remedy = "a float8 cache has one number above 0 for all of it, at least 2 ** -126, or "
            remedy += "None for 1"
            expect(name, fits, _describe(scale), remedy)
        else:
            remedy = f"a {key_cache.dtype!s} cache stores numbers as they are: give None"
            expect(name, scale is None, _describe(scale), remedy)
    kinds = {torch.int8: "position", torch.float8_e4m3fn: "tensor"}
    return kinds.get(key_cache.dtype, "none")


def check_attention(query: Tensor, key_cache: Tensor, window: int | None) -> None:
    """Queries beside the cache that they read."""
    check_rows("query", query, None, key_cache)
    heads, kv_heads = query.shape[1], key_cache.shape[2]
    remedy = f"it must be a multiple of the cache's {kv_heads} KV heads"
    expect("num_query_heads", heads > 0 and heads % kv_heads == 0, heads, remedy)
    fits = window is None or (type(window) is int and window >= 1)
    expect("window", fits, window, "give the positions that a query reads, at least 1, or None")


def check_index(
    name: str, index: Tensor, shape: Sequence[int | None], device: torch.device
) -> None:
    """A table of whole numbers; None in `shape` leaves a length free."""
    sizes = [
        want if want is not None else size for want, size in zip(shape, index.shape, strict=False)
    ]
    words = [size if size is not None else "any" for size in shape]
    expect(
        name,
        list(index.shape) == sizes and len(shape) == index.dim(),
        list(index.shape),
        f"give {words}",
    )
    expect(f"{name}.dtype", index.dtype in WHOLE, index.dtype, f"give one of {_names(WHOLE)}")
    expect(f"{name}.device", index.device == device, index.device, f"move it to {device}")
    together = index.shape[-1] < 2 or index.stride(-1) == 1
    expect(f"{name}.stride()", together, index.stride(), "call .contiguous()")


def check_values(
    block_table: Tensor,
    seq_lens: Tensor,
    num_blocks: int,
    block_size: int,
    num_queries: Tensor | int,
    window: int | None,
) -> None:
    """Lengths that the table can hold, and block ids, where they are read, that the pool has.

    num_queries: each request's last positions. What lies before the window of the first of them
    is not read: those blocks may have been given back.
    """
    most = block_table.shape[1] * block_size
    outside = seq_lens[(seq_lens < 0) | (seq_lens > most)].tolist()
    expect("seq_lens", not outside, outside, f"the block_table reaches from 0 to {most} positions")
    begins = torch.arange(block_table.shape[1], device=seq_lens.device) * block_size
    first = seq_lens - num_queries - (window or most) + 1  # that the first query reads
    used = (begins < seq_lens[:, None]) & (begins + block_size > first[:, None])
    check_ids("block_table", block_table[used], num_blocks, "blocks")


def check_queries(
    query: Tensor, query_start_loc: Tensor, seq_lens: Tensor, max_query_len: int, read_values: bool
) -> None:
    """Queries in order, no more of a request than it has positions or than the launch is for."""
    n, requests = len(query), len(seq_lens)
    check_index("query_start_loc", query_start_loc, (requests + 1,), query.device)
    fits = isinstance(max_query_len, int) and min(n, 1) <= max_query_len <= n
    expect("max_query_len", fits, max_query_len, f"give the most queries of a request, up to {n}")
    if not read_values:
        return
    starts, counts = query_start_loc.tolist(), query_start_loc.diff()
    in_order = starts[0] == 0 and starts[-1] == n and bool((counts >= 0).all())
    expect("query_start_loc", in_order, starts, f"it must rise from 0 to {n}, the rows of query")
    most = int(counts.max()) if requests else 0
    expect("max_query_len", most <= max_query_len, max_query_len, f"a request has {most} queries")
    short = seq_lens[seq_lens < counts].tolist()
    expect("seq_lens", not short, short, "the queries' own positions count: give at least as many")


def check_ids(name: str, ids: Tensor, count: int, what: str, least: int = 0) -> None:
    """Each of `ids` is one of `count` blocks or slots."""
    outside = ids[(ids < least) | (ids >= count)].tolist()
    expect(name, not outside, outside[:4], f"the pool has {count} {what}, counted from 0")


def check_power(name: str, number: int, least: int, most: int) -> None:
    """A power of two between `least` and `most`, as tiles are."""
    fits = isinstance(number, int) and least <= number <= most and not number & (number - 1)
    expect(
        name, fits, number, f"give a power of two from {least} to {most}, or None for the table's"
    )


def check_splits(number: int) -> None:
    """Into how many parts positions are cut."""
    fits = type(number) is int and 1 <= number <= MOST_SPLITS
    expect("num_splits", fits, number, f"give 1 to {MOST_SPLITS}, or None for the table's")


def _same(name: str, other: Tensor, first: Tensor) -> None:
    same = (other.shape, other.dtype, other.device) == (first.shape, first.dtype, first.device)
    expect(name, same, _describe(other), f"it must be like key_cache, {_describe(first)}")


def _describe(thing: object) -> str:
    if not isinstance(thing, Tensor):
        return repr(thing)
    return f"{list(thing.shape)} {thing.dtype!s} on {thing.device}"


def _names(dtypes: Sequence[torch.dtype]) -> str:
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
