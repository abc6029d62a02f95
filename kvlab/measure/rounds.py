"""Measuring on a machine that is never quiet.

Competitors take turns: A B C D, A B C D ... A slow minute then hits all of them, and the ratio of
two neighbours in one round says more than the ratio of two means. Medians are printed; every
repetition is kept.
"""

import gc
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def interleave(tasks: Mapping[str, Callable[[int], T]], rounds: int) -> dict[str, list[T]]:
    """Call every task once a round, in order, with the round's number. Results by task."""
    results: dict[str, list[T]] = {name: [] for name in tasks}
    for number in range(rounds):
        for name, task in tasks.items():
            gc.collect()  # a task does not pay for the garbage of the one before
            results[name].append(task(number))
    return results


def summary(values: Sequence[float]) -> dict[str, object]:
    """Every repetition, their median, the smallest and the largest."""
    return {
        "repetitions": list(values),
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
    }


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, object]:
    """ours / theirs round by round, so that a disturbance common to a round cancels."""
    return summary([a / b for a, b in zip(ours, theirs, strict=True)])
