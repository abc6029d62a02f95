"""`kvlab book claims`: each claim of the chapter, the cell of it, and what that cell printed."""

import json
import runpy
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvlab.book.notebook_file import read_notebook

DATA = Path(__file__).with_name("claims.toml")
CUTS = "tests/notebooks/cuts.py"  # in a clone: lines of the engine without which a claim fails
TAG = "claim-"
LINES = 2
LEGEND = """Each claim of the chapter, its kind, and the cell that computes it.
  shows    what is claimed
  printed  the first lines of what that cell printed"""
CUT = """
  cut      what the tests take out of the engine to see the cell fail"""


@dataclass(frozen=True)
class Claim:
    """One claim. cell: its number in the notebook, counted from 1. cuts: None outside a clone."""

    id: str
    kind: str
    shows: str
    notebook: str
    cell: int
    cell_id: str
    printed: tuple[str, ...]
    cuts: tuple[str, ...] | None


def statements() -> dict[str, tuple[str, str]]:
    """claim id -> (kind, what it shows), in the order of the chapter."""
    table = tomllib.loads(DATA.read_text(encoding="utf-8"))["claims"]
    return {name: (kind, shows) for name, (kind, shows) in table.items()}


def claims(home: Path, pages: Path) -> list[Claim]:
    """All claims, in the order of the chapter.

    pages: the notebooks. home: a clone, if they lie in it; its tests name the cuts.
    Raises ValueError for a claim without a cell or with two, and for a tag in no list.
    """
    cells: dict[str, list[tuple[str, int, dict[str, Any]]]] = {}
    for path in sorted(pages.glob("*.ipynb")):
        for number, name, cell in _tagged(path):
            cells.setdefault(name, []).append((path.stem, number, cell))
    guards = _guards(home) if pages.parent == home else None
    found = []
    for name, (kind, shows) in statements().items():
        places = cells.pop(name, [])
        if len(places) != 1:
            raise ValueError(f"claim {name} must have one cell tagged {TAG}{name}, not {places!r}")
        notebook, number, cell = places[0]
        lines = tuple(_lines(cell))
        cuts = None if guards is None else tuple(guards.get(name, ()))
        found.append(Claim(name, kind, shows, notebook, number, cell.get("id", ""), lines, cuts))
    if cells:
        raise ValueError(f"the notebooks have claims that are in no list: {', '.join(cells)}")
    return found


def _tagged(path: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
    notebook = read_notebook(path)
    for number, cell in enumerate(notebook["cells"], 1):
        for tag in cell["metadata"].get("tags", []):
            if tag.startswith(TAG):
                yield number, tag.removeprefix(TAG), cell


def _lines(cell: dict[str, Any]) -> list[str]:
    """The first lines that the cell printed, or of the text form of what it showed."""
    texts = []
    for output in cell.get("outputs", []):
        text = output.get("text") or output.get("data", {}).get("text/plain", "")
        texts += "".join(text).splitlines()
    return [line.rstrip() for line in texts if line.strip()][:LINES]


def _guards(home: Path) -> dict[str, list[str]] | None:
    """claim -> what the cuts take out that make its cell fail; None without the tests."""
    path = home / CUTS
    if not path.is_file():
        return None
    found: dict[str, list[str]] = {}
    for cut in runpy.run_path(str(path))["CUTS"]:
        for name in cut.claims:
            found.setdefault(name, []).append(cut.what)
    return found


def render(found: list[Claim]) -> str:
    """What the lines mean, a paragraph for each claim, and a line that counts them."""
    has_cuts = all(claim.cuts is not None for claim in found)
    parts = [LEGEND + CUT if has_cuts else LEGEND, *map(_paragraph, found)]
    counted = f"{len(found)} claims, each computed in one cell"
    if has_cuts:
        have = sum(bool(claim.cuts) for claim in found)
        counted += f"; {have} have a cut in the engine that makes the cell fail"
    return "\n\n".join([*parts, f"{counted}."])


def _paragraph(claim: Claim) -> str:
    head = f"{claim.id}  {claim.kind}  {claim.notebook}, cell {claim.cell} ({claim.cell_id})"
    printed = claim.printed or ("(a picture; it prints nothing)",)
    lines = [head, f"  shows    {claim.shows}", *(f"  printed  {line}" for line in printed)]
    lines += [f"  cut      {what}" for what in claim.cuts or ()]
    return "\n".join(lines)


def as_json(found: list[Claim]) -> str:
    """The same as one JSON list of objects."""
    return json.dumps([asdict(claim) for claim in found], indent=1, ensure_ascii=False)
