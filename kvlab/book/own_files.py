"""A folder that a built site takes whole, and what it may take the place of.

A site is made in a folder beside, and stands in its place only when it is done: until then the old
one is as it was. A site carries the list of its files, in .kvlab-book, and is replaced only where
nothing lies in its folder that is not on the list: a reader may have given the name of any folder.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MARK = ".kvlab-book"
DESKTOP = {".DS_Store", "Thumbs.db"}  # a file manager leaves them where somebody looked


@contextmanager
def replacing(site: Path) -> Iterator[Path]:
    """Gives a place for a new site, beside `site`, whose place it takes when the block has ended.

    Where the block raises, Ctrl-C included, `site` stays as it was and the new one goes. What a
    build that was killed has left beside, the next one removes. Raises ValueError for a `site` that
    is a file, or a folder with anything but an old site in it; then nothing is changed.
    """
    site = site.resolve()
    refuse(site)
    beside = next(folder for folder in site.parents if folder.exists())
    name = f".{site.name}{MARK}-"
    _clear(site, beside, name)
    part = Path(tempfile.mkdtemp(prefix=name, dir=beside))
    try:
        yield part / "new"
        mark(part / "new")
        refuse(site)  # somebody may have put something there meanwhile
        site.parent.mkdir(parents=True, exist_ok=True)
        if site.exists():
            site.rename(part / "old")
        (part / "new").rename(site)
    finally:
        _put_back(part, site)
        shutil.rmtree(part, ignore_errors=True)


def mark(site: Path) -> None:
    """Write down all files of a site, one a line."""
    names = sorted(_files(site) - {MARK})
    (site / MARK).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


def refuse(site: Path) -> None:
    """Raise ValueError for what no site may replace: a file, a folder with anything else in it."""
    if any(folder.exists() and not folder.is_dir() for folder in (site, *site.parents)):
        raise ValueError(f"{site} is a file, or lies in one: name a folder")
    if not site.exists():
        return
    if os.path.ismount(site) or Path.cwd().is_relative_to(site):
        raise ValueError(
            f"{site} cannot be replaced, as a disk's own folder or the one you are in: name "
            "another folder, or one inside it"
        )
    if not any(site.iterdir()):
        return
    found = _files(site)
    if MARK not in found:
        raise ValueError(
            f"{site} holds something else than an old book (it has no {MARK}): name another "
            "folder, or delete this one yourself"
        )
    listed = (site / MARK).read_text(encoding="utf-8", errors="replace").splitlines()
    others = sorted(name for name in found - {MARK, *listed} if Path(name).name not in DESKTOP)
    if others:
        raise ValueError(
            f"{site} holds what the book's build has not written, {others[0]!r} among it: move "
            "it away, or name another folder"
        )


def _clear(site: Path, beside: Path, name: str) -> None:
    """Remove what killed builds have left; an old site that is there alone gets its place back."""
    for part in list(beside.iterdir()):
        if part.name.startswith(name) and part.is_dir() and not part.is_symlink():
            _put_back(part, site)
            shutil.rmtree(part)


def _put_back(part: Path, site: Path) -> None:
    if (part / "old").is_dir() and not site.exists():
        (part / "old").rename(site)


def _files(folder: Path) -> set[str]:
    """All that is no folder, and links; as paths inside `folder`."""
    found = set()
    for base, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(base) / name).is_symlink()]
        found |= {(Path(base) / name).relative_to(folder).as_posix() for name in [*names, *links]}
    return found
