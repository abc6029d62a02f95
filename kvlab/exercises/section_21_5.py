"""Section 21.5: from positions to blocks and slots; blocks shared, copied and given back."""

from kvlab.exercises import runs_21_5 as runs
from kvlab.exercises.errors_21_5 import keeps_apart, keeps_parents
from kvlab.exercises.exercise import Exercise, Mistake
from kvlab.exercises.explain_21_5 import SEVEN_OF_NINE
from kvlab.exercises.function_kinds import InPlace, Verdict
from kvlab.exercises.kinds import Numbers
from kvlab.exercises.predictions_21_5 import PREDICTIONS
from kvlab.exercises.wrong_21_5 import APPEND
from kvlab.exercises.wrong_21_5_shared import APPEND_SHARED, EVICTION, FORK

THREE_CONTINUATIONS = Exercise(
    id="21.5-1",
    question=(
        "Blocks of four. A prompt of 6 tokens is continued three times, and the continuations "
        "share its blocks. How many blocks are in use once the prompt has been processed; how many "
        "once each of the three has processed one token of its own; and how many blocks have been "
        "copied by then?"
    ),
    kind=Numbers(3),
    run=runs.blocks_of_three_continuations,
    hints=(
        "Draw the three tables after the prompt, then let one of the three write, and then the "
        "next. Who shares a block with whom at each moment?",
        "The full first block is never written to, and stays shared. The second is partly filled: "
        "whoever writes while others hold it takes a copy.",
        "The first two that write take a copy each. The third is alone with the original by then.",
    ),
    mistakes=(
        Mistake(
            "That gives each continuation blocks of its own. They share the prompt's.",
            lambda: [6, 6, 0],
        ),
        Mistake(
            "The last one to write is alone with the original by then, and writes there.",
            lambda: [2, 5, 3],
        ),
        Mistake(
            "Then all three would write into one slot, and read each other's token.",
            lambda: [2, 2, 0],
        ),
        Mistake(
            "That copies the full block, too. Nobody writes to it any more: it stays shared.",
            lambda: [2, 6, 4],
        ),
        Mistake(
            "Two blocks and two copies make four: the continuation that writes last goes on in the "
            "original, and needs no fifth.",
            lambda: [2, 5, 2],
        ),
        Mistake(
            "6 tokens need ⌈6/4⌉ = 2 blocks, however many tables name them. The copies are right; "
            "they come on top of these two.",
            lambda: [3, 5, 2],
        ),
        Mistake(
            "Three continuations write different tokens: they cannot end in two blocks.",
            lambda: [2, 3, 1],
        ),
        Mistake(
            "The blocks are right. Each of those that came on top began as a copy.",
            lambda: [2, 4, 0],
        ),
    ),
    why="One full block for all, and a partly filled one for each: the original and two copies.",
)

UNUSED_SLOTS = Exercise(
    id="21.5-2",
    question=(
        "A request has 33 processed positions. How many slots of its blocks are unused, with "
        "blocks of 1, 4, 16 and 64?"
    ),
    kind=Numbers(4, "slots"),
    run=runs.unused_slots,
    hints=(
        "How many blocks does the request need, and how many slots do these have together?",
        "Only the last block can have unused slots. Its filled ones are what is left of 33.",
        "Blocks are 33 / block_size, rounded up; take 33 from their slots.",
    ),
    mistakes=(
        Mistake(
            "Those are the slots that are filled in the last block. Asked for are the others.",
            lambda: [1, 1, 1, 33],
        ),
        Mistake(
            "Those are the remainders of 33. They are filled; the others of the last block are "
            "not.",
            lambda: [0, 1, 1, 33],
        ),
        Mistake("Those are the blocks in the table.", lambda: [33, 9, 3, 1]),
        Mistake(
            "Half a block is what many requests waste on average. Here is one, of 33 positions.",
            lambda: [0.5, 2, 8, 32],
        ),
        Mistake(
            "With blocks of 64 there is one, and it holds all 33 positions.",
            lambda: [0, 3, 15, 63],
        ),
    ),
    why="Only the last block is not full; smaller blocks waste less and make longer tables.",
)

