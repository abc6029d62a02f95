"""A step as tensors: the rows of a SchedulerOutput laid one after another.

rows            | request A: 3 prompt positions | B: 1 | C: 2 |
input_ids       |  a5   a6   a7                 |  b9  | c0 c1 |
positions       |   5    6    7                 |   9  |  0  1 |
query_start_loc 0                               3      4      6
seq_lens        8 (A)  10 (B)  2 (C)

Section 21.5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from kvlab.core.scheduler_output import ScheduledRequest


@dataclass(frozen=True)
class InputBatch:
    """All integer tensors are int64 on the model's device; N positions, R requests.

    query_lens, seq_lens: Python lists, for code that loops; the same facts stand on the device for
    kernels, which then wait for no copy.
    """

    input_ids: Tensor  # [N]
    positions: Tensor  # [N] counted from 0 within each request
    slot_mapping: Tensor  # [N] where each new position's K/V go
    block_table: Tensor  # [R, longest table], 0 beyond a request's own blocks; see `readable`
    query_lens: list[int]  # [R]
    seq_lens: list[int]  # [R] positions a request has after this step
    last_rows: list[int]  # [R] row of each request's last position
    block_size: int
    seq_lens_on_device: Tensor  # [R]
    query_start_loc_on_device: Tensor  # [R + 1]

    @property
    def query_start_loc(self) -> list[int]:
        """[R + 1] first row of each request, then N."""
        return [0, *accumulate(self.query_lens)]

    @property
    def is_pure_decode(self) -> bool:
        """Every request computes one position."""
        return len(self.query_lens) == self.input_ids.shape[0]

    @property
    def num_leading_decodes(self) -> int:
        """Requests that compute one position and stand before all that compute more."""
        return next((i for i, n in enumerate(self.query_lens) if n > 1), len(self.query_lens))


def build_input_batch(
    rows: tuple[ScheduledRequest, ...], block_size: int, device: torch.device
) -> InputBatch:
    """Flatten scheduled requests. Logical position t is slot table[t // bs] * bs + t % bs.

    All numbers go to the device in one copy, for which the host does not wait.
    """
    ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    last_rows: list[int] = []
    for row in rows:
        ids.extend(row.token_ids)
        where = range(row.start, row.end)
        positions.extend(where)
        table = row.block_ids
        slots.extend([table[t // block_size] * block_size + t % block_size for t in where])
        last_rows.append(len(ids) - 1)
    width = max(len(row.block_ids) for row in rows)
    table = [n for row in rows for n in _padded(readable(row.block_ids), width)]
    query_lens, seq_lens = [len(row.token_ids) for row in rows], [row.end for row in rows]
    starts = [0, *accumulate(query_lens)]
    *each, table, lens, starts = _on_device(
        (ids, positions, slots, table, seq_lens, starts), device
    )
    table = table.view(len(rows), width)
    return InputBatch(*each, table, query_lens, seq_lens, last_rows, block_size, lens, starts)


def _padded(block_ids: Sequence[int], width: int) -> list[int]:
    return [*block_ids, *([0] * (width - len(block_ids)))]


def _on_device(lists: Sequence[list[int]], device: torch.device) -> list[Tensor]:
    """Each as a tensor. They lie in one piece of memory, every one at a multiple of 16 bytes, for
    which Triton compiles faster loads."""
    flat: list[int] = []
    places: list[slice] = []
    for numbers in lists:
        places.append(slice(len(flat), len(flat) + len(numbers)))
        flat += numbers
        flat += [0] * (len(flat) % 2)  # 8 bytes each
    host = torch.tensor(flat, dtype=torch.long, pin_memory=device.type == "cuda")
    together = host.to(device, non_blocking=True)
    return [together[place] for place in places]


def readable(block_ids: Sequence[int | None]) -> Sequence[int]:
    """A request's table with an id in every place, as tensors need it.

    Blocks that are out of the window (None, they lead the table) belong to others by now. No
    query reads those positions; the request's first held block stands there, so that even what is
    gathered under a mask is its own.
    """
    if block_ids[0] is not None:
        return block_ids
    out = block_ids.count(None)
    return [block_ids[out]] * out + list(block_ids[out:])
