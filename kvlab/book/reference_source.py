"""What a module of the package says about its names, read from its text: nothing is imported.

So the book is built without torch, and what the text holds beside the code is kept: a signature
stands as it was written, with the shapes in the comments at its ends of lines.
"""

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CALLED = "__call__"  # the one name with underscores that a reader meets
LONGEST = 12  # lines of a constant that are shown
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


@dataclass(frozen=True)
class Entry:
    """One name: a class, a function, a constant, or what a class has."""

    module: str  # "kvlab.core.block_pool"
    name: str  # "BlockPool", or "BlockPool.touch" of what a class has
    kind: str  # "class", "function", "constant"
    signature: str  # as written; of a class its fields and its __init__, too
    doc: str | None  # the docstring; of a class its __init__'s, too; of a constant the comment
    line: int
    parameters: tuple[str, ...] = ()  # of a class: its fields and attributes, too
    bases: tuple[str, ...] = ()  # as written
    members: tuple["Entry", ...] = ()

    @property
    def anchor(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True)
class Module:
    """A file of the package: its docstring, what it defines, and what it takes from other files."""

    name: str
    path: str  # "kvlab/core/block_pool.py"
    doc: str
    entries: dict[str, Entry]
    imported: dict[str, tuple[str, str]]  # name here -> module, name there
    home: dict[str, str]  # a lazy package's names -> their modules; {} of other files


def module_path(root: Path, name: str) -> Path | None:
    """The file of a module or package of this name, if there is one."""
    if not name:  # not a file of the root's own name beside it
        return None
    place = root.joinpath(*name.split("."))
    return next((p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()), None)


@functools.lru_cache(maxsize=512)
def read_module(root: Path, name: str) -> Module:
    """Raises ValueError where no file has that name, and for a file that is no Python."""
    path = module_path(root, name)
    if path is None:
        raise ValueError(f"no module {name} in {root}")
    text = path.read_text(encoding="utf-8")
    try:
        tree, lines = ast.parse(text), text.splitlines()
    except SyntaxError as error:
        raise ValueError(f"{path} is no Python: {error}") from None
    found = [entry for node in tree.body for entry in _entries(node, name, lines)]
    return Module(
        name,
        path.relative_to(root).as_posix(),
        inspect.cleandoc(ast.get_docstring(tree) or ""),
        {entry.name: entry for entry in found},
        _imported(tree),
        _home(tree),
    )


def resolve(root: Path, module: str, name: str) -> Entry | None:
    """The name's own entry, wherever `module` has it from; None for what is no name of a file."""
    while module_path(root, module) is not None:
        there = read_module(root, module)
        if name in there.entries:
            return there.entries[name]
        if name in there.home:
            module = there.home[name]
        elif name in there.imported:
            module, name = there.imported[name]
        else:
            return None
    return None


def exported(root: Path, package: str) -> list[str]:
    """The names that a package offers: those it loads lazily, or else those it imports."""
    there = read_module(root, package)
    return list(there.home or [name for name in there.imported if not name.startswith("_")])


def _imported(tree: ast.Module) -> dict[str, tuple[str, str]]:
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kvlab")
        for alias in node.names
    }


def _home(tree: ast.Module) -> dict[str, str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and _target(node) == "_HOME":
            return ast.literal_eval(node.value)
    return {}


def _target(node: ast.stmt) -> str | None:
    """The one name that a statement gives a value."""
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    elif isinstance(node, ast.Assign):
        targets = node.targets
    else:
        return None
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else None


def _entries(node: ast.stmt, module: str, lines: list[str]) -> Iterator[Entry]:
    if isinstance(node, ast.ClassDef):
        yield _class(node, module, lines)
    elif isinstance(node, Function):
        yield _function(node, module, lines)
    elif name := _target(node):
        shown = lines[node.lineno - 1 : node.end_lineno]
        comment = shown[-1].encode()[node.end_col_offset :].decode().strip("# ")
        if len(shown) > LONGEST:
            shown = [*shown[: LONGEST - 1], "    ..."]
        yield Entry(module, name, "constant", "\n".join(shown), comment or None, node.lineno)


def _function(node: Function, module: str, lines: list[str], owner: str = "") -> Entry:
    return Entry(
        module,
        owner + node.name,
        "function",
        _head(node, lines),
        ast.get_docstring(node),
        node.lineno,
        _parameters(node),
    )


def _class(node: ast.ClassDef, module: str, lines: list[str]) -> Entry:
    functions = [part for part in node.body if isinstance(part, Function)]
    first = next((part for part in functions if part.name == "__init__"), None)
    shown = [_head(node, lines), *_fields(node, lines)]
    docs = [ast.get_docstring(node)]
    parameters = [name for part in node.body if (name := _target(part))]
    if first is not None:
        shown.append(textwrap.indent(_head(first, lines), "    "))
        docs.append(ast.get_docstring(first))
        parameters += _parameters(first)
    parameters += [part.attr for part in ast.walk(node) if _is_own(part)]
    return Entry(
        module,
        node.name,
        "class",
        "\n".join(shown),
        "\n\n".join(doc for doc in docs if doc) or None,
        node.lineno,
        tuple(parameters),
        tuple(ast.unparse(base) for base in node.bases),
        tuple(
            _function(part, module, lines, f"{node.name}.")
            for part in functions
            if part.name == CALLED or not part.name.startswith("_")
        ),
    )


def _is_own(node: ast.AST) -> bool:
    """An attribute that a class gives its objects: self.name = ..."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def _fields(node: ast.ClassDef, lines: list[str]) -> Iterator[str]:
    """A dataclass's fields and an enumeration's values, with the comments behind them."""
    plain = any("Enum" in ast.unparse(base) for base in node.bases)
    for part in node.body:
        name = _target(part)
        if name and not name.startswith("_") and (plain or isinstance(part, ast.AnnAssign)):
            yield from lines[part.lineno - 1 : part.end_lineno]


def _head(node: Definition, lines: list[str]) -> str:
    """From the first decorator to the colon, as written."""
    start = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    body = node.body[0]
    if body.lineno > node.lineno:
        shown = lines[start - 1 : body.lineno - 1]
    else:  # all on one line; columns are counted in bytes
        shown = [lines[node.lineno - 1].encode()[: body.col_offset].decode()]
    return textwrap.dedent("\n".join(shown)).rstrip()


def _parameters(node: Function) -> tuple[str, ...]:
    given = node.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    named += [one for one in (given.vararg, given.kwarg) if one is not None]
    return tuple(one.arg for one in named if one.arg not in ("self", "cls"))
