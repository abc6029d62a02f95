"""Section 21.2's predictions: time per token, throughput, two passes, and what a mean hides."""

from kvlab.exercises.exercise import Mistake, Prediction
from kvlab.exercises.kinds import Choice, Number, YesNo

FIVE_TOKENS = Prediction(
    id="21.2-p1",
    question=(
        "A request arrives at 0. Its five tokens come at 100, 120, 140, 160 and 180 ms. What is "
        "its time per output token (TPOT), in ms?"
    ),
    kind=Number("ms"),
    mistakes=(
        Mistake("Five tokens have four intervals between them.", lambda ms: ms * 4 / 5),
        Mistake(
            "That is the end-to-end time over all tokens, with the wait for the first one in it.",
            lambda ms: ms * 9 / 5,
        ),
        Mistake(
            "The end-to-end time holds the wait for the first token. Begin at that token.",
            lambda ms: ms * 9 / 4,
        ),
        Mistake(
            "That is the time of all four intervals together. How long is one?", lambda ms: ms * 4
        ),
        Mistake("That is the time to the first token (TTFT).", lambda ms: ms * 5),
        Mistake("That is the end-to-end time.", lambda ms: ms * 9),
    ),
    why="From the first token to the last one, over the intervals: one fewer than tokens.",
)

ONE_TOKEN = Prediction(
    id="21.2-p2",
    question="What is the TPOT of a request that gives a single token, after 100 ms?",
    kind=Choice((("a", "undefined"), ("b", "0"), ("c", "its TTFT"))),
    mistakes=(
        Mistake(
            "0 would say that its tokens come in no time, and would pull every mean down.",
            lambda letter: "b",
        ),
        Mistake(
            "Before the first token lies the TTFT. What TPOT averages begins after it, and there "
            "is nothing there.",
            lambda letter: "c",
        ),
    ),
    why="No interval lies between one token and itself; such a request is counted, not averaged.",
)

FOUR_TOGETHER = Prediction(
    id="21.2-p3",
    question=(
        "Four requests begin together and give their tokens in the same steps, all of which last "
        "equally long. After 200 ms they have given 40 tokens together. What is the TPOT of each, "
        "in ms?"
    ),
    kind=Number("ms"),
    mistakes=(
        Mistake(
            "That is the duration over everybody's tokens: the reciprocal of the throughput, and "
            "nobody's wait.",
            lambda ms: ms / 4,
        ),
        Mistake("That is the duration over the requests. Look at one request's tokens.",
                lambda ms: ms * 10 / 4),
        Mistake(
            "Ten tokens have nine intervals, and those are shorter than 200 ms together: the "
            "first token took a step, too.",
            lambda ms: round(ms * 10 / 9, 1),
        ),
        Mistake("That is the throughput in tokens a second, or the duration.",
                lambda ms: ms * 10),
        Mistake("That would be so if they took turns. One step serves all four.",
                lambda ms: ms * 4),
    ),
    why="Each has ten tokens, one a step, whoever shares the step.",
)  # fmt: skip

WHICH_PASS = Prediction(
    id="21.2-p4",
    question=(
        "Which pass of one model takes longer on this machine: a decode pass for four requests, "
        "each with 512 positions in the cache, or a prefill of one prompt of 512 tokens?"
    ),
    kind=Choice((("prompt", "the prefill of 512 tokens"), ("decode", "the decode for four"))),
    mistakes=(
        Mistake(
            "The decode pass reads more K/V, and multiplies four positions with each weight where "
            "the prompt has 512. Both read the weights once.",
            lambda word: "decode",
        ),
    ),
    why="Both read every weight once; the prompt multiplies 512 positions with it, decode four.",
)

FOUR_TIMES = Prediction(
    id="21.2-p5",
    question=(
        "A decode pass for four requests at 512 positions each, against one for a single such "
        "request: how many times as long does it take on this machine?"
    ),
    kind=Choice((("a", "less than 4"), ("b", "4 or more"))),
    mistakes=(
        Mistake(
            "One read of the weights serves all four. Four passes would read them four times.",
            lambda letter: "b",
        ),
    ),
    why="The weights are read once a pass, whoever takes part; K/V are read for each request.",
)

MEAN_AND_P90 = Prediction(
    id="21.2-p6",
    question=(
        "A report of 200 requests says: gaps between outputs 23 ms in the mean, 31 ms at the 90th "
        "percentile. An answer has 150 tokens on average. Do at least 150 of the requests keep "
        "every gap below 100 ms?"
    ),
    kind=YesNo(),
    mistakes=(
        Mistake(
            "Nine gaps in ten are short, and an answer of 150 tokens has about fifteen of the "
            "others. Neither figure says how long those are.",
            lambda answer: True,
        ),
    ),
    why="A mean and a p90 over gaps say nothing of the longest gap of each request.",
)

PREDICTIONS = (FIVE_TOKENS, ONE_TOKEN, FOUR_TOGETHER, WHICH_PASS, FOUR_TIMES, MEAN_AND_P90)