APPEND_FUNCTION = Exercise(
    id="21.5-3",
    question=(
        "Write the allocator's append: (block, slot) of a request's next position. table lists "
        "its blocks in logical order, num_computed positions are processed, free lists the free "
        "blocks, the next one first. Take a block only if the position needs one: move it from "
        "free to the end of table, in the lists that are given. The table may be ahead of "
        "num_computed: slots are taken when a step is scheduled, before its pass, and for several "
        "positions at once. If a block is needed and none is free, return None and change nothing."
    ),
    kind=InPlace(
        "append", ("table", "num_computed", "free", "block_size"), changed=("table", "free")
    ),
    run=runs.append_in_a_real_pool,
    cases=runs.append_cases,
    truth="the real allocator gives",
    hints=(
        "In which logical block is the next position, and how do you see whether the table has it "
        "already?",
        "Positions count from 0, so the next one has the number num_computed. Its logical block is "
        "num_computed // block_size; the table has the blocks below len(table).",
        "If num_computed // block_size == len(table): return None where free is empty, otherwise "
        "table.append(free.pop(0)). Then table[num_computed // block_size] is the block, "
        "num_computed % block_size the slot.",
    ),
    mistakes=APPEND,
    why="The number of blocks decides, not the remainder: a table may be ahead, a pool empty.",
)

APPEND_SHARED_FUNCTION = Exercise(
    id="21.5-4",
    question=(
        "The harder part: write append_shared, append for blocks that several tables may hold. "
        "ref_cnt[block] is how many do. Before the position goes into a block that others hold "
        "too, take a free block for this table in its place, and change the counts of both. Return "
        "(block, slot, source): source is the block to copy from first, or None. If a block is "
        "needed and none is free, return None and change nothing."
    ),
    kind=InPlace(
        "append_shared",
        ("table", "num_computed", "free", "ref_cnt", "block_size"),
        changed=("table", "free", "ref_cnt"),
    ),
    run=runs.append_to_a_shared_table,
    cases=runs.shared_cases,
    truth="the real allocator gives",
    hints=(
        "There are three cases: no block yet for the position, a block of one's own, and a block "
        "that others hold. Which of them need a free block?",
        "A full block is not written to, so it never has to be copied. For a partly filled one "
        "look at ref_cnt of the block that the position goes into.",
        "Where ref_cnt[shared] > 1: look at free first; then block = free.pop(0), "
        "ref_cnt[shared] -= 1, ref_cnt[block] = 1, table[i] = block, and return "
        "(block, slot, shared).",
    ),
    mistakes=APPEND_SHARED,
    why="Copy before write, only where others read: a private block in the shared one's place.",
)

EVICTION_CHECK = Exercise(
    id="21.5-5",
    question=(
        "Find the bug: a pool that frees a table front to back. Write eviction_is_right, a check "
        "of an Allocator: True, if a cached block never loses the block before it, whichever "
        "blocks are taken for something else. It is run on the engine's own and on wrong ones. "
        "An Allocator(3) has three blocks of four; admit, finish, hits, table and free help."
    ),
    kind=Verdict("eviction_is_right", ("Allocator",)),
    run=keeps_parents,
    cases=runs.evicting,
    truth="after many random requests the right verdict is",
    hints=(
        "Let a request of several full blocks end, and take some of its blocks for another. What "
        "should a lookup of the first prompt still find?",
        "In a pool that is as small as the request, the next one must evict. Deepest first: each "
        "block that is taken costs one block of hits, and no more.",
        "Allocator(3): admit 12 tokens, finish, admit one token twice under other names. Of "
        "hits(the 12 tokens and one more), 4 positions must be left; after the first, 8.",
    ),
    mistakes=EVICTION,
    why="Given backwards, a chain is taken from its end, and what remains can be found.",
)

FORK_CHECK = Exercise(
    id="21.5-6",
    question=(
        "Find the bug: a partly filled block is shared, and nobody copies it. Write "
        "fork_is_right, a check of an Allocator: True, if requests that share a partly filled "
        "block, however many there are, each read their own tokens after they have gone on. It is "
        "run on the engine's own and on wrong ones; admit, fork, append and read help."
    ),
    kind=Verdict("fork_is_right", ("Allocator",)),
    run=keeps_apart,
    cases=runs.forking,
    truth="after many random requests the right verdict is",
    hints=(
        "Fork a request in the middle of a block and let each side go on with another token. What "
        "should each of them read?",
        "Look at every position of both, after both have written. Then think of the three "
        "continuations of 21.5-1.",
        "Allocator(8): admit 6 tokens, fork twice, append one token to each of the three, and "
        "compare read(name) with the six tokens and the own one.",
    ),
    mistakes=FORK,
    why="Each reads its own tokens, as if it had never shared a block.",
)

EXERCISES = (
    THREE_CONTINUATIONS,
    UNUSED_SLOTS,
    APPEND_FUNCTION,
    APPEND_SHARED_FUNCTION,
    EVICTION_CHECK,
    FORK_CHECK,
    SEVEN_OF_NINE,
)

__all__ = ["EXERCISES", "PREDICTIONS"]
