"""Torch tensors in, torch tensors out: the kernels of tensors/kernels.py behind three functions.

Each checks what it is given (tensors/launch_checks.py), cuts the work into programs
(tensors/kernel_table.py) and launches. On a GPU none of them reads a tensor's values on the host,
so a CUDA graph can capture them. Section 21.5.
"""

import math
from dataclasses import replace
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

from kvlab import triton_mode
from kvlab.tensors import kernel_table
from kvlab.tensors.interpreted import readable, rounded
from kvlab.tensors.kernel_table import DecodePlan, Device, PrefillPlan
from kvlab.tensors.launch_checks import (
    Scale,
    check_attention,
    check_cache,
    check_ids,
    check_index,
    check_power,
    check_queries,
    check_rows,
    check_splits,
    check_values,
    expect,
)

NO_WINDOW = 2**31 - 1  # positions
Plan = DecodePlan | PrefillPlan


@cache
def _mode() -> str:
    """How kernels run: "interpreted" or "compiled". Raises RuntimeError where they cannot."""
    mode = triton_mode.current()
    if mode.mode is None or not mode.usable:
        raise RuntimeError(
            f"Triton's kernels cannot run here: {mode.reason}. Attention in torch "
            "(kvlab.tensors.ops) needs no Triton; `kvlab doctor` says more"
        )
    return mode.mode


def kernels() -> ModuleType:
    """kvlab.tensors.kernels, where Triton can run. Raises RuntimeError with the reason if not."""
    _mode()
    from kvlab.tensors import kernels

    return kernels


def interpreting() -> bool:
    """Whether kernels run in Triton's interpreter, on the CPU. Raises RuntimeError as above."""
    return _mode() == "interpreted"


@cache
def device_of(device: torch.device) -> Device:
    """The table's device. An unknown GPU counts as the nearest that the table knows."""
    if interpreting():
        return kernel_table.INTERPRETER
    found = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return Device("gfx942", found.multi_processor_count)
    return Device("sm_90" if found.major >= 9 else "sm_80", found.multi_processor_count)


