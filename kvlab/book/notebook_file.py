"""Read a notebook's file; what is none is named."""

import json
from pathlib import Path
from typing import Any


def read_notebook(path: Path) -> dict[str, Any]:
    """The notebook as nbformat 4 has it. Raises ValueError, naming the file, for anything else."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        cells = notebook["cells"]
        fits = all(isinstance(cell["metadata"], dict) and "source" in cell for cell in cells)
    except (ValueError, KeyError, TypeError, RecursionError):
        fits = False
    if not fits:
        raise ValueError(f"{path} is no notebook of nbformat 4: move it away, or restore it")
    return notebook
