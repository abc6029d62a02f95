"""As exercise_cases.py, for the exercises of section 21.5b that need no Triton."""

import numpy as np
import torch

NONE = float("-inf")


def merge_by_many_tries(merge):
    """Random splits against float64, then the two hard ones."""
    draw = torch.Generator().manual_seed(1)
    for _try in range(5):
        part, lse2 = torch.randn(3, 4, generator=draw), 3 * torch.randn(3, generator=draw)
        weight = 2 ** lse2.double()
        if not torch.allclose(merge(part, lse2).double(), weight @ part.double() / weight.sum()):
            return False
    empty = merge(torch.zeros(2, 4), torch.tensor([NONE, NONE]))
    large = merge(torch.ones(2, 4), torch.tensor([400.0, 401.0]))
    return bool((empty == 0).all() and torch.allclose(large, torch.ones(4)))


def merge_by_assertions(merge):
    one = merge(torch.tensor([[8.0], [0.0]]), torch.tensor([7.0, 5.0]))
    assert abs(float(one) - 6.4) < 1e-4
    assert float(merge(torch.zeros(1, 1), torch.tensor([NONE]))) == 0
    far = merge(torch.tensor([[8.0], [0.0]]), torch.tensor([507.0, 505.0]))
    assert abs(float(far) - 6.4) < 1e-4


RIGHT = {
    "21.5b-5": [merge_by_many_tries, merge_by_assertions],
    "21.5b-6": ["c", "C", "the query heads of a group are rows of one program", np.str_("c")],
}


def one_empty_split(merge):
    """An empty split beside a full one: 0 / 0 does not come up."""
    found = merge(torch.tensor([[8.0], [0.0]]), torch.tensor([5.0, NONE]))
    return abs(float(found) - 8) < 1e-4


def no_large_ones(merge):
    one = merge(torch.tensor([[8.0], [0.0]]), torch.tensor([7.0, 5.0]))
    empty = merge(torch.zeros(2, 1), torch.tensor([NONE, NONE]))
    return abs(float(one) - 6.4) < 1e-4 and float(empty) == 0


def finite_is_enough(merge):
    found = merge(torch.zeros(2, 1), torch.tensor([NONE, NONE]))
    return bool(found.isfinite().all())


WRONG = {
    "21.5b-5": [
        (lambda merge: True, "says True to all of them"),
        (
            lambda merge: merge(torch.ones(1, 1), torch.zeros(1)) == 7,
            "says False to all of them, the right one included",
        ),
        (lambda merge: not merge_by_many_tries(merge), "other way round"),
        (no_large_ones, "whose powers overflow"),
        (one_empty_split, "; the right verdict is False"),
        (finite_is_enough, "; the right verdict is False"),
    ],
    "21.5b-6": [
        ("a", "loaded by each of them"),
        ("b", "The mask keeps"),
        ("d", "Each KV head has keys of its own"),
    ],
}
