"""As loads_21_5b.py, for the other pieces: scores, the online softmax, the merge of splits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvlab.exercises.launched import spelt
from kvlab.exercises.loads_21_5b import ROWS, TILE, launch_frame, padded

if TYPE_CHECKING:
    from torch import Tensor

LOG2E = math.log2(math.e)


def _seeded(*shape: int) -> Tensor:
    import torch

    return torch.randn(shape, generator=torch.Generator().manual_seed(math.prod(shape)))


# ---- tile_scores


@dataclass(frozen=True)
class ScoreCase:
    """Queries of a group as rows, and a tile of keys; in the first case by hand."""

    length: int
    start: int = 0
    head_dim: int = 16
    by_hand: bool = False
    parts = ("score2",)
    shapes = ((ROWS, TILE),)

    @property
    def words(self) -> str:
        last = self.start + TILE - 1
        how = " (key of position t: 0.5 + t, 0, 0, 0; query: 2, 0, 0, 0)" if self.by_hand else ""
        return (
            f"positions {self.start} to {last}, length {self.length}, head_dim {self.head_dim}{how}"
        )

    def inputs(self) -> tuple[Tensor, Tensor]:
        """query [ROWS, padded d], three rows of which are used, and key [TILE, padded d]."""
        import torch

        width = padded(self.head_dim)
        query, key = torch.zeros(ROWS, width), torch.zeros(TILE, width)
        there = min(TILE, max(0, self.length - self.start))
        if self.by_hand:
            query[:3, 0] = 2
            key[:there, 0] = torch.arange(there) + 0.5
        else:
            query[:3, : self.head_dim] = _seeded(3, self.head_dim)
            key[:there, : self.head_dim] = _seeded(there, self.head_dim)
        return query, key


def launch_scores(piece: Callable, case: ScoreCase) -> list[Tensor]:
    import torch

    query, key = case.inputs()
    return launch_frame(
        "score_frame",
        (query, key),
        (torch.zeros(ROWS, TILE),),
        *(case.start, case.length, LOG2E / math.sqrt(case.head_dim)),
        ROWS=ROWS,
        PADDED_DIM=query.shape[1],
        TILE=TILE,
        PIECE=piece,
    )


def scores_by_formula(case: ScoreCase) -> list[list]:
    """log2(e) times q . k / sqrt(d), in float64."""
    import torch

    query, key = (x.double() for x in case.inputs())
    score2 = query @ key.T / math.sqrt(case.head_dim) * LOG2E
    position = case.start + torch.arange(TILE)
    return [spelt(score2.masked_fill(position >= case.length, float("-inf")))]


def score_cases() -> Sequence[tuple[ScoreCase]]:
    return tuple(
        (case,)
        for case in (
            ScoreCase(length=3, head_dim=4, by_hand=True),
            ScoreCase(length=1),
            ScoreCase(length=15),
            ScoreCase(length=16, head_dim=64),
            ScoreCase(length=17, start=16, head_dim=80),
            ScoreCase(length=33, start=16),
        )
    )


# ---- add_tile


@dataclass(frozen=True)
class StateCase:
    """Scores of the even rows, tile after tile; the odd rows have the same with a minus sign."""

    scores: tuple[tuple[float, ...], ...]  # of each tile: its positions that are there
    parts = ("running_max2", "running_sum", "acc")
    shapes = ((ROWS,), (ROWS,), (ROWS, 16))

    @property
    def words(self) -> str:
        shown = ", then ".join(str([round(s, 2) for s in tile[:4]]) for tile in self.scores)
        more = " ..." if len(self.scores[0]) > 4 else ""
        return f"rows 0, 2, ... with the scores {shown}{more}, rows 1, 3, ... with minus these"

    def inputs(self) -> tuple[Tensor, Tensor]:
        """score2 [tiles, ROWS, TILE], -inf beyond the last, and value [tiles, TILE, 16]."""
        import torch

        score2 = torch.full((len(self.scores), ROWS, TILE), float("-inf"))
        value = torch.zeros(len(self.scores), TILE, 16)
        for tile, found in enumerate(self.scores):
            count = len(found)
            score2[tile, 0::2, :count] = torch.tensor(found)
            score2[tile, 1::2, :count] = -torch.tensor(found)
            value[tile, :count] = tile + 1 + torch.arange(count)[:, None] + torch.arange(16) / 16
        return score2, value


def launch_state(piece: Callable, case: StateCase) -> list[Tensor]:
    import torch

    score2, value = case.inputs()
    outs = tuple(torch.zeros(shape) for shape in case.shapes)
    sizes = {"ROWS": ROWS, "PADDED_DIM": 16, "TILE": TILE}
    return launch_frame(
        "state_frame", (score2, value), outs, len(case.scores), **sizes, PIECE=piece
    )


def state_at_once(case: StateCase) -> list[list]:
    """From all scores together, in float64."""
    import torch

    score2, value = (x.double() for x in case.inputs())
    score2, value = torch.cat([*score2], dim=1), torch.cat([*value])
    max2 = score2.amax(dim=1)
    weight = torch.exp2(score2 - max2[:, None])
    return [spelt(part) for part in (max2, weight.sum(dim=1), weight @ value)]


def state_cases() -> Sequence[tuple[StateCase]]:
    wave = [3 * math.sin(1.7 * t) for t in range(33)]
    return tuple(
        (StateCase(scores),)
        for scores in (
            ((0.0, 1.0), (2.0,)),
            ((5.0,),),
            ((3.0, 1.0), (1.0, 2.0), (0.5,)),
            (tuple(wave[:16]), tuple(wave[16:32]), tuple(wave[32:])),
            ((200.0,), (-200.0, 199.0)),
        )
    )


# ---- merge_splits


@dataclass(frozen=True)
class MergeCase:
    """What each split says in its first number, and its log2-sum-exp2; -inf and 0: it is empty."""

    says: tuple[float, ...]
    lse2: tuple[float, ...]
    parts = ("out",)
    shapes = ((16,),)

    @property
    def words(self) -> str:
        return f"splits that say {list(self.says)} with lse2 {list(self.lse2)}"

    def inputs(self) -> tuple[Tensor, Tensor]:
        import torch

        part = torch.tensor(self.says)[:, None] * (1 + torch.arange(16) / 16)
        return part, torch.tensor(self.lse2)


def launch_merge(piece: Callable, case: MergeCase) -> list[Tensor]:
    import torch

    tensors, outs = case.inputs(), (torch.zeros(16),)
    return launch_frame(
        "merge_frame", tensors, outs, SPLITS=len(case.says), PADDED_DIM=16, PIECE=piece
    )


def merged_by_softmax(case: MergeCase) -> list[list]:
    """Shares of the whole sum, in float64; zeros where there is no sum."""
    import torch

    part, lse2 = (x.double() for x in case.inputs())
    share = torch.softmax(lse2 * math.log(2), dim=0).nan_to_num(0.0)
    return [spelt(share @ part)]


def merge_cases() -> Sequence[tuple[MergeCase]]:
    none = float("-inf")
    return tuple(
        (MergeCase(says, lse2),)
        for says, lse2 in (
            ((3.0, 6.0), (1.0, 0.0)),
            ((5.0, 0.0), (0.5, none)),
            ((0.0, 0.0), (none, none)),
            ((1.0, 2.0, 3.0, 0.0), (2.5, 0.25, -1.0, none)),
            ((1.0, 2.0), (300.0, 299.0)),
            ((1.0, 2.0), (-300.0, -301.0)),
        )
    )
