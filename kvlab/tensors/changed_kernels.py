"""The kernels of tensors/kernels.py with one line changed, to see what the line is there for.

    wrong = ChangedKernels("reduce_splits_kernel", "tl.exp2(lse2 - max2)", "tl.exp(lse2 - max2)")
    wrong.paged_decode(query, key_cache, value_cache, block_table, seq_lens)

The real file is read, changed as text, and run under another name; nothing of it is changed on
disk, and `launch.paged_decode` itself stays what it is. Section 21.5b.
"""

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from types import ModuleType

import numpy
from torch import Tensor

from kvlab.core.kernel_log import CHANGED_COPY
from kvlab.tensors import launch


class ChangedKernels:
    """A copy of the kernels in which `old` became `new` in one of them.

    Raises ValueError where `old` does not stand in that kernel exactly once, and RuntimeError where
    Triton cannot run.
    """

    def __init__(self, kernel: str, old: str, new: str) -> None:
        text = linecache.getlines(launch.kernels().__file__)
        before, start, rest = "".join(text).partition(f"def {kernel}(")
        body, end, after = rest.partition("\n\n\n@triton.jit")
        if not start or body.count(old) != 1:
            raise ValueError(
                f"{old!r} stands {body.count(old)} times in {kernel}; give a piece of its text "
                "that stands there once"
            )
        self.kernel, self.old, self.new = kernel, old, new
        self._line = next(line for line in body.splitlines() if old.splitlines()[0] in line)
        self.module = _module(before + start + body.replace(old, new) + end + after)

    @property
    def kernels(self) -> list:
        """The jitted functions that decode launches, as `watch_decode` takes them."""
        return [self.module.paged_decode_kernel, self.module.reduce_splits_kernel]

    @property
    def change(self) -> str:
        """The line as it stands, and as it became."""
        old = self._line.strip()
        return f"- {old}\n+ {old.replace(self.old, self.new)}"

    def paged_decode(self, *arguments: object, **named: object) -> Tensor:
        """As `launch.paged_decode`, with the changed kernels."""
        with self._in_place():
            return launch.paged_decode(*arguments, **named)

    def paged_prefill(self, *arguments: object, **named: object) -> Tensor:
        """As `launch.paged_prefill`, with the changed kernels."""
        with self._in_place():
            return launch.paged_prefill(*arguments, **named)

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """Launches take these kernels meanwhile; numpy does not warn of the NaN that is wanted."""
        real = launch.kernels
        launch.kernels = lambda: self.module
        try:
            with numpy.errstate(all="ignore"):
                yield
        finally:
            launch.kernels = real

    def __repr__(self) -> str:
        return f"ChangedKernels({self.kernel}, {self.old!r} -> {self.new!r})"


def _module(text: str) -> ModuleType:
    """The text as a module. Triton and the tracer find its lines as they find those of a cell."""
    name = f"changed_kernels_{sha256(text.encode()).hexdigest()[:8]}"
    file = f"<{name}: {CHANGED_COPY}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = ModuleType(name)
    module.__file__ = file
    exec(compile(text, file, "exec"), vars(module))
    return module
