"""Arguments of the kernels that look wrong and are right, or the other way round."""

import pytest
import torch
from paged_cases import Case, on_device

from kvlab.tensors import launch
from kvlab.tensors.watch_kernel import can_watch, watch_decode

pytestmark = pytest.mark.usefixtures("triton_runs")


def test_the_stride_between_heads_does_not_matter_where_there_is_one() -> None:
    """torch calls such a tensor contiguous, so `.contiguous()` would not help."""
    case = Case((1, 1), 16, 4, (9, 5))
    query = torch.stack([case.query[:, 0]]).transpose(0, 1)
    assert query.is_contiguous() and query.stride() == (16, 32, 1)
    assert case.error(case.decode(query=query)) < 1e-6
    key = torch.stack([case.key[:, 0]]).transpose(0, 1)
    pool = torch.zeros_like(case.key_cache)
    on_device(launch.write_kv, key, key, pool, pool.clone(), case.slots)
    assert torch.equal(pool.flatten(0, 1)[case.slots], case.key)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_splits": 0}, "num_splits is 0; give 1 to 128, or None"),
        ({"num_splits": 2.0}, "num_splits is 2.0; give 1 to 128, or None"),
        ({"num_splits": "2"}, "num_splits is 2; give 1 to 128, or None"),
        ({"num_splits": True}, "num_splits is True; give 1 to 128, or None"),
        ({"tile": 0}, "tile is 0; give a power of two from 16 to 1024, or None"),
        ({"window": True}, "window is True; give the positions that a query reads, at least 1"),
    ],
)
def test_a_number_that_counts_nothing_is_refused(wrong, message) -> None:
    """Nought does not stand for the table's choice: None does."""
    with pytest.raises(ValueError, match=message):
        Case((4, 2), 16, 4, (9, 5)).decode(**wrong)


def test_rows_of_nought_are_refused_too() -> None:
    with pytest.raises(ValueError, match="rows is 0; give a power of two from 16 to 1024"):
        Case((4, 2), 16, 4, (9, 5), chunks=(3, 2)).prefill(rows=0)


@pytest.mark.parametrize("window", [1 << 31, 1 << 63, 1 << 70])
def test_a_window_of_more_than_32_bits_reaches_everything(window) -> None:
    case = Case((4, 2), 16, 4, (40, 5))
    assert case.error(case.decode(window=window)) < 1e-6
    case = Case((4, 2), 16, 4, (40, 5), chunks=(7, 2))
    assert case.error(case.prefill(window=window)) < 1e-6


def test_halves_of_positions_cannot_be_watched() -> None:
    if not can_watch():
        pytest.skip("kernels are compiled here")
    pool = torch.zeros(4, 4, 2, 16)
    for table, lens in (([[1, 2]], [5.5]), ([[1.0, 2.0]], [5])):
        with pytest.raises(ValueError, match=r"seq_lens of .*; give whole numbers"):
            watch_decode(torch.zeros(1, 4, 16), pool, pool, table, lens)
