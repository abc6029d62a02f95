"""The four pieces, right: wrong_21_5b.py makes each known mistake by changing a line of this text.

The notebook takes those from here that its reader has not written yet. Section 21.5b.
"""

from kvlab import triton_mode

triton_mode.choose()  # before the first import of triton

import triton.language as tl  # noqa: E402


def load_tile(
    cache_ptr, block_table_ptr, table_stride, request, kv_head, position, length, dim,
    BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM,
):  # fmt: skip
    allowed = position < length
    entry = block_table_ptr + request * table_stride + position // BLOCK_SIZE
    block_id = tl.load(entry, mask=allowed, other=0).to(tl.int64)
    slot = block_id * BLOCK_SIZE + position % BLOCK_SIZE
    stored_row = slot * NUM_KV_HEADS + kv_head
    stored_at = stored_row[:, None] * HEAD_DIM + dim[None, :]
    mask = allowed[:, None] & (dim < HEAD_DIM)[None, :]
    return tl.load(cache_ptr + stored_at, mask=mask, other=0.0)


def tile_scores(query, key, position, length, scale2):
    score2 = tl.dot(query, tl.trans(key), input_precision="ieee") * scale2
    return tl.where((position < length)[None, :], score2, float("-inf"))


def add_tile(running_max2, running_sum, acc, score2, value):
    new_max2 = tl.maximum(running_max2, tl.max(score2, axis=1))
    correction = tl.exp2(running_max2 - new_max2)
    weight = tl.exp2(score2 - new_max2[:, None])
    new_sum = running_sum * correction + tl.sum(weight, axis=1)
    acc = acc * correction[:, None]
    acc = tl.dot(weight, value, acc, input_precision="ieee")
    return new_max2, new_sum, acc


def merge_splits(part, lse2):
    max2 = tl.max(lse2, axis=0)
    max2 = tl.where(max2 == float("-inf"), 0.0, max2)
    weight = tl.exp2(lse2 - max2)
    total = tl.sum(weight, axis=0)
    out = tl.sum(part * weight[:, None], axis=0)
    return out / tl.where(total > 0, total, 1.0)
