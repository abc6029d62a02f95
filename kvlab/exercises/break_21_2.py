"""Section 21.2: a stream whose TPOT hides a wait."""

from collections.abc import Sequence

from kvlab.exercises.exercise import Exercise, Mistake
from kvlab.exercises.judged import Judged
from kvlab.exercises.reading import Unreadable
from kvlab.exercises.runs_21_2 import noted

GOAL = "a TPOT that is kept, and a wait that it hides"
NO_WAIT = "a TPOT that is kept, and no such wait"
NO_WAIT_BETWEEN = "a TPOT that is kept, and no such wait between two outputs"
LATEST = 1_000_000_000  # ms, eleven days
Events = Sequence[Sequence[float]]


def asked_for(tpot: float, wait: float) -> str:
    return GOAL


def limits() -> Sequence[tuple[float, float]]:
    return ((50, 1000), (20, 2000), (100, 400))


def judge(value: object, arguments: tuple[float, float]) -> str:
    """What RequestTimes says of the stream. Raises Unreadable for what is no stream."""
    most, wait = arguments
    events = _stream(value)
    times = noted(events)
    if times.tpot is None:
        return "a stream whose TPOT is undefined"
    if times.tpot > most:
        return "a TPOT that is not kept"
    if max(times.itl) < wait:
        before = times.ttft is not None and times.ttft >= wait
        return NO_WAIT_BETWEEN if before else NO_WAIT
    return GOAL


def _stream(value: object) -> Events:
    """[[time, num_tokens], ...] in the order of time."""
    asked = "a list of events, [time, num_tokens] each, in the order of time"
    if not isinstance(value, list) or not value:
        raise Unreadable(f"no stream; give {asked}")
    last = 0.0
    for event in value:
        pair = isinstance(event, list) and len(event) == 2
        if not pair or not all(type(number) in (int, float) for number in event):
            raise Unreadable(f"something that is no event; give {asked}")
        time, tokens = event
        if not abs(time) <= LATEST:  # NaN neither
            raise Unreadable(f"a time that is no number of ms up to {LATEST:,}; give {asked}")
        if time < last or tokens != tokens // 1 or not 0 <= tokens <= 1000:
            raise Unreadable(
                "times that go back, or an event of less than 0 or more than 1,000 tokens, or of "
                f"a part of one; give {asked}"
            )
        last = time
    return [[time, int(tokens)] for time, tokens in value]


HIDDEN_WAIT = Exercise(
    id="21.2-8",
    question=(
        "Break it. A target says: TPOT of at most `tpot` ms. Write hides_a_wait: a stream that "
        "keeps it, and whose reader waits `wait` ms or longer between two outputs all the same. "
        "Return its events, [time, num_tokens], in ms after the request; an event has at most "
        "1,000 tokens."
    ),
    kind=Judged("hides_a_wait", ("tpot", "wait"), judge=judge),
    run=asked_for,
    cases=limits,
    truth="asked for is",
    hints=(
        "TPOT is a mean over all tokens after the first. What can a stream have many of, so that "
        "one long wait hardly counts?",
        "Let the wait be one gap, and let an event that carries many tokens end it: they come "
        "without a gap of their own.",
        "[[0, 1], [wait, n]] has a TPOT of wait / n. Choose n so that this is at most tpot.",
    ),
    mistakes=(
        Mistake(
            "No gap of that stream is as long as the wait. One of them has to be.",
            lambda tpot, wait: [[i * tpot, 1] for i in range(50)],
        ),
        Mistake(
            "The wait counts too much: too few tokens share it. TPOT divides the time by the "
            "tokens after the first.",
            lambda tpot, wait: [[0, 1], [wait, 1]],
        ),
        Mistake(
            "The wait before the first token is part of TTFT. Asked for is one between outputs.",
            lambda tpot, wait: [[wait, 1], [wait + tpot, 1]],
        ),
        Mistake(
            "All tokens in one event have no time between them: TPOT is undefined.",
            lambda tpot, wait: [[wait, 1000]],
        ),
    ),
    why="A mean over tokens says little of a single gap; the longest gap, or a high percentile, "
    "does.",
)
