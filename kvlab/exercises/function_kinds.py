"""Functions that are asked for more than a value: one that changes lists, one that judges code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvlab.exercises.kinds import Function
from kvlab.exercises.reading import Unreadable, plain, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvlab.exercises.calls import Outcome


@dataclass(frozen=True)
class InPlace(Function):
    """A function that changes some of its arguments, `changed`; these count beside its value.

    `Exercise.run` gives a tuple: the value, then each changed argument as it must be left.
    """

    changed: tuple[str, ...] = ()

    def after(self, outcomes: Sequence[Outcome], cases: Sequence[tuple]) -> list[Outcome]:
        return [self._left(*pair) for pair in zip(outcomes, cases, strict=True)]

    def _left(self, outcome: Outcome, arguments: tuple) -> Outcome:
        """The outcome with the changed arguments as the function has left them."""
        if outcome.failure:
            return outcome
        names = dict(zip(self.arguments, arguments, strict=True))
        left = []
        for name in self.changed:
            try:
                left.append(plain(names[name]))
            except Unreadable as found:
                return replace(outcome, failure=f"left {found} in {name}")
        return replace(outcome, value=[outcome.value, *left])

    def tell(self, value: list) -> str:
        result, *left = value
        lists = ", ".join(f"{n}={show(v)}" for n, v in zip(self.changed, left, strict=True))
        return f"{show(result)} and leaves {lists}"


@dataclass(frozen=True)
class Verdict(Function):
    """A check that the reader writes: it is given right and wrong code, and says which is which.

    True or False, or assertions: one that fails says False, none that fails says True.
    """

    @property
    def asks(self) -> str:
        return f"{super().asks} It returns True or False, or fails by assert."

    @property
    def silent(self) -> tuple[str, ...]:
        return (*super().silent, "If it uses assert: no assertion failed on any of them.")

    def after(self, outcomes: Sequence[Outcome], cases: Sequence[tuple]) -> list[Outcome]:
        asserts = any(outcome.raised == "AssertionError" for outcome in outcomes)

        def read(outcome: Outcome) -> Outcome:
            if outcome.raised == "AssertionError":
                return replace(outcome, value=False, failure="", raised="")
            return replace(outcome, value=True) if asserts and outcome.is_empty else outcome

        return [read(outcome) for outcome in outcomes]
