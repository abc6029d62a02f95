"""The kinds of answer: how each is asked for, read and shown.

`read` gives the answer as a plain value, or raises Unreadable with a sentence for the reader.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kvlab.exercises.reading import Unreadable, kind_of, plain, same, show, show_argument

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvlab.exercises.calls import Outcome


class Kind(Protocol):
    """What an exercise wants to know."""

    @property
    def asks(self) -> str:
        """What to write, as a sentence."""
        ...

    def read(self, answer: object) -> object:
        """The answer as a plain value. Raises Unreadable for one of another kind."""
        ...

    def show(self, value: object) -> str:
        """A value that `read` gave, in words."""
        ...


def _read_number(value: object, asked: str) -> int | float:
    """One number of a plain value."""
    if isinstance(value, bool):
        raise Unreadable(f"You gave {value}, which answers a yes-or-no question; give {asked}.")
    if isinstance(value, str):
        text = show(value)
        raise Unreadable(f"You gave a text, {text}; give {asked}, without quotes and unit.")
    if not isinstance(value, int | float):
        raise Unreadable(f"You gave {_named(value)}; give {asked}.")
    if not math.isfinite(value if isinstance(value, float) else 0):
        raise Unreadable(f"You gave {value}, which is no number to compare with; give {asked}.")
    return value


def _named(value: object) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    return show(value)


def _plain(answer: object, asked: str) -> object:
    """As `plain`; what cannot be read is named, with what is asked for."""
    try:
        return plain(answer)
    except Unreadable as found:
        hint = ""
        if callable(answer):
            hint = " If you meant what it returns, call it."
        raise Unreadable(f"You gave {found}; give {asked}.{hint}") from None


def _with_unit(value: int | float, unit: str) -> str:
    small = isinstance(value, int) and value.bit_length() <= 200
    text = f"{value:,}" if small else show(value)
    if value == 1:
        unit = "copy" if unit == "copies" else unit.removesuffix("s")
    return f"{text} {unit}".rstrip()


@dataclass(frozen=True)
class Number:
    """One number. unit: "bytes", or nothing."""

    unit: str = ""

    @property
    def asked(self) -> str:
        return f"one number ({self.unit})" if self.unit else "one number"

    @property
    def asks(self) -> str:
        return f"Write {self.asked} in place of None and run the cell."

    def read(self, answer: object) -> int | float:
        value = _plain(answer, self.asked)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        return _read_number(value, self.asked)

    def show(self, value: int | float) -> str:
        return _with_unit(value, self.unit)


@dataclass(frozen=True)
class Numbers:
    """A list of `count` numbers in one unit.

    within: how far each may be off, as a share of it; 0 stands for the usual, `same`.
    """

    count: int
    unit: str = ""
    within: tuple[float, ...] = ()

    @property
    def asked(self) -> str:
        blanks = ", ".join("…" * self.count)
        unit = f" ({self.unit})" if self.unit else ""
        return f"a list of {self.count} numbers{unit}, [{blanks}]"

    @property
    def asks(self) -> str:
        return f"Write {self.asked}, in place of None and run the cell."

    def read(self, answer: object) -> list[int | float]:
        value = _plain(answer, self.asked)
        if isinstance(value, str):
            raise Unreadable(f"You gave a text, {show(value)}; give {self.asked}, without quotes.")
        if not isinstance(value, list):
            raise Unreadable(f"You gave {show(value)} alone; give {self.asked}.")
        if len(value) != self.count:
            raise Unreadable(f"You gave {_named(value)}; give {self.asked}.")
        for place, item in enumerate(value, 1):
            if item is None:
                raise Unreadable(f"Entry {place} of your list is empty; give {self.asked}.")
        return [_read_number(item, f"{self.asked}; entry {i}") for i, item in enumerate(value, 1)]

    def right(self, wanted: list[int | float], value: list[int | float]) -> list[bool]:
        """Of each entry, whether it is right."""
        shares = self.within or (0,) * self.count
        pairs = zip(wanted, value, shares, strict=True)
        return [
            same(w, v, share, 1e-6) if share else same(w, v, near_zero=1e-6)
            for w, v, share in pairs
        ]

    def entry(self, place: int) -> str:
        """What the entry at `place`, counted from 1, is called."""
        return f"entry {place}"

    def show(self, value: list[int | float]) -> str:
        return f"{', then '.join(_with_unit(item, '') for item in value)} {self.unit}".rstrip()


@dataclass(frozen=True)
class BlockIds:
    """Block ids, in any order: a list or a set of them, which may be empty."""

    asked = "a list of block ids, [] for none"
    asks = "Write a list of block ids, in any order ([] for none), in place of None."

    def read(self, answer: object) -> list[int | float]:
        value = sorted(answer) if type(answer) in (set, frozenset) else answer
        value = _plain(value, self.asked)
        items = value if isinstance(value, list) else [value]
        found = [_read_number(item, self.asked) for item in items]
        if len(set(found)) < len(found):
            raise Unreadable(f"You gave a block twice, {show(value)}; give {self.asked}.")
        return sorted(found)

    def show(self, value: list[int | float]) -> str:
        return ", ".join(_with_unit(item, "") for item in value) or "none"


@dataclass(frozen=True)
class YesNo:
    """Yes or no."""

    asked = '"yes" or "no"'
    asks = 'Write "yes" or "no" (or True, False) in place of None and run the cell.'

    def read(self, answer: object) -> bool:
        value = _plain(answer, self.asked)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        word = value.strip().casefold() if isinstance(value, str) else value
        if isinstance(word, bool):
            return word
        if word in ("yes", "y", "true", "no", "n", "false"):
            return word in ("yes", "y", "true")
        raise Unreadable(f"You gave {_named(value)}; give {self.asked}.")

    def show(self, value: bool) -> str:
        return "yes" if value else "no"


@dataclass(frozen=True)
class Choice:
    """One of several options; `options` maps a letter to what it stands for."""

    options: tuple[tuple[str, str], ...]

    @property
    def asked(self) -> str:
        return "one of " + ", ".join(f'"{letter}" ({text})' for letter, text in self.options)

    @property
    def asks(self) -> str:
        return f"Write {self.asked} in place of None and run the cell."

    def read(self, answer: object) -> str:
        value = _plain(answer, self.asked)
        if isinstance(value, str):
            word = value.strip().casefold()
            for letter, text in self.options:
                if word in (letter.casefold(), text.casefold()):
                    return letter
        raise Unreadable(f"You gave {_named(value)}; give {self.asked}.")

    def show(self, value: str) -> str:
        return f"{value} ({dict(self.options)[value]})"


@dataclass(frozen=True)
class Function:
    """A function to write. name, arguments: as they stand in the stub."""

    name: str
    arguments: tuple[str, ...]

    @property
    def asked(self) -> str:
        return f"the function {self.name} itself, without brackets"

    @property
    def asks(self) -> str:
        return f"Write the body of {self.name}({', '.join(self.arguments)}) and run the cell."

    def read(self, answer: object) -> object:
        if not callable(answer):
            try:
                found = _named(plain(answer))
            except Unreadable:
                found = kind_of(answer)
            raise Unreadable(f"You gave {found}; give {self.asked}.")
        return answer

    def show(self, value: object) -> str:
        return self.name

    @property
    def silent(self) -> tuple[str, ...]:
        """What to say where it returned None on all inputs."""
        return (f"{self.name} returned None on all inputs. Is a return missing?",)

    def unseen(self, function: Callable) -> tuple[str, ...]:
        """What to say of a right function that its calls could not show."""
        return ()

    def after(self, outcomes: Sequence[Outcome], cases: Sequence[tuple]) -> list[Outcome]:
        """What counts of its calls with `cases`, whose arguments it may have changed."""
        return list(outcomes)

    def tell(self, value: object) -> str:
        """What counts of one call, in words."""
        return show(value)

    def example(self, arguments: tuple, outcome: Outcome, wanted: object, truth: str) -> str:
        """A case: inputs, what the reader's function does with them, what is right."""
        named = zip(self.arguments, arguments, strict=True)
        call = ", ".join(f"{name}={show_argument(value)}" for name, value in named)
        did = outcome.failure or f"gives {self.tell(outcome.value)}"
        return f"{self.name}({call}) {did}; {truth} {self.tell(wanted)}."
