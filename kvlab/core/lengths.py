"""How long prompts and outputs are: distributions over whole numbers of tokens.

Each draws from a function that gives uniform numbers in [0, 1), and from nothing else: Python
promises the sequence of `random.Random(seed).random()` for all versions, and of no other method.
Section 21.3.
"""

import bisect
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from kvlab.core.checked import number, shown, whole

UniformNumbers = Callable[[], float]  # each call gives the next number in [0, 1)
LONGEST = 1 << 32  # tokens; no model has ever read as many
LARGEST_TABLE = 1 << 20  # lengths that a Zipf distribution may choose from


class Lengths(Protocol):
    """A distribution of token counts."""

    def draw(self, uniform: UniformNumbers) -> int:
        """The next length in tokens, at least 1."""
        ...


@dataclass(frozen=True)
class Fixed:
    """Always `tokens`."""

    tokens: int

    def __post_init__(self) -> None:
        whole("Fixed: tokens", self.tokens, 1, LONGEST)

    def draw(self, uniform: UniformNumbers) -> int:
        return self.tokens


@dataclass(frozen=True)
class Uniform:
    """Each length from `low` to `high`, both included, equally often."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_range(self)

    def draw(self, uniform: UniformNumbers) -> int:
        return self.low + int(uniform() * (self.high - self.low + 1))


@dataclass(frozen=True)
class LogNormal:
    """Half of the lengths lie below `median`; the larger `sigma`, the longer the tail above it.

    The logarithm of the length is normal with deviation `sigma`. What falls outside [low, high]
    is set to that end.
    """

    median: float
    sigma: float
    low: int = 1
    high: int = 1 << 20

    def __post_init__(self) -> None:
        number("LogNormal: median", self.median, above=0)
        number("LogNormal: sigma", self.sigma)
        _check_range(self)

    def draw(self, uniform: UniformNumbers) -> int:
        exponent = self.sigma * normal(uniform)
        if exponent > 700 - math.log(self.median):  # beyond what a float holds
            return self.high
        return min(max(round(self.median * math.exp(exponent)), self.low), self.high)


@dataclass(frozen=True)
class Zipf:
    """Many short, few long: length `low + k` has weight 1 / (k + 1) ** exponent, up to `high`."""

    low: int
    high: int
    exponent: float = 1.0

    def __post_init__(self) -> None:
        number("Zipf: exponent", self.exponent)
        _check_range(self)
        if self.high - self.low >= LARGEST_TABLE:
            raise ValueError(
                f"Zipf: {self.low} to {self.high} are more than {LARGEST_TABLE:,} lengths; "
                "narrow the range"
            )

    @cached_property
    def _sums(self) -> list[float]:
        """Running sums of the weights."""
        count = self.high - self.low + 1
        return list(itertools.accumulate((k + 1) ** -self.exponent for k in range(count)))

    def draw(self, uniform: UniformNumbers) -> int:
        place = bisect.bisect_right(self._sums, uniform() * self._sums[-1])
        return self.low + min(place, len(self._sums) - 1)


def as_lengths(what: str, value: "int | Lengths") -> Lengths:
    """A whole number stands for `Fixed`. Raises ValueError for what is no distribution."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Fixed(whole(what, value, 1, LONGEST))
    if not callable(getattr(value, "draw", None)) or isinstance(value, type):
        raise ValueError(
            f"{what} is {shown(value)}; give a number of tokens, or Fixed, Uniform, LogNormal, Zipf"
        )
    return value


def normal(uniform: UniformNumbers) -> float:
    """A standard normal number from two uniform ones (Box and Muller)."""
    radius = math.sqrt(-2 * math.log(1 - uniform()))
    return radius * math.cos(2 * math.pi * uniform())


def _check_range(lengths: "Uniform | LogNormal | Zipf") -> None:
    name = type(lengths).__name__
    whole(f"{name}: low", lengths.low, 1, LONGEST)
    whole(f"{name}: high", lengths.high, 1, LONGEST)
    if lengths.low > lengths.high:
        raise ValueError(f"{name}: low {lengths.low} is above high {lengths.high}; swap them")
