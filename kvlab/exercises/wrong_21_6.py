"""Section 21.6's known mistakes in functions: each written out, with what to say to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvlab.exercises.exercise import Mistake

if TYPE_CHECKING:
    from torch import Tensor

POSITION_AS_INDEX = (
    "That uses the position as the index of the table. The table has one entry a block, not one a "
    "position."
)

CACHE_LENGTHS = (
    Mistake(
        "That adds a pass for the last output. The request has ended, and nobody reads it.",
        lambda p, n: [p + i for i in range(n + 1)],
    ),
    Mistake(
        "That counts what has been selected. After a pass the newest output has no keys and "
        "values yet.",
        lambda p, n: [p + i + 1 for i in range(n)],
    ),
    Mistake(
        "The prompt's pass is missing. It fills the cache, and selects the first output.",
        lambda p, n: [p + i for i in range(1, n)],
    ),
    Mistake(
        "The prompt's positions are missing: its pass leaves them all in the cache.",
        lambda p, n: list(range(n)),
    ),
    Mistake(
        "That is what each pass adds. The cache holds the sum so far.",
        lambda p, n: [p] + [1] * (n - 1),
    ),
    Mistake(
        "That reads the prompt token by token. Its pass takes all of it at once.",
        lambda p, n: list(range(1, p + n)),
    ),
)

SLOT = (
    Mistake(
        "That is the logical position. The block table says where its block really lies.",
        lambda t, table, size: t,
    ),
    Mistake(
        "That adds to the block's id. Its first slot is block_id * block_size.",
        lambda t, table, size: table[t // size] + t % size,
    ),
    Mistake(
        "That is the block's first slot. Add the place inside it, t % block_size.",
        lambda t, table, size: table[t // size] * size,
    ),
    Mistake("That is the place inside the block.", lambda t, table, size: t % size),
    Mistake("That is the block. Which of its slots?", lambda t, table, size: table[t // size]),
    Mistake(
        "That is the pair of block and place inside it. The pool counts its slots through: "
        "block_id * block_size + place.",
        lambda t, table, size: (table[t // size], t % size),
    ),
    Mistake(
        "That takes the last entry of the table. Position t may lie in an earlier block.",
        lambda t, table, size: table[-1] * size + t % size,
    ),
    Mistake(
        f"{POSITION_AS_INDEX} What it holds is a block, too: which of its slots is it?",
        lambda t, table, size: table[t],
    ),
    Mistake(
        POSITION_AS_INDEX,
        lambda t, table, size: table[t] * size + t % size,
    ),
)


def _cat(*parts: Tensor) -> Tensor:
    import torch

    return torch.cat(parts, dim=2)


APPEND = (
    Mistake(
        "That puts the new positions first. Logical order wants them last.",
        lambda keys, values, k, v: (_cat(k, keys), _cat(v, values)),
    ),
    Mistake(
        "That writes over the newest positions. Nothing earlier may change.",
        lambda keys, values, k, v: (
            _cat(keys[:, :, : -k.shape[2]], k),
            _cat(values[:, :, : -v.shape[2]], v),
        ),
    ),
    Mistake(
        "That drops the oldest positions, as a sliding window does. Here all are kept.",
        lambda keys, values, k, v: (
            _cat(keys, k)[:, :, k.shape[2] :],
            _cat(values, v)[:, :, v.shape[2] :],
        ),
    ),
    Mistake(
        "That is the new part alone. The earlier positions stay.",
        lambda keys, values, k, v: (k, v),
    ),
    Mistake(
        "Keys and values have changed places.",
        lambda keys, values, k, v: (_cat(values, v), _cat(keys, k)),
    ),
    Mistake(
        "The new keys went into the values as well.",
        lambda keys, values, k, v: (_cat(keys, k), _cat(values, k)),
    ),
    Mistake(
        "That leaves the cache as it was. The pass stores the token that it reads.",
        lambda keys, values, k, v: (keys, values),
    ),
)
