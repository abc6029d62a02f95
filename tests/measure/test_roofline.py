"""The roof and a point below it, with numbers that are checked by hand (claim 21.2-g)."""

import subprocess
import sys
from dataclasses import replace

import pytest

from kvlab.measure.roofline import attainable, bound_seconds, place, ridge
from kvlab.measure.roofline_records import Case, Ceilings, Point, Rate, RateAt, Spread


def rate(unit: str, *medians: float) -> Rate:
    at = tuple(RateAt(f"size {i}", "copy", Spread.of([m])) for i, m in enumerate(medians))
    return Rate(unit, "counted", at)


CEILINGS = Ceilings(
    *("cpu", "a machine", "float32", 1, 1000),
    copy=rate("B/s", 90.0, 100.0),
    read=rate("B/s", 80.0),
    matmul=rate("FLOP/s", 1000.0, 400.0),
)


def point(flops: int, nbytes: int, seconds: float) -> Point:
    return Point(
        Case("decode", 1, 4), Spread.of([seconds]), {"weights": flops}, {"weights": nbytes}
    )


def test_7_billion_weights_of_two_bytes_take_14_ms_at_a_terabyte_a_second():
    assert 7 * 10**9 * 2 == 14_000_000_000
    assert bound_seconds(7e9 * 2, 1e12) == pytest.approx(0.014)
    assert bound_seconds(7e9 * 1, 1e12) == pytest.approx(0.007)  # a smaller format
    assert bound_seconds(0, 1e12) == 0


def test_the_roof_rises_to_the_ridge_and_is_flat_from_there():
    assert ridge(bandwidth=100, rate=1000) == 10
    assert [attainable(i, 100, 1000) for i in (1, 5, 10, 20)] == [100, 500, 1000, 1000]


def test_a_ceiling_is_the_best_size_and_the_slope_the_better_of_copy_and_read():
    assert CEILINGS.copy.median == 100 and CEILINGS.copy.best.size == "size 1"
    assert CEILINGS.matmul.median == 1000 and CEILINGS.matmul.best.size == "size 0"
    assert CEILINGS.bandwidth == 100


def test_a_step_below_the_ridge_is_limited_by_memory():
    """4,000 FLOPs and 2,000 bytes in 40 s: bytes need 20 s, FLOPs 4 s."""
    placed = place(point(4000, 2000, 40.0), CEILINGS)
    assert (placed.memory_seconds, placed.compute_seconds) == (20, 4)
    assert placed.limited_by == "memory" and placed.bound_seconds == 20
    assert placed.share == 0.5 and placed.of_copy == 0.5
    assert placed.attainable == 200 and placed.of_matmul == 0.1
    assert not placed.fits_cache


def test_a_step_above_the_ridge_is_limited_by_arithmetic():
    """40,000 FLOPs and 1,000 bytes in 50 s: FLOPs need 40 s, bytes 10 s."""
    placed = place(point(40_000, 1000, 50.0), CEILINGS)
    assert placed.limited_by == "compute" and placed.bound_seconds == 40
    assert placed.share == 0.8 and placed.attainable == 1000
    assert placed.fits_cache  # 1,000 bytes: the next step may find them in the cache


def test_the_share_of_the_copy_ceiling_is_of_copying_where_reading_is_faster():
    """Reading gives 400 B/s, copying 100: the roof's slope is 400, a copy's share is of 100."""
    ceilings = replace(CEILINGS, read=rate("B/s", 400.0))
    placed = place(point(4000, 2000, 40.0), ceilings)
    assert (placed.of_copy, placed.memory_seconds, placed.attainable) == (0.5, 5.0, 800.0)


def test_share_is_the_reached_rate_under_the_roof():
    for flops, nbytes in ((4000, 2000), (40_000, 1000)):
        placed = place(point(flops, nbytes, 50.0), CEILINGS)
        assert placed.point.flops_per_second / placed.attainable == pytest.approx(placed.share)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: bound_seconds(-1, 10), "nbytes is -1"),
        (lambda: bound_seconds(1, 0), "bandwidth is 0; give a number above 0"),
        (lambda: ridge(10, float("nan")), "rate is nan"),
        (lambda: attainable(0, 10, 10), "intensity is 0"),
        (lambda: attainable(1, float("inf"), 10), "bandwidth is inf"),
    ],
)
def test_bad_numbers_are_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_roof_records_and_counting_need_no_torch():
    code = (
        "import sys; import kvlab.measure.roofline, kvlab.measure.step_work; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
