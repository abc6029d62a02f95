"""What a speaker should know of each part of a page: minutes, what to ask, where people go wrong.

The first two stand in notes/NAME.md, one heading for each part of the notebook, in its
order: `## The mechanism (3 min)`, then the note. The third is read off the exercises' own mistakes.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from kvlab.exercises import registry

FOLDER = Path(__file__).with_name("notes")
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


def where_people_go_wrong(exercise_id: str) -> str:
    """A list, in Markdown, of what kvlab says to the mistakes that it knows of a question."""
    item = registry.load(exercise_id.rpartition("-")[0])[exercise_id]
    said = dict.fromkeys(mistake.says for mistake in item.mistakes)
    parts = [f"**{exercise_id}, where people go wrong**", "\n".join(f"- {says}" for says in said)]
    if not said:
        parts = [f"**{exercise_id}**"]
    return "\n\n".join([*parts, f"What to say in the end: {item.why}"])
