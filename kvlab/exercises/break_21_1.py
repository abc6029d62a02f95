"""Section 21.1: attention over a padded cache, right and wrong, and a check that tells them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kvlab.exercises.exercise import Exercise, Mistake
from kvlab.exercises.function_kinds import Verdict
from kvlab.exercises.namesakes import labelled
from kvlab.exercises.wrong_21_4 import verdict_mistakes

if TYPE_CHECKING:
    from torch import Tensor

Attend = Callable[["Tensor", "Tensor", "Tensor", list[int]], "Tensor"]


def _attending(readable: Callable[[int, int, list[int]], bool]) -> Attend:
    """attend(query [B, d], keys and values [B, T, d], lengths): the mixtures, [B, d].

    readable(request, position, lengths): whether the request's query reads there.
    """

    def attend(query: Tensor, keys: Tensor, values: Tensor, lengths: list[int]) -> Tensor:
        import torch

        from kvlab.tensors.attention import attend_masked

        batch, width = keys.shape[:2]
        rows = [[readable(b, t, lengths) for t in range(width)] for b in range(batch)]
        mask = torch.tensor(rows)[:, None]  # [B, one query, T]
        return attend_masked(query[:, None, None], keys[:, None], values[:, None], mask)[:, 0, 0]

    return attend


def _zeros_in_the_padding() -> Attend:
    def attend(query: Tensor, keys: Tensor, values: Tensor, lengths: list[int]) -> Tensor:
        keys, values = keys.clone(), values.clone()
        for request, length in enumerate(lengths):
            keys[request, length:] = values[request, length:] = 0
        return _attending(lambda b, t, n: True)(query, keys, values, lengths)

    return attend


def attentions() -> Sequence[tuple[Attend]]:
    """The package's own, and wrong ones; all have one name."""
    right = _attending(lambda b, t, n: t < n[b])
    wrong = {
        "reads the padding, too": _attending(lambda b, t, n: True),
        "reads one position too many": _attending(lambda b, t, n: t <= n[b]),
        "leaves out the newest position": _attending(lambda b, t, n: t < max(n[b] - 1, 1)),
        "takes the first request's length for all": _attending(lambda b, t, n: t < n[0]),
        "puts zeros into the padding, and reads them": _zeros_in_the_padding(),
    }
    return (
        (labelled(right, "attend (the package's own)"),),
        *((labelled(code, f"attend ({what})"),) for what, code in wrong.items()),
    )


def reads_what_it_should(attend: Attend) -> bool:
    """Whether each of many padded requests gets what it gets alone, without padding."""
    import torch

    draw = torch.Generator().manual_seed(3)
    for lengths in ([1, 3], [4, 2, 5], [3, 3, 1, 2]):
        shape = len(lengths), max(lengths) + 1, 4
        keys, values = (torch.randn(shape, generator=draw) for _ in "KV")
        query = torch.randn(len(lengths), 4, generator=draw)
        found = attend(query, keys, values, lengths)
        for b, length in enumerate(lengths):
            scores = keys[b, :length] @ query[b] / 2  # sqrt(4)
            alone = torch.softmax(scores, dim=0) @ values[b, :length]
            if not torch.allclose(found[b], alone, atol=1e-5):
                return False
    return True


def _looks(lengths: list[int], requests: Sequence[int], padding: float = 100.0):
    """A check with one batch: position t of request b has the value 10 b + t, padding another."""

    def check(attend: Attend) -> bool:
        import torch

        query, keys = torch.zeros(len(lengths), 2), torch.zeros(len(lengths), 5, 2)
        values = torch.full((len(lengths), 5, 2), padding)
        for b, length in enumerate(lengths):
            values[b, :length] = torch.arange(10.0 * b, 10 * b + length)[:, None]
        found = attend(query, keys, values, lengths)
        means = [10 * b + (lengths[b] - 1) / 2 for b in range(len(lengths))]
        return all(abs(float(found[b, 0]) - means[b]) < 1e-3 for b in requests)

    return check


PADDING_CHECK = Exercise(
    id="21.1-10",
    question=(
        "Break it. Write padding_is_safe, a check of attend(query, keys, values, lengths), where "
        "query is [B, d], keys and values are [B, T, d] and request b has lengths[b] positions in "
        "front and padding behind them, all of finite numbers. True, if each request's query "
        "reads all of its own positions and nothing else. It is run on the package's own and on "
        "wrong ones."
    ),
    kind=Verdict("padding_is_safe", ("attend",)),
    run=reads_what_it_should,
    cases=attentions,
    truth="after padded requests at random the right verdict is",
    hints=(
        "Build a batch whose right mixtures you can work out in your head. What has to stand in "
        "the padding, so that reading it shows?",
        "With queries of zeros all positions weigh the same, and the mixture is the mean of the "
        "values. Take unequal lengths, and look at each request.",
        "keys and query zeros; values[0, :2] = 2 and 4 with lengths[0] = 2, values[1, :3] = 1, 2, "
        "6 with lengths[1] = 3, and 100 in the padding: the means are 3 and 3.",
    ),
    mistakes=(
        *verdict_mistakes(_looks([2, 3], (0, 1))),
        Mistake(
            "That looks at the first request alone. A wrong one takes its length for all others.",
            _looks([2, 3], (0,)),
        ),
        Mistake(
            "All requests of your batch fill it to the end. Most of the wrong ones show only where "
            "there is padding.",
            _looks([5, 5], (0, 1)),
        ),
    ),
    why="Padding must carry numbers that would be seen, and lengths must differ, or nothing shows.",
)
