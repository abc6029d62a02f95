"""The reader's own copies of the notebooks.

JupyterLab saves what a reader opens. So `kvlab lab` opens copies: the shipped notebooks stay as
they are, and `make test` can still compare them. A copy is brought up to date only while its
cells are those that were shipped; a reader's edits are never overwritten. Where a newer kvlab ships
another page than the one that a reader has edited, the new one is put beside it, once, under a name
that says so. `kvlab reset` gives a page back as shipped, and keeps the reader's copy beside it.
"""

import hashlib
import json
import shutil
import sysconfig
from datetime import datetime
from pathlib import Path

from kvlab import __version__

FOLDER = "workbook"
RECORD = ".shipped.json"  # each copy's name -> fingerprint of the shipped cells it was made from
INSTALLED = Path(sysconfig.get_path("data")) / "share/kvlab/notebooks"  # of a pip install
STAMP = "%Y-%m-%d_%H%M%S"


def prepare(
    home: Path, pages: Path | None = None, number: str = __version__
) -> tuple[Path, list[Path]]:
    """Copy what is missing, bring up to date what is unedited, put new pages beside edited copies.

    home: the copies are in home/workbook. pages: the shipped notebooks; home/notebooks in a clone.
    number: the version that ships them. Returns the folder of copies, and the pages that were put
    beside an edited copy now.
    """
    pages = pages or home / "notebooks"
    folder = home / FOLDER
    folder.mkdir(exist_ok=True)
    record = _record(folder)
    beside = []
    for shipped in sorted(pages.glob("*.ipynb")):
        place = folder / shipped.name
        if not _is_free(place, fingerprint(shipped), record):
            if _is_known(shipped, record):
                continue
            place = _place_beside(place, number, record)
            beside.append(place)
        if not place.exists() or fingerprint(place) != fingerprint(shipped):
            shutil.copyfile(shipped, place)
        record[place.name] = fingerprint(shipped)
    _write_record(folder, record)
    return folder, beside


def _is_free(place: Path, now: str | None, record: dict[str, str | None]) -> bool:
    """Whether writing the shipped page there loses no edit; now: the shipped page's fingerprint."""
    if not place.exists():
        return True
    there = fingerprint(place)
    return there is not None and there in (now, record.get(place.name))


def _is_known(shipped: Path, record: dict[str, str | None]) -> bool:
    """Whether the reader has this page already: as the edited copy's origin, or put beside it."""
    ours = (name for name in record if name.split(".")[0] == shipped.stem)
    return fingerprint(shipped) in {record[name] for name in ours}


def _place_beside(copy: Path, number: str, record: dict[str, str | None]) -> Path:
    """As 21_6_growth.new-0.2.0.ipynb; with -2, -3 ... where the reader has edited that one too."""
    stem = f"{copy.stem}.new-{number}"
    for name in (stem, *(f"{stem}-{more}" for more in range(2, 100))):
        place = copy.with_name(name + copy.suffix)
        if _is_free(place, None, record):
            return place
    raise ValueError(f"{copy.parent} holds a hundred pages named {stem}: move some away")


def reset(home: Path, pages: Path, page: str, now: datetime) -> tuple[Path, Path | None]:
    """Give `page` back as shipped. Returns it, and the reader's copy under its new name, if any.

    page: "21.6", "21_6_growth", or the copy's path. Raises ValueError, listing the names, for a
    page that is not shipped.
    """
    shipped = _shipped(pages, page)
    folder = home / FOLDER
    folder.mkdir(exist_ok=True)
    copy = folder / shipped.name
    kept = None
    if copy.exists() and copy.read_bytes() != shipped.read_bytes():
        kept = set_aside(copy, now)
    if kept or not copy.exists():
        shutil.copyfile(shipped, copy)
    _write_record(folder, _record(folder) | {shipped.name: fingerprint(shipped)})
    return copy, kept


def _shipped(pages: Path, page: str) -> Path:
    names = {path.stem: path for path in sorted(pages.glob("*.ipynb"))}
    asked = Path(page).name.removesuffix(".ipynb")
    prefix = asked.replace(".", "_") + "_"
    found = [path for name, path in names.items() if name == asked or name.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    raise ValueError(f"there is no notebook {page!r}; there are {', '.join(names)}")


def set_aside(path: Path, now: datetime) -> Path:
    """Rename `path` to a dated name beside it, and return that; nothing is overwritten."""
    stem = f"{path.stem}.kept-{now.strftime(STAMP)}"
    names = [stem, *(f"{stem}-{number}" for number in range(2, 100))]
    free = (path.with_name(name + path.suffix) for name in names)
    target = next((place for place in free if not place.exists()), None)
    if target is None:
        raise ValueError(f"{path.parent} holds a hundred copies named {stem}: move some away")
    return path.rename(target)


def _record(folder: Path) -> dict[str, str | None]:
    path = folder / RECORD
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def _write_record(folder: Path, record: dict[str, str | None]) -> None:
    (folder / RECORD).write_text(json.dumps(record, indent=1), "utf-8")


def fingerprint(path: Path) -> str | None:
    """sha256 over the cells' kinds and sources, outputs apart; None for what is no notebook."""
    try:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        parts = [[cell["cell_type"], "".join(cell["source"])] for cell in cells]
    except (ValueError, KeyError, TypeError):
        return None
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
