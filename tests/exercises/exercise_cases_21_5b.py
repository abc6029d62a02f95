"""As exercise_cases.py, for section 21.5b: pieces of a kernel written apart from the package's.

Imported where Triton is.
"""

from kvlab import triton_mode

triton_mode.choose()  # before the first import of triton

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

# ---- pieces that are right


@triton.jit
def load_flat(cache, tables, stride, request, head, position, length, dim, SIZE, HEADS, WIDTH):
    there = position < length
    block = tl.load(tables + request * stride + position // SIZE, mask=there, other=0)
    at = ((block * SIZE + position % SIZE) * HEADS + head)[:, None] * WIDTH + dim[None, :]
    return tl.load(cache + at, mask=there[:, None] & (dim < WIDTH)[None, :], other=0.0)


@triton.jit
def load_then_clear(cache, tables, stride, request, head, position, length, dim, SIZE, HEADS, W):
    """Reads a row of the request in place of what is not there, and clears it by `where`."""
    t = tl.minimum(position, tl.maximum(length - 1, 0))
    block = tl.load(tables + request * stride + t // SIZE)
    row = (block * SIZE + t % SIZE) * HEADS + head
    found = tl.load(cache + row[:, None] * W + tl.minimum(dim, W - 1)[None, :])
    return tl.where((position < length)[:, None] & (dim < W)[None, :], found, 0.0)


def load_without_decorator(*arguments):
    cache, tables, stride, request, head, position, length, dim, size, heads, width = arguments
    there = length > position
    block = tl.load(tables + request * stride + position // size, mask=there, other=0)
    row = (block * size + position % size) * heads + head
    mask = (dim[None, :] < width) & there[:, None]
    return tl.load(cache + row[:, None] * width + dim[None, :], mask=mask, other=0)


@triton.jit
def scores_by_sum(query, key, position, length, scale2):
    score2 = tl.sum(query[:, None, :] * key[None, :, :], axis=2) * scale2
    return score2 + tl.where(position < length, 0.0, float("-inf"))[None, :]


@triton.jit
def scores_scaled_first(query, key, position, length, scale2):
    score2 = tl.dot(query * scale2, tl.trans(key), input_precision="ieee")
    return tl.where(position[None, :] >= length, float("-inf"), score2)


@triton.jit
def state_in_one(running_max2, running_sum, acc, score2, value):
    top = tl.max(score2, axis=1)
    new = tl.where(top > running_max2, top, running_max2)
    old = tl.exp2(running_max2 - new)
    powers = tl.exp2(score2 - new[:, None])
    mixed = tl.sum(powers[:, :, None] * value[None, :, :], axis=1)
    return new, tl.sum(powers, axis=1) + old * running_sum, mixed + old[:, None] * acc


@triton.jit
def state_by_e(running_max2, running_sum, acc, score2, value):
    """2 ** x as e ** (x ln 2)."""
    new = tl.maximum(tl.max(score2, axis=1), running_max2)
    old = tl.exp((running_max2 - new) * 0.6931471805599453)
    powers = tl.exp((score2 - new[:, None]) * 0.6931471805599453)
    acc = acc * old[:, None] + tl.dot(powers, value, input_precision="ieee")
    return new, running_sum * old + tl.sum(powers, axis=1), acc


@triton.jit
def merge_by_shares(part, lse2):
    top = tl.maximum(tl.max(lse2, axis=0), -1e30)
    share = tl.exp2(lse2 - top)
    share = share / tl.maximum(tl.sum(share, axis=0), 1e-30)
    return tl.sum(part * share[:, None], axis=0)


@triton.jit
def merge_where_there(part, lse2):
    there = lse2 > float("-inf")
    top = tl.max(tl.where(there, lse2, -3e38), axis=0)
    weight = tl.where(there, tl.exp2(tl.where(there, lse2 - top, 0.0)), 0.0)
    total = tl.sum(weight, axis=0)
    return tl.sum(part * weight[:, None], axis=0) / (total + tl.where(total == 0, 1.0, 0.0))


RIGHT = {
    "21.5b-1": [load_flat, load_then_clear, load_without_decorator],
    "21.5b-2": [scores_by_sum, scores_scaled_first],
    "21.5b-3": [state_in_one, state_by_e],
    "21.5b-4": [merge_by_shares, merge_where_there],
}

# ---- pieces that look right


@triton.jit
def load_unmasked(cache, tables, stride, request, head, position, length, dim, SIZE, HEADS, WIDTH):
    block = tl.load(tables + request * stride + position // SIZE)
    slot = block * SIZE + position % SIZE
    return tl.load(cache + (slot * HEADS + head)[:, None] * WIDTH + dim[None, :])


@triton.jit
def load_unpadded(cache, tables, stride, request, head, position, length, dim, SIZE, HEADS, WIDTH):
    there = position < length
    block = tl.load(tables + request * stride + position // SIZE, mask=there, other=0)
    slot = block * SIZE + position % SIZE
    at = (slot * HEADS + head)[:, None] * WIDTH + dim[None, :]
    return tl.load(cache + at, mask=there[:, None], other=0.0)


@triton.jit
def load_one_more(cache, tables, stride, request, head, position, length, dim, SIZE, HEADS, WIDTH):
    return load_flat(
        cache, tables, stride, request, head, position, length + 1, dim, SIZE, HEADS, WIDTH
    )


@triton.jit
def load_first_table(cache, tables, stride, request, head, position, length, dim, S, H, W):
    return load_flat(cache, tables, stride, 0, head, position, length, dim, S, H, W)


@triton.jit
def load_block_as_slot(cache, tables, stride, request, head, position, length, dim, S, H, W):
    there = position < length
    slot = tl.load(tables + request * stride + position // S, mask=there, other=0) + position % S
    at = (slot * H + head)[:, None] * W + dim[None, :]
    return tl.load(cache + at, mask=there[:, None] & (dim < W)[None, :], other=0.0)


@triton.jit
def load_heads_apart(cache, tables, stride, request, head, position, length, dim, S, H, W):
    """The heads of a block one after another, each with its slots."""
    there = position < length
    block = tl.load(tables + request * stride + position // S, mask=there, other=0)
    row = (block * H + head) * S + position % S
    mask = there[:, None] & (dim < W)[None, :]
    return tl.load(cache + row[:, None] * W + dim[None, :], mask=mask, other=0.0)


@triton.jit
def load_wild(cache, tables, stride, request, head, position, length, dim, SIZE, HEADS, WIDTH):
    return tl.load(cache + (position + 10**9)[:, None] + dim[None, :])


@triton.jit
def load_table_unmasked(cache, tables, stride, request, head, position, length, dim, S, H, W):
    """The cache's load is masked, so what the table gave there is not used."""
    block = tl.load(tables + request * stride + position // S)
    at = ((block * S + position % S) * H + head)[:, None] * W + dim[None, :]
    mask = (position < length)[:, None] & (dim < W)[None, :]
    return tl.load(cache + at, mask=mask, other=0.0)


@triton.jit
def load_without_other(cache, tables, stride, request, head, position, length, dim, S, H, W):
    there = position < length
    block = tl.load(tables + request * stride + position // S, mask=there)
    at = ((block * S + position % S) * H + head)[:, None] * W + dim[None, :]
    return tl.load(cache + at, mask=there[:, None] & (dim < W)[None, :])


def load_masks_joined_by_and(*given):
    cache, tables, stride, request, head, position, length, dim, size, heads, width = given
    there = position < length
    block = tl.load(tables + request * stride + position // size, mask=there, other=0)
    at = ((block * size + position % size) * heads + head)[:, None] * width + dim[None, :]
    mask = there[:, None] and (dim < width)[None, :]
    return tl.load(cache + at, mask=mask, other=0.0)


@triton.jit
def scores_without_mask(query, key, position, length, scale2):
    return tl.dot(query, tl.trans(key)) * scale2


@triton.jit
def scores_one_more(query, key, position, length, scale2):
    score2 = tl.dot(query, tl.trans(key)) * scale2
    return tl.where((position <= length)[None, :], score2, float("-inf"))


@triton.jit
def scores_in_base_e(query, key, position, length, scale2):
    score = tl.dot(query, tl.trans(key)) * scale2 / 1.4426950408889634
    return tl.where((position < length)[None, :], score, float("-inf"))


@triton.jit
def scores_with_a_large_number(query, key, position, length, scale2):
    score2 = tl.dot(query, tl.trans(key)) * scale2
    return tl.where((position < length)[None, :], score2, -10000.0)


@triton.jit
def scores_untransposed(query, key, position, length, scale2):
    score2 = tl.dot(query, key) * scale2
    return tl.where((position < length)[None, :], score2, float("-inf"))


@triton.jit
def scores_masked_by_rows(query, key, position, length, scale2):
    score2 = tl.dot(query, tl.trans(key)) * scale2
    return tl.where((position < length)[:, None], score2, float("-inf"))


@triton.jit
def scores_as_weights(query, key, position, length, scale2):
    power = tl.exp2(tl.dot(query, tl.trans(key), input_precision="ieee") * scale2)
    return tl.where((position < length)[None, :], power, 0.0)


def state_by_python_max(running_max2, running_sum, acc, score2, value):
    new = max(running_max2, tl.max(score2, axis=1))
    old, weight = tl.exp2(running_max2 - new), tl.exp2(score2 - new[:, None])
    acc = acc * old[:, None] + tl.dot(weight, value, input_precision="ieee")
    return new, running_sum * old + tl.sum(weight, axis=1), acc


@triton.jit
def state_summed_over_all(running_max2, running_sum, acc, score2, value):
    new = tl.maximum(running_max2, tl.max(score2, axis=1))
    old, weight = tl.exp2(running_max2 - new), tl.exp2(score2 - new[:, None])
    acc = acc * old[:, None] + tl.dot(weight, value, input_precision="ieee")
    return new, running_sum * old + tl.sum(weight), acc


@triton.jit
def state_spread_along_columns(running_max2, running_sum, acc, score2, value):
    new = tl.maximum(running_max2, tl.max(score2, axis=1))
    old, weight = tl.exp2(running_max2 - new), tl.exp2(score2 - new[:, None])
    return new, running_sum * old + tl.sum(weight, axis=1), acc * old + tl.dot(weight, value)


@triton.jit
def state_acc_kept(running_max2, running_sum, acc, score2, value):
    new = tl.maximum(running_max2, tl.max(score2, axis=1))
    weight = tl.exp2(score2 - new[:, None])
    running_sum = running_sum * tl.exp2(running_max2 - new) + tl.sum(weight, axis=1)
    return new, running_sum, tl.dot(weight, value, acc, input_precision="ieee")


@triton.jit
def state_in_base_e(running_max2, running_sum, acc, score2, value):
    new = tl.maximum(running_max2, tl.max(score2, axis=1))
    weight, old = tl.exp(score2 - new[:, None]), tl.exp(running_max2 - new)
    running_sum = running_sum * old + tl.sum(weight, axis=1)
    return new, running_sum, acc * old[:, None] + tl.dot(weight, value, input_precision="ieee")


@triton.jit
def state_normalised(running_max2, running_sum, acc, score2, value):
    new, total, acc = state_in_one(running_max2, running_sum, acc, score2, value)
    return new, total, acc / total[:, None]


@triton.jit
def state_of_two(running_max2, running_sum, acc, score2, value):
    state = state_in_one(running_max2, running_sum, acc, score2, value)
    return state[1], state[2]


@triton.jit
def merge_in_base_e(part, lse2):
    top = tl.maximum(tl.max(lse2, axis=0), -1e30)
    weight = tl.exp(lse2 - top)
    return tl.sum(part * weight[:, None], axis=0) / tl.maximum(tl.sum(weight, axis=0), 1e-30)


@triton.jit
def merge_of_empty_is_nan(part, lse2):
    weight = tl.exp2(lse2 - tl.max(lse2, axis=0))
    return tl.sum(part * weight[:, None], axis=0) / tl.sum(weight, axis=0)


@triton.jit
def merge_overflows(part, lse2):
    weight = tl.exp2(lse2)
    total = tl.sum(weight, axis=0)
    return tl.sum(part * weight[:, None], axis=0) / tl.where(total > 0, total, 1.0)


@triton.jit
def merge_summed(part, lse2):
    return tl.sum(part, axis=0)


@triton.jit
def merge_mean(part, lse2):
    return tl.sum(part, axis=0) / part.shape[0]


@triton.jit
def merge_along_axis_1(part, lse2):
    weight = tl.exp2(lse2 - tl.max(lse2, axis=1))
    return tl.sum(part * weight[:, None], axis=0)


@triton.jit
def merge_misspelt(part, lse2):
    weight = tl.exp2(lse3)  # noqa: F821
    return weight


@triton.jit
def merge_endless(part, lse2):
    while True:
        lse2 += 1


@triton.jit
def merge_keeps_the_axis(part, lse2):
    return part * lse2[:, None]


WRONG = {
    "21.5b-1": [
        (load_unmasked, "Neither load has a mask"),
        (load_unpadded, "a head has HEAD_DIM numbers"),
        (load_one_more, "one position too many"),
        (load_first_table, "reads the first row of the block table"),
        (load_block_as_slot, "takes the block id for a slot"),
        (load_heads_apart, "In this cache the heads of a slot lie together"),
        (load_table_unmasked, "The look-up in the table has no mask"),
        (load_without_other, "a GPU puts anything at the places that are masked"),
        (load_masks_joined_by_and, "Use `&`."),
        (load_wild, "IndexError: a load goes beyond the tensors"),
        (lambda *a: load_flat(*a) + 0.5, "tile[0, 0] is 0.5; by indexing in torch it is 0."),
    ],
    "21.5b-2": [
        (scores_masked_by_rows, "That masks rows, which are query heads"),
        (scores_without_mask, "has a score of 0 here"),
        (scores_one_more, "one position too many"),
        (scores_in_base_e, "That is the natural score"),
        (scores_with_a_large_number, "score2[0, 3] is -10000; by the formula it is -inf"),
        (scores_as_weights, "the power comes in step 3"),
        (scores_untransposed, "have to be turned: tl.trans(key)"),
    ],
    "21.5b-3": [
        (state_spread_along_columns, "Times acc it has to be a column"),
        (state_by_python_max, "`max` where tl.maximum is meant"),
        (state_summed_over_all, "one number for each row, axis=1"),
        (state_acc_kept, "acc is not scaled down"),
        (state_in_base_e, "The base is wrong"),
        (state_normalised, "acc[0, 0] is 1.61905; from all scores at once it is 3.25"),
        (state_of_two, "returned 2 tensors; running_max2, running_sum, acc are asked for"),
    ],
    "21.5b-4": [
        (merge_in_base_e, "The base is wrong"),
        (merge_of_empty_is_nan, "0 / 0 is NaN, too"),
        (merge_overflows, "the powers overflow"),
        (merge_summed, "out[0] is 9; by a softmax over the splits it is 4"),
        (merge_mean, "Splits weigh differently"),
        (merge_along_axis_1, "axis 1 out of bounds for shape [2] in line "),
        (merge_misspelt, "NameError: name 'lse3' is not defined in line"),
        (merge_endless, "was still running after 300,000 lines in line"),
        (merge_keeps_the_axis, "out has shape [2, 16]; [16] is asked for"),
    ],
}
