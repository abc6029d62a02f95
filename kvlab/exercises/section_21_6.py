"""Section 21.6: selected outputs, processed positions, and how the cache grows."""

from kvlab.exercises import runs_21_6 as runs
from kvlab.exercises.break_21_6 import APPEND_CHECK
from kvlab.exercises.exercise import Exercise, Mistake, Prediction
from kvlab.exercises.explain_21_6 import HOW_FAR
from kvlab.exercises.kinds import Function, Number, Numbers
from kvlab.exercises.wrong_21_6 import APPEND, CACHE_LENGTHS, SLOT

POSITIONS_AT_THE_END = Exercise(
    id="21.6-1",
    question=(
        "A prompt of 7 tokens yields 4 outputs, and then the request stops, because it reached "
        "max_tokens. How many positions had keys and values when it stopped?"
    ),
    kind=Number("positions"),
    run=runs.positions_at_the_end,
    hints=(
        "Selecting and processing are two events. Which of the outputs has a later pass read?",
        "All positions of the prompt are there, and every output but the one that was selected "
        "last.",
        "Positions of the prompt, and one less than there are outputs: 7 + 4 - 1.",
    ),
    mistakes=(
        Mistake(
            "That counts the last output. It was selected, and no pass has read it.",
            lambda: runs.PROMPT + runs.OUTPUTS,
        ),
        Mistake(
            "That is the prompt alone. The outputs that later passes read are in the cache, too.",
            lambda: runs.PROMPT,
        ),
        Mistake(
            "Those are the outputs that were processed. The prompt's positions come on top.",
            lambda: runs.OUTPUTS - 1,
        ),
        Mistake(
            "Those are the outputs. Asked for are the positions with keys and values, the "
            "prompt's included.",
            lambda: runs.OUTPUTS,
        ),
        Mistake(
            "That leaves out one output too many. Only the last one was never read.",
            lambda: runs.PROMPT + runs.OUTPUTS - 2,
        ),
    ),
    why="After n outputs n - 1 of them are processed, as long as nobody reads the last.",
)

TWO_PASSES = Exercise(
    id="21.6-2",
    question=(
        "Call the prompt's pass number 0, and the passes after it 1, 2, 3 and so on. Which pass's "
        "logits select the third output (the first is selected by pass 0), and which pass gives "
        "it its keys and values?"
    ),
    kind=Numbers(2),
    run=runs.passes_of_output_three,
    hints=(
        "Begin with the first output. Its logits come from a pass that was needed anyway.",
        "The first output is selected from the prompt's pass, and the next pass reads it. Go on "
        "from there, output by output.",
        "Counted from 1, output n is selected from the logits of pass n - 1; pass n reads it.",
    ),
    mistakes=(
        Mistake(
            "That is one pass for both. Logits select a token after the pass; a later pass reads "
            "it.",
            lambda: [2, 2],
        ),
        Mistake(
            "That is one pass for both, and one too late for the selection: the first output "
            "comes from pass 0.",
            lambda: [3, 3],
        ),
        Mistake(
            "You counted passes from 1, or outputs from 0.",
            lambda: [3, 4],
        ),
        Mistake("The other way round: selected first, then processed.", lambda: [3, 2]),
    ),
    why="A token is selected after one pass and read by the next.",
)

CACHE_LENGTHS_FUNCTION = Exercise(
    id="21.6-3",
    question=(
        "Write cache_lengths: a list of the positions in the cache after each pass of a request "
        "that ends as soon as it has num_outputs outputs. The first pass reads the whole prompt."
    ),
    kind=Function("cache_lengths", ("prompt_length", "num_outputs")),
    run=runs.cache_lengths_of_a_real_run,
    cases=runs.length_cases,
    truth="the engine's trace says",
    hints=(
        "Which passes run, and what does each of them read?",
        "Each pass selects one output. The first leaves the prompt's positions in the cache. Each "
        "later one adds a single position, that of the output that it reads.",
        "There are num_outputs passes: the list counts up from prompt_length and has num_outputs "
        "entries.",
    ),
    mistakes=CACHE_LENGTHS,
    why="One pass per output: the prompt's selects the first, and the last output is never read.",
)

