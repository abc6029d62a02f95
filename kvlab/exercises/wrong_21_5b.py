"""Section 21.5b's known mistakes: a line of a right piece changed, and what to say to it.

Of load_tile and tile_scores; wrong_21_5b_softmax.py has those of add_tile and merge_splits.
"""

from pathlib import Path

from kvlab.exercises import loads_21_5b as loads
from kvlab.exercises import runs_21_5b as runs
from kvlab.exercises.exercise import Mistake
from kvlab.exercises.launched import Altered, Launch

RIGHT = Path(__file__).with_name("pieces_21_5b.py")


def altered(name: str, launch: Launch, says: str, changes: dict[str, str]) -> Mistake:
    """The piece `name` with these pieces of its text changed."""
    return Mistake(says, Altered(RIGHT, name, changes, launch))


def _load(says: str, changes: dict[str, str]) -> Mistake:
    return altered("load_tile", loads.launch_load, says, changes)


def _scores(says: str, changes: dict[str, str]) -> Mistake:
    return altered("tile_scores", runs.launch_scores, says, changes)


SLOT = "block_id * BLOCK_SIZE + position % BLOCK_SIZE"
MASK = "allowed[:, None] & (dim < HEAD_DIM)[None, :]"
LOADED = "tl.load(cache_ptr + stored_at, mask=mask, other=0.0)"
LOOKED_UP = "tl.load(entry, mask=allowed, other=0)"
AND = "If you joined two masks with `and`: that takes one of them alone. Use `&`."
LAST_TOO_FAR = (
    "That reads one position too many. A request of length positions has 0 to length - 1."
)
LAST_MISSING = (
    "The last position is missing. It is length - 1, and the newest token: the query's own."
)

LOAD = (
    _load(
        "The load of the cache has no mask. Places beyond the length lie in slots that nobody "
        "wrote, and hold NaN here. Their weight will be 0, but 0 x NaN is NaN.",
        {LOADED: "tl.load(cache_ptr + stored_at)"},
    ),
    _load(
        "Neither load has a mask. Entries of the table beyond the request's blocks mean nothing, "
        "and slots beyond the length hold NaN here: their weight will be 0, but 0 x NaN is NaN.",
        {LOOKED_UP: "tl.load(entry)",
         LOADED: "tl.load(cache_ptr + stored_at)"},
    ),
    _load(
        "The look-up in the table has no mask. A request's entries end with its last block: behind "
        "them lies the next row, or nothing that is yours to read. Mask it with position < length.",
        {LOOKED_UP: "tl.load(entry)"},
    ),
    _load(
        "The load of the cache has a mask, and no `other`: a GPU puts anything at the places that "
        "are masked (here it is NaN). Add other=0.0.",
        {LOADED: "tl.load(cache_ptr + stored_at, mask=mask)"},
    ),
    _load(
        "The numbers beyond HEAD_DIM are right. Places beyond the length are loaded, too: nobody "
        f"wrote them, and 0 x NaN is NaN. Mask them with position < length. {AND}",
        {MASK: "(dim < HEAD_DIM)[None, :] & (position >= 0)[:, None]"},
    ),
    _load(
        "dim goes to PADDED_DIM, a power of two; a head has HEAD_DIM numbers. Beyond them lies the "
        f"next head, or the next slot: mask them, so that they are 0. {AND}",
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
        "positions: position // BLOCK_SIZE.",
        {"position // BLOCK_SIZE": "position"},
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
    _load(
        "That takes a slot for a row. A slot has NUM_KV_HEADS rows, one for each head: slot s "
        "begins at row s * NUM_KV_HEADS.",
        {"slot * NUM_KV_HEADS + kv_head": "slot"},
    ),
    _load(
        "That puts all slots of a head together inside a block. In this cache the heads of a slot "
        "lie together: [num_blocks, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM].",
        {SLOT: "block_id",
         "slot * NUM_KV_HEADS + kv_head":
             "(slot * NUM_KV_HEADS + kv_head) * BLOCK_SIZE + position % BLOCK_SIZE"},
    ),
    _load(
        "That takes a row for a number. A slot has NUM_KV_HEADS rows of HEAD_DIM numbers: row r "
        "begins at number r * HEAD_DIM.",
        {"stored_row[:, None] * HEAD_DIM": "stored_row[:, None]"},
    ),
)  # fmt: skip

WHERE = 'tl.where((position < length)[None, :], score2, float("-inf"))'
POWER = "Those are powers, 2 ** score2. Return the scores; the power comes in step 3."
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
    _scores(POWER, {WHERE: f"tl.exp2({WHERE})"}),
    _scores(POWER, {WHERE: WHERE.replace("score2", "tl.exp2(score2)")}),
    _scores(
        "Rows and columns have changed places: a row is a query head, a column a position.",
        {"tl.dot(query, tl.trans(key)": "tl.dot(key, tl.trans(query)"},
    ),
    _scores(
        "The keys are the rows of the tile, [TILE, d]. For a product with the rows of the queries "
        "they have to be turned: tl.trans(key).",
        {"tl.trans(key)": "key"},
    ),
)  # fmt: skip
