"""Take a key line out of the engine, and the claims' cells that stand on it fail (21.2).

Each cut is made in a copy of the package, and the section's cells are run against that copy in a
process of their own. So a claim's cell shows more than a printed text: it depends on the line.
"""

from pathlib import Path

import pytest
from cuts import Cut
from cutting import copy_of_package, cuts_of, uncut, unmoved

pytest.importorskip("jupytext", reason="the notebooks' sources are read with jupytext")

HERE = ("21.2",)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return copy_of_package(tmp_path_factory.mktemp("cut"))


@pytest.mark.parametrize("section", HERE)
def test_without_a_cut_no_claim_fails(whole: Path, section: str) -> None:
    assert uncut(whole, section) == []


@pytest.mark.parametrize(("cut", "section"), cuts_of(*HERE))
def test_a_cut_makes_its_claims_fail(whole: Path, cut: Cut, section: str) -> None:
    assert unmoved(whole, cut, section) == []
