"""The manifest of sections, as it stands in book.toml under `[preprocessor.kvlab]`.

Every list of sections (the README's map, the summary, the tests, later the book) is read from here,
and so is the repository's public address, which stands nowhere else.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any


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
    """The sections in the order of the chapter; `repository` is empty until it is known."""

    repository: str
    sections: tuple[Section, ...]

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
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    try:
        ours = table["preprocessor"]["kvlab"]
        repository, entries = ours["repository"], ours["section"]
    except KeyError as error:
        raise ValueError(f"{path}: [preprocessor.kvlab] lacks {error}") from None
    if repository and (not repository.startswith("https://") or repository.endswith("/")):
        raise ValueError(
            f"{path}: repository must be empty or an https:// address without a slash at its end,"
            f" not {repository!r}"
        )
    sections = tuple(_section(entry, path) for entry in entries)
    for mistake in _mistakes(sections):
        raise ValueError(f"{path}: {mistake}")
    return Manifest(repository, sections)


def _section(entry: dict[str, Any], path: Path) -> Section:
    known = {field.name for field in fields(Section)}
    where = f"{path}: section {entry.get('id', '?')}"
    if unknown := sorted(set(entry) - known):
        raise ValueError(f"{where} has unknown keys: {', '.join(unknown)}")
    if missing := sorted(known - {"open_claims"} - set(entry)):
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    lists = {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
    return Section(**(entry | lists))


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
