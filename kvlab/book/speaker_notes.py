"""What a speaker should know of each part of a page: minutes, what to ask, where people go wrong.

The first two stand in notes/NAME.md, one heading for each part of the notebook, in its
order: `## The mechanism (3 min)`, then the note. The third is read off the exercises' own mistakes.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kvlab.exercises import registry
from kvlab.exercises.exercise import Exercise, Mistake, Prediction
from kvlab.exercises.kinds import Function, Kind
from kvlab.exercises.reading import Unreadable

FOLDER = Path(__file__).with_name("notes")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
KNOWN = {"len", "max", "min", "sum"}
SHORT = 76  # signs of a wrong formula that is shown
OPENING = "Opening"  # what stands above the first heading
PART = re.compile(
    r"^## (?P<heading>[^\n]*) \((?P<minutes>\d+) min\)\n(?P<text>.*?)(?=^## |\Z)", re.M | re.S
)


@dataclass(frozen=True)
class Note:
    """The note to one part of a page."""

    heading: str
    minutes: int
    text: str


def notes(notebook: str) -> dict[str, Note]:
    """heading -> note, of one notebook. Raises ValueError if there are none."""
    path = FOLDER / f"{notebook}.md"
    if not path.is_file():
        raise ValueError(f"there are no speaker notes to {notebook}: write {path}")
    found = PART.finditer(path.read_text(encoding="utf-8"))
    parts = [Note(m["heading"], int(m["minutes"]), m["text"].strip()) for m in found]
    return {note.heading: note for note in parts}


def where_people_go_wrong(exercise_id: str, run: str | None = None) -> str:
    """A list, in Markdown, of what kvlab says to the mistakes that it knows of a question.

    run: what the page's own run gave, as it was shown ("24 bytes"); a prediction's wrong numbers
    are reckoned from it. Each wrong answer stands before what is said to it.
    """
    item = registry.load(exercise_id.rpartition("-")[0])[exercise_id]
    said: dict[str, list[str]] = {}
    for mistake in item.mistakes:
        given = said.setdefault(mistake.says, [])
        if (shown := _given(item, mistake, run)) not in (None, *given):
            given.append(shown)
    lines = (f"- {' or '.join(given)}{': ' if given else ''}{says}" for says, given in said.items())
    parts = [f"**{exercise_id}, where people go wrong**", "\n".join(lines)]
    if not said:
        parts = [f"**{exercise_id}**"]
    return "\n\n".join([*parts, f"What to say in the end: {item.why}"])


def _given(item: Exercise | Prediction, mistake: Mistake, run: str | None) -> str | None:
    """The answer of somebody who makes this mistake; None where it is no value."""
    if isinstance(item.kind, Function):
        return _formula(mistake.gives) if type(item.kind) is Function else None
    arguments = () if isinstance(item, Exercise) else (_value(item.kind, run),)
    try:
        return f"**{item.kind.show(item.kind.read(mistake.gives(*arguments)))}**"
    except (Unreadable, ArithmeticError, TypeError):  # of a run whose value is not known
        return None


def _value(kind: Kind, shown: str | None) -> object:
    """The value that a kind shows in these words; None where they do not say it whole."""
    words = (shown or "").split()
    numbers = [
        float(n) if "." in n else int(n) for n in NUMBER.findall((shown or "").replace(",", ""))
    ]
    for candidate in (words[0] if words else None, words, *numbers[:1], numbers):
        try:
            value = kind.read(candidate)
            if kind.show(value) == shown:
                return value
        except Unreadable:
            continue
    return None


def _formula(function: Callable) -> str | None:
    """What a lambda computes, as code, where that is short."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_name != "<lambda>":
        return None
    tree = ast.parse(Path(code.co_filename).read_text(encoding="utf-8"))
    line = code.co_firstlineno
    there = [n for n in ast.walk(tree) if isinstance(n, ast.Lambda) and n.lineno == line]
    if len(there) != 1:
        return None
    text = ast.unparse(there[0].body)
    names = {node.id for node in ast.walk(there[0].body) if isinstance(node, ast.Name)}
    if names - {arg.arg for arg in there[0].args.args} - KNOWN:  # it says nothing by itself
        return None
    return f"`{text}`" if 0 < len(text) <= SHORT else None
