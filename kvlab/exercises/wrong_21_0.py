"""The start page's known mistakes: each written out, with what to say to it."""

from kvlab.exercises.exercise import Mistake
from kvlab.exercises.reading import Unreadable
from kvlab.exercises.runs_21_0 import Stopped, recomputed

BYTES = (
    Mistake(
        "You used the query heads. Keys and values are kept for each KV head; several query heads "
        "may read one.",
        lambda layers, query_heads, kv_heads, head_dim, size: (
            2 * layers * query_heads * head_dim * size
        ),
    ),
    Mistake(
        "That is keys alone (or values alone): a position has both.",
        lambda layers, query_heads, kv_heads, head_dim, size: layers * kv_heads * head_dim * size,
    ),
    Mistake(
        "That is one layer. Each keeps keys and values of its own.",
        lambda layers, query_heads, kv_heads, head_dim, size: 2 * kv_heads * head_dim * size,
    ),
    Mistake(
        "That counts numbers. Each of them takes bytes_per_value bytes.",
        lambda layers, query_heads, kv_heads, head_dim, size: 2 * layers * kv_heads * head_dim,
    ),
    Mistake(
        "That is one KV head. All of them keep a key and a value.",
        lambda layers, query_heads, kv_heads, head_dim, size: 2 * layers * head_dim * size,
    ),
)

# ---- what comes of a changed cache

NOTICED = "any other answer"
WHAT_WAS_CHANGED = {
    "nothing": "nothing of the cache was changed",
    "other blocks": "what was changed holds no position of this request",
    "its own": "the model did without what was changed of this request's positions",
}


def judge_of_an_answer(value: object, arguments: tuple[Stopped]) -> str:
    """What the answer amounts to. Raises Unreadable for a text that the request did not give."""
    (stopped,) = arguments
    if not isinstance(value, str) or value.strip() not in stopped.answers:
        raise Unreadable("what this request has not answered; end with return stopped.answer()")
    if value.strip() == recomputed():
        return f"{value.strip()!r} still: {WHAT_WAS_CHANGED[stopped.answers[value.strip()]]}"
    return NOTICED


def _answer_as_it_is(stopped: Stopped) -> str:
    return stopped.answer()


def _change_free_blocks(stopped: Stopped) -> str:
    for block in range(stopped.value_cache.shape[1]):
        if block not in stopped.block_table:
            stopped.value_cache[:, block] = 1
    return stopped.answer()


def _change_the_first_block(stopped: Stopped) -> str:
    stopped.value_cache[:, stopped.block_table[0]] = 0
    return stopped.answer()


CHANGES = (
    Mistake(
        "Nothing was changed. (A slice with [...] = 0 writes into the cache; a new tensor, or a "
        "copy, does not. And the change has to come before answer().)",
        _answer_as_it_is,
    ),
    Mistake(
        "Those blocks are not this request's, and nobody reads them for it. Its block table says "
        "which are.",
        _change_free_blocks,
    ),
    Mistake(
        "After your change the answer is still the same. Any other answer would do. This model "
        "read nothing there that it needed: try the request's other block, or more of it.",
        _change_the_first_block,
    ),
)
