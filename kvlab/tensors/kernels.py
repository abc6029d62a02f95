"""Attention that follows the block table, as Triton kernels. Called through tensors/launch.py.

The specification is `paged_attention_spec` in tensors/attention.py; read the two side by side.
One program answers for one tile of queries and walks over tiles of positions. No score goes to
memory: the softmax is corrected as it grows (online softmax). Its state is in base 2, and says so:
score2 = log2(e) * q . k / sqrt(d), so that 2 ** score2 = e ** score; exp2 is what GPUs have.

Three rules hold everywhere. An unwritten slot may hold NaN, and 0 x NaN is NaN: loads of K and of
V are masked. Numbers are cast right after their load to DOT_DTYPE: the queries' dtype, or float32
in the interpreter, whose bfloat16 arithmetic is wrong. Slots are 64-bit: a pool may hold more than
2 ** 31 numbers. Names in capitals are constants of the compilation.

A score of -inf has no weight. Where all scores of a query and head are -inf, or one is inf or NaN,
its result is NaN and no other's, as torch.softmax has it. V that is not finite spoils whatever
reads its position. It may spoil other queries of the chunk, too, whose weight for it is 0: so it
does in the specification. A request without positions gets zeros.

Sources: Milakov and Gimelshein (2018), online softmax; Dao et al. (2022), FlashAttention; Dao et
al. (2023), Flash-Decoding; Kwon et al. (2023), PagedAttention. Section 21.5.
"""

from kvlab import triton_mode

triton_mode.choose()  # before the first import of triton

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from kvlab.tensors.write_kernel import write_kv_kernel  # noqa: E402

__all__ = [
    "paged_decode_kernel",
    "paged_prefill_kernel",
    "reduce_splits_kernel",
    "write_kv_kernel",
]
LOWEST = tl.constexpr(-3.4028234663852886e38)  # of float32: the maximum of scores of -inf alone


