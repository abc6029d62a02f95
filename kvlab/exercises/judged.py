"""Functions whose value is free, as long as it does what is asked for: a run judges it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvlab.exercises.kinds import Function
from kvlab.exercises.reading import Unreadable, show_argument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvlab.exercises.calls import Outcome


def _one_verdict(value: object, arguments: tuple) -> str:
    return "something"


@dataclass(frozen=True)
class Judged(Function):
    """A function with many right values.

    judge: what its value, and what it did to its arguments, amounts to, in words that stand after
    "gives". `Exercise.run` gives the words of a right one. Raises Unreadable, with the end of a
    sentence, for a value that cannot be judged.
    """

    judge: Callable[[object, tuple], str] = _one_verdict

    def after(self, outcomes: Sequence[Outcome], cases: Sequence[tuple]) -> list[Outcome]:
        return [self._judged(*pair) for pair in zip(outcomes, cases, strict=True)]

    def _judged(self, outcome: Outcome, arguments: tuple) -> Outcome:
        if outcome.failure or outcome.is_empty:
            return outcome
        try:
            return replace(outcome, value=self.judge(outcome.value, arguments))
        except Unreadable as found:
            return replace(outcome, failure=f"gives {found}")
        except (ArithmeticError, LookupError, TypeError, ValueError):  # it cannot be worked with
            return replace(outcome, failure="gives what the run cannot work with")

    def tell(self, value: str) -> str:
        return value

    def example(self, arguments: tuple, outcome: Outcome, wanted: object, truth: str) -> str:
        named = zip(self.arguments, arguments, strict=True)
        call = ", ".join(f"{name}={_argument(value)}" for name, value in named)
        did = outcome.failure or f"gives {outcome.value}"
        return f"{self.name}({call}) {did}; {truth} {wanted}."


def _argument(value: object) -> str:
    try:
        return show_argument(value)
    except Unreadable:  # an object of ours: the first line of its class says what it is
        return (type(value).__doc__ or "").partition("\n")[0].rstrip(".")