def write_kv(
    key: Tensor,  # [N, Hkv, d]
    value: Tensor,
    key_cache: Tensor,  # [num_blocks, block_size, Hkv, d], one layer
    value_cache: Tensor,
    slot_mapping: Tensor,  # [N]
    key_scale: Scale = None,
    value_scale: Scale = None,
) -> None:
    """Store K and V of new positions in their slots; a slot of -1 is skipped.

    Scales as in `paged_decode`; an int8 cache gets its own written into them. Raises ValueError
    for what does not fit together, and then nothing is stored.
    """
    module, n, interpreted = kernels(), key.shape[0], interpreting()
    scales = check_cache(key_cache, value_cache, key_scale, value_scale, not interpreted)
    heads, width = key_cache.shape[2:]
    check_rows("key", key, heads, key_cache)
    check_rows("value", value, heads, key_cache)
    expect("value", len(value) == n, f"of {len(value)} rows", f"give as many as of key, {n}")
    check_index("slot_mapping", slot_mapping, (n,), key_cache.device)
    if n == 0:
        return
    if interpreted:
        num_slots = key_cache.shape[0] * key_cache.shape[1]
        check_ids("slot_mapping", slot_mapping, num_slots, "slots (or -1: skipped)", least=-1)
        key = rounded(key, key_cache.dtype, _number(key_scale))
        value = rounded(value, key_cache.dtype, _number(value_scale))
        scales = "position" if scales == "position" else "none"  # the rest is done
    rows = kernel_table.written_rows(device_of(key.device))
    module.write_kv_kernel[(-(-n * heads // rows),)](
        key, value, key_cache, value_cache, *_each_scale(key_scale, value_scale), slot_mapping,
        _number(key_scale), _number(value_scale), n, key.stride(0), value.stride(0),
        NUM_KV_HEADS=heads, HEAD_DIM=width, PADDED_DIM=kernel_table.padded_dim(width), ROWS=rows,
        SCALES=scales,
    )  # fmt: skip


def paged_decode(
    query: Tensor,  # [R, Hq, d]
    key_cache: Tensor,  # [num_blocks, block_size, Hkv, d], one layer
    value_cache: Tensor,
    block_table: Tensor,  # [R, W]
    seq_lens: Tensor,  # [R]
    *,
    window: int | None = None,
    key_scale: Scale = None,
    value_scale: Scale = None,
    num_splits: int | None = None,
    tile: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Attention of one query a request over its first seq_lens positions: [R, Hq, d].

    A length of 0 gives zeros. window: positions that a query reads, its own among them.
    key_scale, value_scale: None; one number for the whole cache (float8: stored * scale = value);
    or float32 [num_blocks, block_size, Hkv], one a position and head (int8). num_splits, tile:
    None takes them from the table. Raises ValueError for what does not fit together.
    """
    pool, scales = (key_cache, value_cache), (key_scale, value_scale)
    window = _check_all(query, pool, scales, block_table, seq_lens, window, one_query_each=True)
    if interpreting():
        check_values(block_table, seq_lens, *key_cache.shape[:2], 1, window)
        pool = readable(pool)
    (requests, heads, width), kv_heads = query.shape, key_cache.shape[2]
    longest, device = _longest(block_table, key_cache, window), device_of(query.device)
    plan = kernel_table.decode_plan(requests, kv_heads, longest, width, query.itemsize, device)
    plan = _with(plan, num_splits=num_splits, tile=tile)
    splits = plan.num_splits
    out, store = _output(query, out)
    if requests == 0:
        return out
    parts, lse2 = _room_for_parts(query, splits) if splits > 1 else (store, None)
    kernels().paged_decode_kernel[(requests, kv_heads, splits)](
        query, *pool, *_each_scale(*scales), block_table, seq_lens, parts, lse2,
        _scale2(width, key_scale), _number(value_scale), window or NO_WINDOW,
        query.stride(0), block_table.stride(0), TILE=plan.tile, NUM_SPLITS=splits,
        PADDED_GROUP=kernel_table.padded_group(heads // kv_heads),
        **_constants(query, key_cache), num_warps=plan.num_warps, num_stages=plan.num_stages,
    )  # fmt: skip
    if splits > 1:
        _merge(parts, lse2, store)
    return out if store is out else out.copy_(store)


def _room_for_parts(query: Tensor, splits: int) -> tuple[Tensor, Tensor]:
    """What each split says, [R, Hq, splits, d], and how much it weighs, [R, Hq, splits]."""
    requests, heads, width = query.shape
    parts = query.new_empty((requests, heads, splits, width), dtype=torch.float32)
    return parts, query.new_empty((requests, heads, splits), dtype=torch.float32)


def _merge(parts: Tensor, lse2: Tensor, store: Tensor) -> None:
    requests, heads, splits, width = parts.shape
    kernels().reduce_splits_kernel[(requests * heads,)](
        parts, lse2, store, HEAD_DIM=width, PADDED_DIM=kernel_table.padded_dim(width),
        NUM_SPLITS=splits, PADDED_SPLITS=kernel_table.next_power_of_two(splits),
    )  # fmt: skip


def paged_prefill(
    query: Tensor,  # [N, Hq, d], the requests' queries one after another
    key_cache: Tensor,  # [num_blocks, block_size, Hkv, d], one layer
    value_cache: Tensor,
    block_table: Tensor,  # [R, W]
    query_start_loc: Tensor,  # [R + 1]: request r's queries are rows [r] to [r + 1]
    seq_lens: Tensor,  # [R], the queries' own positions counted
    *,
    max_query_len: int,
    window: int | None = None,
    key_scale: Scale = None,
    value_scale: Scale = None,
    rows: int | None = None,
    tile: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Attention of each request's last queries over its seq_lens positions, causal: [N, Hq, d].

    max_query_len: the most queries of one request; the launch is cut for it. rows: queries * heads
    of a group that share a reading of K/V; None takes it from the table. The rest as in
    `paged_decode`. Raises ValueError for what does not fit together.
    """
    pool, scales = (key_cache, value_cache), (key_scale, value_scale)
    window = _check_all(query, pool, scales, block_table, seq_lens, window, one_query_each=False)
    (n, heads, width), requests, kv_heads = query.shape, len(seq_lens), key_cache.shape[2]
    check_queries(query, query_start_loc, seq_lens, max_query_len, read_values=interpreting())
    if interpreting():
        check_values(block_table, seq_lens, *key_cache.shape[:2], query_start_loc.diff(), window)
        pool = readable(pool)
    group, device = heads // kv_heads, device_of(query.device)
    longest = _longest(block_table, key_cache, None)
    plan = kernel_table.prefill_plan(max_query_len, group, longest, width, query.itemsize, device)
    plan = _with(plan, rows=rows, tile=tile)
    out, store = _output(query, out)
    if n == 0:
        return out
    tiles = -(-max_query_len * group // plan.rows)
    kernels().paged_prefill_kernel[(tiles, kv_heads, requests)](
        query, *pool, *_each_scale(*scales), block_table, query_start_loc, seq_lens, store,
        _scale2(width, key_scale), _number(value_scale), window or NO_WINDOW,
        query.stride(0), block_table.stride(0),
        ROWS=plan.rows, TILE=plan.tile, WINDOWED=window is not None, **_constants(query, key_cache),
        num_warps=plan.num_warps, num_stages=plan.num_stages,
    )  # fmt: skip
    return out if store is out else out.copy_(store)


def _check_all(
    query: Tensor,
    pool: tuple[Tensor, Tensor],
    scales: tuple[Scale, Scale],
    block_table: Tensor,
    seq_lens: Tensor,
    window: int | None,
    one_query_each: bool,
) -> int | None:
    """What decode and prefill have in common. Returns the window in 32 bits, as kernels count."""
    check_cache(*pool, *scales, compiled=not interpreting())
    check_attention(query, pool[0], window)
    check_index("seq_lens", seq_lens, (len(query) if one_query_each else None,), query.device)
    check_index("block_table", block_table, (len(seq_lens), None), query.device)
    return None if window is None else min(window, NO_WINDOW)


def _with(plan: Plan, **asked: int | None) -> Plan:
    """The table's plan, but for what was asked for. Raises ValueError for what is no tile."""
    asked = {name: number for name, number in asked.items() if number is not None}
    for name, number in asked.items():
        if name == "num_splits":
            check_splits(number)
        else:
            check_power(name, number, 16, 1024)
    return replace(plan, **asked)


def _longest(block_table: Tensor, key_cache: Tensor, window: int | None) -> int:
    """How many positions a query can reach. The lengths themselves are not read on the host."""
    return min(block_table.shape[1] * key_cache.shape[1], window or NO_WINDOW)


def _constants(query: Tensor, key_cache: Tensor) -> dict[str, object]:
    """What both attention kernels are compiled for."""
    dot = torch.float32 if interpreting() else query.dtype
    return {
        "NUM_KV_HEADS": key_cache.shape[2],
        "GROUP": query.shape[1] // key_cache.shape[2],
        "HEAD_DIM": query.shape[2],
        "PADDED_DIM": kernel_table.padded_dim(query.shape[2]),
        "BLOCK_SIZE": key_cache.shape[1],
        "EACH_HAS_SCALE": key_cache.dtype == torch.int8,
        "DOT_DTYPE": getattr(kernels().tl, str(dot).removeprefix("torch.")),
    }


def _scale2(width: int, key_scale: Scale) -> float:
    """What makes a dot product of stored numbers a score in base 2."""
    return math.log2(math.e) / math.sqrt(width) * _number(key_scale)


def _number(scale: Scale) -> float:
    """The one scale of a whole cache."""
    return 1.0 if scale is None or isinstance(scale, Tensor) else float(scale)


def _each_scale(*scales: Scale) -> tuple[Tensor | None, ...]:
    """The scales of each position and head, or None."""
    return tuple(scale if isinstance(scale, Tensor) else None for scale in scales)


def _output(query: Tensor, out: Tensor | None) -> tuple[Tensor, Tensor]:
    """The result, and what the kernel stores into: float32 where the interpreter would truncate."""
    if out is None:
        out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    same = (out.shape, out.dtype, out.device) == (query.shape, query.dtype, query.device)
    found = f"{list(out.shape)} {out.dtype} on {out.device}, strides {out.stride()}"
    wanted = f"give a contiguous {list(query.shape)} {query.dtype} on {query.device}, or None"
    expect("out", same and out.is_contiguous(), found, wanted)
    if interpreting() and out.dtype != torch.float32:
        return out, torch.empty(out.shape, dtype=torch.float32, device=out.device)
    return out, out
