"""Numbers that come from a reader or a file: taken as they are, or refused with what to give.

`what` names the value in the message, for example "Uniform: low". True and False are no numbers.
"""

import sys
from collections.abc import Iterable


def shown(value: object) -> str:
    """The value as a message names it: its repr, cut short where it is long."""
    try:
        return f"{value!r:.60}"
    except ValueError:  # more digits than Python writes out
        return "a number of thousands of digits"


def integer(what: str, value: object) -> int:
    """Raises ValueError unless `value` is an integer, of any sign."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{what} is {shown(value)}; give an integer")
    return value


def whole(what: str, value: object, least: int = 0, most: int | None = None) -> int:
    """Raises ValueError unless `value` is an integer from `least` to `most` (None: without end)."""
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= least
    if not fits or (most is not None and value > most):
        wanted = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{what} is {shown(value)}; give an integer {wanted}")
    return value


def number(what: str, value: object, *, above: float | None = None) -> float:
    """Raises ValueError unless `value` is a finite number of at least 0, or above `above`."""
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    fits = fits and (value >= 0 if above is None else value > above)
    if not fits or value > sys.float_info.max:
        wanted = "of at least 0" if above is None else f"above {above:g}"
        raise ValueError(f"{what} is {shown(value)}; give a finite number {wanted}")
    return float(value)


def moment(what: str, value: object) -> float:
    """Raises ValueError unless `value` is a time on some clock: a finite number, also below 0."""
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not abs(value) <= sys.float_info.max:  # not: NaN is refused too
        raise ValueError(f"{what} is {shown(value)}; give a finite number, or None for now")
    return value


def tokens(what: str, value: object) -> tuple[int, ...]:
    """Raises ValueError unless `value` is a sequence of token ids."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ValueError(f"{what} is {shown(value)}; give a list of token ids")
    ids = tuple(value)
    for token in ids:
        if not isinstance(token, int) or isinstance(token, bool):
            integer(f"{what}: a token id", token)
    return ids


def function(what: str, value: object, such_as: str) -> object:
    """Raises ValueError unless `value` can be called."""
    if not callable(value):
        raise ValueError(f"{what} is {shown(value)}; give a function such as {such_as}")
    return value
