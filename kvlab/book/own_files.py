"""Which files of a folder are a site that we have built, so that a new one may replace it.

A site carries the list of its files, in .kvlab-book. An old site is deleted only where nothing
lies in its folder that is not on the list: a reader may have given the name of any folder.
"""

import os
import shutil
from pathlib import Path

MARK = ".kvlab-book"
DESKTOP = {".DS_Store", "Thumbs.db"}  # a file manager leaves them where somebody looked


def mark(site: Path) -> None:
    """Write down all files of a site, one a line. Nothing happens where there is no folder."""
    if site.is_dir():
        names = sorted(_files(site) - {MARK})
        (site / MARK).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


def delete_old(site: Path) -> None:
    """Make way for a new site: an old one goes, an empty folder or none at all stays.

    Raises ValueError, and deletes nothing, for a file, and for a folder with anything else in it.
    """
    site = site.resolve()
    if not site.exists():
        return
    if not site.is_dir():
        raise ValueError(f"{site} is a file: name a folder")
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
    shutil.rmtree(site)


def _files(folder: Path) -> set[str]:
    """All that is no folder, and links; as paths inside `folder`."""
    found = set()
    for base, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(base) / name).is_symlink()]
        found |= {(Path(base) / name).relative_to(folder).as_posix() for name in [*names, *links]}
    return found
