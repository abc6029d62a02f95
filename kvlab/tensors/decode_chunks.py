"""One query over a long past on a CPU: keys and values are copied out of the pool chunk by chunk.

    keys      | chunk | chunk | chunk |      each is copied, then read at once for its scores
    scores    |         q . k         |      of all positions: one softmax over the row
    values    | chunk | chunk | chunk |      each is copied, then read at once for its part of a sum

A chunk is small enough to be in the processor's cache still when it is read. A past that is copied
as a whole goes to memory and comes back: half as long again at 8,192 positions. One softmax over
the row: scores that are infinite or NaN do what they do in the specification.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

CHUNK = 1 << 18  # values of K, or of V, that are copied at once: 1 MiB in float32


def in_chunks(query: Tensor, blocks: Tensor, values_in_a_block: int) -> bool:
    """Whether that pays: on a CPU, over more than one chunk; half precision would round the scores.

    values_in_a_block: of a block's keys (or values) in one layer.
    """
    plain = query.device.type == "cpu" and query.dtype.itemsize >= 4
    return plain and len(blocks) * values_in_a_block > CHUNK


def attend_in_chunks(
    query: Tensor,  # [Hq, d], of one position
    num_kv_heads: int,
    blocks: Tensor,  # ids, in logical order
    block_size: int,
    seen: range,  # which slots the query reads, counted through the blocks; others may hold NaN
    copy: Callable[[str, Tensor], Tensor],
) -> Tensor:
    """Returns [Hq, d]. The query heads of a group are packed as rows over the same keys.

    copy("key" or "value", some of the blocks) gives [their slots, Hkv, d] in the query's dtype, in
    memory that its next call may overwrite.
    """
    packed = query.view(num_kv_heads, -1, query.shape[-1])  # [Hkv, G, d]
    scores = packed.new_empty(*packed.shape[:2], len(seen))
    out = torch.zeros_like(packed)
    chunks = list(_chunks(blocks, block_size, seen, num_kv_heads * query.shape[-1]))
    scaled = packed * query.shape[-1] ** -0.5
    for where, part, slots in chunks:
        keys = copy("key", part)[slots].permute(1, 2, 0)  # [Hkv, d, t]
        scores[:, :, where] = scaled @ keys
    weights = scores.softmax(dim=-1)
    for where, part, slots in chunks:
        values = copy("value", part)[slots].transpose(0, 1)  # [Hkv, t, d]
        out.baddbmm_(weights[:, :, where], values)
    return out.view(query.shape)


def _chunks(
    blocks: Tensor, block_size: int, seen: range, width: int
) -> Iterator[tuple[slice, Tensor, slice]]:
    """Of each chunk: its place among the scores, its blocks, and which of their slots are seen.

    blocks of 4, 2 a chunk, seen 3..13:   . . . 3 | 4 5 6 7 || 8 9 10 11 | 12 13 . .
    places among the scores                     0   1 .. 4     5 ..  8      9 10
    """
    count = max(1, CHUNK // (block_size * width))
    for first in range(0, len(blocks), count):
        base, end = first * block_size, (first + count) * block_size
        start, stop = max(seen.start, base), min(seen.stop, end)
        where = slice(start - seen.start, stop - seen.start)
        yield where, blocks[first : first + count], slice(start - base, stop - base)
