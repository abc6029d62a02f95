"""Which cells of a notebook one cell stands on, found from the names that they bind and use.

The rule reads the cells as a person would: a cell stands on the nearest earlier cell that binds a
name it uses, and on every cell in between that changes what the name stands for (`name.x = ...`,
`name[i] = ...`, or a line `name.method(...)`). It cannot see a change made by a called function, so
whoever runs a slice runs it on the whole package too, where the cell must go through.
"""

import ast
from collections.abc import Sequence


class CellNames(ast.NodeVisitor):
    """needs: names used before the cell binds them. binds: names it binds. changes: see above."""

    def __init__(self, source: str) -> None:
        self.needs: set[str] = set()
        self.binds: set[str] = set()
        self.changes: set[str] = set()
        self.visit(ast.parse(source))

    def _in_order(self, *parts: ast.AST | list | None) -> None:
        for part in parts:
            for node in part if isinstance(part, list) else [part]:
                if node is not None:
                    self.visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.needs |= {node.id} - self.binds
        else:
            self.binds.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._in_order(node.value, node.targets)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.needs |= {_root(node.target)} - self.binds
        self._in_order(node.value, node.target)

    def visit_For(self, node: ast.For) -> None:
        self._in_order(node.iter, node.target, node.body, node.orelse)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._in_order(node.iter, node.target, node.ifs)

    def visit_ListComp(self, node: ast.AST) -> None:
        made = (getattr(node, part, None) for part in ("key", "value", "elt"))
        self._in_order(node.generators, *made)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        self.binds.add(node.name)
        self.generic_visit(node)

    visit_ClassDef = visit_FunctionDef

    def visit_arg(self, node: ast.arg) -> None:
        self.binds.add(node.arg)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._in_order(node.args, node.body)

    def visit_alias(self, node: ast.alias) -> None:
        self.binds.add((node.asname or node.name).partition(".")[0])

    def visit_Attribute(self, node: ast.Attribute | ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.changes.add(_root(node))
        self.generic_visit(node)

    visit_Subscript = visit_Attribute

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
            self.changes.add(_root(node.value))
        self.generic_visit(node)


def _root(node: ast.AST) -> str:
    """The name at the left of `name.x[i](...)`, or nothing."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def slice_for(cells: Sequence[CellNames], last: int) -> tuple[int, ...]:
    """The places of the cells that the one at `last` stands on, in order, and its own."""
    kept, needs = [last], set(cells[last].needs)
    for place in range(last - 1, -1, -1):
        cell = cells[place]
        if (cell.binds | cell.changes) & needs:
            kept.append(place)
            needs = (needs - (cell.binds - cell.changes)) | cell.needs
    return tuple(reversed(kept))