SLOT_FUNCTION = Exercise(
    id="21.6-4",
    question=(
        "Write slot: the slot of the pool where position t of a request lies. block_table lists "
        "the request's blocks in logical order; slot 0 of block b is slot b * block_size of the "
        "pool."
    ),
    kind=Function("slot", ("t", "block_table", "block_size")),
    run=runs.slot_in_a_real_pool,
    cases=runs.slot_cases,
    truth="the real pool has it in slot",
    hints=(
        "Two questions: in which entry of the table is position t, and where inside that block?",
        "The entry is t // block_size, the place inside the block t % block_size. The entry holds "
        "a block id, which may be any.",
        "block_table[t // block_size] is the block; its slots begin at block * block_size; add "
        "t % block_size.",
    ),
    mistakes=SLOT,
    why="The table turns logical order into physical blocks; inside a block nothing is moved.",
)

APPEND_FUNCTION = Exercise(
    id="21.6-5",
    question=(
        "Write append: the keys and values of one layer after a pass, as a pair (keys, values). "
        "Given are the cached ones, [B, H_kv, T, d_h], and those of the new tokens, k and v, "
        "[B, H_kv, n, d_h]; all are tensors (equation 21.6)."
    ),
    kind=Function("append", ("keys", "values", "k", "v")),
    run=runs.append_to_a_real_cache,
    cases=runs.append_cases,
    truth="the real cache holds",
    hints=(
        "Which of the four dimensions counts positions?",
        "torch.cat joins tensors along a dimension; all others must agree. Logical order: the "
        "older positions come first.",
        "torch.cat((keys, k), dim=2), the same for values with v, and return both as a pair.",
    ),
    mistakes=APPEND,
    why="Dimension 2 grows, the newest position stands last, and nothing earlier changes.",
)

EXERCISES = (
    POSITIONS_AT_THE_END,
    TWO_PASSES,
    CACHE_LENGTHS_FUNCTION,
    SLOT_FUNCTION,
    APPEND_FUNCTION,
    APPEND_CHECK,
    HOW_FAR,
)


def _one_later(totals: list[int]) -> list[int]:
    """The same growth, one pass further on."""
    return [*totals[1:], totals[-1] + totals[-1] - totals[-2]]


def _one_earlier(totals: list[int]) -> list[int]:
    return [totals[0] - (totals[1] - totals[0]), *totals[:-1]]


PREDICTIONS = (
    Prediction(
        id="21.6-p1",
        question=(
            "2 layers, 4 KV heads, head width 8, one request, 2 bytes a number. After the prompt's "
            "5 positions the payload is 1,280 bytes. How many bytes is it after passes 1, 2 and 3, "
            "each of which reads one token?"
        ),
        kind=Numbers(3, "bytes"),
        mistakes=(
            Mistake(
                "That lets every selection fill the cache: one position too many each time.",
                _one_later,
            ),
            Mistake(
                "That is the payload before each of these passes. A pass stores the token that it "
                "reads.",
                _one_earlier,
            ),
            Mistake(
                "The cache does grow: each pass adds the keys and values of one position.",
                lambda totals: [_one_earlier(totals)[0]] * 3,
            ),
            Mistake(
                "That is what a pass adds. The payload is the sum.",
                lambda totals: [totals[1] - totals[0]] * 3,
            ),
            Mistake(
                "That is half the growth: a position has keys and values.",
                lambda totals: [(total + _one_earlier(totals)[0]) // 2 for total in totals],
            ),
        ),
        why="Each pass adds one position of every layer and KV head, in keys and in values.",
    ),
    Prediction(
        id="21.6-p2",
        question=(
            "After these three passes, and the selection that follows the last of them: how many "
            "outputs have been selected, counted from the prompt's pass on?"
        ),
        kind=Number("outputs"),
        mistakes=(
            Mistake(
                "The prompt's own pass selects one, too.",
                lambda selected: selected - 1,
            ),
            Mistake(
                "One a pass: the prompt's, and three more.",
                lambda selected: selected + 1,
            ),
        ),
        why="Every pass ends in logits, and the prompt's is no exception.",
    ),
    Prediction(
        id="21.6-p3",
        question="How many of these outputs have keys and values in the cache at that moment?",
        kind=Number("outputs"),
        mistakes=(
            Mistake(
                "The one that was selected last has been read by no pass.",
                lambda processed: processed + 1,
            ),
            Mistake(
                "Each of the passes after the prompt has read one.",
                lambda processed: processed - 1,
            ),
        ),
        why="The cache grows when a token is read, one pass after it was selected.",
    ),
)
