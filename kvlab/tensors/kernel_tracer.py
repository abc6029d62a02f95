"""Watches Triton's interpreter run a kernel: which lines run, what is read, what is held.

The interpreter runs the kernel's own Python function, under its own file name and line numbers. So
Python's line tracer sees each line of it as it runs, with its local variables; and each `tl.load`
passes through one method of the interpreter, which is given real addresses. Nothing is added to the
kernel. Section 21.5.
"""

import ast
import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import numpy as np

from kvlab.core.kernel_log import KernelSource

IDS = ("request", "kv_head", "split")  # local names of the decode kernel, as the lesson has them
STATE = {  # local names whose changes are noted -> what Turn.at calls the line
    "running_max2": "max2",
    "running_sum": "sum",
    "new_max2": "new_max2",
    "correction": "correction",
    "weight": "weight",
}


@dataclass(frozen=True)
class Line:
    """A line that is about to run; `own`: of the kernel itself, not of a function it calls."""

    number: int
    own: bool


@dataclass(frozen=True)
class Load:
    """One `tl.load`. line: where it stands; own_line: the kernel's line that led there.

    addresses, mask: one entry an element; result: what came back. position: the tile's logical
    positions at this moment, if there is a tile yet.
    """

    line: int
    own_line: int
    addresses: np.ndarray
    mask: np.ndarray
    result: np.ndarray
    position: np.ndarray | None


@dataclass(frozen=True)
class State:
    """A local variable has a new value since this line ran."""

    name: str
    line: int
    value: np.ndarray


@dataclass
class Run:
    """What one program did. locals: its variables when it ended, those that hold numbers."""

    kernel: str
    arguments: dict[str, Any]
    events: list[Line | Load | State] = field(default_factory=list)
    locals: dict[str, np.ndarray] = field(default_factory=dict)


class KernelTracer:
    """Records the programs of some kernels while `with tracer.watching():` runs them.

    kernels: jitted functions of one file. most_programs: RuntimeError beyond so many, which stops
    the launch. Nothing is left behind: the tracer and the method that were there are put back,
    also when the run is interrupted.
    """

    def __init__(self, *kernels: Any, most_programs: int) -> None:
        self.kernel = kernels[0]
        self.names = {kernel.fn.__name__ for kernel in kernels}
        self.file: str = kernels[0].fn.__code__.co_filename
        self.most_programs = most_programs
        self.runs: list[Run] = []
        self._codes: dict[CodeType, None] = {}  # functions of the file that ran, in order
        self._open: list[tuple[FrameType, Run]] = []
        self._seen: dict[str, Any] = {}
        self._own_line = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Raises RuntimeError where this Triton's interpreter has no method to listen at."""
        builder = _builder(self.kernel)
        before, load = sys.gettrace(), builder.create_masked_load
        builder.create_masked_load = self._listening(load)
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)
            builder.create_masked_load = load

    def sources(self) -> tuple[KernelSource, ...]:
        """The functions of the kernel's file that ran, as they stand there."""
        lines = linecache.getlines(self.file)
        tree = ast.parse("".join(lines))
        starts = {code.co_firstlineno for code in self._codes}
        found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.lineno in starts]
        return tuple(
            KernelSource(
                n.name, n.lineno, tuple(s.rstrip() for s in lines[n.lineno - 1 : n.end_lineno])
            )
            for n in sorted(found, key=lambda n: n.lineno)
        )

    def loop_around(self, kernel: str, line: int) -> int | None:
        """The first line of the innermost loop of a kernel that a line stands in."""
        tree = ast.parse("".join(linecache.getlines(self.file)))
        (function,) = (
            n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == kernel
        )
        around = [
            n.lineno
            for n in ast.walk(function)
            if isinstance(n, ast.For | ast.While) and n.lineno < line <= n.end_lineno
        ]
        return max(around, default=None)

    # ---- lines and local variables

    def _call(self, frame: FrameType, event: str, arg: object) -> Callable | None:
        if frame.f_code.co_filename != self.file or frame.f_code.co_name == "<module>":
            return None
        if frame.f_code.co_name in self.names:
            if len(self.runs) == self.most_programs:
                raise RuntimeError(f"more than {self.most_programs} programs; watch fewer")
            arguments = {name: _numbers(value) for name, value in frame.f_locals.items()}
            run = Run(frame.f_code.co_name, arguments)
            self.runs.append(run)
            self._open.append((frame, run))
            self._seen = {}
        elif not self._open:
            return None
        self._codes.setdefault(frame.f_code)
        return self._line

    def _line(self, frame: FrameType, event: str, arg: object) -> Callable:
        kernel, run = self._open[-1]
        own = frame is kernel
        if own:
            self._changes(run, frame)
        if event == "line":
            run.events.append(Line(frame.f_lineno, own))
            self._own_line = frame.f_lineno if own else self._own_line
        elif event == "return" and own:
            held = {name: _numbers(value) for name, value in frame.f_locals.items()}
            run.locals = {n: v for n, v in held.items() if isinstance(v, np.ndarray)}
            self._open.pop()
        return self._line

    def _changes(self, run: Run, frame: FrameType) -> None:
        """A state is noted when another object has taken its name: lines are what ran before."""
        for name in STATE:
            value = frame.f_locals.get(name)
            if value is not None and value is not self._seen.get(name):
                self._seen[name] = value
                run.events.append(State(name, self._own_line, _numbers(value)))

    # ---- loads

    def _listening(self, load: Callable) -> Callable:
        def create_masked_load(builder: object, ptrs: Any, mask: Any, *rest: object) -> Any:
            result = load(builder, ptrs, mask, *rest)
            if self._open:
                kernel, run = self._open[-1]
                line = _line_in(self.file, sys._getframe(1))
                position = _numbers(kernel.f_locals.get("position"))
                run.events.append(
                    Load(
                        line or self._own_line,
                        self._own_line,
                        np.array(ptrs.data).astype(np.int64),
                        np.broadcast_to(mask.data, ptrs.data.shape).astype(bool),
                        np.array(result.data),
                        position.reshape(-1) if isinstance(position, np.ndarray) else None,
                    )
                )
            return result

        return create_masked_load


def _builder(kernel: object) -> type:
    """The class of the interpreter, whose module made the kernel, that carries out loads."""
    builder = getattr(sys.modules[type(kernel).__module__], "InterpreterBuilder", None)
    if not hasattr(builder, "create_masked_load"):
        raise RuntimeError("this Triton's interpreter loads in another way; kvlab knows 3.6 to 3.7")
    return builder


def _line_in(file: str, frame: FrameType | None) -> int | None:
    """The line of the innermost function of the file that is running."""
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return frame.f_lineno if frame is not None else None


def _numbers(value: Any) -> Any:
    """A tensor of the interpreter as a numpy array of its own; anything else as it is."""
    data = getattr(getattr(value, "handle", None), "data", None)
    return np.array(data) if isinstance(data, np.ndarray) else value
