"""When things happened to one request, and the latencies that follow (section 21.2).

    arrival     first scheduled     first logits     first token   ...   last token   finished
    |<-- queue -->|<--- prefill --->|<-- selection -->|                       |           |
    |<------------------- ttft ---------------------->|<-- (n - 1) * tpot --->|           |
    |<------------------------------------ e2el ---------------------------------------->|

All times come from one clock, in its unit (seconds, or steps on a step clock), and were seen at
one boundary. In the engine: `arrival` is submission, a token's time is the end of the step that
selected it. At a client: the intended start, and the arrival of the bytes. One request timed at
both gives two sets of times (claim 21.2-a).
"""

from dataclasses import dataclass, field
from typing import NamedTuple


class TokenEvent(NamedTuple):
    """Output that became visible at one moment: a step's token, or a streamed piece of text."""

    time: float
    num_tokens: int = 1


@dataclass
class RequestTimes:
    """Event times of one request. A latency is None where its events have not happened.

    arrival: the request's start at the declared boundary, the intended one where it left later.
    first_scheduled: the model first worked on it. first_logits: the scores of the first output
    were there; None where nobody stamped it. events: output in the order of time, each with its
    number of tokens. counted: the output tokens that the server says it made (its usage), where
    the events' own counts are guesses; None takes the sum over the events.
    """

    arrival: float
    first_scheduled: float | None = None
    first_logits: float | None = None
    events: list[TokenEvent] = field(default_factory=list)
    finished: float | None = None
    counted: int | None = None

    def note(self, time: float, num_tokens: int = 1) -> None:
        """Output came at `time`. A piece without a token (a role, an empty text) is no output
        event: it is not kept, and starts no gap.

        Raises ValueError for a negative number of tokens.
        """
        if num_tokens > 0:
            self.events.append(TokenEvent(time, num_tokens))
        elif num_tokens < 0:
            raise ValueError(f"num_tokens is {num_tokens}; give 0 or more tokens for one event")

    @property
    def num_output_tokens(self) -> int:
        if self.counted is not None:
            return self.counted
        return sum(event.num_tokens for event in self.events)

    @property
    def token_times(self) -> list[float]:
        """One time a token: an event's time stands once for each of its tokens."""
        return [event.time for event in self.events for _ in range(event.num_tokens)]

    @property
    def first_token(self) -> float | None:
        return self.events[0].time if self.events else None

    @property
    def queue_time(self) -> float | None:
        """From arrival until the model first worked on it."""
        return _between(self.arrival, self.first_scheduled)

    @property
    def prefill_time(self) -> float | None:
        """From the first work on the prompt until the scores of the first output were there."""
        return _between(self.first_scheduled, self.first_logits)

    @property
    def selection_time(self) -> float | None:
        """From those scores until the first output was visible at this boundary."""
        return _between(self.first_logits, self.first_token)

    @property
    def ttft(self) -> float | None:
        """Time to first token (eq 21.4): queue + prefill + selection."""
        return _between(self.arrival, self.first_token)

    @property
    def itl(self) -> list[float]:
        """Gaps between output events: n events have n - 1, however many tokens each carried."""
        pairs = zip(self.events, self.events[1:], strict=False)
        return [later.time - earlier.time for earlier, later in pairs]

    @property
    def itl_by_token(self) -> list[float]:
        """Each event's gap shared equally over its tokens: n tokens have n - 1 values.

        Tokens that came together with the first one waited for no gap, so theirs is 0. The mean is
        `tpot`, where the events' own counts are the tokens. One event alone has no gap to share.
        """
        if len(self.events) < 2:
            return []
        shares = [0.0] * (self.events[0].num_tokens - 1)
        for gap, event in zip(self.itl, self.events[1:], strict=True):
            shares += [gap / event.num_tokens] * event.num_tokens
        return shares

    @property
    def tpot(self) -> float | None:
        """Time per output token after the first (eq 21.5): (t_N - t_1) / (N - 1).

        Undefined, not 0, for fewer than two tokens; and where all tokens came in one event, as in
        an answer that was not streamed, since no time between two of them was seen.
        """
        n = self.num_output_tokens
        if n < 2 or len(self.events) < 2:
            return None
        return (self.events[-1].time - self.events[0].time) / (n - 1)

    @property
    def e2el(self) -> float | None:
        """End-to-end latency: arrival to the end."""
        return _between(self.arrival, self.finished)

    @property
    def normalized_latency(self) -> float | None:
        """End-to-end latency over all output tokens. It holds the queue and the prefill as well,
        so it is another quantity than `tpot`, under another name. None without output.
        """
        e2el, n = self.e2el, self.num_output_tokens
        return None if e2el is None or n == 0 else e2el / n

    def since(self, start: float) -> "RequestTimes":
        """The same times, counted from `start`."""
        return RequestTimes(
            self.arrival - start,
            _between(start, self.first_scheduled),
            _between(start, self.first_logits),
            [TokenEvent(event.time - start, event.num_tokens) for event in self.events],
            _between(start, self.finished),
            self.counted,
        )

    def to_dict(self) -> dict[str, float | list[float] | None]:
        return {name: getattr(self, name) for name in ("queue_time", "ttft", "tpot", "e2el", "itl")}


def _between(earlier: float | None, later: float | None) -> float | None:
    """From one moment to another; None where one of them has not happened."""
    return None if earlier is None or later is None else later - earlier
