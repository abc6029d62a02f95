"""Run the cells that claims of a notebook stand on, and say which claims' cells failed.

It runs in a process of its own, in which no module of kvlab is loaded yet. A failing cell does not
stop it, as when a reader presses Shift-Enter down the page.
"""

import contextlib
import faulthandler
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import jupytext
from slicing import CellNames, slice_for

PERCENT = {"extension": ".py", "format_name": "percent"}
LIMIT = 300  # seconds; the process then says where it stands, and ends


def claims_that_fail(home: Path, notebook: str, wanted: Sequence[str] = ()) -> dict[str, str]:
    """{claim: the error of its cell, or nothing} against the package under `home`.

    wanted: the claims to look at; without any, all of the notebook that are not slow. Each claim's
    slice of cells is run in a namespace of its own; one that a longer slice begins with is run
    within that.
    """
    assert "kvlab" not in sys.modules
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    _settle(home)
    cells = code_cells(home / f"notebooks/source/{notebook}.py")
    names = [CellNames(source) for source, _ in cells]
    slices = {
        claim: slice_for(names, place)
        for place, (_, tags) in enumerate(cells)
        for claim in (tag.removeprefix("claim-") for tag in tags if tag.startswith("claim-"))
        if not wanted or claim in wanted
    }
    errors: dict[tuple[int, ...], str] = {}
    for places in sorted(slices.values(), key=len, reverse=True):
        if places not in errors:
            errors |= _run(cells, places)
    faulthandler.cancel_dump_traceback_later()
    assert Path(sys.modules["kvlab"].__file__).is_relative_to(home)
    return {claim: errors[places] for claim, places in slices.items()}


def _settle(home: Path) -> None:
    """The copy of the package first, for this process and those that a cell starts."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(home))
    path = os.pathsep.join([str(home), os.environ.get("PYTHONPATH", "")])
    os.environ.update(PYTHONPATH=path, OMP_NUM_THREADS="1", MPLBACKEND="Agg")
    os.chdir(home / "notebooks")
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def code_cells(source: Path) -> list[tuple[str, list[str]]]:
    """(source, tags) of each code cell that is not slow."""
    cells = jupytext.read(source, fmt=PERCENT).cells
    found = [(c.source, c.metadata.get("tags", [])) for c in cells if c.cell_type == "code"]
    return [(source, tags) for source, tags in found if "slow" not in tags]


def _run(cells: Sequence[tuple], places: tuple[int, ...]) -> dict[tuple[int, ...], str]:
    """Run a slice; the error of its last cell, and of each where a shorter slice would end."""
    names: dict = {"__name__": "__main__"}
    errors = {}
    for count, place in enumerate(places, 1):
        error = ""
        try:
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                exec(compile(cells[place][0], f"cell {place}", "exec"), names)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"[:300]
        errors[places[:count]] = error
    return errors
