"""When things happened to one request, and the latencies that follow (section 21.2).

Boundaries: `arrival` is submission to the engine, a token's time is the end of the step that
selected it. All times come from one clock, in its unit (seconds, or steps on a step clock).
"""

from dataclasses import dataclass, field


@dataclass
class RequestTimes:
    """Event times of one request. A latency is None where its events have not happened."""

    arrival: float
    first_scheduled: float | None = None
    token_times: list[float] = field(default_factory=list)  # one an output token
    finished: float | None = None

    @property
    def first_token(self) -> float | None:
        return self.token_times[0] if self.token_times else None

    @property
    def queue_time(self) -> float | None:
        """From arrival until the model first worked on it."""
        return None if self.first_scheduled is None else self.first_scheduled - self.arrival

    @property
    def ttft(self) -> float | None:
        """Time to first token (eq 21.4)."""
        return None if self.first_token is None else self.first_token - self.arrival

    @property
    def itl(self) -> list[float]:
        """Inter-token latencies: n tokens have n - 1 gaps."""
        return [b - a for a, b in zip(self.token_times, self.token_times[1:], strict=False)]

    @property
    def tpot(self) -> float | None:
        """Time per output token after the first (eq 21.5); undefined, not 0, for fewer than two."""
        n = len(self.token_times)
        return None if n < 2 else (self.token_times[-1] - self.token_times[0]) / (n - 1)

    @property
    def e2el(self) -> float | None:
        """End-to-end latency: arrival to the end."""
        return None if self.finished is None else self.finished - self.arrival

    def to_dict(self) -> dict[str, float | list[float] | None]:
        return {name: getattr(self, name) for name in ("queue_time", "ttft", "tpot", "e2el", "itl")}
