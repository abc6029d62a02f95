"""Which cells a cell stands on: small pages worked by hand."""

import pytest

pytest.importorskip("jupytext", reason="the notebooks' sources are read with jupytext")

from slicing import CellNames, slice_for


def slice_of_last(*cells: str) -> tuple[int, ...]:
    return slice_for([CellNames(cell) for cell in cells], len(cells) - 1)


def test_the_nearest_cell_that_binds_a_name_is_needed_and_those_before_are_not() -> None:
    assert slice_of_last("a = 1", "a = 2", "b = 3", "print(a)") == (1, 3)


def test_what_a_needed_cell_uses_is_needed_too() -> None:
    assert slice_of_last("import math", "r = 2", "area = math.pi * r", "area") == (0, 1, 2, 3)
    assert slice_of_last("n = 1", "def twice():\n    return 2 * n", "twice()") == (0, 1, 2)


@pytest.mark.parametrize(
    "change", ["seen.append(1)", "seen[0] = 1", "seen.size = 1", "seen += [1]"]
)
def test_a_cell_that_changes_a_value_is_needed_with_the_one_that_made_it(change: str) -> None:
    assert slice_of_last("seen = []", change, "other = 2", "seen") == (0, 1, 3)


@pytest.mark.parametrize(
    "own",
    [
        "a = 5\nprint(a)",
        "for a in (1, 2):\n    print(a)",
        "[a for a in (1, 2)]",
        "(lambda a: a)(3)",
        "def f(a):\n    return a",
        "import numpy as a\na",
    ],
)
def test_a_name_that_the_cell_binds_itself_comes_from_nowhere_else(own: str) -> None:
    assert slice_of_last("a = 1", own) == (1,)


@pytest.mark.parametrize(
    "own", ["a = a + 1", "a += 1", "a[0] = 1", "print(a)\na = 2", "f(a).b = 1"]
)
def test_a_name_that_is_read_before_it_is_bound_comes_from_above(own: str) -> None:
    assert slice_of_last("a = 1", own) == (0, 1)
