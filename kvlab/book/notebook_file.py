"""Read a notebook's file; what is none is named, with its first cell that is not as it must be."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Notebook = dict[str, Any]
CELLS = ("markdown", "code", "raw")
FORMS = {"data": dict, "metadata": dict}  # what an output of each type holds
OUTPUTS = {
    "stream": {"name": str, "text": (str, list)},
    "error": {"traceback": list},
    "display_data": FORMS,
    "execute_result": FORMS,
}
RAISES = "raises-exception"  # tag of a cell that may end in an error


def read_notebook(path: Path) -> Notebook:
    """The notebook as nbformat 4 has it. Raises ValueError, naming the file, for anything else."""
    return parsed(path.read_bytes(), path)


def parsed(content: bytes | str, path: Path | str) -> Notebook:
    """The notebook in `path`, of which `content` was read. Raises ValueError as `read_notebook`.

    Before nbformat 4.5 cells had no id: each is given one, and the notebook is one of 4.5.
    """
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        notebook = json.loads(text)
        json.dumps(notebook, ensure_ascii=False).encode()  # half a surrogate cannot be written
        fault = next(_faults(notebook), None)
    except (ValueError, RecursionError) as error:
        fault = str(error)
    if fault is not None:
        raise ValueError(
            f"{path} is no notebook of nbformat 4 ({fault}): move it away, or restore it"
        )
    for number, cell in enumerate(notebook["cells"], 1):
        if "id" not in cell:
            cell["id"], notebook["nbformat_minor"] = f"cell-{number}", 5
    return notebook


def not_as_run(cells: list[dict[str, Any]]) -> Iterator[str]:
    """Code cells that were not executed, or that ended in an error nobody asked for; one line each.

    cells: of a notebook as nbformat 4 has it; counted from 1.
    """
    for number, cell in enumerate(cells, 1):
        if cell["cell_type"] != "code" or not "".join(cell["source"]).strip():
            continue
        if cell.get("execution_count") is None:
            yield f"cell {number} was not executed: run make notebooks"
        failed = any(output["output_type"] == "error" for output in cell["outputs"])
        if failed and RAISES not in cell["metadata"].get("tags", []):
            yield f"cell {number} ended in an error: mend it, or tag it {RAISES}"


def _faults(notebook: Any) -> Iterator[str]:
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        yield "it has no list of cells"
        return
    if not isinstance(notebook.get("metadata", {}), dict):
        yield "its metadata is no object"
    for number, cell in enumerate(notebook["cells"], 1):
        yield from (f"cell {number} {what}" for what in _cell_faults(cell))


def _cell_faults(cell: Any) -> Iterator[str]:
    if not isinstance(cell, dict) or cell.get("cell_type") not in CELLS:
        yield f"is none of {', '.join(CELLS)}"
        return
    if not _is_text(cell.get("source")):
        yield "has no source"
    metadata = cell.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("jupyter", {}), dict):
        yield "has no metadata that is an object"
    elif not _is_list_of_text(metadata.get("tags", [])):
        yield f"has tags that are no list of words: {metadata['tags']!r}"
    if not isinstance(cell.get("id", ""), str):
        yield f"has an id that is no word: {cell['id']!r}"
    if cell["cell_type"] == "code":
        outputs = cell.get("outputs")
        if not isinstance(outputs, list):
            yield "has no list of outputs"
            return
        yield from (what for output in outputs for what in _output_faults(output))


def _output_faults(output: Any) -> Iterator[str]:
    kind = output.get("output_type") if isinstance(output, dict) else output
    fields = OUTPUTS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        yield f"has an output of an unknown type, {kind!r}"
        return
    for name, wanted in fields.items():
        held = output.get(name)
        if not isinstance(held, wanted) or (isinstance(held, list) and not _is_text(held)):
            yield f"has an output ({kind}) without its {name}"
    if fields is FORMS and isinstance(output.get("data"), dict):
        for form, held in output["data"].items():
            if "json" not in form and not _is_text(held):
                yield f"has an output whose {form} is no text"


def _is_text(held: Any) -> bool:
    return isinstance(held, str) or _is_list_of_text(held)


def _is_list_of_text(held: Any) -> bool:
    return isinstance(held, list) and all(isinstance(line, str) for line in held)
