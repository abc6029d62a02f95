"""One request's line in a latency report: its times, and what they can be judged by (section 21.2).

A mean hides who waited, so a report keeps one record a request: lengths, cache hits, outcome, and
the boundary at which the events were seen. Records are checked when they are built, so a summary
never averages a time that cannot have happened.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvlab.core.checked import whole
from kvlab.core.metrics import RequestTimes, TokenEvent
from kvlab.core.played import Played, PlayedRequest

BOUNDARIES = ("engine", "server", "client")
LARGEST_TIME = 1e100  # in any unit: sums of squares of such times are still finite
UNFINISHED = {
    "abort": "aborted before its end",
    "capacity": "ended early: no block of the cache was left",
}


@dataclass(frozen=True)
class LatencyRecord:
    """What happened to one request, as seen at one boundary.

    times.arrival is when the request was meant to start, `sent` when it really left: the wait
    between them is part of every latency (T11). num_cached_tokens: prompt positions taken from the
    prefix cache. estimated: the output tokens were counted from events, since the server gave no
    usage. error: why it failed; such a request is counted, outside the latency figures (T13).
    labels: what a report filters by, for example {"kind": "chat"}. first_event: when the first
    event of any kind arrived, with or without text (T07); None where not noted.

    Raises ValueError, naming the request and the value, for a time that is no finite number, times
    in an impossible order, an unknown boundary, and counts that do not fit.
    """

    request_id: str
    times: RequestTimes
    boundary: str = "engine"
    num_prompt_tokens: int | None = None
    num_cached_tokens: int | None = None
    estimated: bool = False
    sent: float | None = None
    error: str | None = None
    finish_reason: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    first_event: float | None = None

    def __post_init__(self) -> None:
        name = f"request {self.request_id!r}"
        if self.boundary not in BOUNDARIES:
            raise ValueError(
                f"{name}: boundary is {self.boundary!r}; give one of {', '.join(BOUNDARIES)}"
            )
        _check_words(name, self)
        _check_times(name, self.times, self.sent, self.first_event)
        for what in ("num_prompt_tokens", "num_cached_tokens"):
            if getattr(self, what) is not None:
                whole(f"{name}: {what}", getattr(self, what))
        prompt, cached = self.num_prompt_tokens, self.num_cached_tokens
        if prompt is not None and (cached or 0) > prompt:
            raise ValueError(
                f"{name}: num_cached_tokens is {cached} of a prompt of {prompt} tokens; give at "
                "most the prompt's length"
            )

    @property
    def wait_before_sending(self) -> float | None:
        """How long the client held it back after its intended start; None where not noted."""
        return None if self.sent is None else self.sent - self.times.arrival

    def since_sent(self, moment: float | None) -> float | None:
        """From when it really left (its arrival, where that is not noted) to a moment, if any."""
        start = self.times.arrival if self.sent is None else self.sent
        return None if moment is None else moment - start

    def to_dict(self) -> dict[str, object]:
        """One JSON line: what was recorded, no figure that follows from it."""
        times = self.times
        return {
            "request_id": self.request_id,
            "boundary": self.boundary,
            "num_prompt_tokens": self.num_prompt_tokens,
            "num_cached_tokens": self.num_cached_tokens,
            "counted": times.counted,
            "estimated": self.estimated,
            "arrival": times.arrival,
            "sent": self.sent,
            "first_event": self.first_event,
            "first_scheduled": times.first_scheduled,
            "first_logits": times.first_logits,
            "events": [list(event) for event in times.events],
            "finished": times.finished,
            "finish_reason": self.finish_reason,
            "error": self.error,
            "labels": dict(self.labels),
        }

    @classmethod
    def from_dict(cls, line: Mapping[str, object]) -> "LatencyRecord":
        """The record that `to_dict` wrote. Raises ValueError for a name that is missing or unknown,
        and for values that a record does not take.
        """
        left = dict(line)
        missing = [name for name in ("request_id", "arrival", "events") if name not in left]
        if missing:
            raise ValueError(f"a latency record needs {', '.join(missing)}; add what is missing")
        events = left.pop("events")
        try:
            pairs = [TokenEvent(*event) for event in events]
        except TypeError:
            raise ValueError(
                f"request {left['request_id']!r}: events is {events!r:.60}; "
                "give a list of [time, num_tokens]"
            ) from None
        named = {name: left.pop(name) for name in _OF_TIMES if name in left}
        times = RequestTimes(events=pairs, **named)
        unknown = sorted(set(left) - set(cls.__dataclass_fields__) | set(left) & {"times"})
        if unknown:
            raise ValueError(
                f"request {left['request_id']!r}: no field is named {', '.join(unknown)}; "
                "remove or rename it"
            )
        return cls(times=times, **left)


_OF_TIMES = ("arrival", "first_scheduled", "first_logits", "finished", "counted")


def _check_words(name: str, record: LatencyRecord) -> None:
    """Raises ValueError for a field that is not of its type, as a file may hold."""
    labels = record.labels
    fits = {
        "request_id": isinstance(record.request_id, str),
        "error": record.error is None or (isinstance(record.error, str) and record.error != ""),
        "finish_reason": isinstance(record.finish_reason, str | None),
        "estimated": isinstance(record.estimated, bool),
        "labels": isinstance(labels, Mapping)
        and all(isinstance(word, str) for pair in labels.items() for word in pair),
    }
    for what, fit in fits.items():
        if not fit:
            raise ValueError(
                f"{name}: {what} is {getattr(record, what)!r:.60}; give {_WORDS.get(what, 'text')}"
            )


_WORDS = {
    "error": "a text that says why it failed, or None",
    "estimated": "True or False",
    "labels": "a mapping of text to text",
}


def _check_times(
    name: str, times: RequestTimes, sent: float | None, first_event: float | None
) -> None:
    """Raises ValueError unless the times are finite and in an order that can happen."""
    for number, event in enumerate(times.events, 1):
        whole(f"{name}: num_tokens of event {number}", event.num_tokens, least=1)
    if times.counted is not None:
        whole(f"{name}: counted output tokens", times.counted)
    output = [(f"event {n}", event.time) for n, event in enumerate(times.events, 1)]
    start = ("arrival", times.arrival)
    work = [("first_scheduled", times.first_scheduled), ("first_logits", times.first_logits)]
    _check_order(name, [start, *work, *output, ("finished", times.finished)])
    seen = [("sent", sent), ("first_event", first_event), *output[:1]]
    _check_order(name, [start, *seen, ("finished", times.finished)])


def _check_order(name: str, moments: list[tuple[str, float | None]]) -> None:
    before, earlier = moments[0]
    for what, moment in moments:
        if moment is None and what != "arrival":
            continue
        real = isinstance(moment, int | float) and not isinstance(moment, bool)
        if not real or not abs(moment) <= LARGEST_TIME:
            raise ValueError(f"{name}: {what} is {moment!r:.60}; give a finite time of its clock")
        if moment < earlier:
            raise ValueError(
                f"{name}: {what} is {moment!r}, before {before} at {earlier!r}; "
                "give times of one clock, in the order in which they happened"
            )
        before, earlier = what, moment


def records_of(played: Played) -> list[LatencyRecord]:
    """A played workload's requests as records, at the engine's boundary and in the play's unit.

    A request that the engine refused, or that did not come to its own end, is a failed one.
    Labels say where the times are those of a cost model, and where they count steps.
    """
    unit = {} if played.unit == "s" else {"unit": played.unit}
    return [_record_of(request, unit) for request in played.requests]


def _record_of(request: PlayedRequest, labels: Mapping[str, str]) -> LatencyRecord:
    error = UNFINISHED.get(request.finish_reason or "")
    if request.refused is not None:
        error = f"refused: {request.refused}"
    return LatencyRecord(
        request.request_id,
        request.times,
        num_prompt_tokens=request.num_prompt_tokens,
        num_cached_tokens=request.num_cached_tokens,
        error=error,
        finish_reason=request.finish_reason,
        labels={**labels, "simulated": "yes"} if request.simulated else dict(labels),
    )
