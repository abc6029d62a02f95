"""A piece of a kernel as a function that `check` can call: a frame launches it over a case.

In Triton's interpreter the piece is watched. What it returns must have the right shape, and a load
from outside of all tensors, which would read anything or end the process, raises IndexError. Where
a load is masked and has no `other`, a GPU gives anything: here it gives NaN, or a large number.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from kvlab import triton_mode

if TYPE_CHECKING:
    from torch import Tensor

WILD = "a load goes beyond the tensors: is every address masked that has no position?"


class Case(Protocol):
    """What a piece is launched over. words: for the reader. parts: names of what it gives."""

    words: str
    parts: tuple[str, ...]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each part."""
        ...


Launch = Callable[[Callable, Case], "Sequence[Tensor]"]


class NothingReturned(Exception):
    """The piece has no return."""


class Launched:
    """Called with a case, it launches the piece and gives its parts as lists.

    piece: a function, with @triton.jit or without. NaN and infinities become texts, which can be
    compared. Gives None for a piece that returns nothing.
    """

    def __init__(self, piece: Callable, launch: Launch) -> None:
        self.launch = launch
        self._piece = piece

    @property
    def piece(self) -> Callable:
        """The Python function."""
        return getattr(self._piece, "fn", self._piece)

    @property
    def home(self) -> str:
        """The file, or cell, in which the piece stands."""
        code = getattr(self.piece, "__code__", None)
        return code.co_filename if code else ""

    def __call__(self, case: Case) -> list | None:
        import numpy

        try:
            with numpy.errstate(all="ignore"), _plain_errors():
                return [spelt(part) for part in self.launch(self._ready(case), case)]
        except NothingReturned:
            return None

    def _ready(self, case: Case) -> Callable:
        """What the frame gets: a jitted function, in the interpreter inside a check of shapes."""
        import triton

        is_jitted = hasattr(self._piece, "fn")
        if triton_mode.current().mode == "compiled":
            return self._piece if is_jitted else triton.jit(self._piece)

        def looked_at(*arguments: object) -> object:
            result = self._piece(*arguments)
            if result is None:
                raise NothingReturned
            _check_shapes(result, case)
            return result

        return looked_at


class Altered(Launched):
    """A piece that stands in a file, with one line changed: a mistake to be recognised."""

    def __init__(self, file: Path, name: str, changes: dict[str, str], launch: Launch) -> None:
        self.file, self.name, self.changes, self.launch = file, name, changes, launch
        self.given: dict[Case, list | None] = {}

    def __call__(self, case: Case) -> list | None:
        """As for any piece; the answer to a case is kept."""
        if case not in self.given:
            self.given[case] = super().__call__(case)
        return self.given[case]

    @property
    def _piece(self) -> Callable:
        if "made" not in vars(self):
            self.made = self._make()
        return self.made

    def _make(self) -> Callable:
        text = self.file.read_text(encoding="utf-8")
        before, start, rest = text.partition(f"def {self.name}(")
        body, following, after = rest.partition("\n\n\n")
        for old, new in self.changes.items():
            assert body.count(old) == 1, f"{self.name} has {old!r} {body.count(old)} times"
            body = body.replace(old, new)
        text = before + start + body + following + after
        file = f"<{self.name} altered: {abs(hash(text)):x}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        names: dict[str, object] = {"__name__": "altered"}
        exec(compile(text, file, "exec"), names)
        return names[self.name]


def spelt(tensor: Tensor) -> list:
    """A tensor as lists of numbers; what is no finite number, in letters."""

    def letters(item: object) -> object:
        if isinstance(item, list):
            return [letters(one) for one in item]
        return item if abs(item) < float("inf") else str(item).replace("nan", "NaN")

    return letters(tensor.tolist())


def _check_shapes(result: object, case: Case) -> None:
    parts = tuple(result) if isinstance(result, tuple) else (result,)
    if len(parts) != len(case.parts):
        raise ValueError(f"returned {len(parts)} tensors; {', '.join(case.parts)} are asked for")
    for part, name, shape in zip(parts, case.parts, case.shapes, strict=True):
        found = [getattr(size, "value", size) for size in getattr(part, "shape", ())]
        if list(shape) != found:
            raise ValueError(f"{name} has shape {found}; {list(shape)} is asked for")


@contextmanager
def _plain_errors() -> Iterator[None]:
    """An error inside a kernel as itself: the interpreter wraps it, once for each call.

    Its traceback is joined again from those of the wrappers, so that the piece's line is in it.
    """
    try:
        yield
    except Exception as error:
        chain = [error]
        while type(chain[-1]).__name__ == "InterpreterError" and chain[-1].__cause__ is not None:
            chain.append(chain[-1].__cause__)
        inner = chain[-1]
        if inner.args and isinstance(inner.args[0], str):  # sizes as numbers
            inner.args = (re.sub(r"'?constexpr\[(\d+)\]'?", r"\1", inner.args[0]), *inner.args[1:])
        raise inner.with_traceback(_joined(chain)) from None


def _joined(chain: Sequence[BaseException]) -> TracebackType | None:
    """One traceback of all frames, the outermost error's first."""
    steps = []
    for error in chain:
        step = error.__traceback__
        while step is not None:
            steps.append(step)
            step = step.tb_next
    joined = None
    for step in reversed(steps):
        joined = TracebackType(joined, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return joined


def fenced(tensors: Sequence[Tensor]) -> object:
    """While it is entered, the interpreter refuses to load from or store to anything else."""
    if triton_mode.current().mode != "interpreted":
        return nullcontext()
    return _fence([(t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors])


@contextmanager
def _fence(ranges: Sequence[tuple[int, int]]) -> Iterator[None]:
    import numpy

    module = sys.modules["triton.runtime.interpreter"]
    builder = module.InterpreterBuilder
    methods = {n: getattr(builder, n) for n in ("create_masked_load", "create_masked_store")}

    def look(ptrs: object, mask: object) -> None:
        allowed = numpy.broadcast_to(mask.data, ptrs.data.shape).astype(bool)
        used = ptrs.data[allowed].astype(numpy.int64)
        inside = numpy.zeros(used.shape, bool)
        for start, end in ranges:
            inside |= (used >= start) & (used < end)
        if not inside.all():
            raise IndexError(WILD)

    def load(self: object, ptrs: object, mask: object, other: object, *rest: object) -> object:
        look(ptrs, mask)
        result = methods["create_masked_load"](self, ptrs, mask, other, *rest)
        if other is None:
            is_float = numpy.issubdtype(result.data.dtype, numpy.floating)
            masked = ~numpy.broadcast_to(mask.data, result.data.shape).astype(bool)
            result.data[masked] = numpy.nan if is_float else numpy.iinfo(result.data.dtype).max
        return result

    def store(self: object, ptrs: object, value: object, mask: object, *rest: object) -> object:
        look(ptrs, mask)
        return methods["create_masked_store"](self, ptrs, value, mask, *rest)

    builder.create_masked_load, builder.create_masked_store = load, store
    try:
        yield
    finally:
        for name, method in methods.items():
            setattr(builder, name, method)
