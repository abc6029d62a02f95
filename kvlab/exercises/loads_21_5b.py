"""Section 21.5b's cases of load_tile, what is right for them in torch, and the launch of any piece.

torch and Triton are imported when one of these runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvlab import triton_mode
from kvlab.exercises.launched import fenced, spelt

if TYPE_CHECKING:
    from torch import Tensor

ROWS = TILE = 16  # the smallest that tl.dot takes


def launch_frame(
    kernel: str, tensors: Sequence[Tensor], outs: Sequence[Tensor], *rest: object, **named: object
) -> list[Tensor]:
    """One program of a frame; the results, on the CPU."""
    from kvlab.exercises import frames_21_5b as frames

    device = "cuda" if triton_mode.current().mode == "compiled" else "cpu"
    tensors, outs = [t.to(device) for t in tensors], [t.to(device) for t in outs]
    with fenced([*tensors, *outs]):
        getattr(frames, kernel)[(1,)](*tensors, *outs, *rest, **named)
    return [out.cpu() for out in outs]


def padded(width: int) -> int:
    """The next power of two, and no less than tl.dot takes."""
    return max(16, 1 << (width - 1).bit_length())


@dataclass(frozen=True)
class LoadCase:
    """A tile of one request's positions. tables: of all requests, a block id an entry.

    The number i of KV head h at position t of request r is 100 r + t + h / 10 + i / 1000, so that
    a wrong number says where it was read. What nobody wrote is NaN; block 0 is nobody's.
    """

    tables: tuple[tuple[int, ...], ...]
    length: int
    request: int = 0
    start: int = 0
    block_size: int = 4
    num_kv_heads: int = 1
    kv_head: int = 0
    head_dim: int = 4
    is_tight: bool = False  # the tables end in memory with the last request's last block
    parts = ("tile",)

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        return ((TILE, padded(self.head_dim)),)

    @property
    def words(self) -> str:
        heads = f"KV head {self.kv_head} of {self.num_kv_heads}, head_dim {self.head_dim}"
        where = f"request {self.request} of tables {[*map(list, self.tables)]}"
        where += " with nothing behind them" if self.is_tight else ""
        last = self.start + TILE - 1
        return (
            f"positions {self.start} to {last}, length {self.length}, blocks of {self.block_size}, "
            f"{where}, {heads}"
        )

    def cache(self) -> Tensor:
        """[num_blocks, block_size, Hkv, d], and as much again behind it: what is no block is NaN.

        It is large enough for what follows from common mistakes.
        """
        import torch

        most = max(max(table, default=0) for table in self.tables) + self.start + TILE
        shape = (4 * most, self.block_size, self.num_kv_heads, self.head_dim)
        cache, size = torch.full(shape, float("nan")), self.block_size
        for request, table in enumerate(self.tables):
            count = self.length if request == self.request else len(table) * size
            for t in range(count):
                head = torch.arange(self.num_kv_heads)[:, None] / 10
                number = torch.arange(self.head_dim)[None, :] / 1000
                cache[table[t // size], t % size] = 100 * request + t + head + number
        return cache

    def block_table(self) -> Tensor:
        """[R, W]. Shorter tables are padded with 0, as in an engine.

        All are, so that no common mistake leaves them, but for a tight case in the interpreter:
        compiled, nothing would be refused.
        """
        import torch

        width = max(map(len, self.tables))
        if not self.is_tight or triton_mode.current().mode == "compiled":
            width = max(width, self.start + TILE + 1)
        rows = [[*table, *[0] * (width - len(table))] for table in self.tables]
        return torch.tensor(rows, dtype=torch.int32)


def launch_load(piece: Callable, case: LoadCase) -> list[Tensor]:
    import torch

    table, shape = case.block_table(), case.shapes[0]
    return launch_frame(
        "load_frame",
        (case.cache(), table),
        (torch.zeros(shape),),
        *(table.stride(0), case.request, case.kv_head, case.start, case.length),
        BLOCK_SIZE=case.block_size,
        NUM_KV_HEADS=case.num_kv_heads,
        HEAD_DIM=case.head_dim,
        PADDED_DIM=shape[1],
        TILE=TILE,
        PIECE=piece,
    )


def tile_by_indexing(case: LoadCase) -> list[list]:
    """Position after position through the table."""
    import torch

    cache, table, size = case.cache(), case.tables[case.request], case.block_size
    tile = torch.zeros(case.shapes[0])
    for place in range(TILE):
        t = case.start + place
        if t < case.length:
            row = cache[table[t // size], t % size, case.kv_head]
            tile[place, : case.head_dim] = row
    return [spelt(tile)]


def load_cases() -> Sequence[tuple[LoadCase]]:
    ones = (9, 4, 12, 3, 15, 7, 1, 14, 6, 2, 11, 5, 16, 8, 13, 10, 17)
    return tuple(
        (case,)
        for case in (
            LoadCase(((3, 1),), length=6),
            LoadCase(((2, 5), (3, 1)), length=6, request=1),
            LoadCase(((2, 5), (3, 1)), length=7, request=1, is_tight=True),
            LoadCase(((), (3,)), length=0),
            LoadCase(((2,),), length=1, block_size=16, num_kv_heads=2, kv_head=1, head_dim=3),
            LoadCase((ones,), length=15, block_size=1),
            LoadCase(((4, 2, 6, 1),), length=16, num_kv_heads=3, kv_head=2),
            LoadCase((ones,), length=17, start=16, block_size=1),
            LoadCase(((5, 3, 1), (2,)), length=33, start=32, block_size=16, head_dim=20),
            LoadCase(((5, 3, 1), (2,)), length=33, block_size=16, num_kv_heads=2, head_dim=80),
        )
    )
