"""What is measured of a machine and of a model on it, as plain records that go to JSON and back.

`Ceilings`: what the machine can do at most, as far as it was seen. `Phases`: what a model's steps
reached. Standard library only, so that a recorded result can be read where there is no torch.
Section 21.2.
"""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

PREFILL, DECODE = "prefill", "decode"
TIME, INTERRUPTED, STOPPED = "time", "interrupted", "stopped"  # why cases were left out


@dataclass(frozen=True)
class Spread:
    """Every repetition, their median, the smallest and the largest."""

    median: float
    min: float
    max: float
    repetitions: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        kept = tuple(values)
        return cls(statistics.median(kept), min(kept), max(kept), kept)

    @classmethod
    def from_dict(cls, found: Mapping) -> "Spread":
        return cls(**{**found, "repetitions": tuple(found["repetitions"])})


@dataclass(frozen=True)
class RateAt:
    """What one size reached, such as "16 MiB" or "1024 x 1024". how: by which operation."""

    size: str
    how: str
    rate: Spread

    @classmethod
    def from_dict(cls, found: Mapping) -> "RateAt":
        return cls(found["size"], found["how"], Spread.from_dict(found["rate"]))


@dataclass(frozen=True)
class Rate:
    """The best size's rate, and all sizes that were tried. unit: "B/s" or "FLOP/s"."""

    unit: str
    counted: str  # what one operation counts as
    tried: tuple[RateAt, ...]

    @property
    def best(self) -> RateAt:
        """The size whose median is the highest."""
        return max(self.tried, key=lambda at: at.rate.median)

    @property
    def median(self) -> float:
        return self.best.rate.median

    @property
    def min(self) -> float:
        return self.best.rate.min

    @property
    def max(self) -> float:
        return self.best.rate.max

    @classmethod
    def from_dict(cls, found: Mapping) -> "Rate":
        tried = tuple(RateAt.from_dict(at) for at in found["tried"])
        return cls(found["unit"], found["counted"], tried)


@dataclass(frozen=True)
class Ceilings:
    """What a device was seen to do at most.

    copy: THE copy ceiling, bytes read + bytes written. read: bytes read alone, which is what a
    decode step mostly does. matmul: 2 n^3 FLOPs a product. name: the device's own; threads: of
    torch, on a CPU; cache_nbytes: its last-level cache, which the buffers exceed; None: unknown.
    """

    device: str
    name: str
    dtype: str
    threads: int | None
    cache_nbytes: int | None
    copy: Rate
    read: Rate
    matmul: Rate

    @property
    def bandwidth(self) -> float:
        """The roof's slope, bytes/s: the larger of copy and read, for a bound must be one."""
        return max(self.copy.median, self.read.median)

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping) -> "Ceilings":
        rates = {key: Rate.from_dict(found[key]) for key in ("copy", "read", "matmul")}
        return cls(**{**found, **rates})


@dataclass(frozen=True)
class Case:
    """One kind of step. prefill: each of `batch` requests computes a prompt of `length` tokens;
    decode: each computes one position after `length` that are cached.

    Raises ValueError for another phase and for counts below 1.
    """

    phase: str
    batch: int
    length: int

    def __post_init__(self) -> None:
        if self.phase not in (PREFILL, DECODE):
            raise ValueError(f"phase is {self.phase!r}; give {PREFILL!r} or {DECODE!r}")
        for name in ("batch", "length"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} is {value!r}; give a whole number of at least 1")

    def __str__(self) -> str:
        return f"{self.phase} {self.batch} x {self.length}"

    @property
    def query_len(self) -> int:
        """Positions that each request computes."""
        return self.length if self.phase == PREFILL else 1

    @property
    def seq_len(self) -> int:
        """Positions that each request has after the step."""
        return self.length if self.phase == PREFILL else self.length + 1


@dataclass(frozen=True)
class Point:
    """A case as it was measured: seconds a step beside its counted work (step_work.py)."""

    case: Case
    seconds: Spread
    flops_parts: Mapping[str, int]
    nbytes_parts: Mapping[str, int]

    @property
    def phase(self) -> str:
        return self.case.phase

    @property
    def batch(self) -> int:
        return self.case.batch

    @property
    def length(self) -> int:
        return self.case.length

    @property
    def num_tokens(self) -> int:
        """Positions that the step computes."""
        return self.batch * self.case.query_len

    @property
    def flops(self) -> int:
        return sum(self.flops_parts.values())

    @property
    def nbytes(self) -> int:
        return sum(self.nbytes_parts.values())

    @property
    def intensity(self) -> float:
        """FLOPs a byte."""
        return self.flops / self.nbytes

    @property
    def flops_per_second(self) -> float:
        return self.flops / self.seconds.median

    @property
    def bytes_per_second(self) -> float:
        return self.nbytes / self.seconds.median

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds.median

    @classmethod
    def from_dict(cls, found: Mapping) -> "Point":
        parts = dict(found["flops_parts"]), dict(found["nbytes_parts"])
        return cls(Case(**found["case"]), Spread.from_dict(found["seconds"]), *parts)


@dataclass(frozen=True)
class Phases:
    """The points of one model on one device, and the cases that were left out.

    why_left_out: "time" (the budget was spent), "interrupted", "stopped", or "" where none were.
    elapsed, budget: seconds.
    """

    model: str
    num_parameters: int
    device: str
    name: str
    dtype: str
    cache_dtype: str
    threads: int | None
    points: tuple[Point, ...]
    left_out: tuple[Case, ...]
    why_left_out: str
    elapsed: float
    budget: float

    @property
    def interrupted(self) -> bool:
        return self.why_left_out == INTERRUPTED

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping) -> "Phases":
        points = tuple(Point.from_dict(p) for p in found["points"])
        left_out = tuple(Case(**case) for case in found["left_out"])
        return cls(**{**found, "points": points, "left_out": left_out})
