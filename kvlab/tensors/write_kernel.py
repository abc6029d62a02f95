"""K and V of new positions into their slots, as a Triton kernel. Called through tensors/launch.py.

What an 8-bit cache stores is that of tensors/stored.py, to the bit. Section 21.5.
"""

from kvlab import triton_mode

triton_mode.choose()  # before the first import of triton

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

INT8_MAX = tl.constexpr(127.0)
FP8_MAX = tl.constexpr(448.0)  # of e4m3fn
SMALLEST = tl.constexpr(2.0**-126)  # float32's smallest normal number
ROUND = tl.constexpr(1.5 * 2**23)  # x + ROUND has no bits left below 1: x rounded to even


@triton.jit
def store_rows(x, cache_ptr, scale_ptr, scale, stored_row, dim, HEAD_DIM, SCALES):
    """Put x [rows, d] at rows of a cache (-1: nowhere), quantised as tensors/stored.py does it."""
    if SCALES == "position":  # int8: the largest of each row becomes 127
        x = x.to(tl.float32)
        row_scale = tl.div_rn(tl.max(tl.abs(x), axis=1), INT8_MAX)
        row_scale = tl.where(row_scale < SMALLEST, 0.0, row_scale)  # or codes would exceed 127
        row_scale += tl.sum(x * 0.0, axis=1)  # a NaN or an infinity makes it NaN
        tl.store(scale_ptr + stored_row, row_scale, mask=stored_row >= 0)
        has_scale = row_scale > 0  # else, of zeros or of NaN, all codes are 0
        x = tl.where(has_scale[:, None], x, 0.0)
        x = tl.div_rn(x, tl.where(has_scale, row_scale, 1.0)[:, None])
        x = (x + ROUND) - ROUND
    elif SCALES == "tensor":  # fp8: beyond its range it saturates
        x = tl.div_rn(x.to(tl.float32), scale)
        x = tl.clamp(x, -FP8_MAX, FP8_MAX, propagate_nan=tl.PropagateNan.ALL)
    mask = (stored_row >= 0)[:, None] & (dim < HEAD_DIM)[None, :]
    stored_at = cache_ptr + stored_row[:, None] * HEAD_DIM + dim[None, :]
    tl.store(stored_at, x.to(cache_ptr.dtype.element_ty), mask=mask)


@triton.jit
def write_kv_kernel(
    key_ptr,  # [N, Hkv, d]; the heads of a position lie together, positions key_stride apart
    value_ptr,
    key_cache_ptr,  # [num_blocks, block_size, Hkv, d]
    value_cache_ptr,
    key_scale_ptr,  # [num_blocks, block_size, Hkv] float32, where SCALES is "position"
    value_scale_ptr,
    slot_mapping_ptr,  # [N]; -1: not stored
    key_scale,  # one number, where SCALES is "tensor"
    value_scale,
    num_tokens,
    key_stride,
    value_stride,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,  # the next power of two, as arange wants it
    ROWS: tl.constexpr,
    SCALES: tl.constexpr,  # "none", "tensor" or "position"
):
    """Put K and V of new positions into their slots. A row is one head of one position."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    token = (row // NUM_KV_HEADS).to(tl.int64)
    kv_head = row % NUM_KV_HEADS
    slot = tl.load(slot_mapping_ptr + token, mask=token < num_tokens, other=-1).to(tl.int64)
    row = tl.where(slot >= 0, slot * NUM_KV_HEADS + kv_head, -1)  # of the cache

    dim = tl.arange(0, PADDED_DIM)
    mask = (slot >= 0)[:, None] & (dim < HEAD_DIM)[None, :]
    inside = (kv_head * HEAD_DIM)[:, None] + dim[None, :]
    key = tl.load(key_ptr + (token * key_stride)[:, None] + inside, mask=mask, other=0.0)
    value = tl.load(value_ptr + (token * value_stride)[:, None] + inside, mask=mask, other=0.0)
    store_rows(key, key_cache_ptr, key_scale_ptr, key_scale, row, dim, HEAD_DIM, SCALES)
    store_rows(value, value_cache_ptr, value_scale_ptr, value_scale, row, dim, HEAD_DIM, SCALES)
