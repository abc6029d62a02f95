"""A page of the reference as mdBook reads it: headings and signatures in Markdown, the rest HTML.

Each name has a heading whose anchor is its whole name, as #kvlab.core.block_pool.BlockPool.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from kvlab.book.prose import FILES
from kvlab.book.reference_commands import Command
from kvlab.book.reference_names import Met
from kvlab.book.reference_source import Entry, Module
from kvlab.book.reference_text import Links, inline, render, sections_of, summary, taught_in

LINE = 100  # signs of a line of source


@dataclass(frozen=True)
class Addresses:
    """Where names, sections, equations and files stand in the book."""

    root: Path
    pages: Mapping[str, str]  # anchor -> page, without ending
    entries: Mapping[str, Entry]  # anchor -> what has it: names, and what classes have
    sections: Mapping[str, str]  # "21.5" -> page
    reading: Mapping[str, list[str]]  # file -> the sections that "Read the engine" names for it
    equations: Mapping[str, str]  # "21.2" -> page

    def of(self, anchor: str) -> str:
        return f"{self.pages[anchor]}.html#{anchor}"

    def find(self, name: str, near: str) -> str | None:
        """The anchor that a docstring at the anchor `near` means by a name; None for no one's.

        The nearest first: of the same class, of the same module. From elsewhere only what cannot be
        an ordinary word, and what is there once.
        """
        scopes = near.split(".")
        for end in range(len(scopes), -1, -1):
            if (anchor := ".".join([*scopes[:end], name])) in self.pages:
                return anchor
        ends = self.by_name.get(name, set())
        return min(ends) if len(ends) == 1 and re.search(r"[A-Z_.]", name) else None

    @functools.cached_property
    def by_name(self) -> dict[str, set[str]]:
        """The anchors of "BlockPool", "BlockPool.touch" or "touch", in all modules."""
        found: dict[str, set[str]] = {}
        for anchor, entry in self.entries.items():
            for name in (entry.name, entry.name.split(".")[-1]):
                found.setdefault(name, set()).add(anchor)
        return found

    def links(self, near: str) -> Links:
        return Links(
            lambda name: self._name(name, near),
            lambda number: _page(self.sections.get(number)),
            lambda number: _page(self.equations.get(number), f"#eq-{number}"),
            self._file,
        )

    def _name(self, name: str, near: str) -> str | None:
        if near in self.entries and name in self.entries[near].parameters:
            return None
        anchor = self.find(name, near)
        return None if anchor in (None, near) else self.of(anchor)

    def _file(self, path: str) -> str | None:
        path = path if path.startswith("kvlab/") else f"kvlab/{path}"
        return FILES + path if (self.root / path).is_file() else None


def _page(page: str | None, anchor: str = "") -> str | None:
    return page and f"{page}.html{anchor}"


def module_part(module: Module, names: Iterable[Met], addresses: Addresses) -> str:
    """A module's heading and docstring, then each of its names that readers meet."""
    file = f'<a href="{FILES}{module.path}">{module.path}</a>'
    names = list(names)
    taught = (
        taught_in(module.doc)
        or addresses.reading.get(module.path)
        or sections_of(module.doc)
        or list(dict.fromkeys(n for one in names for n in taught_in(one.entry.doc or "")))
    )
    shown = [
        f"## `{module.name}` {{#{module.name}}}",
        _where([file, *_sections("section", taught, addresses)]),
        _doc(module.doc, (), LINE, addresses.links(module.name)),
    ]
    for one in names:
        shown += _name(one, taught, file, addresses)
    return "\n\n".join(part for part in shown if part)


def _name(one: Met, taught: list[str], file: str, addresses: Addresses) -> Iterator[str]:
    """taught: the sections that teach the module."""
    entry = one.entry
    offered = f"<code>from {one.package or entry.module} import {entry.name}</code>"
    facts = [offered, f"{file}, line {entry.line}"]
    taught = taught_in(entry.doc or "") or taught or sections_of(entry.doc or "")
    facts += _sections("section", taught, addresses)
    used = [n for n, page in addresses.sections.items() if page in one.pages and n not in taught]
    facts += _sections("used in section", used, addresses)
    yield f"### `{entry.name}` {{#{entry.anchor}}}"
    yield _where(facts)
    yield from _described(entry, LINE - 4, addresses)
    for member in entry.members:
        yield f"#### `{member.name.removeprefix(entry.name + '.')}` {{#{member.anchor}}}"
        yield from _described(member, LINE - 8, addresses, _inherited(member, entry, addresses))


def _described(
    entry: Entry, width: int, addresses: Addresses, otherwise: str | None = None
) -> Iterator[str]:
    yield f'<div class="kvlab-signature">\n\n```python\n{entry.signature}\n```\n\n</div>'
    doc = entry.doc or otherwise
    yield _doc(doc or "", entry.parameters, width, addresses.links(entry.anchor))


def _inherited(member: Entry, entry: Entry, addresses: Addresses) -> str | None:
    """ "As `View.html`", where a base says what the class leaves out."""
    own = member.name.removeprefix(entry.name + ".")
    for base in entry.bases:
        anchor = addresses.find(f"{base}.{own}", entry.module)
        if anchor and addresses.entries[anchor].doc:
            return f"As `{base}.{own}`."
    return None


def _where(facts: Iterable[str]) -> str:
    return f'<p class="kvlab-where">{" · ".join(facts)}</p>'


def _sections(what: str, numbers: Iterable[str], addresses: Addresses) -> list[str]:
    known = [number for number in numbers if number in addresses.sections]
    links = [f'<a href="{addresses.sections[number]}.html">{number}</a>' for number in known]
    return [f"{what}{'s' * (len(links) > 1)} {', '.join(links)}"] if links else []


def _doc(doc: str, parameters: Iterable[str], width: int, links: Links) -> str:
    html = render(doc, tuple(parameters), width, links)
    return f'<div class="kvlab-doc">\n{html}\n</div>' if html else ""


def command_part(command: Command, links: Links) -> str:
    heading = f"## `{command.name}` {{#{command.anchor}}}"
    text = f'<div class="kvlab-doc"><p>{inline(command.doc, links)}</p></div>'
    if not command.options:
        return f"{heading}\n\n{text}"
    rows = [
        (
            f"<code>{escape(one.shown)}</code>",
            f"<code>{escape(one.default)}</code>" if one.default else "",
            inline(one.help, links),
        )
        for one in command.options
    ]
    return f"{heading}\n\n{text}\n\n{_table(('option', 'default', 'what it sets'), rows)}"


def index_part(
    title: str, about: str, page: str, rows: Iterable[tuple[str, str, str]], links: Links
) -> str:
    """The index's part for one page. rows: (anchor, name, docstring)."""
    cells = [
        (
            f'<a href="{page}.html#{anchor}"><code>{escape(name)}</code></a>',
            inline(summary(doc), links),
        )
        for anchor, name, doc in rows
    ]
    table = _table(("name", "what it is"), cells)
    heading = f'<h2 id="{page.removeprefix("api_")}"><span>{escape(title)}</span></h2>'
    return f"{heading}\n\n{about} [The whole page]({page}.html)\n\n{table}"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """heads and rows: HTML of each cell."""
    head = "".join(f"<th>{cell}</th>" for cell in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="table-wrapper kvlab-names">{table}</div>'
