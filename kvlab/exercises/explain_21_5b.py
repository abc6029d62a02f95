"""Section 21.5b: why the kernel loads fewer rows of keys than it computes scores."""

from kvlab.core.kernel_log import KernelLog, recorded_log
from kvlab.exercises.causes import explain

ROWS_LOADED = 140


def rows_loaded() -> int:
    """Rows of keys, one position of one KV head each, that all programs of the log have loaded."""
    log = recorded_log()
    return sum(
        len(log.slots_read(request, kv_head))
        for request in range(len(log.seq_lens))
        for kv_head in range(log.num_kv_heads)
    )


def scores_computed() -> int:
    log = recorded_log()
    return sum(log.seq_lens) * log.num_query_heads


def _of_each_kv_head() -> int:
    log = recorded_log()
    return sum(len(log.table_slots(request)) for request in _requests(log)) * log.num_kv_heads


def _of_shared_blocks() -> int:
    """Were each slot loaded once for both requests, by a program for each query head."""
    log = recorded_log()
    slots = {slot for request in _requests(log) for slot in log.table_slots(request)}
    return len(slots) * log.num_query_heads


def _of_whole_tiles() -> int:
    """Were the masked places of the last tiles loaded, too."""
    log = recorded_log()
    tiles = sum(-(-length // log.tile) for length in log.seq_lens)
    return tiles * log.tile * log.num_kv_heads


def _of_each_position() -> int:
    """Were one row of keys enough for all heads."""
    return sum(recorded_log().seq_lens)


def _requests(log: KernelLog) -> range:
    return range(len(log.seq_lens))


CAUSES = {
    "a": ("a block that both requests hold is loaded for both at once", _of_shared_blocks),
    "b": ("the last tile of each request is loaded whole, up to 48", _of_whole_tiles),
    "c": ("the query heads of a group are rows of one program", _of_each_kv_head),
    "d": ("a row of keys is loaded once for all heads of the model", _of_each_position),
}
FEWER_LOADS = explain(
    "21.5b-6",
    "A log of this section's kernel: two requests of 35 positions, 4 query heads, 2 KV heads, "
    "tiles of 16. Each query head has a score for each of its positions: 2 * 35 * 4 = 280. Rows of "
    "keys (one position of one KV head) were loaded 140 times. What explains that?",
    CAUSES,
    ROWS_LOADED,
    (
        "Which programs need one and the same row of keys? Count them for one position.",
        "Work out how many loads each explanation would give, and compare.",
        "140 is 2 * 35 * 2: once for each request, position and KV head.",
    ),
    {
        "a": "Requests have programs of their own: what both hold is loaded by each of them.",
        "b": "The mask keeps the 13 empty places of a last tile from being loaded. With them it "
        "would be 192.",
        "d": "Each KV head has keys of its own: it would be 70.",
    },
    "Two query heads read the same keys, so one load serves two scores.",
)
