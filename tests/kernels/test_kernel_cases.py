"""Cases of engine.md that concern kernels, over the kernels as they are."""

import kernel_checks
import pytest

pytestmark = pytest.mark.usefixtures("triton_runs")


@pytest.mark.parametrize("check", [kernel_checks.k01_decode, kernel_checks.k01_prefill])
def test_k01_a_pool_full_of_nan_does_not_leak(check):
    assert check() is None


def test_k04_the_merge_of_parts_equals_one_pass():
    assert kernel_checks.k04_merge() is None


@pytest.mark.parametrize("check", [kernel_checks.k05_empty_parts, kernel_checks.k05_length_zero])
def test_k05_empty_parts_have_no_weight(check):
    assert check() is None


@pytest.mark.parametrize("check", [kernel_checks.k07_decode, kernel_checks.k07_prefill])
def test_k07_widths_that_are_no_power_of_two(check):
    assert check() is None


@pytest.mark.parametrize("check", [kernel_checks.n04_decode, kernel_checks.n04_prefill])
def test_n04_a_window_of_w_reads_w_positions(check):
    assert check() is None


@pytest.mark.parametrize("check", [kernel_checks.freed_decode, kernel_checks.freed_prefill])
def test_blocks_given_back_behind_a_window_are_not_read(check):
    assert check() is None


@pytest.mark.parametrize("check", [kernel_checks.n09_rows, kernel_checks.n09_chunks])
def test_n09_the_mask_is_aligned_at_the_bottom_right(check):
    assert check() is None


@pytest.mark.parametrize("check", [kernel_checks.whole_tiles, kernel_checks.window_edge])
def test_tiles_at_the_edges(check):
    assert check() is None


@pytest.mark.parametrize(
    "check", [kernel_checks.int8_decode, kernel_checks.int8_prefill, kernel_checks.int8_codes]
)
def test_int8_with_a_scale_a_position_and_head(check):
    assert check() is None
