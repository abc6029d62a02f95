"""Section 21.5b: merges of splits, right and wrong, and a check that tells them. Plain torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kvlab.exercises.exercise import Exercise, Mistake
from kvlab.exercises.function_kinds import Verdict
from kvlab.exercises.namesakes import labelled
from kvlab.exercises.runs_21_5b import merge_cases, merged_by_softmax
from kvlab.exercises.wrong_21_4 import verdict_mistakes

if TYPE_CHECKING:
    from torch import Tensor

Merge = Callable[["Tensor", "Tensor"], "Tensor"]
NONE = -math.inf


def _merging(power: float = 2.0, *, take_off: bool = True, guard: bool = True) -> Merge:
    """merge(part [splits, d], lse2 [splits]): the mixture, [d]."""

    def merge(part: Tensor, lse2: Tensor) -> Tensor:
        largest = lse2.max() if take_off else lse2.new_zeros(())
        if guard and not largest > NONE:
            largest = largest.new_zeros(())
        weight = power ** (lse2 - largest)
        total = weight.sum()
        return weight @ part / (total if total > 0 or not guard else 1.0)

    return merge


def _mean() -> Merge:
    def merge(part: Tensor, lse2: Tensor) -> Tensor:
        return part.mean(dim=0)

    return merge


def _largest_only() -> Merge:
    def merge(part: Tensor, lse2: Tensor) -> Tensor:
        return part[lse2.argmax()]

    return merge


def merges() -> Sequence[tuple[Merge]]:
    """A right one, and wrong ones; all have one name."""
    wrong = {
        "weighs all splits alike": _mean(),
        "takes the heaviest split alone": _largest_only(),
        "takes lse2 for a natural logarithm": _merging(math.e),
        "does not take the largest off first": _merging(take_off=False),
        "divides by 0 where all splits are empty": _merging(guard=False),
    }
    return (
        (labelled(_merging(), "merge (as the package's kernel)"),),
        *((labelled(code, f"merge ({what})"),) for what, code in wrong.items()),
    )


def agrees_with_a_softmax(merge: Merge) -> bool:
    """Whether it gives, on the cases of 21.5b-4, what a softmax over the splits gives."""
    import torch

    for (case,) in merge_cases():
        wanted = torch.tensor(merged_by_softmax(case)[0], dtype=torch.float32)
        if not torch.allclose(merge(*case.inputs()), wanted, atol=1e-4):
            return False
    return True


def _tries(*cases: tuple[list[float], list[float], float]) -> Callable[[Merge], bool]:
    """A check: (what the splits say, their lse2, what is right) of each case."""

    def check(merge: Merge) -> bool:
        import torch

        found = [
            float(merge(torch.tensor(says)[:, None], torch.tensor(lse2))[0])
            for says, lse2, _right in cases
        ]
        return all(abs(f - case[2]) < 1e-3 for f, case in zip(found, cases, strict=True))

    return check


UNEQUAL = [3.0, 6.0], [1.0, 0.0], 4.0
EMPTY = [0.0, 0.0], [NONE, NONE], 0.0
LARGE = [3.0, 6.0], [301.0, 300.0], 4.0
EQUAL = [3.0, 6.0], [1.0, 1.0], 4.5

MERGE_CHECK = Exercise(
    id="21.5b-5",
    question=(
        "Break it. Write merge_is_right, a check of a merge(part, lse2) in plain torch: part is "
        "[splits, d], lse2 [splits]. True, if it weighs each split by 2 ** lse2, for any lse2 that "
        "a long context can give, and for splits that are empty (part 0, lse2 minus infinity). It "
        "is run on a right one and on wrong ones."
    ),
    kind=Verdict("merge_is_right", ("merge",)),
    run=agrees_with_a_softmax,
    cases=merges,
    truth="the right verdict is",
    against="a softmax over the splits",
    hints=(
        "Which weights can you work out in your head? And for which values of lse2 would a "
        "plain formula give something else?",
        "Three inputs are needed: splits of unequal weight, splits that are all empty, and an "
        "lse2 of some hundreds, whose power is too large for a float.",
        "part [[3.], [6.]] with lse2 [1., 0.] is 4, and with [301., 300.] as well; zeros with "
        'lse2 of float("-inf") twice are 0, and not NaN.',
    ),
    mistakes=(
        *verdict_mistakes(_tries(UNEQUAL, EMPTY, LARGE), "the right one"),
        Mistake(
            "Your lse2 are small. Take some of a few hundred, whose powers overflow.",
            _tries(UNEQUAL, EMPTY),
        ),
        Mistake(
            "Let all splits be empty once: 0 / 0 is NaN.",
            _tries(UNEQUAL, LARGE),
        ),
        Mistake(
            "Splits of equal weight look right under any base, and under none.",
            _tries(EQUAL, EMPTY, ([3.0, 6.0], [300.0, 300.0], 4.5)),
        ),
    ),
    why="Unequal, empty and large: each finds a line that the other two let pass.",
)
