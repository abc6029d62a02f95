"""How work is cut into programs: pure Python, no Triton."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.tensors.kernel_table import (
    DECODE,
    INTERPRETER,
    PREFILL,
    DecodePlan,
    Device,
    PrefillPlan,
    decode_plan,
    next_power_of_two,
    num_splits,
    padded_dim,
    padded_group,
    prefill_plan,
)

H200 = Device("sm_90", 132)


def test_powers_of_two():
    assert [next_power_of_two(n) for n in (0, 1, 2, 3, 16, 17)] == [1, 1, 2, 4, 16, 32]
    assert [padded_dim(d) for d in (8, 64, 80, 96, 128, 256)] == [16, 64, 128, 128, 128, 256]
    assert [padded_group(g) for g in (1, 3, 8, 16, 17)] == [16, 16, 16, 16, 32]


def test_few_programs_are_split_until_the_device_is_busy():
    """132 multiprocessors, two programs each: 264 places."""
    assert num_splits(64, 8192, 132) == 4  # 256 programs
    assert num_splits(8, 8192, 132) == 28  # 224; at least 0.85 of what 32 would keep busy
    assert num_splits(132, 8192, 132) == 2


def test_many_programs_are_not_split():
    assert num_splits(512, 8192, 132) == 1
    assert num_splits(264, 8192, 132) == 1


def test_short_sequences_are_not_split():
    assert num_splits(8, 255, 132) == 1
    assert num_splits(8, 600, 132) == 2  # 256 positions a part at least
    assert num_splits(1, 0, 132) == 1


@given(st.integers(1, 4096), st.integers(0, 1 << 20), st.integers(1, 400))
def test_splits_are_never_more_than_there_is_work(programs, longest, multiprocessors):
    splits = num_splits(programs, longest, multiprocessors)
    assert 1 <= splits <= 64
    assert splits == 1 or splits * 256 <= longest
    assert splits == 1 or programs % (2 * multiprocessors) > 0  # else all are busy already


def test_a_decode_on_an_h200():
    assert decode_plan(8, 8, 8192, 128, 2, H200) == DecodePlan(64, 4, 4, 5)
    assert decode_plan(8, 8, 8192, 80, 2, H200) == DecodePlan(64, 4, 4, 5)  # padded to 128
    assert decode_plan(8, 8, 128, 128, 2, H200).num_splits == 1  # a window of 128


def test_a_chunk_on_an_h200():
    assert prefill_plan(2048, 4, 8192, 128, 2, H200) == PrefillPlan(128, 64, 8, 3)
    assert prefill_plan(5, 4, 8192, 128, 2, H200) == PrefillPlan(32, 64, 4, 3)  # 20 rows
    assert prefill_plan(1, 1, 8192, 128, 2, H200).rows == 16


def test_the_interpreter_has_large_tiles_and_few_programs():
    assert decode_plan(8, 8, 8192, 128, 4, INTERPRETER) == DecodePlan(256, 1, 4, 1)
    assert decode_plan(8, 8, 40, 128, 4, INTERPRETER).tile == 64
    assert prefill_plan(2048, 4, 8192, 128, 4, INTERPRETER) == PrefillPlan(256, 256, 4, 1)
    assert prefill_plan(3, 4, 3, 128, 4, INTERPRETER) == PrefillPlan(16, 16, 4, 1)


@pytest.mark.parametrize("table", [DECODE, PREFILL])
def test_each_device_has_a_row_for_each_dtype_and_width(table):
    devices = ("sm_80", "sm_90", "gfx942")
    assert set(table) == {(device, itemsize) for device in devices for itemsize in (2, 4)}
    for row in table.values():
        assert set(row) == {64, 128, 256}
        tiles = [numbers[-3] for numbers in row.values()]
        assert tiles == sorted(tiles, reverse=True)
        assert all(tile >= 16 and not tile & (tile - 1) for tile in tiles)
