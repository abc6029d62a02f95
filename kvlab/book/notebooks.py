"""Write notebooks/*.ipynb from notebooks/source/*.py, execute them, and check what is committed.

    python -m kvlab.book.notebooks [NAME ...]           write and execute (all, or those named)
    python -m kvlab.book.notebooks --check [NAME ...]   change nothing; exit 1 if something is amiss

People edit the sources (percent format). A notebook keeps its cells' ids from one writing to the
next. What changes from run to run without meaning anything is taken out: the state and the view of
widgets (their HTML and text forms stay), time stamps, and the kernel's description of itself.

JupyterLab opens a page as the book shows it: outputs that answer a prediction (folds.py) are
collapsed until their cell is run, and so is the source of the setup cell.
"""

import argparse
import copy
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jupytext
import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupytext.combine import combine_inputs_with_outputs
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbstripout import strip_output

from kvlab.book.folds import folded
from kvlab.book.manifest import clone_root
from kvlab.book.notebook_file import not_as_run, read_notebook
from kvlab.core.whole_file import write_whole

PERCENT = {"extension": ".py", "format_name": "percent"}
CELL_SECONDS = 120
MAX_BYTES = 400_000
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
NOTEBOOK_KEYS = ("jupytext", "kernelspec")  # the notebook metadata that stays
CELL_KEYS = ("jupyter", "slideshow", "tags")  # the cell metadata that stays
UNSTABLE_KEYS = ["cell.metadata.execution", "cell.metadata.trusted", "cell.metadata.collapsed"]


def names(folder: Path) -> list[str]:
    """The notebooks that have a source under `folder`, in the order of the chapter."""
    return sorted(path.stem for path in (folder / "source").glob("*.py"))


def build(name: str, folder: Path) -> Path:
    """Write `folder`/`name`.ipynb from its source, executed and normalised."""
    target = folder / f"{name}.ipynb"
    notebook = _from_source(name, folder)
    if target.exists():  # only for the ids: every output is made anew
        old = _read(target)
        notebook = combine_inputs_with_outputs(notebook, old, PERCENT)
        collapse(notebook)  # as this source says, and not as the old notebook was
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    execute(notebook, folder)
    normalise(notebook)
    write_whole(target, _text(notebook))
    return target


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run every cell in a new kernel of this interpreter, with `folder` as working directory."""
    # Without kernel_dirs the manager falls back to the interpreter that runs this line, whatever
    # kernel of the same name the user has installed elsewhere.
    specs = KernelSpecManager(kernel_dirs=[])
    client = NotebookClient(
        notebook,
        km=AsyncKernelManager(kernel_name=KERNEL["name"], kernel_spec_manager=specs),
        timeout=CELL_SECONDS,
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],  # no word about loopback connections
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()


def normalise(notebook: NotebookNode) -> None:
    """Take out, in place, what differs between two runs without meaning anything."""
    strip_output(notebook, True, True, True, extra_keys=UNSTABLE_KEYS)
    for key in set(notebook.metadata) - set(NOTEBOOK_KEYS):
        del notebook.metadata[key]
    notebook.metadata.kernelspec = NotebookNode(KERNEL)
    notebook.metadata.get("jupytext", {}).pop("text_representation", None)  # has a version number
    for cell in notebook.cells:
        for key in set(cell.metadata) - set(CELL_KEYS):
            del cell.metadata[key]
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET_VIEW, None)


def collapse(notebook: NotebookNode) -> None:
    """Say, in place, what JupyterLab hides when it opens the page; nothing else stays hidden."""
    answers = folded(notebook.cells)
    for number, cell in enumerate(notebook.cells):
        is_setup = "setup" in cell.metadata.get("tags", [])
        hidden = {"outputs_hidden": number in answers, "source_hidden": is_setup}
        cell.metadata.pop("jupyter", None)
        if any(hidden.values()):
            cell.metadata.jupyter = NotebookNode({k: True for k, so in hidden.items() if so})


def problems(name: str, folder: Path) -> Iterator[str]:
    """What is amiss with the committed notebook `name`: nothing, if it is as `build` leaves it."""
    path = folder / f"{name}.ipynb"
    if not path.exists():
        yield f"{name}: not written yet; run make notebooks"
        return
    notebook = _read(path)
    yield from (f"{name}: {what}" for what in _differences(_from_source(name, folder), notebook))
    yield from (f"{name}: {what}" for what in _unfinished(notebook))
    clean = copy.deepcopy(notebook)
    normalise(clean)
    if clean != notebook:
        yield f"{name}: holds widget state, time stamps or other metadata of one run"
    if path.stat().st_size > MAX_BYTES:
        yield f"{name}: {path.stat().st_size:,} bytes are more than {MAX_BYTES:,}"


def _differences(source: NotebookNode, notebook: NotebookNode) -> Iterator[str]:
    """The first cell in which source and notebook differ."""
    wanted, found = [_content(c) for c in source.cells], [_content(c) for c in notebook.cells]
    for number, (left, right) in enumerate(zip(wanted, found, strict=False), 1):
        if left != right:
            yield f"cell {number} is not the source's; run make notebooks"
            return
    if len(wanted) != len(found):
        yield f"{len(found)} cells, {len(wanted)} in the source; run make notebooks"


def _unfinished(notebook: NotebookNode) -> Iterator[str]:
    """Cells without an id of their own, without a count, or with an error nobody asked for."""
    ids = [cell.get("id") for cell in notebook.cells]
    if None in ids or len(set(ids)) < len(ids):
        yield "a cell has no id of its own"
    yield from not_as_run(notebook.cells)


def _content(cell: NotebookNode) -> tuple:
    return cell.cell_type, cell.source, *(cell.metadata.get(key) for key in CELL_KEYS)


def _read(path: Path) -> NotebookNode:
    read_notebook(path)  # names the file, where it is none
    return nbformat.read(path, as_version=4)


def _from_source(name: str, folder: Path) -> NotebookNode:
    path = folder / "source" / f"{name}.py"
    if not path.is_file():
        raise ValueError(f"{path} does not exist")
    notebook = jupytext.read(path, fmt=PERCENT)
    collapse(notebook)
    return notebook


def _text(notebook: NotebookNode) -> str:
    nbformat.validate(notebook)
    return nbformat.writes(notebook, version=4).rstrip("\n") + "\n"


def _build_all(chosen: list[str], folder: Path) -> int:
    for name in chosen:
        started = time.perf_counter()
        try:
            path = build(name, folder)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            print(f"{name}: not written, since a cell failed\n{error}", file=sys.stderr)
            return 1
        seconds, size = time.perf_counter() - started, path.stat().st_size / 1000
        print(f"{name}: executed in {seconds:.1f} s, {size:.0f} kB")
    return 0


def _check_all(chosen: list[str], folder: Path) -> int:
    found = [problem for name in chosen for problem in problems(name, folder)]
    print("\n".join(found) or f"{len(chosen)} notebooks are as their sources say")
    return 1 if found else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kvlab.book.notebooks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="*", help="a notebook's name without ending; default: all")
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if amiss")
    options = parser.parse_args(arguments)
    try:
        folder = clone_root() / "notebooks"
        work = _check_all if options.check else _build_all
        return work(options.name or names(folder), folder)
    except (ValueError, OSError) as error:
        print(f"kvlab: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
