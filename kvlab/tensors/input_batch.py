"""A step as tensors: the rows of a SchedulerOutput laid one after another.

rows            | request A: 3 prompt positions | B: 1 | C: 2 |
input_ids       |  a5   a6   a7                 |  b9  | c0 c1 |
positions       |   5    6    7                 |   9  |  0  1 |
query_start_loc 0                               3      4      6
seq_lens        8 (A)  10 (B)  2 (C)
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from kvlab.core.scheduler_output import ScheduledRequest


@dataclass(frozen=True)
class InputBatch:
    """All integer tensors are int64 on the model's device; N positions, R requests.

    query_lens, seq_lens, block_tables: the same facts as Python lists, for code that loops.
    """

    input_ids: Tensor  # [N]
    positions: Tensor  # [N] counted from 0 within each request
    slot_mapping: Tensor  # [N] where each new position's K/V go
    block_table: Tensor  # [R, longest table], 0 beyond a request's own blocks
    query_lens: list[int]  # [R]
    seq_lens: list[int]  # [R] positions a request has after this step
    last_rows: list[int]  # [R] row of each request's last position
    block_size: int

    @property
    def query_start_loc(self) -> list[int]:
        """[R + 1] first row of each request, then N."""
        starts = [0]
        for n in self.query_lens:
            starts.append(starts[-1] + n)
        return starts

    @property
    def is_pure_decode(self) -> bool:
        """Every request computes one position."""
        return len(self.query_lens) == self.input_ids.shape[0]


def build_input_batch(
    rows: tuple[ScheduledRequest, ...], block_size: int, device: torch.device
) -> InputBatch:
    """Flatten scheduled requests. Logical position t is slot table[t // bs] * bs + t % bs."""
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
    table = [[*row.block_ids, *([0] * (width - len(row.block_ids)))] for row in rows]
    packed = torch.tensor([ids, positions, slots], dtype=torch.long, device=device)
    return InputBatch(
        *packed,
        torch.tensor(table, dtype=torch.long, device=device),
        [len(row.token_ids) for row in rows],
        [row.end for row in rows],
        last_rows,
        block_size,
    )
