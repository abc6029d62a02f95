"""Frames: small kernels that give a reader's piece its arguments and store what it returns.

PIECE is a constant of the compilation, as any other. Section 21.5b.
"""

from kvlab import triton_mode

triton_mode.choose()  # before the first import of triton

import triton  # noqa: E402
import triton.language as tl  # noqa: E402


@triton.jit
def load_frame(
    cache_ptr,
    block_table_ptr,
    out_ptr,  # [TILE, PADDED_DIM]
    table_stride,
    request,
    kv_head,
    start,
    length,
    BLOCK_SIZE: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    TILE: tl.constexpr,
    PIECE: tl.constexpr,
):
    position = start + tl.arange(0, TILE)
    dim = tl.arange(0, PADDED_DIM)
    tile = PIECE(
        cache_ptr, block_table_ptr, table_stride, request, kv_head, position, length, dim,
        BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM,
    )  # fmt: skip
    tl.store(out_ptr + tl.arange(0, TILE)[:, None] * PADDED_DIM + dim[None, :], tile)


@triton.jit
def score_frame(
    query_ptr,  # [ROWS, PADDED_DIM]
    key_ptr,  # [TILE, PADDED_DIM]
    out_ptr,  # [ROWS, TILE]
    start,
    length,
    scale2,
    ROWS: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    TILE: tl.constexpr,
    PIECE: tl.constexpr,
):
    row, place, dim = tl.arange(0, ROWS), tl.arange(0, TILE), tl.arange(0, PADDED_DIM)
    query = tl.load(query_ptr + row[:, None] * PADDED_DIM + dim[None, :])
    key = tl.load(key_ptr + place[:, None] * PADDED_DIM + dim[None, :])
    score2 = PIECE(query, key, start + place, length, scale2)
    tl.store(out_ptr + row[:, None] * TILE + place[None, :], score2)


@triton.jit
def state_frame(
    score2_ptr,  # [num_tiles, ROWS, TILE]
    value_ptr,  # [num_tiles, TILE, PADDED_DIM]
    max2_ptr,  # [ROWS]
    sum_ptr,  # [ROWS]
    acc_ptr,  # [ROWS, PADDED_DIM]
    num_tiles,
    ROWS: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    TILE: tl.constexpr,
    PIECE: tl.constexpr,
):
    row, place, dim = tl.arange(0, ROWS), tl.arange(0, TILE), tl.arange(0, PADDED_DIM)
    running_max2 = tl.full([ROWS], float("-inf"), tl.float32)
    running_sum = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, PADDED_DIM], tl.float32)
    for tile in range(0, num_tiles):
        score2 = tl.load(score2_ptr + (tile * ROWS + row)[:, None] * TILE + place[None, :])
        value = tl.load(value_ptr + (tile * TILE + place)[:, None] * PADDED_DIM + dim[None, :])
        running_max2, running_sum, acc = PIECE(running_max2, running_sum, acc, score2, value)
    tl.store(max2_ptr + row, running_max2)
    tl.store(sum_ptr + row, running_sum)
    tl.store(acc_ptr + row[:, None] * PADDED_DIM + dim[None, :], acc)


@triton.jit
def merge_frame(
    part_ptr,  # [SPLITS, PADDED_DIM]
    lse2_ptr,  # [SPLITS]
    out_ptr,  # [PADDED_DIM]
    SPLITS: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    PIECE: tl.constexpr,
):
    split, dim = tl.arange(0, SPLITS), tl.arange(0, PADDED_DIM)
    part = tl.load(part_ptr + split[:, None] * PADDED_DIM + dim[None, :])
    lse2 = tl.load(lse2_ptr + split)
    tl.store(out_ptr + dim, PIECE(part, lse2))
