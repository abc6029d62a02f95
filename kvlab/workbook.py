"""The reader's own copies of the notebooks.

JupyterLab saves what a reader opens. So `kvlab lab` opens copies: the shipped notebooks stay as
they are, and `make test` can still compare them. A copy is brought up to date only while its
cells are those that were shipped; a reader's edits are never overwritten. Where a newer kvlab ships
another page than the one that a reader has edited, the new one is put beside it, once, under a name
that says so. `kvlab reset` gives a page back as shipped, and keeps the reader's copy beside it.
"""

import hashlib
import json
import os
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from kvlab import __version__
from kvlab.core.whole_file import write_whole

FOLDER = "workbook"
RECORD = ".shipped.json"  # each copy's name -> fingerprint of the shipped cells it was made from
CLONE = Path(__file__).resolve().parents[1]  # if the running package lies in one
INSTALLED = Path(sysconfig.get_path("data")) / "share/kvlab/notebooks"  # of a pip install
STAMP = "%Y-%m-%d_%H%M%S"


def prepare(
    home: Path, pages: Path | None = None, number: str = __version__
) -> tuple[Path, list[Path]]:
    """Copy what is missing, bring up to date what is unedited, put new pages beside edited copies.

    home: the copies are in home/workbook. pages: the shipped notebooks; home/notebooks in a clone.
    number: the version that ships them. Returns the folder of copies, and the pages that were put
    beside an edited copy now. Raises ValueError for a folder in a page's place and for a link that
    leads nowhere, OSError for what cannot be written; pages that were copied before are on record.
    """
    pages = pages or home / "notebooks"
    folder = _folder(home)
    record = _record(folder)
    beside: list[Path] = []
    try:
        _bring(pages, folder, number, record, beside)
    finally:
        _write_record(folder, record)
    return folder, beside


def _bring(
    pages: Path, folder: Path, number: str, record: dict[str, str | None], beside: list[Path]
) -> None:
    """`prepare`'s work; `record` and `beside` hold what is done so far."""
    for shipped in sorted(pages.glob("*.ipynb")):
        place = folder / shipped.name
        if not _is_free(place, fingerprint(shipped), record):
            if _is_known(shipped, record):
                continue
            place = _place_beside(place, fingerprint(shipped), number, record)
            beside.append(place)
        if not place.exists() or fingerprint(place) != fingerprint(shipped):
            write_whole(place, shipped.read_bytes())
        record[place.name] = fingerprint(shipped)


def _folder(home: Path) -> Path:
    """home/workbook, made if it is missing."""
    folder = home / FOLDER
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, and your copies go into a folder of this name")
    refuse_dangling(folder)
    folder.mkdir(exist_ok=True)
    refuse_no_file(folder / RECORD)
    return folder


def refuse_dangling(place: Path) -> None:
    """Raises ValueError for a link whose target is gone: a copy would land there, elsewhere."""
    if place.is_symlink() and not place.exists():
        raise ValueError(
            f"{place} is a link to {os.readlink(place)}, which is not there: delete the link"
        )


def refuse_no_file(place: Path) -> None:
    """Raises ValueError where no file can be written: for a folder, a device, a link to nothing."""
    refuse_dangling(place)
    if place.exists() and not place.is_file():
        what = "a folder" if place.is_dir() else "no plain file"
        raise ValueError(f"{place} is {what}, and a file of this name goes there: move it away")


def _is_free(place: Path, now: str | None, record: dict[str, str | None]) -> bool:
    """Whether writing the shipped page there loses no edit; now: the shipped page's fingerprint."""
    refuse_no_file(place)
    if not place.exists():
        return True
    there = fingerprint(place)
    return there is not None and there in (now, record.get(place.name))


def _is_known(shipped: Path, record: dict[str, str | None]) -> bool:
    """Whether the reader has this page already: as the edited copy's origin, or put beside it."""
    ours = (name for name in record if name.split(".")[0] == shipped.stem)
    return fingerprint(shipped) in {record[name] for name in ours}


