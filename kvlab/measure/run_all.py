"""How long Run All of each section notebook takes here, and how large its file is."""

import time
from collections.abc import Mapping
from pathlib import Path

SECONDS_GOAL = 60
BYTES_GOAL = 400_000
QUICK = "not run in a quick run"


def run_all_times(quick: bool = False) -> dict[str, object]:
    """{notebook: {"seconds": of one Run All in a new kernel, "bytes": of the committed file}}.

    A string instead says why there is no figure: no clone, or no Jupyter packages.
    """
    from kvlab.book import manifest

    try:
        root = manifest.clone_root()
        from kvlab.book import notebooks
    except (ValueError, ImportError) as error:
        return {"notebooks": str(error)}
    names = [section.notebook for section in manifest.read(root).written]
    if quick:
        return dict.fromkeys(names, QUICK)
    return {name: _measured(root / "notebooks", name, notebooks) for name in names}


def _measured(folder: Path, name: str, notebooks: object) -> Mapping[str, object] | str:
    import nbformat
    from nbclient.exceptions import CellExecutionError

    path = folder / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    start = time.perf_counter()
    try:
        notebooks.execute(notebook, folder)
    except CellExecutionError as error:
        return f"a cell failed: {error.ename}: {error.evalue}"
    return {"seconds": time.perf_counter() - start, "bytes": path.stat().st_size}
