"""The manifest of sections, as it stands in book.toml under `[preprocessor.kvlab]`.

Every list of sections (the README's map, the summary, the tests, the book) is read from here, and
so is the repository's public address, which stands nowhere else.
"""

import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

ADDRESS = re.compile(r"https://[\w.-]+(?::\d+)?(?:/[\w.~-]+)*", re.ASCII)


@dataclass(frozen=True)
class Section:
    """One section of the chapter; `written` says that its notebook exists."""

    id: str  # "21.6"
    notebook: str  # "21_6_growth", without .ipynb
    title: str
    minutes: int
    hardware: str
    written: bool
    claims: tuple[str, ...]  # each is one cell of the notebook, tagged "claim-<id>"
    open_claims: tuple[str, ...] = ()  # of these, the ones that have no cell so far

    @property
    def path(self) -> str:
        """The notebook's path from the root of the clone."""
        return f"notebooks/{self.notebook}.ipynb"


@dataclass(frozen=True)
class Manifest:
    """The sections in the order of the chapter; `repository` is empty until it is known.

    source, site: mdBook's folders, of the pages and of the built book; from the root of the clone.
    """

    repository: str
    sections: tuple[Section, ...]
    source: str
    site: str

    @property
    def written(self) -> tuple[Section, ...]:
        return tuple(section for section in self.sections if section.written)


def clone_root() -> Path:
    """The folder that holds book.toml: the working directory, or else the package's own clone."""
    here = (Path.cwd(), Path(__file__).resolve().parents[2])
    for folder in here:
        if (folder / "book.toml").is_file():
            return folder
    raise ValueError("no book.toml in this folder; run the command in a clone of kvlab")


def read(root: Path) -> Manifest:
    """Read and check `root`/book.toml. A mistake in it raises ValueError that says where it is."""
    path = root / "book.toml"
    try:
        table = tomllib.loads(path.read_bytes().decode("utf-8"))
        return _manifest(table)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None


def _manifest(table: dict[str, Any]) -> Manifest:
    source = _value(_table(table, "book"), "src", "[book] src", "src")  # the defaults are mdBook's
    site = _value(_table(table, "build"), "build-dir", "[build] build-dir", "book")
    ours = _table(_table(table, "preprocessor"), "kvlab", "preprocessor.kvlab")
    for name in ("repository", "section"):
        if name not in ours:
            raise ValueError(f"[preprocessor.kvlab] lacks {name!r}")
    repository, entries = ours["repository"], ours["section"]
    if not isinstance(repository, str) or (repository and not ADDRESS.fullmatch(repository)):
        raise ValueError(
            "repository must be empty or an https:// address without a slash at its end,"
            f" not {repository!r}"
        )
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("each section must be a table, headed [[preprocessor.kvlab.section]]")
    sections = tuple(map(_section, entries))
    for mistake in _mistakes(sections):
        raise ValueError(mistake)
    return Manifest(repository, sections, source, site)


def _table(table: dict[str, Any], name: str, shown: str | None = None) -> dict[str, Any]:
    """table[name]; empty where it is not there."""
    found = table.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"[{shown or name}] must be a table, not {found!r}")
    return found


def _value(table: dict[str, Any], key: str, shown: str, default: str) -> str:
    found = table.get(key, default)
    if not isinstance(found, str) or not found:
        raise ValueError(f"{shown} must name a folder, not {found!r}")
    return found


def _section(entry: dict[str, Any]) -> Section:
    known = {field.name for field in fields(Section)}
    where = f"section {entry.get('id', '?')}"
    if unknown := sorted(set(entry) - known):
        raise ValueError(f"{where} has unknown keys: {', '.join(unknown)}")
    if missing := sorted(known - {"open_claims"} - set(entry)):
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    for key, value in entry.items():
        wanted, fits = FITS[key]
        if not fits(value):
            raise ValueError(f"{where}: {key} must be {wanted}, not {value!r}")
    lists = {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
    return Section(**(entry | lists))


def _is_line(value: object) -> bool:
    return isinstance(value, str) and value.strip() != "" and value.isprintable()


def _is_list(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_line, value))


# key of a section -> what its value must be, in words, and whether a value is that
FITS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "id": ('text, as "21.6"', _is_line),
    "notebook": (
        'a name without .ipynb, as "21_6_growth"',
        lambda value: isinstance(value, str) and re.fullmatch(r"[\w-]+", value) is not None,
    ),
    "title": ("a line of text", _is_line),
    "minutes": ("a whole number from 1", lambda value: type(value) is int and value > 0),
    "hardware": ("a line of text", _is_line),
    "written": ("true or false", lambda value: isinstance(value, bool)),
    "claims": ('a list, as ["21.6-a"]', _is_list),
    "open_claims": ('a list, as ["21.6-a"]', _is_list),
}


def _mistakes(sections: tuple[Section, ...]) -> Iterator[str]:
    """What is wrong between sections, and between a section and its claims."""
    for kind in ("id", "notebook"):
        seen = [getattr(section, kind) for section in sections]
        yield from (f"two sections have the {kind} {name}" for name in _repeated(seen))
    claims = [claim for section in sections for claim in section.claims]
    yield from (f"claim {claim} is listed twice" for claim in _repeated(claims))
    for section in sections:
        for claim in section.claims:
            if not claim.startswith(f"{section.id}-"):
                yield f"claim {claim} is listed under section {section.id}"
        for claim in section.open_claims:
            if claim not in section.claims:
                yield f"open claim {claim} is not among the claims of section {section.id}"


def _repeated(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
