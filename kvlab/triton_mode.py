"""Whether Triton compiles its kernels for a GPU or interprets them on the CPU, and why.

Triton decides once, when it is first imported: its own language functions are built one way or the
other then, and a TRITON_INTERPRET that is set later gives a mixture that fails. So `choose` comes
before the first import of triton, and `current` reads back what Triton was really built with.
"""

import os
import sys
from dataclasses import dataclass
from types import ModuleType

VARIABLE = "TRITON_INTERPRET"
_asked_by_kvlab = False  # True once `choose` has set the variable itself
_bounds_are_mended = False  # True once the interpreter's loops take numpy's newer arrays


@dataclass(frozen=True)
class TritonMode:
    """`mode` is "compiled", "interpreted", "mixed" (unusable) or None (Triton is not installed)."""

    mode: str | None
    reason: str
    usable: bool  # a kernel can be launched


def has_gpu() -> bool:
    """Whether torch sees a device for which Triton compiles (CUDA or ROCm)."""
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def choose() -> None:
    """Ask for the interpreter where there is no GPU, unless the user set TRITON_INTERPRET."""
    global _asked_by_kvlab
    if VARIABLE in os.environ or "triton" in sys.modules or has_gpu():
        return
    os.environ[VARIABLE] = "1"
    _asked_by_kvlab = True


def current() -> TritonMode:
    """Import triton, after `choose`, and say what its language functions were built with."""
    early = "triton" in sys.modules and VARIABLE not in os.environ
    choose()
    try:
        import triton
        import triton.language as tl
    except ImportError as error:
        return TritonMode(None, f"it cannot be imported: {error}", usable=False)
    interpreted = type(tl.sum).__name__ == "InterpretedFunction"
    if bool(triton.knobs.runtime.interpret) != interpreted:
        built = "interpreted" if interpreted else "compiled"
        now = os.environ.get(VARIABLE, "unset")
        reason = f"triton was imported to be {built}, but {VARIABLE} is now {now}"
        return TritonMode("mixed", reason, usable=False)
    if interpreted:
        _mend_loop_bounds(triton)
        return TritonMode("interpreted", _why_interpreted(), usable=True)
    return TritonMode("compiled", *_why_compiled(early))


def _mend_loop_bounds(triton: ModuleType) -> None:
    """Let Triton 3.6's interpreter run `for x in range(tensor)` beside numpy 2.4 and later.

    It makes a bound an integer by int(array of one number), which numpy gives no more. 3.7 asks in
    another way. Nothing else is changed.
    """
    global _bounds_are_mended
    if _bounds_are_mended or not triton.__version__.startswith("3.6."):
        return
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patch_and_mend(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda number: int(number.handle.data.item()))

    interpreter._patch_lang_tensor = patch_and_mend
    _bounds_are_mended = True


def _why_interpreted() -> str:
    if _asked_by_kvlab:
        return "torch sees no CUDA device, so kvlab asked for the interpreter"
    value = os.environ.get(VARIABLE, "")
    return f"{VARIABLE}={value} stood in the environment"


def _why_compiled(early: bool) -> tuple[str, bool]:
    if has_gpu():
        return "torch sees a CUDA device", True
    if early:
        return "triton was imported before kvlab could ask for its interpreter", False
    value = os.environ.get(VARIABLE, "")
    return f"{VARIABLE}={value} was set, but torch sees no CUDA device", False
