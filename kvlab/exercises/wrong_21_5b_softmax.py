"""As wrong_21_5b.py, of the online softmax (add_tile) and of the merge of splits."""

from kvlab.exercises import runs_21_5b as runs
from kvlab.exercises.exercise import Mistake
from kvlab.exercises.wrong_21_5b import altered


def _state(says: str, changes: dict[str, str]) -> Mistake:
    return altered("add_tile", runs.launch_state, says, changes)


def _merge(says: str, changes: dict[str, str]) -> Mistake:
    return altered("merge_splits", runs.launch_merge, says, changes)


ONE_A_ROW = (
    "Each row, a query head, has a maximum and a sum of its own: one number for each row, axis=1."
)
STATE = (
    _state(
        "acc is not scaled down when a larger score comes: what was summed before keeps the weight "
        "that it had under the old maximum. Multiply acc by the correction, as the sum.",
        {"acc = acc * correction[:, None]": "acc = acc * 1.0"},
    ),
    _state(
        "correction has a number for each row. Times acc it has to be a column, "
        "correction[:, None]; without that it is spread along the columns.",
        {"correction[:, None]": "correction[None, :]"},
    ),
    _state(
        "running_sum is not scaled down when a larger score comes. What it holds was summed under "
        "the old maximum: multiply it by the correction, as acc.",
        {"running_sum * correction": "running_sum"},
    ),
    _state(
        "Neither sum nor acc is scaled down when a larger score comes. What they hold was summed "
        "under the old maximum.",
        {
            "running_sum * correction": "running_sum",
            "acc = acc * correction[:, None]": "acc = acc * 1.0",
        },
    ),
    _state(
        "The base is wrong: scores in base 2 want tl.exp2. tl.exp makes e ** score2 of them, and "
        "the weights come out uneven.",
        {"tl.exp2(running_max2 - new_max2)": "tl.exp(running_max2 - new_max2)",
         "tl.exp2(score2 - new_max2[:, None])": "tl.exp(score2 - new_max2[:, None])"},
    ),
    _state(
        "The weights are in base e, the correction is in base 2. Both are powers of 2: tl.exp2.",
        {"tl.exp2(score2 - new_max2[:, None])": "tl.exp(score2 - new_max2[:, None])"},
    ),
    _state(
        "The correction is in base e, the weights are in base 2. Both are powers of 2: tl.exp2.",
        {"tl.exp2(running_max2 - new_max2)": "tl.exp(running_max2 - new_max2)"},
    ),
    _state(
        "That takes the largest score of this tile alone. If an earlier tile had a larger one, "
        "that one stays the maximum. Or is it `max` where tl.maximum is meant?",
        {"tl.maximum(running_max2, tl.max(score2, axis=1))": "tl.max(score2, axis=1)"},
    ),
    _state(
        "This tile's weights are taken under the old maximum, which is -inf at the start. Take "
        "them under the new one.",
        {"score2 - new_max2[:, None]": "score2 - running_max2[:, None]"},
    ),
    _state(
        "The correction is upside down. The old maximum is not above the new one, so "
        "2 ** (old - new) is at most 1.",
        {"tl.exp2(running_max2 - new_max2)": "tl.exp2(new_max2 - running_max2)"},
    ),
    _state(
        "acc holds this tile alone. What the tiles before it gave is to be added.",
        {"acc = acc * correction[:, None]": "acc = acc * 0.0"},
    ),
    _state(
        "The sum holds this tile alone. What was summed before is to be added.",
        {"running_sum * correction": "0.0 * correction"},
    ),
    _state("Return the new maximum: the state is under that one now.",
           {"return new_max2": "return running_max2"}),
    _state(
        "score2 has a row for each query head, and the maximum is one number a row. To take it off "
        "it has to be a column, new_max2[:, None].",
        {"new_max2[:, None]": "new_max2[None, :]"},
    ),
    _state(ONE_A_ROW, {"tl.max(score2, axis=1)": "tl.max(score2, axis=0)"}),
    _state(ONE_A_ROW, {"tl.max(score2, axis=1)": "tl.max(score2)"}),
    _state(ONE_A_ROW, {"tl.sum(weight, axis=1)": "tl.sum(weight, axis=0)"}),
    _state(ONE_A_ROW, {"tl.sum(weight, axis=1)": "tl.sum(weight)"}),
    _state(ONE_A_ROW, {"tl.max(score2, axis=1)": "tl.max(score2, axis=0)",
                       "tl.sum(weight, axis=1)": "tl.sum(weight, axis=0)"}),
    _state(ONE_A_ROW, {"tl.max(score2, axis=1)": "tl.max(score2)",
                       "tl.sum(weight, axis=1)": "tl.sum(weight)"}),
)  # fmt: skip

MERGE = (
    _merge(
        "The base is wrong: lse2 is a logarithm to base 2, so the weight is tl.exp2 of it. tl.exp "
        "takes it for a natural one, and favours the heavier split.",
        {"tl.exp2(lse2 - max2)": "tl.exp(lse2 - max2)"},
    ),
    _merge(
        "If all splits are empty (a length of 0), the largest lse2 is -inf, and -inf - -inf is "
        "NaN; the sum of weights is 0 there, and 0 / 0 is NaN, too. The result is 0.",
        {
            'tl.where(max2 == float("-inf"), 0.0, max2)': "max2",
            "tl.where(total > 0, total, 1.0)": "total",
        },
    ),
    _merge(
        "Without the largest lse2 taken off first, the powers overflow or become 0, as for the "
        "softmax itself.",
        {
            'tl.where(max2 == float("-inf"), 0.0, max2)': "0.0",
        },
    ),
    _merge(
        "That is the plain mean. Splits weigh differently: each by the sum of its weights, "
        "2 ** lse2.",
        {"tl.exp2(lse2 - max2)": "tl.where(lse2 == max2, 1.0, 1.0)"},
    ),
    _merge(
        "That adds the splits up. Each enters by its share: 2 ** lse2 over the sum of all of them.",
        {"tl.exp2(lse2 - max2)": "tl.where(lse2 == max2, 1.0, 1.0)",
         "tl.where(total > 0, total, 1.0)": "1.0"},
    ),
    _merge(
        "That is the mean of the splits that are not empty. A split counts by the sum of its "
        "weights, 2 ** lse2.",
        {"tl.exp2(lse2 - max2)": 'tl.where(lse2 > float("-inf"), 1.0, 0.0)'},
    ),
    _merge(
        "The weights do not sum to 1. Divide by their sum.",
        {"tl.where(total > 0, total, 1.0)": "1.0"},
    ),
    _merge(
        "That takes the heaviest split alone. The others count as well, each by 2 ** lse2.",
        {"tl.exp2(lse2 - max2)": "tl.where(lse2 == max2, 1.0, 0.0)"},
    ),
)  # fmt: skip
