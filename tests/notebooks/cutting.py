"""Make a cut in a copy of the package, and run a section's cells against that copy."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from cuts import CUTS, Cut

ROOT = Path(__file__).parents[2]
SECTIONS = {
    "21.0": "21_0_start",
    "21.1": "21_1_reuse",
    "21.2": "21_2_latency",
    "21.3": "21_3_scheduling",
    "21.4": "21_4_prefix",
    "21.5": "21_5_paging",
    "21.6": "21_6_growth",
}


def copy_of_package(home: Path) -> Path:
    """A copy of the package and the notebooks' sources, to cut in."""
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


def uncut(home: Path, section: str) -> list[str]:
    """What fails in a section's cells without any cut."""
    found = outcome(home, SECTIONS[section])
    failed = [f"{claim}: {error}" for claim, error in found["claims"].items() if error]
    return failed + found["others"]


def cuts_of(*sections: str) -> list:
    """pytest parameters (cut, section), one for each of these sections that a cut names."""
    pairs = [(cut, section) for cut in CUTS for section in sections]
    return [
        pytest.param(cut, section, id=f"{section}: {cut.what}")
        for cut, section in pairs
        if any(claim.startswith(section) for claim in cut.claims)
    ]


def unmoved(home: Path, cut: Cut, section: str) -> list[str]:
    """Claims of the section that the cut names and whose cells run through all the same."""
    path = home / "kvlab" / cut.file
    text = path.read_text(encoding="utf-8")
    assert text.count(cut.old) == 1, f"{cut.old!r} stands {text.count(cut.old)} times"
    path.write_text(text.replace(cut.old, cut.new), encoding="utf-8")
    claims = [claim for claim in cut.claims if claim.startswith(section)]
    try:
        found = outcome(home, SECTIONS[section], claims)["claims"]
    finally:
        path.write_text(text, encoding="utf-8")
    return [claim for claim in claims if found[claim] is None]
