"""The API reference: pages of the book made from the package's text when the book is built.

`notebooks/api_reference.md` stands in SUMMARY.md and holds a few words for who reads it elsewhere;
here it becomes the index of all names, and a page for each part of the package follows it. A page
leads to a name by `api_reference.md#kvlab.core.block_pool.BlockPool`, whichever page has it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from kvlab.book.manifest import read
from kvlab.book.reference_commands import commands
from kvlab.book.reference_names import Met, met
from kvlab.book.reference_page import Addresses, command_part, index_part, module_part
from kvlab.book.reference_source import read_module
from kvlab.book.reference_text import sections_of

INDEX = "api_reference"
LINK = re.compile(rf"\]\({INDEX}\.md#([\w.-]+)\)")
REGION = re.compile(r"<!-- reference:start -->.*?<!-- reference:end -->", re.DOTALL)


@dataclass(frozen=True)
class Part:
    """A page of the reference. packages: what its modules' names begin with; the longest counts."""

    page: str
    title: str
    packages: tuple[str, ...]
    about: str


PARTS = (
    Part("api_engine", "Engine and llm", ("kvlab",), "Text in, text out, and the loop between."),
    Part("api_core", "Core", ("kvlab.core",), "Bookkeeping: the standard library alone."),
    Part("api_tensors", "Tensors", ("kvlab.tensors", "kvlab.hf"), "What torch computes."),
    Part("api_measure", "Measure", ("kvlab.measure",), "What a machine does, measured."),
    Part("api_serve", "Serve", ("kvlab.serve",), "A server with OpenAI's API."),
    Part("api_widgets", "Widgets", ("kvlab.widgets",), "Views of a trace, and live editors."),
    Part("api_exercises", "Exercises", ("kvlab.exercises",), "Predict, check, hints, solutions."),
    Part("api_tiny", "Tiny", ("kvlab.tiny",), "The model that every notebook runs."),
)
COMMANDS = Part("api_commands", "Commands", (), "What `kvlab` does in a terminal.")


@dataclass(frozen=True)
class Reference:
    """index: the list of all names. pages: (page, title, text). anchors: name -> page."""

    index: str
    pages: tuple[tuple[str, str, str], ...]
    anchors: Mapping[str, str]

    def linked(self, markdown: str) -> str:
        """A page's text with its links to names led to the page that has each.

        Raises ValueError for a name that the reference does not have.
        """

        def link(match: re.Match[str]) -> str:
            if match[1] not in self.anchors:
                raise ValueError(f"{match[0][2:-1]} names nothing that the API reference has")
            return f"]({self.anchors[match[1]]}.html#{match[1]})"

        return LINK.sub(link, markdown)

    def filled(self, stub: str) -> str:
        """The text of INDEX with the list of names. Raises ValueError where the marks are not."""
        text, count = REGION.subn(lambda _: self.index, stub)
        if count != 1:
            raise ValueError(f"{INDEX}.md needs the marks reference:start and :end, once each")
        return text


def reference(
    root: Path,
    notebooks: Mapping[str, dict[str, Any]],
    reading: str,
    equations: Mapping[str, str],
) -> Reference:
    """Read the package under `root` and write its pages.

    notebooks: page -> notebook. reading: the text of "Read the engine". equations: number -> page.
    Raises ValueError that names each public class or function without a docstring.
    """
    by_part: dict[Part, list[Met]] = {part: [] for part in PARTS}
    for one in met(root, notebooks, reading):
        by_part[part_of(one.entry.module)].append(one)
    offered = commands()
    pages = {one.anchor: COMMANDS.page for one in offered}
    entries = {}
    for part, names in by_part.items():
        for one in names:
            pages[one.entry.module] = part.page
            for entry in (one.entry, *one.entry.members):
                pages[entry.anchor], entries[entry.anchor] = part.page, entry
    taught = {s.id: s.notebook for s in read(root).sections if s.notebook in notebooks}
    addresses = Addresses(root, pages, entries, taught, _read_in(reading), equations)
    links = addresses.links("")
    texts = {p: _modules(names, addresses) for p, names in by_part.items() if names}
    texts[COMMANDS] = "\n\n".join(command_part(one, links) for one in offered)
    rows = {part: _rows(names, root) for part, names in by_part.items()}
    rows[COMMANDS] = [(one.anchor, one.name, one.doc) for one in offered]
    index = (index_part(part.title, part.about, part.page, rows[part], links) for part in texts)
    written = ((p, f"# {p.title}\n\n{p.about}\n\n{text}\n") for p, text in texts.items())
    return Reference(
        "\n\n".join(index), tuple((part.page, part.title, text) for part, text in written), pages
    )


def _rows(names: list[Met], root: Path) -> list[tuple[str, str, str]]:
    """(anchor, name, docstring) of each; a constant without a comment has its module's."""
    entries = [one.entry for one in names]
    return [(e.anchor, e.name, e.doc or read_module(root, e.module).doc) for e in entries]


def _read_in(reading: str) -> dict[str, list[str]]:
    """file -> the sections that its line names."""
    found = {}
    for line in reading.splitlines():
        if path := re.search(r"\]\(\.\./(kvlab/[\w/]+\.py)\)", line):
            found[path[1]] = sections_of(line)
    return found


def part_of(module: str) -> Part:
    """The page of a module."""
    fits = [
        (len(package), number)
        for number, part in enumerate(PARTS)
        for package in part.packages
        if f"{module}.".startswith(f"{package}.")
    ]
    return PARTS[max(fits)[1]]


def _modules(names: list[Met], addresses: Addresses) -> str:
    return "\n\n".join(_module_texts(names, addresses))


def _module_texts(names: list[Met], addresses: Addresses) -> Iterator[str]:
    for module, group in groupby(names, key=lambda one: one.entry.module):
        yield module_part(read_module(addresses.root, module), group, addresses)
