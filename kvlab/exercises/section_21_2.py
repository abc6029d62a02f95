"""Section 21.2: what was timed, over what it was averaged, and what a step cannot do without."""

from kvlab.exercises import runs_21_2 as runs
from kvlab.exercises.break_21_2 import HIDDEN_WAIT
from kvlab.exercises.errors_21_2 import LEAST_STEP as LEAST
from kvlab.exercises.errors_21_2 import SEVEN_REPORTS as EXCHANGED
from kvlab.exercises.errors_21_2 import remark_on_a_letter
from kvlab.exercises.exercise import Exercise, Mistake
from kvlab.exercises.kinds import Function, Numbers
from kvlab.exercises.matches import Matches
from kvlab.exercises.predictions_21_2 import PREDICTIONS
from kvlab.exercises.seven_reports import HIDDEN, REPORTS
from kvlab.exercises.wrong_21_2 import GOOD_REQUESTS, TPOT

THREE_FIGURES = Exercise(
    id="21.2-1",
    question=(
        "A client asks at 0. It receives, in ms: at 180 an event with a role and no text, at 420 "
        "one token, at 500 four, at 590 four, at 690 four. What are TTFT, the mean gap between "
        "output events, and TPOT? [TTFT, mean gap, TPOT]"
    ),
    kind=Numbers(3, "ms"),
    run=runs.three_figures,
    hints=(
        "Which of these events are outputs? How many gaps lie between them, and how many "
        "intervals between their tokens?",
        "The role is no output: the first text ends TTFT. Four events have three gaps; count the "
        "tokens for TPOT.",
        "From the first text to the last event; that time over 3 for the mean gap, and over "
        "(1 + 4 + 4 + 4) - 1 for TPOT.",
    ),
    mistakes=(
        Mistake(
            "All three begin at the role. It is no text: nobody could read anything yet.",
            lambda: [180, 510 / 4, 510 / 12],
        ),
        Mistake(
            "That is the time to the first event of any kind. It holds no text.",
            lambda: [180, 90, 270 / 12],
        ),
        Mistake("TPOT counts tokens, not events.", lambda: [420, 90, 90]),
        Mistake("13 tokens have 12 intervals.", lambda: [420, 90, 270 / 13]),
        Mistake(
            "The last one is the end-to-end time over all tokens: it holds the wait for the first "
            "one.",
            lambda: [420, 90, 690 / 13],
        ),
        Mistake("Four events have three gaps.", lambda: [420, 270 / 4, 270 / 12]),
        Mistake("The last two have changed places.", lambda: [420, 270 / 12, 90]),
        Mistake(
            "The wait for the first text is no gap between two outputs.",
            lambda: [420, 690 / 4, 270 / 12],
        ),
        Mistake("Those are seconds. Give milliseconds.", lambda: [0.42, 0.09, 0.0225]),
    ),
    why="A role starts no clock, events have gaps, and tokens have intervals.",
)

TIME_PER_TOKEN = Exercise(
    id="21.2-2",
    question=(
        "Write tpot, the time per output token of one request. `events` are [time, num_tokens] in "
        "the order of time; an event may carry several tokens, or none. Return None where TPOT is "
        "undefined: with fewer than two tokens, and where all came in one event."
    ),
    kind=Function("tpot", ("events",)),
    run=runs.tpot,
    cases=runs.streams,
    truth="RequestTimes gives",
    hints=(
        "What has to be left out before you look for the first token and the last one? When is "
        "there no interval to average?",
        "Keep the events that carry tokens. Fewer than two of those show no time between tokens.",
        "events = [e for e in events if e[1] > 0]; None if len(events) < 2; then the last time "
        "less the first, over sum(n for _, n in events) - 1.",
    ),
    mistakes=TPOT,
    why="Tokens less one, from the first text to the last; undefined is not 0.",
)

TWO_MEANS = Exercise(
    id="21.2-3",
    question=(
        "Request A gives 4 tokens, one every 80 ms; request B gives 58 tokens, one every 20 ms. "
        "What is the mean TPOT over the two requests, and the mean over all gaps? "
        "[mean TPOT, mean gap]"
    ),
    kind=Numbers(2, "ms"),
    run=runs.two_means,
    hints=(
        "How many values does each of the two means average?",
        "The first averages over requests: two values. The second over gaps; n tokens have n - 1.",
        "(80 + 20) / 2, and (3 * 80 + 57 * 20) / (3 + 57).",
    ),
    mistakes=(
        Mistake("The two have changed places.", lambda: [1380 / 60, 50]),
        Mistake(
            "The second mean is over gaps, and B has far more of them than A.", lambda: [50, 50]
        ),
        Mistake(
            "The first mean is over requests: each has one voice.", lambda: [1380 / 60, 1380 / 60]
        ),
        Mistake("n tokens have n - 1 gaps: 3 and 57.", lambda: [50, (4 * 80 + 58 * 20) / 62]),
        Mistake("The sum is right, and 62 tokens have 60 gaps.", lambda: [50, 1380 / 62]),
        Mistake("Those are seconds. Give milliseconds.", lambda: [0.05, 0.023]),
    ),
    why="Both are right: one gives each request a voice, the other each gap.",
)

