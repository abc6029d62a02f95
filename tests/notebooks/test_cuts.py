"""Take a key line out of the engine, and the claims' cells that stand on it fail.

Each cut is made in a copy of the package, and the cells that the claims stand on are run against
that copy in a process of their own. So a claim's cell shows more than a printed text: it depends on
the line. The same cells run through without the cut.
"""

from pathlib import Path

import pytest

pytest.importorskip("jupytext", reason="the notebooks' sources are read with jupytext")

from cuts import CUTS, Cut
from cutting import SECTIONS, all_cuts, copy_of_package, uncut, unmoved


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_package(tmp_path_factory.mktemp("cut"))


@pytest.mark.parametrize("section", SECTIONS)
def test_without_a_cut_no_claim_fails(whole: Path, section: str) -> None:
    assert uncut(whole, section) == {}


@pytest.mark.parametrize(("cut", "section"), all_cuts())
def test_a_cut_makes_its_claims_fail(whole: Path, cut: Cut, section: str) -> None:
    assert unmoved(whole, cut, section) == []


def test_each_cut_is_made_in_some_section() -> None:
    assert len({cut.what for cut in CUTS}) == len(CUTS) >= 8
    names = {claim for cut in CUTS for claim in cut.claims}
    assert {name.rpartition("-")[0] for name in names} == set(SECTIONS)


def test_a_claim_that_is_cut_is_cut_without_soak() -> None:
    def claims(slow: bool) -> set[str]:
        each = ((claim, cut) for cut in CUTS for claim in cut.claims)
        return {claim for claim, cut in each if slow or claim.rpartition("-")[0] not in cut.slow}

    assert claims(slow=False) == claims(slow=True)
