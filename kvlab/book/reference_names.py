"""Which names of the package a reader meets, and so the reference must explain.

They are: what a package offers (`kvlab`, `kvlab.widgets`, `kvlab.exercises` ...), what stands in
the files that "Read the engine" goes through, and what a notebook imports.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvlab.book.reference_source import Entry, exported, module_path, read_module, resolve

PACKAGES = ("kvlab", "kvlab.widgets", "kvlab.exercises", "kvlab.serve", "kvlab.hf")
READING = "reading_the_engine.md"
# What a page alone needs, for its own setup.
SETUP = ("kvlab.model_source.INSTALL_SMOLLM2", "kvlab.triton_mode.current")
ENGINE_FILE = re.compile(r"\]\(\.\./(kvlab/[\w/]+)\.py\)")


@dataclass(frozen=True)
class Met:
    """A name and where a reader meets it."""

    entry: Entry
    package: str | None  # that offers it; None: it is imported from its own module
    pages: tuple[str, ...]  # the notebooks that import it, without ending


def met(root: Path, notebooks: Mapping[str, dict[str, Any]], reading: str) -> list[Met]:
    """Every name, by file and line; what `kvlab` offers comes first in its file.

    Files come in the order in which they are to be read, but those directly below `kvlab` in that
    of the names that it offers: a page begins with LLM.

    notebooks: page -> notebook. reading: the text of "Read the engine".
    Raises ValueError that names each public class or function without a docstring, and each name
    that a package offers but no file has.
    """
    entries: dict[str, Entry] = {}
    packages: dict[str, str] = {}
    pages: dict[str, dict[str, None]] = {}
    for entry, package in _offered(root):
        entries[entry.anchor], packages[entry.anchor] = entry, package
    for entry, page in _used(root, notebooks):
        entries[entry.anchor] = entry
        pages.setdefault(entry.anchor, {})[page] = None
    to_read = list(dict.fromkeys(ENGINE_FILE.findall(reading)))
    for path in to_read:
        entries |= {entry.anchor: entry for entry in _public(root, path)}
    if found := [_place(root, e) for e in entries.values() if e.kind != "constant" and not e.doc]:
        raise ValueError("\n".join(f"{place} has no docstring" for place in sorted(found)))
    names = [Met(e, packages.get(a), tuple(pages.get(a, ()))) for a, e in entries.items()]
    offered = [m for m in _homes(root) if m.count(".") == 1]
    order = list(dict.fromkeys([*offered, *(path.replace("/", ".") for path in to_read)]))

    def place(one: Met) -> tuple[int, str, bool, int]:
        module = one.entry.module
        rank = order.index(module) if module in order else len(order)
        return rank, module, one.package != "kvlab", one.entry.line

    return sorted(names, key=place)


def _homes(root: Path) -> Iterator[str]:
    """The modules of what `kvlab` offers, in its order."""
    if module_path(root, "kvlab") is not None:
        found = (resolve(root, "kvlab", name) for name in exported(root, "kvlab"))
        yield from (entry.module for entry in found if entry is not None)


def _offered(root: Path) -> Iterator[tuple[Entry, str]]:
    for package in reversed(PACKAGES):  # the shortest way to import a name stands last, and stays
        if module_path(root, package) is None:
            continue
        for name in exported(root, package):
            entry = resolve(root, package, name)
            if entry is None:
                raise ValueError(f"{package} offers {name}, and no file has that name")
            yield entry, package


def _public(root: Path, path: str) -> Iterable[Entry]:
    entries = read_module(root, path.replace("/", ".")).entries.values()
    return [e for e in entries if e.kind != "constant" and not e.name.startswith("_")]


def _used(root: Path, notebooks: Mapping[str, dict[str, Any]]) -> list[tuple[Entry, str]]:
    """Each name that a notebook imports, or takes from a module that it imports."""
    found = []
    for page, notebook in notebooks.items():
        trees = list(_trees(notebook))
        modules: dict[str, str] = {}
        names = [pair for tree in trees for pair in _imports(root, tree, modules)]
        names += [pair for tree in trees for pair in _attributes(tree, modules)]
        entries = (resolve(root, module, name) for module, name in names)
        shown = (e for e in entries if e is not None and e.anchor not in SETUP)
        found += [(e, page) for e in shown if not e.name.startswith("_")]
    return found


def _trees(notebook: dict[str, Any]) -> Iterator[ast.Module]:
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            try:
                yield ast.parse("".join(cell["source"]))
            except SyntaxError:  # IPython's own, as %timeit
                continue


def _imports(root: Path, tree: ast.Module, modules: dict[str, str]) -> Iterator[tuple[str, str]]:
    """(module, name) of each import; a module that is imported goes into `modules`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kvlab":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if module_path(root, whole) is not None:
                    modules[alias.asname or alias.name] = whole
                else:
                    yield node.module or "", alias.name


def _attributes(tree: ast.Module, modules: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module is not None:
                yield module, node.attr


def _place(root: Path, entry: Entry) -> str:
    return f"{read_module(root, entry.module).path}, line {entry.line}: {entry.name}"
