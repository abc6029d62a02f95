"""A piece of a Triton kernel to write: one function, which the exercise launches over its cases."""

from __future__ import annotations

import ast
import dis
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvlab import triton_mode
from kvlab.exercises.calls import is_stub
from kvlab.exercises.kinds import Function
from kvlab.exercises.launched import Launch, Launched
from kvlab.exercises.reading import Elsewhere, Unreadable, show

if TYPE_CHECKING:
    from kvlab.exercises.calls import Outcome


ROUNDS = (
    'Write tl.dot(..., input_precision="ieee"): without it a GPU may round what it multiplies to '
    "10 binary digits (tf32). The interpreter does not, so it could not show this."
)


@dataclass(frozen=True)
class KernelPiece(Function):
    """launch: runs a piece over a case. Its value is a list of tensors, one for each part."""

    launch: Launch = None

    @property
    def asked(self) -> str:
        return f"the function {self.name} itself, with @triton.jit above it"

    def read(self, answer: object) -> Callable:
        """A stub as it is; anything else as a function of a case."""
        if isinstance(answer, Launched):
            return answer
        piece = answer.fn if _is_jitted(answer) else answer
        super().read(piece)
        if is_stub(piece):
            return piece
        if _calls_itself(piece):
            raise Unreadable(
                "You gave a function that calls itself; Triton knows no recursion. Use a loop."
            )
        mode = triton_mode.current()
        if not mode.usable:
            raise Elsewhere(f"Triton cannot run a kernel here: {mode.reason}")
        if mode.mode == "compiled" and piece is answer:
            raise Unreadable(f"You gave a plain function; give {self.asked}.")
        return Launched(answer, self.launch)

    def unseen(self, function: Callable) -> tuple[str, ...]:
        """That a product may be rounded on a GPU, where the piece does not say "ieee"."""
        return (ROUNDS,) if _has_a_dot_that_rounds(function.piece) else ()

    def example(self, arguments: tuple, outcome: Outcome, wanted: object, truth: str) -> str:
        """Where in the first case that fails it goes wrong."""
        (case,) = arguments
        if outcome.failure or not isinstance(outcome.value, list):
            did = outcome.failure or f"gives {show(outcome.value)}"
            return f"{self.name} over {case.words}: {did}."
        for name, right, mine in zip(case.parts, wanted, outcome.value, strict=True):
            if found := difference(right, mine):
                place, right, mine = found
                mine, right = (x if isinstance(x, str) else show(x) for x in (mine, right))
                return f"{self.name} over {case.words}: {name}{place} is {mine}; {truth} {right}."
        return f"{self.name} over {case.words}: it gives {show(outcome.value)}."


def _is_jitted(answer: object) -> bool:
    """Whether @triton.jit stood above it; asks no object of another kind for anything."""
    return type(answer).__module__.startswith("triton.") and hasattr(answer, "fn")


def _calls_itself(piece: Callable) -> bool:
    """Whether its own name is among the globals that it uses; tl.load is none of these."""
    code = getattr(piece, "__code__", None)
    steps = dis.get_instructions(code) if code else ()
    return any(step.opname == "LOAD_GLOBAL" and step.argval == code.co_name for step in steps)


def _has_a_dot_that_rounds(piece: Callable) -> bool:
    """Whether a tl.dot in its source does without "ieee"; False where there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(piece)))
    except (OSError, TypeError, SyntaxError):
        return False
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    dots = [call for call in calls if getattr(call.func, "attr", "") == "dot"]
    return any('"ieee"' not in ast.unparse(call).replace("'", '"') for call in dots)


def difference(right: object, mine: object) -> tuple[list[int], object, object] | None:
    """The first entry that differs: where it is, and both values. None if none does."""
    if isinstance(right, list):
        for place, pair in enumerate(zip(right, mine, strict=True)):
            if found := difference(*pair):
                return [place, *found[0]], *found[1:]
        return None
    numbers = isinstance(right, float | int) and isinstance(mine, float | int)
    same = abs(right - mine) <= 1e-6 + 1e-4 * abs(right) if numbers else right == mine
    return None if same else ([], right, mine)
