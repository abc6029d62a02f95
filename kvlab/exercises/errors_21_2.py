"""Section 21.2's known mistakes in values: the least time of a step, and what reports hide."""

from functools import partial

from kvlab.exercises import runs_21_2 as runs
from kvlab.exercises.exercise import Mistake

# ---- what a decode step reads

WEIGHTS, POSITION = 16e9, 131_072  # bytes: of all weights, of one position's K/V
MATTERS = WEIGHTS / (25 * POSITION)  # not yet rounded up


def least(
    weights: float = WEIGHTS, position: float = POSITION, batch: int = 25, times: float = 1
) -> float:
    """Milliseconds for the weights, `times` over, and for 1,250 positions of each request."""
    return 1000 * (times * weights + batch * 1_250 * position) / 2e12


def _both(says: str, ms: float, positions: float) -> tuple[Mistake, ...]:
    """Made in both numbers, in the first alone, and in the second alone."""
    return (
        Mistake(says, lambda: [ms, positions]),
        Mistake(f"The first number: {says}", lambda: [ms, MATTERS]),
        Mistake(f"The first is right. The second: {says}", lambda: [least(), positions]),
    )


LEAST_STEP = (
    Mistake("That forgets the K/V: they are read in every step.", lambda: [8, MATTERS]),
    Mistake("The first number forgets the weights.", lambda: [least(weights=0), MATTERS]),
    Mistake(
        "The weights are read once a step, for all 25 together.",
        lambda: [least(times=25), MATTERS],
    ),
    Mistake(
        "The weights are read once a step, for all 25 together; and 25 read their K/V.",
        lambda: [least(times=25), WEIGHTS / POSITION],
    ),
    *_both("That counts the K/V of one request; 25 read theirs.", least(batch=1), 25 * MATTERS),
    *_both(
        "That counts keys or values, or one byte for each number. A position has both, of 2 bytes.",
        least(position=POSITION / 2),
        2 * MATTERS,
    ),
    Mistake(
        "That counts the K/V of one layer; there are 32.",
        lambda: [least(position=POSITION / 32), 32 * MATTERS],
    ),
    Mistake(
        "The first is right. The second counts the K/V of one layer; there are 32.",
        lambda: [least(), 32 * MATTERS],
    ),
    *_both("That counts one byte a weight; each has 2.", least(weights=8e9), MATTERS / 2),
    Mistake(
        "The first is right. The second counts the keys alone, and of one request: 25 read keys "
        "and values.",
        lambda: [least(), 50 * MATTERS],
    ),
    Mistake("The first number is in seconds.", lambda: [least() / 1000, MATTERS]),
    Mistake(
        "The first is right, and the second nearly. Positions are whole: take the first number at "
        "which the K/V are more bytes than the weights, so divide and round up.",
        lambda: [least(), MATTERS],
    ),
)

# ---- what each report hides

EXCHANGED = {  # two letters, of which one has the other's number
    "BD": "B and D are means of the same quantity. One lets long answers speak louder, the other "
    "counts a request that has nothing to say.",
    "CG": "C and G are times over tokens: C of one request, G of all together.",
    "AE": "A and E each have one end in the wrong place: A its last moment, E its first.",
    "BC": "B and C are times between tokens. In B every interval counts alike; C is called by the "
    "name of what a reader sees, and that is an event.",
    "BG": "B and G are times a token. G divides by the tokens of everybody.",
    "DF": "D and F are about requests without a value: D puts in a 0 for them, F is silent.",
    "EF": "E and F: E is a time, and begins too late; F leaves out whole requests.",
    "CD": "C and D are means of the same quantity. C takes it for what a reader sees; D takes in "
    "requests that have none.",
}
ASKED = {  # of each letter alone, a question to look at it with
    "A": "does the first event show its reader anything?",
    "B": "who has most of the intervals that it averages?",
    "C": "it says “between outputs”; how many tokens comes each output with?",
    "D": "which value has an answer of a single token?",
    "E": "when does its clock start, and when was the answer wanted?",
    "F": "99 of which 100?",
    "G": "whose tokens does it divide by?",
}
LETTERS = "".join(ASKED)

SEVEN_REPORTS = tuple(
    Mistake(says, partial(runs.exchanged, *pair)) for pair, says in EXCHANGED.items()
)


def remark_on_a_letter(value: list[str | None]) -> str:
    """A sentence on one wrong letter: on two that are easily exchanged, else on the first."""
    wanted = dict(zip(LETTERS, runs.what_each_hides(), strict=True))
    given = dict(zip(LETTERS, value, strict=True))
    wrong = [x for x in LETTERS if given[x] not in (None, wanted[x])]
    owner = {number: letter for letter, number in wanted.items()}
    for letter in wrong:
        pair = "".join(sorted((letter, owner.get(given[letter], letter))))
        if pair in EXCHANGED:
            return EXCHANGED[pair]
    if not wrong:
        return ""
    return f"{wrong[0]}: {ASKED[wrong[0]]}"
