"""What of a page answers a prediction: the book folds it, for the reader to guess.

A prediction is asked in one cell, `predict("21.7-p1", None)`, and answered in a later one, whose
`reveal("21.7-p1", ...)` shows the run beside it. What runs between the two tells the answer, too.
So do the checks at the end of such a cell, and the text below it that says why.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

CALL = re.compile(r"^[ \t]*(?:\w+ = )?(?P<name>predict|reveal)\(", re.MULTILINE)
PARAGRAPHS = re.compile(r"\n{2,}")
TERM = re.compile(r"\*\*[^*]+\*\*")  # a term where it is explained


def folded(cells: list[dict[str, Any]]) -> set[int]:
    """The places of the code cells whose outputs are folded.

    These are the cells that call `reveal`, and those between a `predict` and the first `reveal`
    after it. A prediction that no later cell reveals folds nothing.
    """
    found: set[int] = set()
    between: set[int] | None = None  # the cells since the last question; None: nothing was asked
    for place, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        calls = _calls(cell)
        if "reveal" in calls:
            found |= {place, *(between or ())}
            between = None
        elif "predict" in calls:
            between = set()
        elif between is not None:
            between.add(place)
    return found


def explaining(cells: list[dict[str, Any]]) -> set[int]:
    """The places of the Markdown cells that stand directly below a cell that calls `reveal`."""
    below = ((place, cells[place - 1], cell) for place, cell in enumerate(cells) if place)
    return {
        place
        for place, above, cell in below
        if cell["cell_type"] == "markdown"
        and above["cell_type"] == "code"
        and "reveal" in _calls(above)
    }


def _calls(cell: dict[str, Any]) -> set[str]:
    return {match["name"] for match in CALL.finditer("".join(cell["source"]))}


def split_code(source: str) -> tuple[str, str]:
    """(what a folded cell's reader sees, what is folded: from the first `assert` or `reveal` on).

    Those inside a loop or a function are not looked for; they stay with it.
    """
    try:
        first = next(_telling(ast.parse(source).body), None)
    except SyntaxError:  # IPython's own, as %timeit
        first = None
    if first is None:
        return source, ""
    lines = source.splitlines()
    start = first - 1
    while start and lines[start - 1].lstrip().startswith("#"):  # what the check is about
        start -= 1
    return "\n".join(lines[:start]).rstrip(), "\n".join(lines[start:])


def _telling(body: list[ast.stmt]) -> Iterator[int]:
    """The lines of asserts and calls of `reveal`, top level or directly below an `if`."""
    for one in body:
        called = getattr(one, "value", None)
        function = called.func if isinstance(called, ast.Call) else None
        if isinstance(one, ast.Assert) or getattr(function, "id", None) == "reveal":
            yield one.lineno
        elif isinstance(one, ast.If):
            yield from _telling(one.body)


def split_text(text: str) -> tuple[str, str]:
    """(the paragraphs that say why a run came out so, the rest) of the text below it.

    The first are those above the first heading. Without a heading the last one is not among them:
    it leads to the next cell. Nor is what comes from the second paragraph on that explains a term,
    since later text needs that; or what the page folds by itself.
    """
    parts = PARAGRAPHS.split(text)
    headed = next((n for n, part in enumerate(parts) if part.startswith("#")), None)
    count = len(parts) - 1 if headed is None else headed
    for number, part in enumerate(parts[:count]):
        if part.startswith("<") or (number and TERM.search(part)):
            count = number
            break
    return "\n\n".join(parts[:count]), "\n\n".join(parts[count:])
