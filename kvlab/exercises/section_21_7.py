"""Section 21.7: four exercises on what the chapter's sections have in common."""

from kvlab.exercises import runs_21_7 as runs
from kvlab.exercises.beliefs_21_7 import BELIEFS
from kvlab.exercises.errors_21_7 import frees_with_the_last
from kvlab.exercises.exercise import Exercise, Mistake
from kvlab.exercises.function_kinds import Verdict
from kvlab.exercises.kinds import Function, Number, Numbers
from kvlab.exercises.predictions_21_7 import QUESTIONS
from kvlab.exercises.wrong_21_7 import LAST_REFERENCE, RELEASED

EMPTY_SLOTS = Exercise(
    id="21.7-1",
    question=(
        "Explain a measured number. Blocks of four, no prefix is shared. Three requests with "
        "prompts of 5, 8 and 10 tokens run together; each has given four outputs and goes on. A "
        "monitor shows 9 blocks in use. How many slots of these blocks hold no position?"
    ),
    kind=Number("slots"),
    run=runs.empty_slots,
    hints=(
        "How many slots do the blocks have together, and how many positions of each request are "
        "stored at this moment?",
        "The output that was selected last is not stored yet: of four outputs three are.",
        "The slots are 9 * 4. Stored are 5 + 3, 8 + 3 and 10 + 3 positions.",
    ),
    mistakes=(
        Mistake(
            "That counts each request's last output as stored. It has been selected, and no pass "
            "has read it.",
            lambda: 9 * 4 - (9 + 12 + 14),
        ),
        Mistake(
            "That counts the prompts alone. The outputs that were read are stored as well.",
            lambda: 9 * 4 - (5 + 8 + 10),
        ),
        Mistake(
            "Half a block for each request is what many requests leave empty on average. Here are "
            "three whose lengths you know.",
            lambda: 6,
        ),
        Mistake("Those are the positions that are stored. Asked for are the others.", lambda: 32),
        Mistake("Those are all slots of the blocks. Most of them hold a position.", lambda: 36),
    ),
    why="8, 11 and 13 positions are stored; only a request's last block has slots left.",
)

ONE_GIGABYTE = Exercise(
    id="21.7-2",
    question=(
        "Explain a measured number. A log says that 1 GB is free for the cache; somebody reads it "
        "as 1 GiB, and finds that fewer positions fit than expected. A position of Llama 3.1 8B "
        "takes 131,072 bytes (bf16, keys and values of all layers). How many whole positions fit "
        "into 1 GB, and how many into 1 GiB?"
    ),
    kind=Numbers(2, "positions"),
    run=runs.positions_in_a_gigabyte,
    hints=(
        "One of the two units counts in powers of ten, the other in powers of two. Which of them "
        "is the larger?",
        "1 GB is 10^9 bytes, 1 GiB is 2^30. A position that fits in part does not fit.",
        "10**9 // 131072 and 2**30 // 131072.",
    ),
    mistakes=(
        Mistake("GB counts by tens, GiB by twos: the other way round.", lambda: [8192, 7629]),
        Mistake(
            "GB is 10^9 bytes. Those who write GB and mean 2^30 make this number.",
            lambda: [8192, 8192],
        ),
        Mistake("GiB is 2^30 bytes, not 10^9.", lambda: [7629, 7629]),
        Mistake(
            "The last of them does not fit as a whole. Round down.",
            lambda: [7630, 8192],
        ),
        Mistake(
            "That leaves out keys or values. The 131,072 bytes hold both; nothing is to be halved.",
            lambda: [15258, 16384],
        ),
    ),
    why="A GiB is about 7 % more than a GB, and so are the positions.",
)

RELEASED_FUNCTION = Exercise(
    id="21.7-3",
    question=(
        "Write released. tables[i] lists the blocks of request i; a block may stand in several "
        "tables. The requests end one after the other: order lists their numbers. Return a list "
        "with an entry for each end: the list, in ascending order, of the blocks that no table "
        "names any more from then on."
    ),
    kind=Function("released", ("tables", "order")),
    run=runs.released_by_a_real_pool,
    cases=runs.release_cases,
    truth="the real pool releases",
    hints=(
        "What has to be known of a block to decide whether somebody still needs it?",
        "Count for each block how many tables name it. An end takes one reference from each block "
        "of its table.",
        "For each number in order: lower the count of each block in its table, and collect those "
        "whose count is 0, sorted.",
    ),
    mistakes=RELEASED,
    why="A reference count says all that is needed: nobody has to look through other tables.",
)

LAST_REFERENCE_CHECK = Exercise(
    id="21.7-4",
    question=(
        "Break it. Write waits_for_the_last, a check of an Allocator: True, if a block that "
        "requests share is free once all of them have ended, and not before. It is run on the "
        "engine's own and on wrong ones. An Allocator(6) has six blocks of four; "
        'admit("A", [1, 2, 3, 4, 5]), table("A"), finish("A") and free (a list of block ids) help. '
        "A full block of equal tokens is shared if more tokens follow it: [1, 2, 3, 4, 5] and "
        "[1, 2, 3, 4, 6] share one."
    ),
    kind=Verdict("waits_for_the_last", ("Allocator",)),
    run=frees_with_the_last,
    cases=runs.releasing,
    truth="after many random requests the right verdict is",
    hints=(
        "Let two requests begin alike, so that they share a block. At which moments do you have to "
        "look?",
        "Look twice: the shared block must not be in free after the first end, and must be there "
        "after the second.",
        'After admit("A", [1, 2, 3, 4, 5]) and admit("B", [1, 2, 3, 4, 6]) the shared block is '
        'table("A")[0]. finish("A"): not in free. finish("B"): in free.',
    ),
    mistakes=LAST_REFERENCE,
    why="Too early, and a reader loses its block; too late, and the pool runs dry.",
)

EXERCISES = (EMPTY_SLOTS, ONE_GIGABYTE, RELEASED_FUNCTION, LAST_REFERENCE_CHECK)
PREDICTIONS = (*QUESTIONS, *BELIEFS)
