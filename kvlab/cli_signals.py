"""SIGTERM, as `kill` sends it, taken like Ctrl-C by the commands that measure.

Python ends at once on SIGTERM: a run would lose what it has measured, and leave behind the
processes and folders that it made. A job in a shell script's background hears SIGTERM alone, since
a shell starts it with SIGINT ignored, as does nohup with SIGHUP.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def sigterm_interrupts() -> Iterator[list[int]]:
    """Inside, SIGTERM raises KeyboardInterrupt. Gives a list of the signals that came. In the main
    thread alone, which is where Python hears signals.
    """
    came: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)
