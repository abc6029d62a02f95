"""What a reader can change in a live editor. Controls check the values a browser sends."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

LONGEST_TEXT = 20_000  # characters


@dataclass(frozen=True)
class Slider:
    """A whole number from minimum to maximum."""

    name: str
    label: str
    value: int
    minimum: int
    maximum: int
    kind: str = "slider"

    def check(self, value: object) -> int:
        """The value itself. Raises ValueError where it is no whole number of the range."""
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not self.minimum <= value <= self.maximum:
            raise ValueError(
                f"{self.name} is {value!r}; "
                f"give a whole number from {self.minimum} to {self.maximum}"
            )
        return value


@dataclass(frozen=True)
class Steps:
    """One of some whole numbers in rising order, such as powers of two; shown as a slider."""

    name: str
    label: str
    value: int
    values: Sequence[int]
    kind: str = "steps"

    def check(self, value: object) -> int:
        """The number itself. Raises ValueError for one that is not among the values."""
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or value not in self.values:
            offered = ", ".join(f"{number:,}" for number in self.values)
            raise ValueError(f"{self.name} is {value!r}; give one of {offered}")
        return value


@dataclass(frozen=True)
class TextArea:
    """Free text of a few lines."""

    name: str
    label: str
    value: str
    rows: int = 2
    kind: str = "text"

    def check(self, value: object) -> str:
        """The text itself. Raises ValueError for something else and for a text that is too long."""
        if not isinstance(value, str) or len(value) > LONGEST_TEXT:
            what = f"{len(value):,} characters" if isinstance(value, str) else repr(value)
            raise ValueError(
                f"{self.name} is {what}; give a text of at most {LONGEST_TEXT:,} characters"
            )
        return value


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    name: str
    label: str
    value: str
    options: Sequence[str]
    kind: str = "choice"

    def check(self, value: object) -> str:
        """The word itself. Raises ValueError for one that is not offered."""
        if value not in self.options:
            raise ValueError(f"{self.name} is {value!r}; choose one of {', '.join(self.options)}")
        return value


@dataclass(frozen=True)
class TextLine:
    """One line of free text."""

    name: str
    label: str
    value: str
    kind: str = "line"

    def check(self, value: object) -> str:
        """The text itself. Raises ValueError for something else, a long text, and several lines."""
        text = TextArea(self.name, self.label, self.value).check(value)
        if "\n" in text:
            raise ValueError(f"{self.name} is {text!r}; give one line")
        return text


@dataclass(frozen=True)
class Script:
    """Actions, one a line. The browser writes lines by buttons, and offers the text to edit.

    The view beside it says which actions make sense (`offers` in its payload).
    """

    name: str
    label: str
    value: str
    kind: str = "script"

    def check(self, value: object) -> str:
        """The script itself. Raises ValueError as for a `TextArea`."""
        return TextArea(self.name, self.label, self.value).check(value)


Control = Slider | Steps | TextArea | Choice | TextLine | Script


def spec(control: Control) -> dict:
    """A control as plain data for the browser."""
    data = asdict(control)
    return {k: list(v) if isinstance(v, tuple) else v for k, v in data.items()}
