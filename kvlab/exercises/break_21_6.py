"""Section 21.6: appends to a layer's cache, right and wrong, and a check that tells them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kvlab.exercises.exercise import Exercise, Mistake
from kvlab.exercises.function_kinds import Verdict
from kvlab.exercises.namesakes import labelled
from kvlab.exercises.runs_21_6 import append_cases, append_to_a_real_cache
from kvlab.exercises.wrong_21_4 import verdict_mistakes

if TYPE_CHECKING:
    from torch import Tensor

Append = Callable[["Tensor", "Tensor", "Tensor", "Tensor"], "tuple[Tensor, Tensor]"]


def _joining(order: Callable[[Tensor, Tensor], tuple], *, values_from_keys: bool = False) -> Append:
    """An append that joins, in dimension 2, what `order` makes of the cached and the new."""

    def append(keys: Tensor, values: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        import torch

        new = k if values_from_keys else v
        return torch.cat(order(keys, k), dim=2), torch.cat(order(values, new), dim=2)

    return append


def _real() -> Append:
    def append(keys: Tensor, values: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        import torch

        wide = (torch.cat((x, x), dim=-1) for x in (keys, values, k, v))  # a cache's width is even
        found = append_to_a_real_cache(*wide)
        return found[0][..., : k.shape[-1]], found[1][..., : k.shape[-1]]

    return append


def appends() -> Sequence[tuple[Append]]:
    """A real cache's, and wrong ones; all have one name."""
    wrong = {
        "puts the newest position first": _joining(lambda old, new: (new, old)),
        "keeps keys where values should be": _joining(
            lambda old, new: (old, new), values_from_keys=True
        ),
        "drops the oldest position": _joining(lambda old, new: (old[:, :, 1:], new)),
        "keeps one new position of several": _joining(lambda old, new: (old, new[:, :, -1:])),
        "changes the position before the new one": _joining(
            lambda old, new: (old[:, :, :-1], new[:, :, :1], new)
        ),
    }
    return (
        (labelled(_real(), "append (a real cache's)"),),
        *((labelled(code, f"append ({what})"),) for what, code in wrong.items()),
    )


def keeps_everything(append: Append) -> bool:
    """Whether it leaves, on the cases of 21.6-5, what a real cache holds."""
    import torch

    for case in append_cases():
        copies = tuple(x.clone() for x in case)
        pairs = zip(append(*copies), append_to_a_real_cache(*case), strict=True)
        if not all(torch.equal(found, wanted) for found, wanted in pairs):
            return False
    return True


def _looks(new: int, *, keys: bool = True, values: bool = True, newest: bool = False):
    """A check with three cached positions, 1, 2, 3 as keys and 11, 12, 13 as values."""

    def check(append: Append) -> bool:
        import torch

        numbers = torch.arange(1.0, 4 + new).view(1, 1, -1, 1)
        old, fresh = numbers[:, :, :3], numbers[:, :, 3:]
        found = append(old, old + 10, fresh, fresh + 10)
        wanted = numbers, numbers + 10
        start = 3 if newest else 0
        return all(
            f.shape == w.shape and torch.equal(f[:, :, start:], w[:, :, start:])
            for f, w, asked in zip(found, wanted, (keys, values), strict=True)
            if asked
        )

    return check


APPEND_CHECK = Exercise(
    id="21.6-6",
    question=(
        "Break it. Write append_is_right, a check of an append(keys, values, k, v) as in 21.6-5. "
        "True, if all cached positions stay what they were, and the keys and values of all new "
        "tokens stand behind them, in their order. It is run on a real cache's and on wrong ones."
    ),
    kind=Verdict("append_is_right", ("append",)),
    run=keeps_everything,
    cases=appends,
    truth="on the inputs of 21.6-5 the right verdict is",
    hints=(
        "Which of the numbers of the result would each wrong append change? Choose inputs whose "
        "every number can be told from every other.",
        "Append several tokens at once to several cached positions, and compare keys and values, "
        "the old positions and the new ones.",
        "keys 1, 2, 3 and values 11, 12, 13, [1, 1, 3, 1]; k 4, 5 and v 14, 15. torch.equal of "
        "keys with 1 to 5 and of values with 11 to 15.",
    ),
    mistakes=(
        *verdict_mistakes(_looks(2)),
        Mistake(
            "That looks at the keys alone. The values can be wrong where the keys are right.",
            _looks(2, values=False),
        ),
        Mistake(
            "That appends a single token. A wrong one keeps one of several.",
            _looks(1),
        ),
        Mistake(
            "That looks at the new positions alone. Earlier ones must stay as they were.",
            _looks(2, newest=True),
        ),
    ),
    why="A pass adds positions and changes none: checking the new ones only is half the check.",
)
