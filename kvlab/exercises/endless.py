"""A reader's function that never ends is ended, after a number of lines that no answer needs.

Lines are counted, not seconds, so that a slow machine gives the same verdict as a fast one. A loop
inside one call into C, `sum(itertools.repeat(0))`, runs no line at all, and Python looks neither at
a count nor at the stop button there: only restarting the kernel ends it. A loop whose own bare
`except:` holds up everything needs the stop button.
"""

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType, FrameType

MOST_LINES = 300_000  # of one call: the reader's own lines, and the calls that they make


class EndlessError(BaseException):
    """Raised inside the function; no `except Exception` of its own holds it up."""


class Lines:
    """The lines that one call has left; `sys.settrace` calls it for each.

    Only lines in the function's own file count, and calls of all functions.
    """

    def __init__(self, home: str = "") -> None:
        self.left = MOST_LINES
        self._home = home

    @property
    def are_spent(self) -> bool:
        """Whether the call needed more; its own `except:` may have kept that from being seen."""
        return self.left < 0

    def spend(self, count: int) -> None:
        """Take `count` lines. Raises EndlessError where fewer are left."""
        self.left -= count
        if self.left < 0:
            raise EndlessError

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Callable | None:
        """A call: whether to follow it line by line, and by what."""
        code = frame.f_code
        if not self._home:  # then the first call is the reader's function
            self._home = code.co_filename
        self._line(frame, event, _argument)
        if code.co_filename != self._home:
            return None
        return self._line_or_self_jump if _self_jumps(code) else self._line

    def _line(self, frame: FrameType, event: str, _argument: object) -> Callable:
        self.left -= 1
        if self.left < 0 and event in ("call", "line"):  # not on the way out of an exception
            raise EndlessError
        return self._line

    def _line_or_self_jump(self, frame: FrameType, event: str, _argument: object) -> Callable:
        """Python 3.11 sends no further event once a jump leads to itself: its lines are spent."""
        if event == "line" and frame.f_lasti in _self_jumps(frame.f_code):
            self.spend(self.left + 1)
        self._line(frame, event, _argument)
        return self._line_or_self_jump


@contextmanager
def bounded(home: str = "") -> Iterator[Lines]:
    """Raises EndlessError in the function that is called inside, once it has run MOST_LINES lines.

    home: the file of the reader's code; "" stands for that of the function that is called.

    Where a debugger follows the lines already, nothing is counted: it can stop the loop itself.
    """
    lines = Lines(home)
    if sys.gettrace() is not None:
        yield lines
        return
    sys.settrace(lines)
    try:
        yield lines
    finally:
        sys.settrace(None)


@contextmanager
def uncounted(lines: int = 0) -> Iterator[None]:
    """What runs inside a bounded call, and is not the reader's: it counts as `lines` lines.

    Raises EndlessError, before it runs, where fewer are left; outside of `bounded`, nothing.
    """
    counter = sys.gettrace()
    if not isinstance(counter, Lines):  # nobody counts, or a debugger is there
        yield
        return
    counter.spend(lines)
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(counter)


@lru_cache(maxsize=1_000)
def _self_jumps(code: CodeType) -> frozenset[int]:
    """Where a jump leads to itself, as `while True: pass` in one line does."""
    jumps = (step for step in dis.get_instructions(code) if step.opcode in dis.hasjrel)
    return frozenset(step.offset for step in jumps if step.argval == step.offset)
