"""When requests arrive: regularly, at random, or in bursts.

    regular   |   |   |   |   |   |   |
    Poisson   | |     |  |||       |  |        independent of each other
    Gamma     |||        | ||||         ||     burstiness below 1: closer together, longer pauses
    OnOff     || | |||            |||| ||      requests, then silence, in turns

A rate is in requests a unit of time: a second, or a step on a step clock. Section 21.3.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from kvlab.core.checked import number
from kvlab.core.lengths import UniformNumbers, normal


class Arrivals(Protocol):
    """A process that makes arrival times."""

    def times(self, uniform: UniformNumbers) -> Iterator[float]:
        """Arrival times without end, none earlier than the one before, from 0 on."""
        ...


@dataclass(frozen=True)
class Regular:
    """One request every 1 / request_rate, the first at 0."""

    request_rate: float

    def __post_init__(self) -> None:
        number("Regular: request_rate", self.request_rate, above=0)

    def times(self, uniform: UniformNumbers) -> Iterator[float]:
        count = 0
        while True:
            yield count / self.request_rate
            count += 1


@dataclass(frozen=True)
class AtOnce:
    """All requests at 0: what a batch job does, and a benchmark with an infinite request rate."""

    def times(self, uniform: UniformNumbers) -> Iterator[float]:
        while True:
            yield 0.0


@dataclass(frozen=True)
class Poisson:
    """Requests that know nothing of each other: exponential gaps of mean 1 / request_rate."""

    request_rate: float

    def __post_init__(self) -> None:
        number("Poisson: request_rate", self.request_rate, above=0)

    def times(self, uniform: UniformNumbers) -> Iterator[float]:
        now = 0.0
        while True:
            now += _exponential(uniform) / self.request_rate
            yield now


@dataclass(frozen=True)
class Gamma:
    """Gaps from a gamma distribution of mean 1 / request_rate and shape `burstiness`.

    1 is Poisson; below 1 requests come in bursts, above 1 more evenly. This is what vLLM's
    `vllm bench serve --request-rate --burstiness` sends.
    """

    request_rate: float
    burstiness: float = 1.0

    def __post_init__(self) -> None:
        number("Gamma: request_rate", self.request_rate, above=0)
        number("Gamma: burstiness", self.burstiness, above=0)

    def times(self, uniform: UniformNumbers) -> Iterator[float]:
        now, mean = 0.0, 1 / self.request_rate
        while True:
            now += _gamma(self.burstiness, uniform) * mean / self.burstiness
            yield now


@dataclass(frozen=True)
class OnOff:
    """Poisson at `request_rate` for `on`, then nothing for `off`, and again.

    Over a long time the rate is request_rate * on / (on + off).
    """

    request_rate: float
    on: float
    off: float

    def __post_init__(self) -> None:
        number("OnOff: request_rate", self.request_rate, above=0)
        number("OnOff: on", self.on, above=0)
        number("OnOff: off", self.off)

    def times(self, uniform: UniformNumbers) -> Iterator[float]:
        busy = 0.0  # time spent in on phases
        while True:
            busy += _exponential(uniform) / self.request_rate
            phases = busy / self.on
            yield busy + (phases - phases % 1) * self.off


def in_words(process: Mapping[str, object] | str) -> str:
    """A process as a report states it: "Poisson, 4 a second". process: its fields with its name as
    `kind`, as a load run's setting has it; a text stays as it is.
    """
    if isinstance(process, str):
        return process
    left = dict(process)
    kind, rate = left.pop("kind"), left.pop("request_rate", None)
    parts = [str(kind)] + ([] if rate is None else [f"{rate:g} a second"])
    return ", ".join(parts + [f"{name} {value:g}" for name, value in left.items()])


def _exponential(uniform: UniformNumbers) -> float:
    """Mean 1."""
    return -math.log(1 - uniform())


def _gamma(shape: float, uniform: UniformNumbers) -> float:
    """Mean `shape`, deviation sqrt(shape): the method of Marsaglia and Tsang (2000)."""
    if shape < 1:
        return _gamma(shape + 1, uniform) * (1 - uniform()) ** (1 / shape)
    d = shape - 1 / 3
    while True:
        x = normal(uniform)
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(1 - uniform()) < 0.5 * x * x + d * (1 - v + math.log(v)):
            return d * v
