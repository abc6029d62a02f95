"""The reader's own copies of the notebooks.

JupyterLab saves what a reader opens. So `kvlab lab` opens copies: the shipped notebooks stay as
they are, and `make test` can still compare them. A copy is brought up to date only while its
cells are those that were shipped; a reader's edits are never overwritten.
"""

import hashlib
import json
import shutil
from pathlib import Path

FOLDER = "workbook"
RECORD = ".shipped.json"  # fingerprints of the shipped cells that the copies were made from


def prepare(clone: Path) -> Path:
    """Copy what is missing, bring up to date what is unedited. Returns the folder of copies."""
    folder = clone / FOLDER
    folder.mkdir(exist_ok=True)
    record_path = folder / RECORD
    record = json.loads(record_path.read_text("utf-8")) if record_path.is_file() else {}
    for shipped in sorted((clone / "notebooks").glob("*.ipynb")):
        copy, now = folder / shipped.name, fingerprint(shipped)
        unedited = copy.is_file() and fingerprint(copy) == record.get(shipped.name)
        if not copy.exists() or (unedited and now != record[shipped.name]):
            shutil.copyfile(shipped, copy)
            record[shipped.name] = now
    record_path.write_text(json.dumps(record, indent=1), "utf-8")
    return folder


def fingerprint(path: Path) -> str | None:
    """sha256 over the cells' kinds and sources, outputs apart; None for what is no notebook."""
    try:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        parts = [[cell["cell_type"], "".join(cell["source"])] for cell in cells]
    except (ValueError, KeyError, TypeError):
        return None
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
