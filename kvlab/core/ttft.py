"""The way to one request's first token, moment by moment, and what each boundary sees of it.

    client_sent                                                            client_received
    |   server_arrival                                              server_sent      |
    |   |           submitted                                 selected   |           |
    |   |           |      first_scheduled     first_logits   |          |           |
    |way|preparation| queue |<---- prefill ---->|  selection  | delivery | way back  |
    there           |<----------- engine: ttft -------------->|          |
        |<--------------------- server: ttft --------------------------->|
    |<--------------------------------- client: ttft -------------------------------->|

One run gives three times to first token: a figure without its two ends says little (claim 21.2-a).
Equation 21.4 names queue, prefill, selection and delivery; what lies beside them inside a boundary
is its remainder. Section 21.2.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import NamedTuple

from kvlab.core.latency_record import BOUNDARIES
from kvlab.core.metrics import RequestTimes

MOMENTS = (
    *("client_sent", "server_arrival", "submitted", "first_scheduled"),
    *("first_logits", "selected", "server_sent", "client_received"),
)
PARTS = (  # the part that begins at each moment but the last
    *("way there", "preparation", "queue", "prefill"),
    *("selection", "delivery", "way back"),
)
TERMS = ("queue", "prefill", "selection", "delivery")  # those of equation 21.4
ENDS = {
    "engine": ("submitted", "selected"),
    "server": ("server_arrival", "server_sent"),
    "client": ("client_sent", "client_received"),
}


class Interval(NamedTuple):
    """Time between two neighbouring moments that were noted.

    parts: one, or several where the moments between them were not noted.
    """

    parts: tuple[str, ...]
    begin: float
    end: float

    @property
    def name(self) -> str:
        return " + ".join(self.parts)

    @property
    def duration(self) -> float:
        return self.end - self.begin

    @property
    def is_term(self) -> bool:
        """Whether all of it belongs to equation 21.4."""
        return set(self.parts) <= set(TERMS)


@dataclass(frozen=True)
class FirstTokenStamps:
    """Moments of one request on one clock, in seconds. None: nobody noted it.

    submitted: the engine took the request. first_scheduled: the model first worked on it.
    first_logits: the scores of the first output were there. selected: the step that chose the
    token ended. server_arrival: the server had read the request; server_sent: it handed over the
    first bytes with text. client_sent, client_received: the same at the client.

    A client in another process of one machine shares its monotonic clock; one on another machine
    does not, and its moments have no place here.

    Raises ValueError, naming both moments, for an order that cannot have happened.
    """

    submitted: float
    first_scheduled: float
    selected: float
    first_logits: float | None = None
    server_arrival: float | None = None
    server_sent: float | None = None
    client_sent: float | None = None
    client_received: float | None = None

    def __post_init__(self) -> None:
        for name in ("submitted", "first_scheduled", "selected"):
            if getattr(self, name) is None:
                raise ValueError(f"{name} is None; give the engine's three moments at least")
        before = None
        for name, moment in self.noted().items():
            real = isinstance(moment, int | float) and not isinstance(moment, bool)
            if not real or not math.isfinite(moment):
                raise ValueError(f"{name} is {moment!r}; give a finite time of the common clock")
            if before is not None and moment < getattr(self, before):
                raise ValueError(
                    f"{name} is {moment!r}, before {before} at {getattr(self, before)!r}; "
                    "give moments of one clock, in the order in which they happened"
                )
            before = name

    @classmethod
    def from_times(cls, times: RequestTimes, **others: float | None) -> "FirstTokenStamps":
        """The engine's moments from its `RequestTimes`; others: the server's and the client's.

        Raises ValueError where the request has no output yet.
        """
        if times.first_scheduled is None or times.first_token is None:
            raise ValueError("the request has no first token; wait until the engine gave one")
        return cls(
            times.arrival,
            times.first_scheduled,
            times.first_token,
            times.first_logits,
            **others,
        )

    @classmethod
    def from_terms(
        cls, queue: float, prefill: float, selection: float, delivery: float = 0.0
    ) -> "FirstTokenStamps":
        """The book's illustration: the request arrives at 0 after its preparation, and the
        server's boundary holds nothing but the four terms of equation 21.4.
        """
        logits = queue + prefill
        return cls(
            submitted=0.0,
            first_scheduled=queue,
            selected=logits + selection,
            first_logits=logits,
            server_arrival=0.0,
            server_sent=logits + selection + delivery,
        )

    def noted(self) -> dict[str, float]:
        """The moments that were noted, in the order of time."""
        moments = {name: getattr(self, name) for name in MOMENTS}
        return {name: moment for name, moment in moments.items() if moment is not None}

    @property
    def boundaries(self) -> tuple[str, ...]:
        """Those whose two ends were noted; the engine's always is."""
        noted = self.noted()
        return tuple(b for b in BOUNDARIES if set(ENDS[b]) <= set(noted))

    def ends(self, boundary: str) -> tuple[float, float]:
        """Where a boundary's time to first token starts and ends.

        Raises ValueError for an unknown boundary, and for one whose ends were not noted.
        """
        if boundary not in ENDS:
            raise ValueError(f"boundary is {boundary!r}; give one of {', '.join(BOUNDARIES)}")
        missing = [name for name in ENDS[boundary] if getattr(self, name) is None]
        if missing:
            raise ValueError(
                f"the {boundary}'s boundary needs {' and '.join(missing)}; note them in the run"
            )
        start, end = (getattr(self, name) for name in ENDS[boundary])
        return start, end

    def ttft(self, boundary: str = "engine") -> float:
        """Time to first token as that boundary sees it. Raises ValueError as `ends`."""
        start, end = self.ends(boundary)
        return end - start

    def intervals(self, boundary: str | None = None) -> tuple[Interval, ...]:
        """What a boundary includes, in the order of time, without gap or overlap; None: all."""
        noted = self.noted()
        names = list(noted)
        if boundary is not None:
            self.ends(boundary)  # refuses one that was not noted
            first, last = (names.index(name) for name in ENDS[boundary])
            names = names[first : last + 1]
        return tuple(
            Interval(_parts_between(one, other), noted[one], noted[other])
            for one, other in pairwise(names)
        )

    def remainder(self, boundary: str = "engine") -> float:
        """What a boundary includes beside the terms of equation 21.4."""
        return math.fsum(i.duration for i in self.intervals(boundary) if not i.is_term)

    def to_dict(self) -> dict[str, float | None]:
        """Moments by name, as JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, moments: Mapping[str, float | None]) -> "FirstTokenStamps":
        """What `to_dict` wrote. Raises ValueError for names that are missing or unknown."""
        unknown = sorted(set(moments) - set(MOMENTS))
        missing = [n for n in ("submitted", "first_scheduled", "selected") if n not in moments]
        if unknown or missing:
            wrong = f"unknown: {', '.join(unknown)}" if unknown else f"missing: {missing[0]}"
            raise ValueError(f"first-token moments have names {wrong}; use those of MOMENTS")
        return cls(**moments)


def _parts_between(one: str, other: str) -> tuple[str, ...]:
    return PARTS[MOMENTS.index(one) : MOMENTS.index(other)]
