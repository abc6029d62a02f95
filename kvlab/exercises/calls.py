"""Calling a reader's function: what it gave, or what went wrong in which line."""

import re
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType

from kvlab.exercises import endless
from kvlab.exercises.isolation import standard_settings
from kvlab.exercises.launched import Launched
from kvlab.exercises.reading import Unreadable, plain, same

STILL_RUNNING = "was still running after {:,} lines"
HALF = 2**-7  # bfloat16 keeps 8 binary digits, and a few roundings add up


@dataclass(frozen=True)
class Outcome:
    """value: what the function returned, as a plain value. failure: what happened instead.

    raised: the exception's name, if there was one.
    """

    value: object = None
    failure: str = ""
    raised: str = ""

    @property
    def is_empty(self) -> bool:
        """The function returned None or an ellipsis: a stub."""
        return not self.failure and self.value is None


def attempt(function: Callable, arguments: Sequence[object]) -> Outcome:
    """Call it under standard settings; what it changes of torch's is put back.

    An exception becomes a failure, and so does a loop that does not end; an interruption from the
    keyboard is passed on.
    """
    home = function.home if issubclass(type(function), Launched) else ""
    with standard_settings():
        try:
            with endless.bounded(home) as lines:
                result = function(*arguments)
        except KeyboardInterrupt:
            raise
        except endless.EndlessError as error:
            where = _where(error, home)
            return Outcome(failure=f"{STILL_RUNNING.format(endless.MOST_LINES)}{where}")
        except BaseException as error:
            failure = f"raised {_said(error)}{_where(error, home)}"
            return Outcome(failure=failure, raised=type(error).__name__)
        if lines.are_spent:
            return Outcome(failure=STILL_RUNNING.format(endless.MOST_LINES))
        try:
            return Outcome(plain(result))
        except Unreadable as found:
            return Outcome(failure=f"returned {found}")


def is_stub(function: Callable) -> bool:
    """Whether a function's body does nothing: a docstring at most, and `...` or `pass`."""
    if type(function) is not FunctionType or function.__code__.co_code not in _EMPTY_BODIES:
        return False
    nothing = (None, ..., function.__doc__)  # `return 7` has the code of `return None`
    return all(any(c is n for n in nothing) for c in function.__code__.co_consts)


def _bare() -> None: ...


def _described() -> None:
    """The docstring moves None to another place among the constants."""


_EMPTY_BODIES = {_bare.__code__.co_code, _described.__code__.co_code}


def agrees(wanted: object, outcome: Outcome) -> bool:
    return not outcome.failure and same(wanted, outcome.value)


def agrees_in_half(wanted: object, outcome: Outcome) -> bool:
    """Whether they agree as far as numbers of 16 bits (float16, bfloat16) can tell."""
    return not outcome.failure and same(wanted, outcome.value, HALF, near_zero=HALF)


def alike(theirs: Outcome, mine: Outcome) -> bool:
    """Whether a mistake's function and the reader's did the same: one value, or one exception."""
    if theirs.failure:
        return bool(theirs.raised) and theirs.raised == mine.raised
    return agrees(theirs.value, mine)


def _said(error: BaseException) -> str:
    """The exception's name and first line, without addresses, which differ from run to run."""
    name = type(error).__name__
    try:
        text = str(error).strip().splitlines()[0][:140]
    except KeyboardInterrupt:
        raise
    except BaseException:  # nothing said, or an exception that cannot say it
        return name
    return f"{name}: {re.sub(r' at 0x[0-9a-fA-F]+', '', text)}"


def _where(error: BaseException, home: str) -> str:
    """The last line of the reader's own code, counted in its cell or file.

    home: that file; "" if it is the one of the function that was called.
    """
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is `attempt`
    own = [f for f in frames if f.filename == (home or frames[0].filename)]
    if not own:
        return "" if home else " when it was called"
    line = f" ({own[-1].line})" if own[-1].line else ""
    return f" in line {own[-1].lineno}{line}"
