"""Section 21.7's predictions, the chapter's four questions. Beliefs stand in beliefs_21_7.py."""

from kvlab.exercises.exercise import Mistake, Prediction
from kvlab.exercises.kinds import Choice, Number, YesNo

FIVE_TOKENS = Prediction(
    id="21.7-p1",
    question=(
        "A prompt of five tokens has been processed, and its first output has been selected. How "
        "many positions, of prompt and output together, are in the cache at that moment?"
    ),
    kind=Number("positions"),
    mistakes=(
        Mistake(
            "That counts the output. It was selected from the prompt's own pass; a later pass will "
            "read it, and store its keys and values then.",
            lambda cached: cached + 1,
        ),
        Mistake(
            "The prompt's last position is stored as well: the output was selected from its "
            "logits.",
            lambda cached: cached - 1,
        ),
        Mistake(
            "A text is in the cache as a whole, not its last position alone: each later query "
            "reads all of it.",
            lambda cached: 1,
        ),
    ),
    why="Selecting changes the text, processing changes the cache.",
)

FORTY_TOKENS = Prediction(
    id="21.7-p2",
    question=(
        "A batch of requests gives 40 tokens in 200 ms. Does that show that the time per output "
        "token (TPOT) of a request is 5 ms?"
    ),
    kind=YesNo(),
    mistakes=(
        Mistake(
            "200 ms / 40 is the reciprocal of the batch's rate. TPOT is taken from one request's "
            "own tokens, and how many of the 40 are its own is not said.",
            lambda answer: True,
        ),
    ),
    why="The rate is 200 tokens a second; a TPOT needs that request's own interval and count.",
)

THIRD_BLOCK = Prediction(
    id="21.7-p3",
    question=(
        "A prompt fills blocks 1, 2 and 3. It comes again with other tokens in block 3 alone. How "
        "many of its blocks can be reused?"
    ),
    kind=Number("blocks"),
    mistakes=(
        Mistake(
            "Keys and values of a position depend on what stands before it. Nothing before "
            "block 3 has changed.",
            lambda blocks: 0,
        ),
        Mistake(
            "Block 2 ends before the change: it is as reusable as block 1.",
            lambda blocks: blocks - 1,
        ),
        Mistake("Block 3 holds other tokens now.", lambda blocks: blocks + 1),
    ),
    why="What follows a block is not part of its identity; what precedes it is.",
)

WHEN_FREE = Prediction(
    id="21.7-p4",
    question=(
        "Requests A and B share a block. A ends first, B later. From when on may the pool give "
        "this block to another text?"
    ),
    kind=Choice(
        (
            ("a", "when A has ended"),
            ("b", "when A and B have ended"),
            ("c", "not before its identity has been forgotten"),
        )
    ),
    mistakes=(
        Mistake(
            "B still reads it. Each table that names the block is a reference; A's end takes away "
            "one of two.",
            lambda letter: "a",
        ),
        Mistake(
            "An identity holds nothing back. The block may be taken, and loses its identity then.",
            lambda letter: "c",
        ),
    ),
    why="The last reference decides. Whether the block can be found does not.",
)

QUESTIONS = (FIVE_TOKENS, FORTY_TOKENS, THIRD_BLOCK, WHEN_FREE)
