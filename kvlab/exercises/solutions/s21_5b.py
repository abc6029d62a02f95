"""Section 21.5b, worked. The pieces' lines are those of tensors/kernels.py; there they need no
@triton.jit of their own, as they stand inside of the kernels.
"""

import torch

from kvlab import triton_mode

if triton_mode.current().usable:
    import triton.language as tl


def load_tile(
    cache_ptr,
    block_table_ptr,
    table_stride,
    request,
    kv_head,
    position,
    length,
    dim,
    BLOCK_SIZE,
    NUM_KV_HEADS,
    HEAD_DIM,
):
    allowed = position < length
    entry = block_table_ptr + request * table_stride + position // BLOCK_SIZE
    block_id = tl.load(entry, mask=allowed, other=0).to(tl.int64)
    slot = block_id * BLOCK_SIZE + position % BLOCK_SIZE

    stored_row = slot * NUM_KV_HEADS + kv_head
    stored_at = stored_row[:, None] * HEAD_DIM + dim[None, :]
    mask = allowed[:, None] & (dim < HEAD_DIM)[None, :]
    return tl.load(cache_ptr + stored_at, mask=mask, other=0.0)


def tile_scores(query, key, position, length, scale2):
    allowed = position < length
    score2 = tl.dot(query, tl.trans(key), input_precision="ieee") * scale2
    return tl.where(allowed[None, :], score2, float("-inf"))


def add_tile(running_max2, running_sum, acc, score2, value):
    new_max2 = tl.maximum(running_max2, tl.max(score2, axis=1))
    correction = tl.exp2(running_max2 - new_max2)
    weight = tl.exp2(score2 - new_max2[:, None])
    running_sum = running_sum * correction + tl.sum(weight, axis=1)
    acc *= correction[:, None]
    acc = tl.dot(weight, value, acc, input_precision="ieee")
    return new_max2, running_sum, acc


def merge_splits(part, lse2):
    max2 = tl.max(lse2, axis=0)
    max2 = tl.where(max2 == float("-inf"), 0.0, max2)  # a length of 0: no split has weight
    weight = tl.exp2(lse2 - max2)
    total = tl.sum(weight, axis=0)
    return tl.sum(part * weight[:, None], axis=0) / tl.where(total > 0, total, 1.0)


def merge_is_right(merge):
    none = float("-inf")
    cases = (  # what the splits say, their lse2, what is right
        ([3.0, 6.0], [1.0, 0.0], 4.0),  # shares 2/3 and 1/3
        ([3.0, 6.0], [301.0, 300.0], 4.0),  # the same: the largest comes off first
        ([0.0, 0.0], [none, none], 0.0),  # all are empty
    )
    found = [float(merge(torch.tensor(p)[:, None], torch.tensor(lse2))[0]) for p, lse2, _ in cases]
    return all(abs(f - right) < 1e-3 for f, (_, _, right) in zip(found, cases, strict=True))


def query_heads_share_a_load():
    return "c"  # 2 requests * 35 positions * 2 KV heads are 140: once for each group


SOLUTIONS = {
    "21.5b-1": load_tile,
    "21.5b-2": tile_scores,
    "21.5b-3": add_tile,
    "21.5b-4": merge_splits,
    "21.5b-5": merge_is_right,
    "21.5b-6": query_heads_share_a_load,
}
