"""The prefill kernel beside its specification in float64: chunks on a warm cache, mixed lengths."""

import pytest
import torch
from paged_cases import HEADS, TOLERANCE, Case
from pairwise import pairwise

pytestmark = pytest.mark.usefixtures("triton_runs")
WORK = {  # lengths, and how many of the last positions have queries
    "prompts": ((16, 33, 15), (16, 33, 15)),
    "warm": ((17, 256), (16, 3)),
    "mixed": ((1, 255, 40, 0), (1, 1, 33, 0)),
    "long": ((256,), (130,)),
}
CASES = pairwise(
    heads=HEADS,
    head_dim=[64, 80, 96, 128],
    block_size=[1, 4, 16, 32],
    work=list(WORK),
    dtype=list(TOLERANCE),
    window=[None, 1, 5, 64],
)


def name_of(case):
    return "-".join(str(value).removeprefix("torch.") for value in case.values()).replace(" ", "")


@pytest.mark.parametrize("settings", CASES, ids=name_of)
def test_prefill_equals_the_specification(settings):
    lengths, chunks = WORK[settings["work"]]
    rest = {name: settings[name] for name in settings if name != "work"}
    case = Case(lengths=lengths, chunks=chunks, **rest)
    out = case.prefill()
    assert out.dtype == settings["dtype"]
    assert case.error(out) < TOLERANCE[settings["dtype"]]


@pytest.mark.parametrize("window", [None, 1, 40, 64, 65])
@pytest.mark.parametrize(("rows", "tile"), [(16, 16), (32, 64), (64, 16)])
def test_small_tiles(rows, tile, window):
    """Whole ones, the diagonal's, and those at the window's edge all occur."""
    case = Case((6, 2), 64, 4, (90, 20), chunks=(24, 20), window=window)
    assert case.error(case.prefill(rows=rows, tile=tile)) < 1e-6


def test_one_query_a_request_is_a_decode():
    case = Case((6, 2), 64, 16, (33, 1, 17))
    assert (case.prefill() - case.decode()).abs().max() < 1e-6


@pytest.mark.parametrize("head_dim", [8, 32, 256])
def test_other_widths_of_a_head(head_dim):
    case = Case((6, 2), head_dim, 16, (33, 7), chunks=(5, 7))
    assert case.error(case.prefill()) < 1e-6


def test_queries_may_be_slices_of_a_fused_projection():
    case = Case((6, 2), 64, 16, (33, 7), chunks=(5, 7))
    wanted = case.prefill()
    fused = torch.full((12, 10, 64), torch.nan)
    fused[:, :6] = case.query
    case.query = fused[:, :6]
    assert torch.equal(case.prefill(), wanted)