def _place_beside(copy: Path, now: str | None, number: str, record: dict[str, str | None]) -> Path:
    """As 21_6_growth.new-0.2.0.ipynb; with -2, -3 ... where the reader has edited that one too.
    now: the shipped page's fingerprint."""
    stem = f"{copy.stem}.new-{number}"
    for name in (stem, *(f"{stem}-{more}" for more in range(2, 100))):
        place = copy.with_name(name + copy.suffix)
        if _is_free(place, now, record):
            return place
    raise ValueError(f"{copy.parent} holds a hundred pages named {stem}: move some away")


def reset(home: Path, pages: Path, page: str, now: datetime) -> tuple[Path, Path | None]:
    """Give `page` back as shipped. Returns it, and the reader's copy under its new name, if any.

    page: "21.6", "21_6_growth", or the copy's path. Raises ValueError, listing the names, for a
    page that is not shipped; OSError for what cannot be written: then the copy is as it was.
    """
    shipped = _shipped(pages, page)
    folder = _folder(home)
    copy = folder / shipped.name
    refuse_no_file(copy)
    content = shipped.read_bytes()
    changed = [] if copy.exists() and copy.read_bytes() == content else [copy]
    with set_aside(changed, now) as kept:
        for place in changed:
            write_whole(place, content)
        _write_record(folder, _record(folder) | {shipped.name: fingerprint(shipped)})
    return copy, kept[0] if kept else None


def _shipped(pages: Path, page: str) -> Path:
    names = {path.stem: path for path in sorted(pages.glob("*.ipynb"))}
    asked = Path(page).name.removesuffix(".ipynb")
    prefix = asked.replace(".", "_") + "_"
    found = [path for name, path in names.items() if name == asked or name.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    raise ValueError(f"there is no notebook {page!r}; there are {', '.join(names)}")


@contextmanager
def set_aside(places: list[Path], now: datetime) -> Iterator[list[Path]]:
    """For a block that writes all of `places`: what is there is kept under dated names beside.

    Gives these names. If the block fails, every place is as before: what was kept is back, and what
    is new is gone.
    """
    new = [place for place in places if not place.exists()]
    kept: dict[Path, Path] = {}
    try:
        for place in places:
            if place not in new:
                kept[place] = _dated(place, now)
                place.rename(kept[place])
        yield list(kept.values())
    except BaseException:
        for place, name in kept.items():
            if name.exists():
                name.replace(place)
        for place in new:
            place.unlink(missing_ok=True)
        raise


def _dated(path: Path, now: datetime) -> Path:
    """A dated name beside `path` that nothing has."""
    stem = f"{path.stem}.kept-{now.strftime(STAMP)}"
    names = [stem, *(f"{stem}-{number}" for number in range(2, 100))]
    free = (path.with_name(name + path.suffix) for name in names)
    target = next((place for place in free if not place.exists()), None)
    if target is None:
        raise ValueError(f"{path.parent} holds a hundred copies named {stem}: move some away")
    return target


def _record(folder: Path) -> dict[str, str | None]:
    """What was written down; nothing where the file is missing or damaged."""
    try:
        found = json.loads((folder / RECORD).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    texts = found.items() if isinstance(found, dict) else ()
    return {name: mark for name, mark in texts if mark is None or isinstance(mark, str)}


def _write_record(folder: Path, record: dict[str, str | None]) -> None:
    write_whole(folder / RECORD, json.dumps(record, indent=1))


def fingerprint(path: Path) -> str | None:
    """sha256 over the cells' kinds and sources, outputs apart; None for what is no notebook,
    or cannot be read."""
    try:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        parts = [[cell["cell_type"], "".join(cell["source"])] for cell in cells]
        text = json.dumps(parts)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return hashlib.sha256(text.encode()).hexdigest()
