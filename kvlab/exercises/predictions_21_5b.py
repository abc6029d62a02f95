"""Section 21.5b's predictions: what one wrong line of the kernel does to its results."""

from kvlab.exercises.exercise import Mistake, Prediction
from kvlab.exercises.kinds import Choice, Number, YesNo

UNMASKED = Prediction(
    id="21.5b-p1",
    question=(
        "The load of V loses its mask, so that the 13 empty places of each request's last tile are "
        "read as well. What is read there is NaN, and their weights are exactly 0. Which of a "
        "request's results become NaN?"
    ),
    kind=Choice((("a", "none"), ("b", "those of one head"), ("c", "all"))),
    mistakes=(
        Mistake("A weight of 0 takes away any number. NaN is none: 0 x NaN is NaN.", lambda _: "a"),
        Mistake(
            "Every head of a request has a program that reads the last tile; each meets NaN.",
            lambda _: "b",
        ),
    ),
    why="0 x NaN is NaN, and each result is a sum over all places of the tile.",
)

ONE_SPLIT = Prediction(
    id="21.5b-p2",
    question=(
        "A split weighs its part by a natural logarithm where the merge expects one to base 2. A "
        "test runs the kernel with one split for each request. Does it find the mistake?"
    ),
    kind=YesNo(),
    mistakes=(
        Mistake(
            "With one split there is nothing to weigh: its share is 1, whatever its logarithm.",
            lambda found: True,
        ),
    ),
    why="Weights matter where there are several. A test of a merge needs something to merge.",
)

WRONG_ROWS = Prediction(
    id="21.5b-p3",
    question=(
        "5 queries in one pass, for the last 5 positions of a request. Each may read one position "
        "too many, its successor, if the request has one. How many of the 5 rows come out wrong?"
    ),
    kind=Number("rows"),
    mistakes=(
        Mistake(
            "The last query has no successor: nothing lies behind the length.",
            lambda wrong: wrong + 1,
        ),
        Mistake(
            "The last row is the one that is right: behind it lies nothing. The others see ahead.",
            lambda wrong: 1,
        ),
        Mistake("Each query but the last reads one position of its future.", lambda wrong: 0),
    ),
    why="The last row, which selects the next token, is right: the mistake does not show there.",
)

PREDICTIONS = (UNMASKED, ONE_SPLIT, WRONG_ROWS)
