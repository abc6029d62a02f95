"""Run a notebook's source cell by cell and say which claims' cells failed.

python run_cells.py SOURCE [CLAIM ...]

Without claims all cells are run but those tagged "slow"; with claims, the run ends after the last
of them. A failing cell does not stop it, as when a reader presses Shift-Enter down the page.
Prints one line of JSON:

    {"claims": {id: null or the error}, "others": [errors of other cells]}
"""

import contextlib
import json
import os
import sys
from pathlib import Path

import jupytext

PERCENT = {"extension": ".py", "format_name": "percent"}


def run(source: Path, wanted: set[str]) -> dict:
    names: dict = {"__name__": "__main__"}
    found: dict = {"claims": {}, "others": []}
    for number, cell in enumerate(jupytext.read(source, fmt=PERCENT).cells):
        tags = cell.metadata.get("tags", [])
        if cell.cell_type != "code" or "slow" in tags:
            continue
        error = None
        try:
            with contextlib.redirect_stdout(sys.stderr):
                exec(compile(cell.source, f"cell {number}", "exec"), names)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"[:300]
        claims = [tag.removeprefix("claim-") for tag in tags if tag.startswith("claim-")]
        for claim in claims:
            found["claims"][claim] = error
        if error and not claims:
            found["others"].append(f"cell {number}: {error}")
        if wanted and wanted <= found["claims"].keys():
            break
    return found


if __name__ == "__main__":
    path = Path(sys.argv[1]).resolve()
    os.chdir(path.parents[1])
    os.environ["MPLBACKEND"] = "Agg"
    print(json.dumps(run(path, set(sys.argv[2:]))))
