"""What of a page answers a prediction: the book folds it, for the reader to guess.

A prediction is asked in one cell, `predict("21.7-p1", None)`, and answered in a later one, whose
`reveal("21.7-p1", ...)` shows the run beside it. What runs between the two tells the answer, too.
So do the checks at the end of such a cell, and the text below it that says why.

Cells in which a page checks itself are folded as well: a reader needs them only where they fail.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

CALL = re.compile(r"^[ \t]*(?:\w+ = )?(?P<name>predict|reveal)\(", re.MULTILINE)
PARAGRAPHS = re.compile(r"\n{2,}")
TERM = re.compile(r"\*\*[^*]+\*\*")  # a term where it is explained
TOLD = "<details><summary>What the run shows</summary>"  # how a page folds its own text below a run


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


def keeps(cell: dict[str, Any]) -> bool:
    """Whether a code cell only checks the page: a live view's `NAME.check()`, or for leaks.

    The latter ends by printing that "nothing leaked".
    """
    try:
        body = ast.parse("".join(cell["source"])).body
    except SyntaxError:
        return False
    called = getattr(body[-1], "value", None) if body else None
    if not isinstance(called, ast.Call):
        return False
    says = ast.unparse(called)
    return says.startswith("print('nothing leaked") or (
        len(body) == 1 and re.fullmatch(r"\w+\.check\(\)", says) is not None
    )


def _calls(cell: dict[str, Any]) -> set[str]:
    return {match["name"] for match in CALL.finditer("".join(cell["source"]))}


def split_code(source: str) -> tuple[str, str]:
    """(what a folded cell's reader sees, what is folded: from the first `assert` or `reveal` on).

    Each of the two is Python by itself: where the cut is inside an `if`, its line begins both.
    Asserts inside a loop or a function are not looked for; they stay with it.
    """
    try:
        found = next(_telling(ast.parse(source).body), None)
    except SyntaxError:  # IPython's own, as %timeit
        found = None
    if found is None:
        return source, ""
    lines = source.splitlines()
    *around, first = found
    while around and around[-1].body[0] is first:  # nothing of that `if` would be seen
        first = around.pop()
    start = _with_comments(lines, first.lineno - 1)
    opened = [
        line
        for one in around
        for line in lines[one.lineno - 1 : _with_comments(lines, one.body[0].lineno - 1)]
    ]
    return "\n".join(lines[:start]).rstrip(), "\n".join([*opened, *lines[start:]])


def _with_comments(lines: list[str], start: int) -> int:
    """Where the comments directly above a line begin: they say what it is about."""
    while start and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    return start


def _telling(body: list[ast.stmt], *around: ast.If) -> Iterator[tuple[Any, ...]]:
    """Asserts and calls of `reveal`, top level or in an `if`: each after the ifs `around` it."""
    for one in body:
        called = getattr(one, "value", None)
        function = called.func if isinstance(called, ast.Call) else None
        if isinstance(one, ast.Assert) or getattr(function, "id", None) == "reveal":
            yield *around, one
        elif isinstance(one, ast.If):
            yield from _telling(one.body, *around, one)


def split_text(text: str) -> tuple[str, str]:
    """(the paragraphs that say why a run came out so, the rest) of the text below it.

    The first are what the page folds itself by the words of TOLD, or else those above the first
    heading. Without a heading the last one is not among them: it leads to the next cell. Nor is
    what comes from the second paragraph on that explains a term, since later text needs that; or
    what the page folds by other words.
    """
    if text.startswith(TOLD):
        inside, _, after = text.removeprefix(TOLD).partition("</details>")
        return inside.strip(), after.strip()
    parts = PARAGRAPHS.split(text)
    headed = next((n for n, part in enumerate(parts) if part.startswith("#")), None)
    count = len(parts) - 1 if headed is None else headed
    for number, part in enumerate(parts[:count]):
        if part.startswith("<") or (number and TERM.search(part)):
            count = number
            break
    return "\n\n".join(parts[:count]), "\n\n".join(parts[count:])
