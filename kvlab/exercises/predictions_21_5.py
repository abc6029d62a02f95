"""Section 21.5's predictions: table 21.1 and the five steps after it, a fork, and formats."""

from kvlab.exercises.exercise import Mistake, Prediction
from kvlab.exercises.kinds import BlockIds, Number, Numbers

POSITION_6 = Prediction(
    id="21.5-p1",
    question=(
        "Blocks of four. A has processed positions 0 to 5, and its table is [7, 2]. Now it "
        "processes position 6. In which block, and in which slot of it, do the keys and values go? "
        "[block, slot]"
    ),
    kind=Numbers(2),
    mistakes=(
        Mistake("Slots count from 0.", lambda place: [place[0], place[1] + 1]),
        Mistake(
            "That is the slot of position 5, which is filled.",
            lambda place: [place[0], place[1] - 1],
        ),
        Mistake(
            "That is the logical block. The table says which physical block it is.",
            lambda place: [1, place[1]],
        ),
        Mistake("That is the position. Inside a block it is its rest.", lambda place: [2, 6]),
        Mistake("The last block has room: no other one is needed yet.", lambda place: [5, 0]),
        Mistake("Block first, then slot; block 7 is full.", lambda place: [7, place[1]]),
    ),
    why="Position 6 is logical block 1, slot 2, and the table has block 2 there.",
)

POSITION_8 = Prediction(
    id="21.5-p2",
    question=(
        "Now A's blocks 7 and 2 are full; B holds block 9, and block 5 is free. A processes "
        "position 8. Which block, which slot? [block, slot]"
    ),
    kind=Numbers(2),
    mistakes=(
        Mistake("Block 2 has slots 0 to 3, all of them filled.", lambda place: [2, 4]),
        Mistake("That writes over A's first position. Nothing earlier changes.", lambda p: [7, 0]),
        Mistake("Block 9 is B's.", lambda place: [9, 0]),
        Mistake("That is the logical block. The pool has given block 5.", lambda place: [2, 0]),
        Mistake("Slots count from 0.", lambda place: [place[0], place[1] + 1]),
        Mistake("That is the position. Inside a block it is its rest.", lambda p: [p[0], 8]),
        Mistake("A block need not follow the last one in number: 5 is free.", lambda p: [3, 0]),
    ),
    why="Logical block 2 is new, and block 5 was free: order lies in the table, not in the ids.",
)

BLOCKS_OF_C = Prediction(
    id="21.5-p3",
    question=(
        "C's prompt is A's first four tokens, under the same configuration; their last logits are "
        "kept. How many blocks does C take out of the pool?"
    ),
    kind=Number("blocks"),
    mistakes=(
        Mistake(
            "Block 7 holds these four positions already. C's table names it, too.",
            lambda taken: taken + 1,
        ),
        Mistake(
            "C has four tokens, and A's other blocks are none of its.", lambda taken: taken + 3
        ),
    ),
    why="Two tables name block 7 now; its reference count is 2.",
)

FREE_AFTER_A = Prediction(
    id="21.5-p4",
    question=(
        "A, with the table [7, 2, 5], ends; C and B, with block 9, go on. What nobody holds is "
        "released at once. Which blocks are free?"
    ),
    kind=BlockIds(),
    mistakes=(
        Mistake("C still holds block 7: its count went from 2 to 1.", lambda free: [2, 5, 7]),
        Mistake("B has not ended, and holds block 9.", lambda free: [2, 5, 9]),
        Mistake("C still holds block 7, and B block 9.", lambda free: [2, 5, 7, 9]),
        Mistake("A's references to blocks 2 and 5 were the only ones.", lambda free: []),
        Mistake("Block 2 was A's alone, as block 5 was.", lambda free: [5]),
        Mistake("Block 5 was A's alone, as block 2 was.", lambda free: [2]),
        Mistake("Block 7 is the one that stays; the others of A are free.", lambda free: [7]),
    ),
    why="A reference less for each of A's blocks; those without any are free.",
)

COPIES_OF_A_FORK = Prediction(
    id="21.5-p5",
    question=(
        "A request is forked in the middle of a block: two tables name the same blocks. Both "
        "process one token of their own. How many blocks are copied?"
    ),
    kind=Number("blocks"),
    mistakes=(
        Mistake(
            "The first that writes takes a copy. The other one is then alone with the original.",
            lambda copied: copied + 1,
        ),
        Mistake(
            "Then both would write into one slot, and one would read the other's token.",
            lambda copied: copied - 1,
        ),
    ),
    why="Copied is what somebody writes to while others hold it: the last block, once.",
)

FORMATS_THAT_CHANGE_IT = Prediction(
    id="21.5-p6",
    question=(
        "One request is decoded over five caches that keep keys and values in fewer bits: fp16, "
        "bf16, int8, fp8 and 4 bits. Twelve outputs each, always the token of the largest score. "
        "In how many of the five runs is another token selected than in float64?"
    ),
    kind=Number("runs"),
    mistakes=(
        Mistake(
            "Scores changed in all five. A token changes only where the error overturns its lead.",
            lambda changed: 5,
        ),
        Mistake(
            "Where two tokens nearly tie, the error of 4 bits is enough to turn them.",
            lambda changed: 0,
        ),
        Mistake(
            "fp8's error was there as well, and each token's lead outlasted it.",
            lambda changed: changed + 1,
        ),
    ),
    why="All scores changed; only the largest error met a lead that was small enough.",
)

PREDICTIONS = (
    POSITION_6,
    POSITION_8,
    BLOCKS_OF_C,
    FREE_AFTER_A,
    COPIES_OF_A_FORK,
    FORMATS_THAT_CHANGE_IT,
)
