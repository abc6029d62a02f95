"""Section 21.3's predictions: two seats, chunks beside decodes, longer prompts, a preemption."""

from kvlab.exercises.exercise import Mistake, Prediction
from kvlab.exercises.kinds import Choice, Number, Numbers, YesNo
from kvlab.exercises.kinds_21_3 import Order

TWO_SEATS = Prediction(
    id="21.3-p1",
    question=(
        "Two seats. A gives two outputs and B four; C waits. How many steps lie between A's last "
        "step and C's first one: under static batching, and under continuous batching? "
        "[static, continuous]"
    ),
    kind=Numbers(2, "steps"),
    mistakes=(
        Mistake("That is the other way round.", lambda steps: steps[::-1]),
        Mistake("Under continuous batching C takes A's seat in the very next step.",
                lambda steps: [steps[0], steps[0]]),
        Mistake("Under continuous batching C takes A's seat in the very next step, so that no "
                "step lies between.", lambda steps: [steps[0], steps[1] + 1]),
        Mistake("A static group is replaced when its last member has ended, not its first.",
                lambda steps: [steps[1], steps[1]]),
        Mistake("B has given two of its four outputs when A ends.",
                lambda steps: [steps[0] + 2, steps[1]]),
    ),
    why="Static waits for the slowest of the group; continuous looks at the seats in every step.",
)  # fmt: skip

CHUNKS_OF_FOUR = Prediction(
    id="21.3-p2",
    question=(
        "A and B are decoding. C arrives with a prompt of 12 tokens; chunks have 4 positions, and "
        "after each chunk the others decode once. Which steps follow, from C's arrival to its "
        "first output? P4 is a step with four positions of C, D one in which A and B decode."
    ),
    kind=Order(),
    mistakes=(
        Mistake(
            "The last chunk gives the first output itself: its last position has logits.",
            lambda order: f"{order} D",
        ),
        Mistake(
            "C came first in its step, and the others decode after its chunk.",
            lambda order: "D P4 D P4 D P4",
        ),
        Mistake(
            "Chunks one after the other leave A and B where a whole prompt does: behind it.",
            lambda order: "P4 P4 P4",
        ),
        Mistake("That is the prompt as a whole, before A and B decode.", lambda order: "P12"),
        Mistake("That is the prompt as a whole, before A and B decode.", lambda order: "P12 D"),
        Mistake(
            "That is the mixed policy, which puts a chunk and the decodes into one step.",
            lambda order: "D+P4 D+P4 D+P4",
        ),
        Mistake(
            "Four, eight and twelve are where the chunks end. Each has four positions.",
            lambda order: "P4 D P8 D P12",
        ),
    ),
    why="The others wait for a chunk at a time, and C waits for a decode step after each.",
)

LONGER_PROMPTS = Prediction(
    id="21.3-p3",
    question=(
        "Mixed policy, a budget of 16 positions a step. A decodes while prompts arrive. Is its "
        "longest gap, in steps, greater beside prompts of 1,000 tokens than beside prompts of 10?"
    ),
    kind=YesNo(),
    mistakes=(),
    why="A takes its position first, and the prompts share what is left of each step's budget.",
)

BOTH_BEGUN = Prediction(
    id="21.3-p4",
    question=(
        "A pool of 2,047 blocks. A will need 1,600 of them and B 1,200. A came first, and both "
        "have begun, since their first chunks fitted. What happens when no block is left?"
    ),
    kind=Choice(
        (
            ("a", "both wait for ever"),
            ("b", "B ends with an error"),
            ("c", "B gives its blocks back and is computed again later"),
            ("d", "A gives its blocks back and is computed again later"),
        )
    ),
    mistakes=(
        Mistake(
            "So it would be if each kept what it has until it finds more. Here the one that is "
            "last by rank gives its blocks back.",
            lambda letter: "a",
        ),
        Mistake(
            "Nothing is lost: B fits into the pool when A has ended, and begins again then.",
            lambda letter: "b",
        ),
        Mistake("The one that came last loses its blocks, so that the first one ends.",
                lambda letter: "d"),
    ),
    why="One of the two goes on at every moment, so both end; what B had computed is the price.",
)  # fmt: skip

RECOMPUTED = Prediction(
    id="21.3-p5",
    question=(
        "A request with a prompt of 100 tokens has given 30 outputs when its blocks are taken "
        "away. Nothing is cached. How many of its positions are computed from then on, before it "
        "gives output 31?"
    ),
    kind=Number("positions"),
    mistakes=(
        Mistake(
            "The outputs that it gave are kept as tokens, and their keys and values are gone as "
            "the prompt's are.",
            lambda count: 100,
        ),
        Mistake(
            "Those are the positions that it lost. The last output had not been processed yet; "
            "it is now.",
            lambda count: count - 1,
        ),
        Mistake("Its prompt's keys and values are gone as well.", lambda count: 30),
        Mistake("Output 31 comes out of this pass; it is not read by it.", lambda count: count + 1),
        Mistake("Its tokens are still there, and its keys and values are not.", lambda count: 1),
    ),
    why="Prompt and outputs are read like one prompt; no output is chosen a second time.",
)

PREDICTIONS = (TWO_SEATS, CHUNKS_OF_FOUR, LONGER_PROMPTS, BOTH_BEGUN, RECOMPUTED)
