"""Section 21.5b: the decode kernel in four pieces, each launched over small and hard cases; its
merge, broken; its loads, counted."""

from kvlab.exercises import loads_21_5b as loads
from kvlab.exercises import runs_21_5b as runs
from kvlab.exercises import wrong_21_5b as wrong
from kvlab.exercises import wrong_21_5b_softmax as wrong_softmax
from kvlab.exercises.break_21_5b import MERGE_CHECK
from kvlab.exercises.exercise import Exercise
from kvlab.exercises.explain_21_5b import FEWER_LOADS
from kvlab.exercises.kernel_kind import KernelPiece
from kvlab.exercises.predictions_21_5b import PREDICTIONS

SPECIFICATION = "the specification"

LOAD_TILE = Exercise(
    id="21.5b-1",
    question=(
        "Write load_tile: the keys (or values) of a tile of positions, found through the request's "
        "row of the block table. 0 where there is none to read: beyond the length, and beyond "
        "HEAD_DIM."
    ),
    kind=KernelPiece(
        "load_tile",
        (
            *("cache_ptr", "block_table_ptr", "table_stride", "request", "kv_head", "position"),
            *("length", "dim", "BLOCK_SIZE", "NUM_KV_HEADS", "HEAD_DIM"),
        ),
        launch=loads.launch_load,
    ),
    run=loads.tile_by_indexing,
    cases=loads.load_cases,
    truth="by indexing in torch it is",
    against=SPECIFICATION,
    hints=(
        "Go from the position to a block, from the block to a slot, from the slot to the row of "
        "one head. Which of the two loads can do without a mask?",
        "Neither: entries of the table beyond the request's blocks mean nothing. The entry is "
        "block_table_ptr + request * table_stride + position // BLOCK_SIZE, and allowed = position "
        "< length masks it.",
        "slot = block_id * BLOCK_SIZE + position % BLOCK_SIZE; its row of this head is slot * "
        "NUM_KV_HEADS + kv_head, and begins at row * HEAD_DIM. With [:, None] and [None, :] row "
        "and dim span the tile; its mask is allowed[:, None] & (dim < HEAD_DIM)[None, :].",
    ),
    mistakes=wrong.LOAD,
    why="Position, block, slot, row; and 0 where the request has written nothing.",
)

TILE_SCORES = Exercise(
    id="21.5b-2",
    question=(
        "Write tile_scores: [ROWS, TILE], the scores of all query heads of a group with the keys "
        "of a tile, in base 2. -inf where there is no position."
    ),
    kind=KernelPiece(
        "tile_scores",
        ("query", "key", "position", "length", "scale2"),
        launch=runs.launch_scores,
    ),
    run=runs.scores_by_formula,
    cases=runs.score_cases,
    truth="by the formula it is",
    against=SPECIFICATION,
    hints=(
        "All scores of the tile are one product of two matrices. Which of them has to be turned? "
        "And which score has no weight in a softmax?",
        "tl.dot(query, tl.trans(key), input_precision=\"ieee\") is [ROWS, TILE]. Then scale2. A "
        "place without a position gets minus infinity: a 0 would have the weight 2 ** 0.",
        'score2 = tl.dot(...) * scale2, and then tl.where((position < length)[None, :], score2, '
        'float("-inf")).',
    ),
    mistakes=wrong.SCORES,
    why="One product for the whole group; 2 ** score2 is what e ** score would be.",
)  # fmt: skip

ADD_TILE = Exercise(
    id="21.5b-3",
    question=(
        "Write add_tile, the online softmax: given the state of each row (its largest score so "
        "far, the sum of 2 ** (score2 - largest), and that sum's weighted values) and one more "
        "tile, return the three for all tiles so far."
    ),
    kind=KernelPiece(
        "add_tile",
        ("running_max2", "running_sum", "acc", "score2", "value"),
        launch=runs.launch_state,
    ),
    run=runs.state_at_once,
    cases=runs.state_cases,
    truth="from all scores at once it is",
    against=SPECIFICATION,
    hints=(
        "Say a row has summed its weights under a largest score of 1, and now a 2 comes. What is "
        "each weight summed so far worth under the new one?",
        "Half: 2 ** (1 - 2). That is the correction, 2 ** (old largest - new largest). Which two "
        "of the three states have to be multiplied by it?",
        "new_max2 = tl.maximum(running_max2, tl.max(score2, axis=1)); correction = "
        "tl.exp2(running_max2 - new_max2); weight = tl.exp2(score2 - new_max2[:, None]). Sum and "
        "acc, both corrected, then get tl.sum(weight, axis=1) and tl.dot(weight, value).",
    ),
    mistakes=wrong_softmax.STATE,
    why="What was summed under a smaller maximum is scaled down; no score has to be kept.",
)

MERGE_SPLITS = Exercise(
    id="21.5b-4",
    question=(
        "Write merge_splits: the result of a query head from what its splits say, part [SPLITS, "
        "d], and how much each weighs, lse2 [SPLITS]: the logarithm to base 2 of its sum of "
        "weights. An empty split has lse2 -inf. If all are empty, the result is 0."
    ),
    kind=KernelPiece("merge_splits", ("part", "lse2"), launch=runs.launch_merge),
    run=runs.merged_by_softmax,
    cases=runs.merge_cases,
    truth="by a softmax over the splits it is",
    against=SPECIFICATION,
    hints=(
        "Each split has normalised its own part. By what share does it enter the whole?",
        "By its sum of weights, 2 ** lse2, over that of all splits. As in any softmax the largest "
        "is taken off first; what if the largest is minus infinity?",
        'max2 = tl.max(lse2, axis=0), and 0 in its place where it is float("-inf"); weight = '
        "tl.exp2(lse2 - max2); then the weighted sum of part over total = tl.sum(weight, axis=0), "
        "where 1.0 stands for a total of 0.",
    ),
    mistakes=wrong_softmax.MERGE,
    why="A softmax over splits; an empty one has no weight, and nothing is divided by 0.",
)

EXERCISES = (LOAD_TILE, TILE_SCORES, ADD_TILE, MERGE_SPLITS, MERGE_CHECK, FEWER_LOADS)

__all__ = ["EXERCISES", "PREDICTIONS"]
