"""Small runs for section 21.2, each with one thing amiss and nothing else.

A run without any: requests one after another, each with a token every 20 ms from its start on. All
seven reports are honest about that one. Times are milliseconds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kvlab.core.latency_record import LatencyRecord
from kvlab.core.metrics import RequestTimes, TokenEvent
from kvlab.exercises.seven_reports import HIDDEN

FIVE = ((20, 1), (40, 1), (60, 1), (80, 1), (100, 1))  # after the start: time, tokens


def answered(
    start: float, events: Iterable[Sequence[int]] = FIVE, held_back: float = 0
) -> LatencyRecord:
    """A request that left at `start`, meant to leave `held_back` earlier, and its events."""
    came = [TokenEvent(start + time, tokens) for time, tokens in events]
    times = RequestTimes(start - held_back, events=came, finished=came[-1].time)
    name = f"at {start}"
    return LatencyRecord(name, times, "client", 8, 0, sent=start, first_event=came[0].time)


def refused(start: float) -> LatencyRecord:
    return LatencyRecord(f"refused at {start}", RequestTimes(start), "client", 8, error="HTTP 429")


def in_a_row() -> list[LatencyRecord]:
    """The run with nothing amiss."""
    return [answered(0), answered(100), answered(200)]


def one_fault(key: str) -> list[LatencyRecord]:
    """The run in which that alone is amiss; `key` is one of HIDDEN's.

    short: two tokens 100 ms apart, then nine tokens 10 ms apart. pieces: events of four tokens,
    80 ms apart. others: four requests at once. Raises ValueError for another key.
    """
    if key not in HIDDEN:
        raise ValueError(f"there is no fault {key!r}; give one of {', '.join(HIDDEN)}")
    plain = in_a_row()
    runs = {
        "failed": [*plain, refused(100)],
        "waited": [*plain[:2], answered(200, held_back=50)],
        "cached": [replace(record, num_cached_tokens=4) for record in plain],
        "role": [replace(record, first_event=record.sent + 5) for record in plain],
        "pieces": [answered(0, ((20, 1), (100, 4), (180, 4)))],
        "short": [answered(0, ((20, 1), (120, 1))), answered(120, [(t, 1) for t in _NINE])],
        "one token": [*plain, answered(300, ((20, 1),))],
        "others": [replace(answered(0), request_id=name) for name in "ABCD"],
        "estimated": [replace(record, estimated=True) for record in plain],
    }
    return runs[key]


_NINE = range(20, 101, 10)
