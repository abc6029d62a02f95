"""Take a key line out of the engine, and the claims' cells that stand on it fail.

Each cut is made in a copy of the package, and the section's cells are run against that copy in a
process of their own. So a claim's cell shows more than a printed text: it depends on the line.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from cuts import CUTS, Cut

pytest.importorskip("jupytext", reason="the notebooks' sources are read with jupytext")

ROOT = Path(__file__).parents[2]
SECTIONS = {
    "21.0": "21_0_start",
    "21.1": "21_1_reuse",
    "21.3": "21_3_scheduling",
    "21.4": "21_4_prefix",
    "21.5": "21_5_paging",
    "21.6": "21_6_growth",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A copy of the package to cut in."""
    home = tmp_path_factory.mktemp("cut")
    shutil.copytree(ROOT / "kvlab", home / "kvlab", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "notebooks/source", home / "notebooks/source")
    return home


def outcome(home: Path, notebook: str, claims: Sequence[str] = ()) -> dict:
    """Which claims failed when the notebook's cells ran against the package under `home`."""
    path = os.pathsep.join([str(home), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [
            *(sys.executable, "-B", str(Path(__file__).with_name("run_cells.py"))),
            *(str(home / f"notebooks/source/{notebook}.py"), *claims),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("notebook", SECTIONS.values())
def test_without_a_cut_no_claim_fails(whole: Path, notebook: str) -> None:
    found = outcome(whole, notebook)
    failed = {claim: error for claim, error in found["claims"].items() if error}
    assert failed == {} and found["others"] == []


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.what)
def test_a_cut_makes_its_claims_fail(whole: Path, cut: Cut) -> None:
    path = whole / "kvlab" / cut.file
    text = path.read_text(encoding="utf-8")
    assert text.count(cut.old) == 1, f"{cut.old!r} stands {text.count(cut.old)} times"
    path.write_text(text.replace(cut.old, cut.new), encoding="utf-8")
    try:
        found = {}
        for section, notebook in SECTIONS.items():
            if claims := [claim for claim in cut.claims if claim.startswith(section)]:
                found |= outcome(whole, notebook, claims)["claims"]
    finally:
        path.write_text(text, encoding="utf-8")
    assert [claim for claim in cut.claims if found[claim] is None] == []


def test_the_list_is_long_enough() -> None:
    assert len(CUTS) >= 8 and len({cut.what for cut in CUTS}) == len(CUTS)
