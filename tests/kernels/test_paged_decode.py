"""The decode kernel beside its specification in float64, through Triton's interpreter."""

import pytest
from paged_cases import HEADS, TOLERANCE, Case
from pairwise import pairs_of, pairwise

pytestmark = pytest.mark.usefixtures("triton_runs")
SETTINGS = {
    "heads": HEADS,
    "head_dim": [64, 80, 96, 128],
    "block_size": [1, 4, 16, 32],
    "lengths": [(0, 1, 15), (16, 17, 33), (255, 0), (1, 256)],
    "num_splits": [1, 2, 3, 4, 5, 6, 7, 8],
    "dtype": list(TOLERANCE),
    "window": [None, 1, 5, 64],
    "tile": [32, 256],
}
CASES = pairwise(**SETTINGS)


def name_of(case):
    return "-".join(str(value).removeprefix("torch.") for value in case.values()).replace(" ", "")


def test_any_two_settings_meet_in_a_case():
    met = set().union(*(pairs_of(case) for case in CASES))
    one, two = ("block_size", 1), ("num_splits", 8)
    assert (one, two) in met
    assert len(met) == sum(
        len(a) * len(b)
        for i, a in enumerate(SETTINGS.values())
        for b in list(SETTINGS.values())[i + 1 :]
    )
    assert len(CASES) < 60


@pytest.mark.parametrize("settings", CASES, ids=name_of)
def test_decode_equals_the_specification(settings):
    cut = {name: settings[name] for name in ("num_splits", "tile")}
    case = Case(**{name: settings[name] for name in settings if name not in cut})
    out = case.decode(**cut)
    assert out.dtype == settings["dtype"]
    assert case.error(out) < TOLERANCE[settings["dtype"]]


@pytest.mark.parametrize("head_dim", [8, 32, 256])
def test_other_widths_of_a_head(head_dim):
    case = Case((6, 2), head_dim, 16, (33, 7))
    assert case.error(case.decode()) < 1e-6
    assert case.error(case.decode(num_splits=2, tile=16)) < 1e-6
