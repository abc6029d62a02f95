"""Section 21.5b's known mistakes: a line of a right piece changed, and what to say to it."""

from pathlib import Path

from kvlab.exercises import loads_21_5b as loads
from kvlab.exercises import runs_21_5b as runs
from kvlab.exercises.exercise import Mistake
from kvlab.exercises.launched import Altered, Launch

RIGHT = Path(__file__).with_name("pieces_21_5b.py")


def _load(says: str, changes: dict[str, str]) -> Mistake:
    return _mistake("load_tile", loads.launch_load, says, changes)


def _scores(says: str, changes: dict[str, str]) -> Mistake:
    return _mistake("tile_scores", runs.launch_scores, says, changes)


def _state(says: str, changes: dict[str, str]) -> Mistake:
    return _mistake("add_tile", runs.launch_state, says, changes)


def _merge(says: str, changes: dict[str, str]) -> Mistake:
    return _mistake("merge_splits", runs.launch_merge, says, changes)


def _mistake(name: str, launch: Launch, says: str, changes: dict[str, str]) -> Mistake:
    return Mistake(says, Altered(RIGHT, name, changes, launch))


SLOT = "block_id * BLOCK_SIZE + position % BLOCK_SIZE"
MASK = "allowed[:, None] & (dim < HEAD_DIM)[None, :]"
LOADED = "tl.load(cache_ptr + stored_at, mask=mask, other=0.0)"
LAST_TOO_FAR = (
    "That reads one position too many. A request of length positions has 0 to length - 1."
)
LAST_MISSING = (
    "The last position is missing. It is length - 1, and the newest token: the query's own."
)

LOAD = (
    _load(
        "Neither load has a mask. Entries of the table beyond the request's blocks mean nothing, "
        "and slots beyond the length hold NaN here: their weight will be 0, but 0 x NaN is NaN.",
        {"tl.load(entry, mask=allowed, other=0)": "tl.load(entry)",
         LOADED: "tl.load(cache_ptr + stored_at)"},
    ),
    _load(
        "The load of the cache has no mask. Places beyond the length lie in slots that nobody "
        "wrote, and hold NaN here. Their weight will be 0, but 0 x NaN is NaN.",
        {LOADED: "tl.load(cache_ptr + stored_at)"},
    ),
    _load(
        "The numbers beyond HEAD_DIM are right. Places beyond the length are loaded, too: nobody "
        "wrote them, and 0 x NaN is NaN. Mask them with position < length.",
        {MASK: "(dim < HEAD_DIM)[None, :] & (position >= 0)[:, None]"},
    ),
    _load(
        "dim goes to PADDED_DIM, a power of two; a head has HEAD_DIM numbers. Beyond them lies the "
        "next head, or the next slot: mask them, so that they are 0.",
        {MASK: "allowed[:, None] & (dim >= 0)[None, :]"},
    ),
    _load(LAST_TOO_FAR, {"position < length": "position <= length"}),
    _load(LAST_MISSING, {"position < length": "position < length - 1"}),
    _load(
        "That takes the block id for a slot. Block b begins at slot b * BLOCK_SIZE.",
        {SLOT: "block_id + position % BLOCK_SIZE"},
    ),
    _load(
        "Every position of a block gets its first slot. Add position % BLOCK_SIZE.",
        {SLOT: "block_id * BLOCK_SIZE"},
    ),
    _load(
        "That adds the whole position. Inside the block it is the rest, position % BLOCK_SIZE.",
        {SLOT: "block_id * BLOCK_SIZE + position"},
    ),
    _load(
        "That reads slot t for position t, as if the blocks lay in a row. The table says where "
        "each block is.",
        {SLOT: "block_id * 0 + position"},
    ),
    _load(
        "That looks up entry `position` of the table. An entry is for a block of BLOCK_SIZE "
        "positions.",
        {"position // BLOCK_SIZE": "tl.minimum(position, table_stride - 1)"},
    ),
    _load(
        "That reads the first row of the block table, whichever request it is. Row `request` "
        "begins request * table_stride entries further on.",
        {"request * table_stride": "0"},
    ),
    _load(
        "`request` entries further on is still the first request's row. A row is table_stride "
        "entries long.",
        {"request * table_stride": "request"},
    ),
    _load(
        "That reads KV head 0 for all of them. The heads of a slot lie one after another.",
        {"slot * NUM_KV_HEADS + kv_head": "slot * NUM_KV_HEADS"},
    ),
    _load(
        "A slot holds NUM_KV_HEADS rows, one for each head: slot s begins at row s * NUM_KV_HEADS.",
        {"slot * NUM_KV_HEADS + kv_head": "slot + kv_head"},
    ),
)  # fmt: skip

WHERE = 'tl.where((position < length)[None, :], score2, float("-inf"))'
SCORES = (
    _scores(
        "A place without a position has a score of 0 here, and its weight would be 2 ** 0, as good "
        'as any other. Give it float("-inf"), the one score whose weight is 0.',
        {WHERE: "score2"},
    ),
    _scores(
        "That masks rows, which are query heads. The positions are the columns: "
        "(position < length)[None, :].",
        {"(position < length)[None, :]": "(position < length)[:, None]"},
    ),
    _scores(LAST_TOO_FAR, {"position < length": "position <= length"}),
    _scores(LAST_MISSING, {"position < length": "position < length - 1"}),
    _scores(
        "The scores are not multiplied by scale2, which is log2(e) / sqrt(head_dim).",
        {" * scale2": ""},
    ),
    _scores("scale2 divides by the square root already. Multiply by it.", {"* scale2": "/ scale2"}),
    _scores(
        "scale2 has log2(e) in it already. Multiplied by it again, 2 ** score2 is no longer "
        "e ** score.",
        {"* scale2": "* scale2 * 1.4426950408889634"},
    ),
    _scores(
        "That is the natural score, q . k / sqrt(head_dim). With scale2 alone it is in base 2, so "
        "that 2 ** score2 = e ** score.",
        {"* scale2": "* scale2 * 0.6931471805599453"},
    ),
    _scores(
        "Rows and columns have changed places: a row is a query head, a column a position.",
        {"tl.dot(query, tl.trans(key)": "tl.dot(key, tl.trans(query)"},
    ),
    _scores(
        "The keys are the rows of the tile, [TILE, d]. For a product with the rows of the queries "
        "they have to be turned: tl.trans(key).",
        {"tl.trans(key)": "key"},
    ),
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
        "that one stays the maximum.",
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
        "That is the plain mean. A split counts by the sum of its weights, 2 ** lse2.",
        {"tl.exp2(lse2 - max2)": "tl.exp2((lse2 - max2) * 0.0)"},
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
)
