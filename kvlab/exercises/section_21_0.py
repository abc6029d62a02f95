"""Section 21.0: a position's bytes, a cache that was changed, and what was found again."""

from kvlab.exercises import runs_21_0 as runs
from kvlab.exercises.exercise import Exercise, Mistake
from kvlab.exercises.judged import Judged
from kvlab.exercises.kinds import Function, Numbers
from kvlab.exercises.wrong_21_0 import BYTES, CHANGES, NOTICED, judge_of_an_answer

POSITION_BYTES = Exercise(
    id="21.0-1",
    question=(
        "Write position_bytes: the bytes of keys and values that a model keeps for one position. "
        "Each of its layers has query_heads query heads and kv_heads KV heads, all head_dim wide; "
        "a number takes bytes_per_value bytes."
    ),
    kind=Function(
        "position_bytes", ("layers", "query_heads", "kv_heads", "head_dim", "bytes_per_value")
    ),
    run=runs.bytes_of_real_arrays,
    cases=runs.models,
    truth="the arrays of a real cache take",
    hints=(
        "Which of the five arguments say how many numbers are kept? One of them does not.",
        "A layer keeps a key and a value for each KV head, each of them head_dim numbers.",
        "2 * layers * kv_heads * head_dim * bytes_per_value.",
    ),
    mistakes=BYTES,
    why="Keys and values, in each layer, for each KV head. The page's model: 2 * 4 * 2 * 32 * 4.",
)

CHANGED_CACHE = Exercise(
    id="21.0-2",
    question=(
        "Break it. Write spoil: change numbers in the cache of the stopped request, so that its "
        "answer is no longer the one that computing everything again gives, and return "
        "stopped.answer(). One of its two blocks is enough; which one, you have to find out. "
        "stopped.key_cache and stopped.value_cache are [layers, blocks, slots, KV heads, width]; "
        "stopped.block_table names the request's two blocks of 16."
    ),
    kind=Judged("spoil", ("stopped",), judge=judge_of_an_answer),
    run=lambda stopped: NOTICED,
    cases=runs.stopped,
    truth="asked for is",
    hints=(
        "Which of the blocks belong to this request? And in which of them do you expect what the "
        "next token is chosen by: the notes at the beginning, or the question at the end?",
        "stopped.value_cache[:, b] is all that block b holds of values, in all layers; setting it "
        "to 0 takes it away. b is an entry of stopped.block_table.",
        "stopped.value_cache[:, stopped.block_table[-1]] = 0, and then return stopped.answer().",
    ),
    mistakes=CHANGES,
    why="A cache is right if it holds what computing again would give: that comparison finds it.",
)

FOUND_AGAIN = Exercise(
    id="21.0-3",
    question=(
        "Explain a measured number. The prompt above has 32 tokens. Asked a second time, blocks of "
        "16 positions found 16 of them in the cache, and not 32. How many does the engine find "
        "with blocks of 8, of 4, and of 1?"
    ),
    kind=Numbers(3, "positions"),
    run=runs.positions_found,
    hints=(
        "Two rules stand above the cell that asked again. What does each of them say for blocks "
        "of one position?",
        "Whole blocks are found, and at least one position is computed: the last, with the block "
        "it lies in.",
        "32 less one block.",
    ),
    mistakes=(
        Mistake(
            "Keys and values select no token: the last position is computed again, and with it "
            "its block.",
            lambda: [32, 32, 32],
        ),
        Mistake(
            "One position has to be computed, and it lies in a block, which is found whole or not "
            "at all.",
            lambda: [31, 31, 31],
        ),
        Mistake("That is what is computed. Asked for is what is found.", lambda: [8, 4, 1]),
        Mistake(
            "The block that is computed again is as small as a block: less is lost.",
            lambda: [16, 16, 16],
        ),
        Mistake("Those are blocks. Asked for are positions.", lambda: [3, 7, 31]),
    ),
    why="All blocks but the last: smaller blocks find more, and make longer tables.",
)

EXERCISES = (POSITION_BYTES, CHANGED_CACHE, FOUND_AGAIN)
PREDICTIONS = ()
