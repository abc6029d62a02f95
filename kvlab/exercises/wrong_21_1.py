"""Section 21.1's known mistakes in functions: each written out, with what to say to it."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from kvlab.exercises.exercise import Mistake

if TYPE_CHECKING:
    from torch import Tensor


def _without(place: int, says: str) -> Mistake:
    """The product of eq 21.2 with one argument left out."""
    return Mistake(says, lambda *a: 2 * prod(x for i, x in enumerate(a) if i != place))


def pattern_of_three_moments(value: list[int | float]) -> str:
    """What the bytes of 21.1-1's three moments say, where each of them is wrong."""
    prompt, selected, processed = value
    if prompt != selected:
        return "The first two differ: you let the selection change the cache."
    if processed <= selected:
        return "The pass that processes a token adds its keys and values."
    if processed * 3 == prompt * 4:
        return "The positions are understood. Look again at the size of one."
    return "The first two are rightly equal, and the third larger. Look again at the sizes."


BYTES = (
    Mistake(
        "That counts keys only (or values only): the factor 2 for keys and values is missing.",
        lambda *a: prod(a),
    ),
    Mistake("That is bits. A byte has eight of them.", lambda *a: 16 * prod(a)),
    Mistake("That is GiB. The name promises bytes.", lambda *a: 2 * prod(a) / 2**30),
    Mistake("That is GB, 10^9 bytes. The name promises bytes.", lambda *a: 2 * prod(a) / 10**9),
    _without(0, "That is one layer. Every layer has keys and values of its own."),
    _without(1, "That is one request. All of the batch are kept."),
    _without(2, "That is one KV head. Each of them has keys and values of its own."),
    _without(3, "That is the growth for one position, eq 21.3. All positions are kept."),
    _without(4, "That counts vectors. Each has head_dim numbers."),
    _without(5, "That counts numbers. Each takes bytes_per_value bytes."),
)

KV_HEAD = (
    Mistake(
        "That deals the query heads out in turn, as cards. A group is made of neighbours.",
        lambda h, queries, heads: h % heads,
    ),
    Mistake(
        "That gives each query head a KV head of its own, which is MHA.",
        lambda h, queries, heads: h,
    ),
    Mistake(
        "That divides by the number of KV heads, which is the number of groups. Divide by the "
        "size of a group.",
        lambda h, queries, heads: h // heads,
    ),
    Mistake(
        "That is a fraction of a head. Every query head of a group reads the same one.",
        lambda h, queries, heads: h / (queries / heads),
    ),
    Mistake(
        "That is the place inside the group. Which group is it?",
        lambda h, queries, heads: h % (queries // heads),
    ),
)


def _mask(lengths: list[int], new: int, real: bool = True, later: int = 0, pads_first=False):
    """key_mask with a fault: `real` False reads padding; `later` shifts the causal rule."""
    width = max(lengths)

    def may_read(n: int, i: int, j: int) -> bool:
        if j >= width:
            return j - width <= i + later
        return not real or (j >= width - n if pads_first else j < n)

    columns = range(width + new)
    return [[[may_read(n, i, j) for j in columns] for i in range(new)] for n in lengths]


def _inverted(lengths: list[int], new: int) -> list:
    return [[[not x for x in row] for row in rows] for rows in _mask(lengths, new)]


KEY_MASK = (
    Mistake(
        "That reads the padding. Nothing of a shorter request stands in those columns.",
        lambda lengths, new: _mask(lengths, new, real=False),
    ),
    Mistake(
        "That lets a new token read the ones after it. The causal rule holds among them too.",
        lambda lengths, new: _mask(lengths, new, later=new),
    ),
    Mistake(
        "That hides a new token's own key. A query reads its own position as well.",
        lambda lengths, new: _mask(lengths, new, later=-1),
    ),
    Mistake(
        "That pads at the left. Here the prompts begin in column 0.",
        lambda lengths, new: _mask(lengths, new, pads_first=True),
    ),
    Mistake(
        "That is the other way round: True is asked for where a query may read.",
        _inverted,
    ),
)


def _step(q: Tensor, keys: Tensor, mixed: Tensor, scale: float) -> Tensor:
    import torch

    return torch.softmax(keys @ q / scale, dim=0) @ mixed


def _with(row: Tensor, rows: Tensor) -> Tensor:
    import torch

    return torch.cat((rows, row[None]))


DECODE_STEP = (
    Mistake(
        "The new token does not read its own key and value. Append them before the query reads.",
        lambda q, k, v, keys, values: _step(q, keys, values, len(q) ** 0.5),
    ),
    Mistake(
        "The scores are not divided by sqrt(d).",
        lambda q, k, v, keys, values: _step(q, _with(k, keys), _with(v, values), 1.0),
    ),
    Mistake(
        "The scores are divided by d. It is its square root.",
        lambda q, k, v, keys, values: _step(q, _with(k, keys), _with(v, values), len(q)),
    ),
    Mistake(
        "That mixes the keys. Keys are compared, values are mixed.",
        lambda q, k, v, keys, values: _step(q, _with(k, keys), _with(k, keys), len(q) ** 0.5),
    ),
    Mistake(
        "The weights do not sum to 1: the softmax is missing.",
        lambda q, k, v, keys, values: (_with(k, keys) @ q / len(q) ** 0.5) @ _with(v, values),
    ),
    Mistake(
        "That is the mean of the values. The query's scores weight them.",
        lambda q, k, v, keys, values: _with(v, values).mean(0),
    ),
)
