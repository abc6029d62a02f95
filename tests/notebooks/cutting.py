"""Make a cut in a copy of the package, and run claims' cells against that copy."""

import compileall
import multiprocessing
import py_compile
import shutil
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from cuts import CUTS, Cut
from run_cells import claims_that_fail

ROOT = Path(__file__).parents[2]
SECTIONS = {
    "21.0": "21_0_start",
    "21.1": "21_1_reuse",
    "21.2": "21_2_latency",
    "21.3": "21_3_scheduling",
    "21.4": "21_4_prefix",
    "21.5": "21_5_paging",
    "21.6": "21_6_growth",
    "21.7": "21_7_checkpoint",
}
LOADED_ONCE = (  # what the cells import beside kvlab; not triton, whose mode kvlab chooses first
    *("torch", "matplotlib.pyplot", "anywidget", "ipywidgets", "jupytext", "tokenizers"),
    *("safetensors.torch", "httpx", "starlette", "uvicorn", "prometheus_client", "run_cells"),
)


def copy_of_package(home: Path) -> Path:
    """A copy of the package and the notebooks' sources, to cut in.

    It is compiled ahead, in the form that is taken only while a source reads the same: a file with
    a cut is compiled again, however soon after the last one it was written.
    """
    shutil.copytree(ROOT / "kvlab", home / "kvlab", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "notebooks/source", home / "notebooks/source")
    same_text = py_compile.PycInvalidationMode.CHECKED_HASH
    assert compileall.compile_dir(home / "kvlab", quiet=1, invalidation_mode=same_text)
    return home


def outcome(home: Path, notebook: str, claims: Sequence[str] = ()) -> dict[str, str]:
    """`claims_that_fail`, in a fresh process.

    Where the system can, it is forked from one that has loaded torch and its like, and no kvlab.
    """
    can_fork = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if can_fork else "spawn")
    context.set_forkserver_preload(list(LOADED_ONCE))
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as process:
        return process.submit(claims_that_fail, home, notebook, claims).result()


def uncut(home: Path, section: str) -> dict[str, str]:
    """What fails in a section's claims without any cut."""
    found = outcome(home, SECTIONS[section])
    assert found, f"no claim in {section}"
    return {claim: error for claim, error in found.items() if error}


def all_cuts() -> list:
    """pytest parameters (cut, section), one for each section that a cut names."""
    return [
        pytest.param(
            *(cut, section),
            id=f"{section}: {cut.what}",
            marks=[pytest.mark.soak] if section in cut.slow else [],
        )
        for section in SECTIONS
        for cut in CUTS
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
        errors = outcome(home, SECTIONS[section], claims)
    finally:
        path.write_text(text, encoding="utf-8")
    return [claim for claim in claims if not errors[claim]]
