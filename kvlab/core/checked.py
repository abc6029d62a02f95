"""Numbers that come from a reader or a file: taken as they are, or refused with what to give.

`what` names the value in the message, for example "Uniform: low". True and False are no numbers.
"""

import sys


def whole(what: str, value: object, least: int = 0) -> int:
    """Raises ValueError unless `value` is an integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{what} is {value!r:.60}; give an integer of at least {least}")
    return value


def number(what: str, value: object, *, above: float | None = None) -> float:
    """Raises ValueError unless `value` is a finite number of at least 0, or above `above`."""
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    fits = fits and (value >= 0 if above is None else value > above)
    if not fits or value > sys.float_info.max:
        wanted = "of at least 0" if above is None else f"above {above:g}"
        raise ValueError(f"{what} is {value!r:.60}; give a finite number {wanted}")
    return float(value)
