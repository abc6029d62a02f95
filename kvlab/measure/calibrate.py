"""Fits a `CostModel` to the steps of a real run (section 21.3).

Least squares over the steps, each weighted by 1 / the duration that the model expects of it: a
long step may be off by more than a short one. The weights follow from the fit and the fit from
the weights, so it is repeated; all expected durations together then are the measured time. No
cost is negative: of all choices of terms the one counts that fits best with positive costs, and
the others are 0.
"""

import itertools
import statistics
from dataclasses import dataclass

import torch
from torch import Tensor

from kvlab.core.played import Played, PlayedStep
from kvlab.core.step_cost import CostModel

TERMS = ("per_step", "per_row", "per_token", "per_pair", "per_key", "per_byte")
LEAST_STEPS = 20
REPETITIONS = 8


@dataclass(frozen=True)
class Calibration:
    """A cost model and how well it tells the durations of the steps that it was fitted to.

    step_error: median of |said - measured| / measured. total: all said over all measured time.
    """

    cost: CostModel
    num_steps: int
    step_error: float
    total: float


def calibrate(*plays: Played, block_nbytes: int = 0) -> Calibration:
    """Fit the six costs. block_nbytes: keys and values of one block, for the cost of a byte; it is
    0 where nothing moved between tiers or was copied.

    Raises ValueError for plays on a step clock, or with too few steps.
    """
    if any(played.unit != "s" for played in plays):
        raise ValueError("a play on a step clock has no durations; calibrate on a real one")
    steps = [s for played in plays for s in played.steps if s.duration > 0]
    if len(steps) < LEAST_STEPS:
        raise ValueError(f"{len(steps)} steps are too few; give at least {LEAST_STEPS}")
    seconds = torch.tensor([s.duration for s in steps], dtype=torch.float64)
    units = torch.tensor([_units(s, block_nbytes) for s in steps], dtype=torch.float64)
    costs = dict(zip(TERMS, _fit(units, seconds), strict=True))
    cost = CostModel(**costs, block_nbytes=block_nbytes)
    said = [cost.seconds(s.work) for s in steps]
    errors = [abs(a / s.duration - 1) for a, s in zip(said, steps, strict=True)]
    total = sum(said) / float(seconds.sum())
    return Calibration(cost, len(steps), statistics.median(errors), total)


def _units(step: PlayedStep, block_nbytes: int) -> list[int]:
    """How much of each of TERMS a step has."""
    work = step.work
    moved = (work.copied_blocks + work.transferred_blocks) * block_nbytes
    return [1, work.rows, work.tokens, work.pairs, work.keys, moved]


def _fit(units: Tensor, seconds: Tensor) -> list[float]:
    """Costs of at least 0, one for each column of `units` [steps, terms], that fit `seconds` best.

    A column of zeros gets 0.
    """
    size = units.amax(0).clamp_min(1)  # columns of like size: the solver keeps its digits
    scaled, expected = units / size, seconds
    for _ in range(REPETITIONS):
        weight = expected.clamp_min(1e-3 * float(seconds.mean())).rsqrt()
        costs = _best_choice(scaled * weight[:, None], seconds * weight)
        expected = scaled @ costs
    return (costs / size).tolist()


def _best_choice(units: Tensor, wanted: Tensor) -> Tensor:
    """The least-squares solution of units @ costs = wanted with no cost below 0."""
    best, costs = float((wanted**2).sum()), torch.zeros(units.shape[1], dtype=torch.float64)
    for count in range(1, units.shape[1] + 1):
        for chosen in map(list, itertools.combinations(range(units.shape[1]), count)):
            part = units[:, chosen]
            found = torch.linalg.lstsq(part, wanted[:, None], driver="gelsd").solution[:, 0]
            left = float(((part @ found - wanted) ** 2).sum())
            if (found >= 0).all() and left < best:
                best, costs = left, torch.zeros_like(costs)
                costs[chosen] = found
    return costs
