"""Answers as plain values: numbers, truth values, text, and lists of these.

A reader's answer can be any object, and must do no harm: nothing of it is called but what numpy
and torch define, and its own way of printing itself is never asked for.
"""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

from kvlab.exercises.namesakes import label_of

DEEPEST = 8  # lists inside lists
MOST = 20_000  # values in all
LARGEST_POWER = 400  # of ten, in a Decimal; a float ends at 10^308
LONGEST = 160  # signs of a value that is shown


class Unreadable(Exception):
    """The answer is not of a kind that can be compared; the text says what it is instead."""


class Elsewhere(Unreadable):
    """The answer could be read, but not on this machine; the text says why."""


def is_open(answer: object) -> bool:
    """Whether nothing has been answered: None, an ellipsis, or a list or dict of nothing else."""
    if type(answer) in (list, tuple, dict) and answer:
        items = answer.values() if type(answer) is dict else answer
        return all(item is None or item is ... for item in items)
    return answer is None or answer is ...


def plain(value: object) -> object:
    """The value as None, bool, int, float, str or a nested list of these.

    Tensors, arrays and their scalars become numbers and lists; tuples and ranges become lists.
    Raises Unreadable for everything else. KeyboardInterrupt passes.
    """
    left = MOST

    def read(item: object, depth: int) -> object:
        nonlocal left
        left -= 1
        if depth > DEEPEST or left < 0:
            raise Unreadable("something too large to read")
        if item is None or item is ...:
            return None
        for base, exact in _SCALARS:
            if isinstance(item, base):
                return exact(item)
        home = type(item).__module__.partition(".")[0]
        if home in ("numpy", "torch") and hasattr(item, "tolist"):
            count = item.numel() if hasattr(item, "numel") else item.size
            if count > left:
                raise Unreadable("something too large to read")
            return read(item.tolist(), depth + 1)
        for sequence in (list, tuple, range):
            if isinstance(item, sequence):
                return [read(x, depth + 1) for x in sequence.__iter__(item)]
        raise Unreadable(kind_of(item))

    return guarded(lambda: read(value, 0))


def guarded(look: Callable[[], object]) -> object:
    """look(), where anything that goes wrong means that the answer cannot be read."""
    try:
        return look()
    except (Unreadable, KeyboardInterrupt):
        raise
    except BaseException as error:
        name = type(error).__name__
        raise Unreadable(f"something that raised {name} when it was looked at") from None


def _of_fraction(value: Fraction) -> int | float:
    top, bottom = Fraction.numerator.fget(value), Fraction.denominator.fget(value)
    return top if bottom == 1 else top / bottom


def _of_decimal(value: Decimal) -> int | float:
    """Decimal("1e3000000") is short to write, and takes minutes to become an int."""
    if Decimal.is_finite(value) and Decimal.adjusted(value) > LARGEST_POWER:
        raise Unreadable("something too large to read")
    is_whole = Decimal.is_finite(value) and Decimal.to_integral_value(value).__eq__(value)
    return Decimal.__int__(value) if is_whole else Decimal.__float__(value)


_SCALARS: tuple[tuple[type, Callable], ...] = (
    (bool, bool),
    (int, int.__int__),  # these read the number itself, whatever a subclass defines
    (float, float.__float__),
    (str, str.__str__),
    (Fraction, _of_fraction),
    (Decimal, _of_decimal),
)


def kind_of(value: object) -> str:
    """What an object is, in words that are the same in every run."""
    if callable(value):
        return "a function"
    if isinstance(value, dict):
        return "a dictionary"
    if isinstance(value, set | frozenset):
        return "a set, which has no order"
    return f"an object of type {type(value).__name__[:40]}"


def show(value: object) -> str:
    """A plain value in a line: at most six digits of a fraction, long lists cut."""
    text = _show(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2]} …"


def _show(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_show(item) for item in value[:LONGEST])}]"
    if isinstance(value, float):
        whole = math.isfinite(value) and value == int(value) and abs(value) < 1e15
        return str(int(value)) if whole else f"{value:.6g}"
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of more than 60 digits"
    return repr(value[:LONGEST] if isinstance(value, str) else value)


def show_argument(value: object) -> str:
    """An argument of a call: small ones in full, large tensors by their shape, code by its name."""
    if callable(value):
        if label := label_of(value):
            return label
        says = (value.__doc__ or "").partition("\n")[0].rstrip(".")
        return f"{value.__name__} ({says})" if says else value.__name__
    shape = getattr(value, "shape", None)
    if shape is not None and math.prod(shape) > 16:
        return f"a tensor of shape {list(shape)}"
    return show(plain(value))


def same(wanted: object, got: object, tolerance: float = 1e-4, near_zero: float = 1e-12) -> bool:
    """Whether two plain values agree: whole numbers exactly, fractions to `tolerance` of them.

    32.0 is 32; 1 and 0 may stand for True and False. Where one number is wanted, a list of it alone
    will do, but not inside a list. near_zero: how far apart two fractions may be in any case
    (entries of a list: at least 1e-6, since sums in single precision that should be 0 are not).
    """
    if not isinstance(wanted, list) and isinstance(got, list) and len(got) == 1:
        got = got[0]
    return _agree(wanted, got, tolerance, near_zero)


def _agree(wanted: object, got: object, tolerance: float, near_zero: float) -> bool:
    if isinstance(wanted, list):
        if not isinstance(got, list) or len(wanted) != len(got):
            return False
        near = max(near_zero, 1e-6)
        return all(_agree(w, g, tolerance, near) for w, g in zip(wanted, got, strict=True))
    if isinstance(wanted, bool) and isinstance(got, int | float):
        return got == wanted
    if not isinstance(wanted, int | float):
        return type(wanted) is type(got) and wanted == got
    if isinstance(got, bool) or not isinstance(got, int | float):
        return False
    if isinstance(wanted, int) or (isinstance(got, int) and got.bit_length() > 1000):
        return wanted == got
    return math.isclose(wanted, got, rel_tol=tolerance, abs_tol=near_zero)