@triton.jit
def paged_decode_kernel(
    query_ptr,  # [R, Hq, d], one query a request
    key_cache_ptr,  # [num_blocks, block_size, Hkv, d]
    value_cache_ptr,
    key_scale_ptr,  # [num_blocks, block_size, Hkv] float32, where EACH_HAS_SCALE
    value_scale_ptr,
    block_table_ptr,  # [R, W]
    seq_lens_ptr,  # [R]
    out_ptr,  # [R, Hq, NUM_SPLITS, d]
    lse2_ptr,  # [R, Hq, NUM_SPLITS] float32; unused where there is one split
    scale2,  # log2(e) / sqrt(d), times the scale of all keys
    value_scale,  # the scale of all values
    window,  # how many positions a query reads, its own among them
    query_stride,
    table_stride,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,  # query heads that share a KV head
    PADDED_GROUP: tl.constexpr,  # at least 16, or tl.dot has no tensor core to use
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,  # positions at a time; independent of the block size
    NUM_SPLITS: tl.constexpr,
    EACH_HAS_SCALE: tl.constexpr,
    DOT_DTYPE: tl.constexpr,
):
    """One new query a request over all its past. Grid: (request, kv_head, split)."""
    request = tl.program_id(0)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)

    # The heads of a group read the same K/V: they are the rows of one matrix [PADDED_GROUP, d].
    member = tl.arange(0, PADDED_GROUP)
    dim = tl.arange(0, PADDED_DIM)
    query_head = kv_head * GROUP + member
    query_mask = (member < GROUP)[:, None] & (dim < HEAD_DIM)[None, :]
    query_at = request * query_stride + query_head[:, None] * HEAD_DIM + dim[None, :]
    query = tl.load(query_ptr + query_at, mask=query_mask, other=0.0).to(DOT_DTYPE)

    # The tiles from the window's lower limit to the end, in NUM_SPLITS equal shares.
    length = tl.load(seq_lens_ptr + request).to(tl.int32)
    first = tl.maximum(length - window, 0)
    share = tl.cdiv(tl.cdiv(length, TILE) - first // TILE, NUM_SPLITS)
    begin = (first // TILE + split * share) * TILE
    end = tl.minimum(begin + share * TILE, length)

    running_max2 = tl.full([PADDED_GROUP], float("-inf"), tl.float32)
    running_sum = tl.zeros([PADDED_GROUP], tl.float32)
    acc = tl.zeros([PADDED_GROUP, PADDED_DIM], tl.float32)
    for start in range(begin, end, TILE):
        # position -> block -> slot: a tile may touch many blocks, or a part of one.
        position = start + tl.arange(0, TILE)
        allowed = (position >= first) & (position < length)
        entry = block_table_ptr + request * table_stride + position // BLOCK_SIZE
        block_id = tl.load(entry, mask=allowed, other=0).to(tl.int64)
        slot = block_id * BLOCK_SIZE + position % BLOCK_SIZE

        stored_row = slot * NUM_KV_HEADS + kv_head
        stored_at = stored_row[:, None] * HEAD_DIM + dim[None, :]
        mask = allowed[:, None] & (dim < HEAD_DIM)[None, :]
        key = tl.load(key_cache_ptr + stored_at, mask=mask, other=0.0).to(DOT_DTYPE)
        value = tl.load(value_cache_ptr + stored_at, mask=mask, other=0.0).to(DOT_DTYPE)

        score2 = tl.dot(query, tl.trans(key), input_precision="ieee") * scale2
        if EACH_HAS_SCALE:
            score2 *= tl.load(key_scale_ptr + stored_row, mask=allowed, other=0.0)[None, :]
        score2 = tl.where(allowed[None, :], score2, float("-inf"))

        # The online softmax: a new largest score shrinks what was summed before.
        new_max2 = tl.maximum(running_max2, tl.max(score2, axis=1))
        new_max2 = tl.maximum(new_max2, LOWEST)  # -inf less -inf would be NaN
        correction = tl.exp2(running_max2 - new_max2)
        weight = tl.exp2(score2 - new_max2[:, None])
        running_sum = running_sum * correction + tl.sum(weight, axis=1)
        if EACH_HAS_SCALE:
            weight *= tl.load(value_scale_ptr + stored_row, mask=allowed, other=0.0)[None, :]
        acc *= correction[:, None]
        acc = tl.dot(weight.to(DOT_DTYPE), value, acc, input_precision="ieee")
        running_max2 = new_max2

    # A split without positions has a sum of 0: it says 0, and log2-sum-exp2 -inf, "no weight".
    divisor = tl.where(running_sum > 0, running_sum, 1.0)
    if NUM_SPLITS == 1:  # else the merge knows whether another has weight
        divisor = tl.where(running_max2 == LOWEST, float("nan"), divisor)
    out = acc / divisor[:, None] * value_scale
    out_row = (request * NUM_KV_HEADS * GROUP + query_head) * NUM_SPLITS + split
    out_at = out_ptr + out_row[:, None] * HEAD_DIM + dim[None, :]
    tl.store(out_at, out.to(out_ptr.dtype.element_ty), mask=query_mask)
    if NUM_SPLITS > 1:
        lse2 = running_max2 + tl.log2(divisor)
        tl.store(lse2_ptr + out_row, lse2, mask=member < GROUP)


@triton.jit
def reduce_splits_kernel(
    part_ptr,  # [R, Hq, NUM_SPLITS, d] float32
    lse2_ptr,  # [R, Hq, NUM_SPLITS] float32
    out_ptr,  # [R, Hq, d]
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    PADDED_SPLITS: tl.constexpr,
):
    """Merge the splits of one query head, each weighted by 2 ** lse2. Grid: (R * Hq,)."""
    row = tl.program_id(0)
    split = tl.arange(0, PADDED_SPLITS)
    dim = tl.arange(0, PADDED_DIM)
    part_row = row * NUM_SPLITS + split
    lse2 = tl.load(lse2_ptr + part_row, mask=split < NUM_SPLITS, other=float("-inf"))
    max2 = tl.max(lse2, axis=0)
    max2 = tl.where(max2 == float("-inf"), 0.0, max2)  # a length of 0: no split has weight
    max2 = tl.where(max2 == LOWEST, float("nan"), max2)  # scores, and all of them -inf
    weight = tl.exp2(lse2 - max2)
    total = tl.sum(weight, axis=0)
    mask = (split < NUM_SPLITS)[:, None] & (dim < HEAD_DIM)[None, :]
    part_at = part_ptr + part_row[:, None] * HEAD_DIM + dim[None, :]
    part = tl.load(part_at, mask=mask, other=0.0)
    out = tl.sum(part * weight[:, None], axis=0) / tl.where(total > 0, total, 1.0)
    tl.store(out_ptr + row * HEAD_DIM + dim, out.to(out_ptr.dtype.element_ty), mask=dim < HEAD_DIM)


@triton.jit
def paged_prefill_kernel(
    query_ptr,  # [N, Hq, d], the requests' queries one after another
    key_cache_ptr,  # from here as in paged_decode_kernel
    value_cache_ptr,
    key_scale_ptr,
    value_scale_ptr,
    block_table_ptr,
    query_start_loc_ptr,  # [R + 1], where in N each request's queries begin
    seq_lens_ptr,
    out_ptr,  # [N, Hq, d]
    scale2,
    value_scale,
    window,
    query_stride,
    table_stride,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,  # query rows at a time: queries * heads of the group
    TILE: tl.constexpr,  # positions at a time
    WINDOWED: tl.constexpr,
    EACH_HAS_SCALE: tl.constexpr,
    DOT_DTYPE: tl.constexpr,
):
    """Each request's last queries over all it has. Grid: (tile of rows, kv_head, request)."""
    row_tile = tl.num_programs(0) - 1 - tl.program_id(0)  # those that read most start first
    kv_head = tl.program_id(1)
    request = tl.program_id(2)
    length = tl.load(seq_lens_ptr + request).to(tl.int32)
    query_start = tl.load(query_start_loc_ptr + request).to(tl.int64)
    num_queries = (tl.load(query_start_loc_ptr + request + 1) - query_start).to(tl.int32)
    if row_tile * ROWS >= num_queries * GROUP:  # a shorter chunk than the longest has fewer tiles
        return

    # Row i is head i % GROUP of query i // GROUP: one reading of K/V serves the whole group.
    row = row_tile * ROWS + tl.arange(0, ROWS)
    token = row // GROUP
    query_head = kv_head * GROUP + row % GROUP
    dim = tl.arange(0, PADDED_DIM)
    query_mask = (token < num_queries)[:, None] & (dim < HEAD_DIM)[None, :]
    query_row = query_start + token
    query_at = (query_row * query_stride + query_head * HEAD_DIM)[:, None] + dim[None, :]
    query = tl.load(query_ptr + query_at, mask=query_mask, other=0.0).to(DOT_DTYPE)

    # The queries are the last of the sequence: the mask is aligned at the bottom right. From the
    # tile's first and last query (low, high) follows what no row reads and what all rows read.
    query_position = length - num_queries + token
    low = length - num_queries + row_tile * ROWS // GROUP
    high = tl.minimum(length - num_queries + (row_tile * ROWS + ROWS - 1) // GROUP, length - 1)
    begin = tl.maximum(low - window + 1, 0) // TILE * TILE
    whole_begin = tl.cdiv(tl.maximum(high - window + 1, 0), TILE) * TILE
    whole_end = tl.maximum((low + 1) // TILE * TILE, whole_begin)

    running_max2 = tl.full([ROWS], float("-inf"), tl.float32)
    running_sum = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, PADDED_DIM], tl.float32)
    for part in tl.static_range(0 if WINDOWED else 1, 3):  # window's edge, whole tiles, diagonal
        first = begin if part == 0 else (whole_begin if part == 1 else whole_end)
        end = whole_begin if part == 0 else (whole_end if part == 1 else high + 1)
        for start in range(first, end, TILE):
            position = start + tl.arange(0, TILE)
            written = (position > low - window) & (position < length)  # and not freed behind it
            entry = block_table_ptr + request * table_stride + position // BLOCK_SIZE
            block_id = tl.load(entry, mask=written, other=0).to(tl.int64)
            slot = block_id * BLOCK_SIZE + position % BLOCK_SIZE
            stored_row = slot * NUM_KV_HEADS + kv_head
            stored_at = stored_row[:, None] * HEAD_DIM + dim[None, :]
            mask = written[:, None] & (dim < HEAD_DIM)[None, :]
            key = tl.load(key_cache_ptr + stored_at, mask=mask, other=0.0).to(DOT_DTYPE)
            value = tl.load(value_cache_ptr + stored_at, mask=mask, other=0.0).to(DOT_DTYPE)
            score2 = tl.dot(query, tl.trans(key), input_precision="ieee") * scale2
            if EACH_HAS_SCALE:
                score2 *= tl.load(key_scale_ptr + stored_row, mask=written, other=0.0)[None, :]
            if part != 1:
                allowed = position[None, :] <= query_position[:, None]
                if WINDOWED:
                    allowed &= position[None, :] > query_position[:, None] - window
                score2 = tl.where(allowed, score2, float("-inf"))

            new_max2 = tl.maximum(running_max2, tl.max(score2, axis=1))
            new_max2 = tl.maximum(new_max2, LOWEST)  # a row saw nothing yet, or only -inf
            correction = tl.exp2(running_max2 - new_max2)
            weight = tl.exp2(score2 - new_max2[:, None])
            running_sum = running_sum * correction + tl.sum(weight, axis=1)
            if EACH_HAS_SCALE:
                weight *= tl.load(value_scale_ptr + stored_row, mask=written, other=0.0)[None, :]
            acc *= correction[:, None]
            acc = tl.dot(weight.to(DOT_DTYPE), value, acc, input_precision="ieee")
            running_max2 = new_max2
    divisor = tl.where(running_sum > 0, running_sum, float("nan"))  # a row reads itself at least
    out = acc / divisor[:, None] * value_scale
    out_row = query_row * NUM_KV_HEADS * GROUP + query_head
    out_at = out_ptr + out_row[:, None] * HEAD_DIM + dim[None, :]
    tl.store(out_at, out.to(out_ptr.dtype.element_ty), mask=query_mask)
