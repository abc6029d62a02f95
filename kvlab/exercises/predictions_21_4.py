"""Section 21.4's predictions: what a change of a prompt does to its hits."""

from kvlab.exercises.exercise import Mistake, Prediction
from kvlab.exercises.kinds import Number, Numbers, YesNo

PREDICTIONS = (
    Prediction(
        id="21.4-p1",
        question=(
            "A prompt of three full blocks and a few tokens more has been served. It comes again, "
            "with one token of block 2 exchanged. For how many of its three full blocks may the "
            "engine read the keys and values that it has?"
        ),
        kind=Number("blocks"),
        mistakes=(
            Mistake(
                "Block 3 has the same tokens, but other ones before it: its identity contains "
                "block 2's.",
                lambda blocks: blocks + 1,
            ),
            Mistake(
                "Block 1 has nothing to do with what comes after it.", lambda blocks: blocks - 1
            ),
            Mistake("Block 2 holds the changed token.", lambda blocks: blocks + 2),
        ),
        why="The change ends the chain of hits; what stands before it stays.",
    ),
    Prediction(
        id="21.4-p2",
        question=(
            "Blocks of 16. A prompt of exactly 64 tokens has been served, and comes again; keys "
            "and values are kept, logits are not. How many of its positions are computed?"
        ),
        kind=Number("positions"),
        mistakes=(
            Mistake(
                "All four blocks are there, but keys and values give no logits, and without "
                "logits there is no first output.",
                lambda computed: 0,
            ),
            Mistake(
                "One position is needed, and it lies in a full block, which is a hit whole or not "
                "at all.",
                lambda computed: 1,
            ),
            Mistake("Three of the four blocks are hits.", lambda computed: 64),
        ),
        why="The last position has to be computed, and its whole block with it.",
    ),
    Prediction(
        id="21.4-p3",
        question=(
            "The first block's words are exchanged, the third block's stay, in the same place. Are "
            "the third block's keys and values still the same numbers in all layers?"
        ),
        kind=YesNo(),
        mistakes=(),
        why="In layer 0 they are: made from each token alone. From layer 1 on they are not, since "
        "they are made of what attention has read before them.",
    ),
    Prediction(
        id="21.4-p4",
        question=(
            "Blocks of 16. Requests have the same system text, more than ten blocks long, and a "
            "time stamp of their own. How many positions does the second request reuse if the "
            "stamp begins the prompt, and how many if position 174 is the first that differs? "
            "[at the beginning, at 174]"
        ),
        kind=Numbers(2, "positions"),
        mistakes=(
            *(
                Mistake(
                    "Where the stamp begins the prompt, the later blocks' text is equal, but not "
                    "what stands before it, and that is part of every identity.",
                    lambda positions, blocks=blocks: [16 * blocks, positions[1]],
                )
                for blocks in (9, 10, 11)
            ),
            Mistake(
                "Positions 160 to 175 are one block, and a block is a hit whole or not at all.",
                lambda positions: [positions[0], 174],
            ),
            Mistake(
                "Position 174 lies in the block of 160 to 175, so that block differs, too.",
                lambda positions: [positions[0], positions[1] + 16],
            ),
        ),
        why="The first difference ends the match, whatever equal text follows, and takes its whole "
        "block with it. Whether the stamp may stand elsewhere is another question: moved text can "
        "change what a prompt says.",
    ),
    Prediction(
        id="21.4-p5",
        question=(
            "Nine tenths of a prompt's positions are hit positions. Does the time to its first "
            "token fall to a tenth, or below?"
        ),
        kind=YesNo(),
        mistakes=(),
        why="Reuse saves prefill alone: waiting, the suffix, selection and delivery remain.",
    ),
)