GOOD = Exercise(
    id="21.2-4",
    question=(
        "Write good_requests: how many kept both targets, TTFT of at most `ttft` and every gap "
        "between outputs at most `itl` (in ms)? Each of `requests` is [start, times, error]: when "
        "it was meant to start, when its outputs came ([] if none did), and what went wrong (None "
        "if nothing)."
    ),
    kind=Function("good_requests", ("requests", "ttft", "itl")),
    run=runs.good_requests,
    cases=runs.judged_runs,
    truth="the summary counts",
    hints=(
        "Which of a request's gaps has to be judged? And what of a request with a single output, "
        "with none, or with an error?",
        "The longest gap decides, not the mean. One output has no gap that could be too long; no "
        "output, and an error, keep nothing.",
        "good = error is None and times and times[0] - start <= ttft and all(b - a <= itl for "
        "a, b in zip(times, times[1:])).",
    ),
    mistakes=GOOD_REQUESTS,
    why="Goodput counts requests whose every wait was kept, and a failed one kept none.",
)

LEAST_STEP = Exercise(
    id="21.2-5",
    question=(
        "A model with 8 billion weights of 2 bytes, 32 layers, 8 KV heads of width 128, K/V of 2 "
        "bytes. A decode step for 25 requests reads every weight once, and the K/V of 1,250 "
        "positions for each request. Memory gives 2e12 bytes a second. How many ms does the step "
        "last at least (one decimal is enough)? At how many positions for each request do the K/V "
        "of all 25 together become more bytes than the weights? [ms, positions]"
    ),
    kind=Numbers(2, within=(1e-2, 0)),
    run=runs.least_step,
    hints=(
        "Which bytes are read once for all, and which for each request? How many bytes has one "
        "position?",
        "Weights: once a step. K/V: keys and values of all layers, for every position of each "
        "request. Add, and divide by the bandwidth.",
        "A position has 2 * 32 * 8 * 128 * 2 = 131,072 bytes. (8e9 * 2 + 25 * 1,250 * 131,072) / "
        "2e12 seconds; for the second, 8e9 * 2 / (25 * 131,072), rounded up.",
    ),
    mistakes=LEAST,
    why="Weights once for all, K/V for each; no engine with these bytes and this memory is faster.",
)

SEVEN_REPORTS = Exercise(
    id="21.2-6",
    question=(
        "The seven reports, A to G, are computed correctly, from the records of one run. What does "
        "each of them hide? Two of the nine fit none."
    ),
    kind=Matches(
        tuple(report.letter for report in REPORTS),
        tuple((str(number), text) for number, text in enumerate(HIDDEN.values(), 1)),
    ),
    run=runs.what_each_hides,
    hints=(
        "Of each figure: from which moment to which, over which requests, and divided by what?",
        "Four are times per token, and each of the four averages or divides in its own way. Two "
        "have a clock that starts or stops at a moment that no reader waits for. One is silent "
        "about requests.",
        "C: look at the number of tokens an event. B: ask who has most of the intervals. E: find "
        "out when its clock starts. G: divide the duration by one request's tokens instead.",
    ),
    mistakes=EXCHANGED,
    remark=remark_on_a_letter,
    why="Ask every figure: from when to when, over whom, divided by what, and who is missing.",
)

WAITS = Exercise(
    id="21.2-7",
    question=(
        "Nine requests are meant to start at 0, 200, 400, ... ms, five a second. Each takes 350 ms "
        "of service, and one is served at a time, in order; the others wait at the client. What is "
        "the mean wait, and the mean end-to-end time from the intended start? "
        "[wait, end to end]"
    ),
    kind=Numbers(2, "ms"),
    run=runs.waits,
    hints=(
        "When does the second request start, and when was it meant to? And the third?",
        "Each one has to wait 150 ms longer than the one before it: the service takes 350 ms, and "
        "a request comes every 200.",
        "The waits are 0, 150, 300, ... up to 8 * 150; their mean is the middle one. 350 ms of "
        "service come on top of each.",
    ),
    mistakes=(
        Mistake(
            "That begins at the sending, and leaves out the wait before it: a client that sends "
            "one at a time hides the queue that it makes.",
            lambda: [0, 350],
        ),
        Mistake(
            "The wait is right. From the intended start, service comes on top of it.",
            lambda: [600, 350],
        ),
        Mistake("That is the last one's. Asked for is the mean.", lambda: [1200, 1550]),
        Mistake("The first one waits, too: 0 ms. Nine are averaged.", lambda: [675, 1025]),
        Mistake("That is the second request's. The queue grows.", lambda: [150, 500]),
        Mistake("The wait ends where the service begins.", lambda: [950, 950]),
        Mistake("That lets all arrive at 0. They come one every 200 ms.", lambda: [1400, 1750]),
        Mistake("Those are seconds. Give milliseconds.", lambda: [0.6, 0.95]),
    ),
    why="More arrives than can be served, so each waits longer; sending later does not shorten it.",
)

EXERCISES = (
    THREE_FIGURES,
    TIME_PER_TOKEN,
    TWO_MEANS,
    GOOD,
    LEAST_STEP,
    SEVEN_REPORTS,
    WAITS,
    HIDDEN_WAIT,
)

__all__ = ["EXERCISES", "PREDICTIONS"]
