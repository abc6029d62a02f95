"""Kinds of answer that only section 21.3 has: an order of steps, and a function that plays."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvlab.exercises.kinds import Function
from kvlab.exercises.reading import Unreadable, plain, show
from kvlab.exercises.serving_21_3 import Serving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvlab.exercises.calls import Outcome

STEP = re.compile(r"(P\d+|D)(\+(P\d+|D))*")
BETWEEN = re.compile(r"(?:[\s,;|]|->|→|THEN)+")


@dataclass(frozen=True)
class Order:
    """The steps in order: "P12 D D", or a list of them. P12: 12 prompt positions; D: a decode."""

    asked = 'the steps in order, such as "P12 D D" ("D+P12" where one step does both)'
    asks = f"Write {asked}, in place of None and run the cell."

    def read(self, answer: object) -> str:
        try:
            value = plain(answer)
        except Unreadable as found:
            raise Unreadable(f"You gave {found}; give {self.asked}.") from None
        texts = value if isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            raise Unreadable(f"You gave {show(value)}; give {self.asked}.")
        steps = [step for text in texts for step in BETWEEN.split(text.upper()) if step]
        wrong = [step for step in steps if not STEP.fullmatch(step)]
        if wrong or not steps:
            named = f"; {show(wrong[0])} is no step" if wrong else ""
            raise Unreadable(f"You gave {show(value)}{named}; give {self.asked}.")
        return " ".join("+".join(sorted(step.split("+"))) for step in steps)

    def show(self, value: str) -> str:
        return value


@dataclass(frozen=True)
class Played(Function):
    """A function that plays with a `Serving` and returns A's longest gap.

    It has to be one that a Serving of this call has really seen.
    """

    def after(self, outcomes: Sequence[Outcome], cases: Sequence[tuple]) -> list[Outcome]:
        return [self._seen(o, case[0]) for o, case in zip(outcomes, cases, strict=True)]

    def _seen(self, outcome: Outcome, kind: type[Serving]) -> Outcome:
        if outcome.failure or outcome.is_empty:
            return outcome
        seen = []
        for serving in kind.made:
            try:
                seen.append(Serving.longest_gap(serving, "A"))
            except Exception:  # a Serving without A, or one that was taken apart
                continue
        if outcome.value in seen:
            return outcome
        found = f"A waited {show(max(seen))} at most" if seen else "no Serving was played with an A"
        return replace(outcome, failure=f"gives {show(outcome.value)}, and {found}")
