"""Section 21.4: which blocks of a prompt are found again, and by what they are found."""

from kvlab.exercises import runs_21_4 as runs
from kvlab.exercises.errors_21_4 import can_be_trusted, chains
from kvlab.exercises.exercise import Exercise, Mistake
from kvlab.exercises.explain_21_4 import HALF_THE_HITS
from kvlab.exercises.function_kinds import Verdict
from kvlab.exercises.kinds import Function, Numbers
from kvlab.exercises.predictions_21_4 import PREDICTIONS
from kvlab.exercises.wrong_21_4 import CHAIN, NUM_HITS

HITS_BY_LENGTH = Exercise(
    id="21.4-1",
    question=(
        "Blocks of 16. Six prompts of 64, 65, 63, 17, 16 and 1 tokens have been served and ended; "
        "all their full blocks are kept, and no logits. Each of them comes once more. How many hit "
        "positions does it have?"
    ),
    kind=Numbers(6, "positions"),
    run=runs.hits_of_a_served_prompt,
    hints=(
        "Two rules decide. One says which blocks can be found at all, the other how far a hit may "
        "go.",
        "A block is found only if it is full. And something has to be computed to get logits: the "
        "prompt's last position at least.",
        "Whole blocks among the positions before the last one: (n - 1) // 16 of them, times 16.",
    ),
    mistakes=(
        Mistake(
            "A hit may not cover the whole prompt: keys and values give no logits, so at least "
            "the last position is computed, with the block that it lies in.",
            lambda: [n // 16 * 16 for n in runs.LENGTHS],
        ),
        Mistake(
            "That keeps one position back and takes all others. A block is found whole, or not at "
            "all.",
            lambda: [n - 1 for n in runs.LENGTHS],
        ),
        Mistake(
            "That keeps one position back, but cuts the last full block in two. A block is a hit "
            "whole or not at all.",
            lambda: [min(n // 16 * 16, n - 1) for n in runs.LENGTHS],
        ),
        Mistake(
            "That takes every position. Only full blocks are found, and they give no logits.",
            lambda: list(runs.LENGTHS),
        ),
        Mistake(
            "That always leaves a whole block out. With 65 tokens the last position lies in a "
            "block of its own, and all four full ones are hits.",
            lambda: [max(n // 16 - 1, 0) * 16 for n in runs.LENGTHS],
        ),
        Mistake(
            "Those are blocks. Asked for are positions.",
            lambda: [(n - 1) // 16 for n in runs.LENGTHS],
        ),
        Mistake(
            "Those are the positions that are computed. Asked for are the hit positions.",
            lambda: [n - (n - 1) // 16 * 16 for n in runs.LENGTHS],
        ),
    ),
    why="Whole blocks before the last position: one position is computed in any case.",
)

NUM_HITS_FUNCTION = Exercise(
    id="21.4-2",
    question=(
        "Write num_hits. The prompt called cached was served, and all its full blocks were kept. "
        "How many hit positions does the prompt called new have? Both are lists of token ids; no "
        "logits are kept."
    ),
    kind=Function("num_hits", ("cached", "new", "block_size")),
    run=runs.num_hits,
    cases=runs.hit_cases,
    truth="the real lookup finds",
    hints=(
        "Go through both prompts from the front. What ends the hits, and what do they come in?",
        "Count full blocks that are equal, one after the other, and stop at the first that is "
        "not: later ones have other identities. Then remember that something must be computed.",
        "With alike, the number of leading tokens that are equal: whole blocks in alike, and no "
        "more than whole blocks in len(new) - 1; the smaller of the two, times block_size.",
    ),
    mistakes=NUM_HITS,
    why="The first difference ends the hits, in whole blocks; the last position is computed.",
)

SIX_GROUPS = Exercise(
    id="21.4-3",
    question=(
        "Blocks of 16. One prompt of 35 tokens is served six times in turn, in an empty cache: "
        'without a salt; with salt "a"; with salt "a" again; with salt "b"; without a salt, for '
        'an adapter called "a"; and without a salt again. How many hit positions are there each '
        "time?"
    ),
    kind=Numbers(6, "positions"),
    run=runs.hits_of_six_groups,
    hints=(
        "For each of the six, look for an earlier one whose identities are the same.",
        "Salt and adapter enter the identity, each under its own kind. What was registered stays "
        "findable, whoever came in between.",
        "Only the third and the sixth have a forerunner. A hit is two full blocks of 16.",
    ),
    mistakes=(
        Mistake(
            "That lets everybody share. A salt or an adapter makes another identity of the same "
            "tokens.",
            lambda: [0, 32, 32, 32, 32, 32],
        ),
        Mistake(
            'The fifth finds nothing: an adapter "a" is another thing than a salt "a", and a '
            "request with an adapter another than one without. Its keys and values differ.",
            lambda: [0, 0, 32, 0, 32, 32],
        ),
        Mistake(
            "The last one has the identities of the first. Those in between have taken nothing "
            "away.",
            lambda: [0, 0, 32, 0, 0, 0],
        ),
        Mistake(
            "Hits come in whole blocks of 16. Of 35 tokens the first 32 fill two blocks; the last "
            "3 fill none and are never found.",
            lambda: [0, 0, 35, 0, 0, 35],
        ),
        Mistake(
            "That keeps one position back, as it must, but hits come in whole blocks of 16: 32 "
            "positions here.",
            lambda: [0, 0, 34, 0, 0, 34],
        ),
        Mistake(
            "The salt is written into the first block's identity alone, but the second contains "
            "that of the first: the chain carries it.",
            lambda: [0, 16, 32, 16, 16, 32],
        ),
        Mistake("Those are blocks. Asked for are positions.", lambda: [0, 0, 2, 0, 0, 2]),
        Mistake(
            "Those are the positions that are computed. Asked for are the hit positions.",
            lambda: [35, 35, 3, 35, 35, 3],
        ),
    ),
    why="Equal tokens are found only within one group: same salt, same adapter.",
)

CHAIN_CHECK = Exercise(
    id="21.4-4",
    question=(
        "Find the bug: an identity without its parent. Your function is given identities, a "
        "function: identities(tokens) returns the list of the identities of a prompt's full blocks "
        "of four. It may be the engine's, or have a mistake. Call it with prompts of your choice, "
        "and return True if it is right, False if not. It is right if two blocks have equal "
        "identities when their tokens and all tokens before them are equal, and different ones "
        "otherwise."
    ),
    kind=Verdict("chain_is_right", ("identities",)),
    run=can_be_trusted,
    cases=chains,
    truth="many prompts at random say",
    hints=(
        "Build two prompts that a wrong chain confuses. In which block must they differ, and in "
        "which must they agree?",
        "Change a token of the first block and leave the others as they are: all identities from "
        "there on must change. Look at more than the next block.",
        "For prompts of three blocks that differ in the first: all three identities differ. For "
        "equal prompts all are equal. A change in a block shows in its own identity.",
    ),
    mistakes=CHAIN,
    why="An identity that contains its parent's contains all that came before.",
)

FREE_QUEUE = Exercise(
    id="21.4-5",
    question=(
        "A pool of six blocks, 0 to 5, of four positions each, taken in this order. A has 12 "
        "tokens, B, which begins otherwise, 9. A ends first, then B; full blocks stay findable. "
        "In which order does the engine take the blocks for new requests? Give all six, the one "
        "taken first in front."
    ),
    kind=Numbers(6),
    run=runs.free_queue_of_two,
    hints=(
        "Three questions: which block can nobody find, who ended first, and which end of a chain "
        "can still be found without the other?",
        "A block that is not full has no identity: taking it loses nothing. Of a chain, the "
        "deepest block goes first; the others can still be hits without it.",
        "B's last block holds one position and goes first. Then A's chain from its end to its "
        "front, then what is left of B's, likewise.",
    ),
    mistakes=(
        Mistake(
            "That takes each chain from the front. Without its first block none of the later ones "
            "can be found: the deepest goes first.",
            lambda: [5, 0, 1, 2, 3, 4],
        ),
        Mistake(
            "Block 5 holds one position and has no identity. It goes first, before anything that "
            "can still be a hit.",
            lambda: [2, 1, 0, 5, 4, 3],
        ),
        Mistake(
            "Block 5 holds one position and has no identity. It goes first of all, and not last.",
            lambda: [2, 1, 0, 4, 3, 5],
        ),
        Mistake(
            "That begins with B. A ended first, and its blocks have been unused for longer.",
            lambda: [5, 4, 3, 2, 1, 0],
        ),
        Mistake(
            "That is the order in which they were first taken. They have come back in another.",
            lambda: [0, 1, 2, 3, 4, 5],
        ),
    ),
    why="First what nobody can find, then the longest unused, of each chain the deepest.",
)

EXERCISES = (
    HITS_BY_LENGTH,
    NUM_HITS_FUNCTION,
    SIX_GROUPS,
    CHAIN_CHECK,
    FREE_QUEUE,
    HALF_THE_HITS,
)

__all__ = ["EXERCISES", "PREDICTIONS"]
