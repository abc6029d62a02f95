"""A kind of answer: what belongs to what."""

from __future__ import annotations

from dataclasses import dataclass

from kvlab.exercises.reading import Unreadable, kind_of, plain, show


@dataclass(frozen=True)
class Matches:
    """One option for each name: {"A": "3", "B": "1"}, or the options alone in the names' order.

    options: (number, text) pairs. Either will do, in any case; None where nothing is chosen yet.
    """

    names: tuple[str, ...]
    options: tuple[tuple[str, str], ...]

    @property
    def asked(self) -> str:
        first, second, last = self.names[0], self.names[1], self.names[-1]
        return (
            f'a number for each of {first} to {last}, {{"{first}": …, "{second}": …, …}}, '
            f"from {self.options[0][0]} to {self.options[-1][0]}"
        )

    @property
    def asks(self) -> str:
        return f"Write {self.asked} in place of None and run the cell."

    @property
    def listed(self) -> tuple[str, ...]:
        """The options, one a line."""
        return tuple(f"{number}: {text}" for number, text in self.options)

    def right(self, wanted: list[str], value: list[str | None]) -> list[bool]:
        """Of each name, whether its number is right."""
        return [w == v for w, v in zip(wanted, value, strict=True)]

    def entry(self, place: int) -> str:
        """What the entry at `place`, counted from 1, is called."""
        return self.names[place - 1]

    def read(self, answer: object) -> list[str | None]:
        """The numbers of the options in the order of the names."""
        given = self._by_name(answer) if type(answer) is dict else self._in_order(answer)
        return [self._option(*pair) for pair in zip(self.names, given, strict=True)]

    def show(self, value: list[str | None]) -> str:
        pairs = zip(self.names, value, strict=True)
        return ", ".join(f"{name} {'…' if number is None else number}" for name, number in pairs)

    def _by_name(self, answer: dict) -> list[object]:
        found = {}
        for key, value in dict.items(answer):
            name = self._plain(key)
            word = name.strip().upper() if isinstance(name, str) else name
            if word not in self.names:
                raise Unreadable(f"You gave {show(name)} as a name; give {self.asked}.")
            if word in found:
                raise Unreadable(f"You gave {word} twice; give {self.asked}.")
            found[word] = self._plain(value)
        return [found.get(name) for name in self.names]

    def _in_order(self, answer: object) -> list[object]:
        value = self._plain(answer)
        if not isinstance(value, list) or len(value) != len(self.names):
            named = f"a list of {len(value)}" if isinstance(value, list) else show(value)
            raise Unreadable(f"You gave {named}; give {self.asked}.")
        return value

    def _plain(self, value: object) -> object:
        try:
            return plain(value)
        except Unreadable:
            raise Unreadable(f"You gave {kind_of(value)}; give {self.asked}.") from None

    def _option(self, name: str, value: object) -> str | None:
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        word = f"{value:g}" if is_number else value
        if isinstance(word, str):
            for number, text in self.options:
                if word.strip().casefold() in (number, text.casefold()):
                    return number
        raise Unreadable(f"You gave {show(value)} for {name}; give {self.asked}.")
