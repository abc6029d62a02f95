"""The score of a section's predictions: worked out in the reader's kernel, and kept there.

Nothing is written unless the reader names a file, and nothing is ever sent.
"""

import json
from pathlib import Path

from kvlab.core.whole_file import write_whole
from kvlab.exercises import registry
from kvlab.exercises.box import Box
from kvlab.exercises.exercise import Prediction
from kvlab.exercises.predicting import Commitment, commitments

KIND = "kvlab score"  # what our files say they are; no other file is written over
MOST_BYTES = 1_000_000


def score(section: str, save: str | Path | None = None) -> Box:
    """How many of a section's predictions were as the run showed; which were not.

    What counts is what the reader said before the run. section: "21.7". save: a file to keep it in,
    as JSON: an earlier score there is replaced. Raises ValueError for an unknown section, for a
    folder that does not exist, and for a file that is no score, OSError for what cannot be written:
    then an earlier score is as it was.
    """
    if not isinstance(section, str):
        raise ValueError(f"a section is a text such as '21.7', not {section!r}")
    asked = [item for item in registry.load(section).values() if isinstance(item, Prediction)]
    kept = commitments(section)
    target = None if save is None else _target(save)
    if not kept:
        line = f"{len(asked)} questions wait. Write an answer in a predict cell, and run it."
        return Box("open", f"score of {section}", (line,))
    shown = {name: one for name, one in kept.items() if one.is_revealed}
    lines = _lines(shown, kept, asked)
    if target is not None:
        _write(target, section, shown, len(asked))
        here = ", in the folder that this notebook runs in" if target.name == str(save) else ""
        lines.append(
            f"Written to {str(save)!r}{here}. It is on this machine alone. To delete it: "
            f"import os; os.remove({str(save)!r})"
        )
    return Box("score", section, tuple(lines), _facts(shown, kept, asked))


def _facts(
    shown: dict[str, Commitment], kept: dict[str, Commitment], asked: list[Prediction]
) -> tuple[tuple[str, str], ...]:
    right = sum(one.is_right for one in shown.values())
    were = "answered" if len(shown) == len(kept) else "answered and ran"
    facts = [("as you said", f"{right} of the {len(shown)} that you {were}")]
    if waiting := len(kept) - len(shown):
        facts.append(("answered, not run yet", str(waiting)))
    if left := len(asked) - len(kept):
        facts.append(("not answered", str(left)))
    return tuple(facts)


def _lines(
    shown: dict[str, Commitment], kept: dict[str, Commitment], asked: list[Prediction]
) -> list[str]:
    lines = []
    if other := [name for name, one in shown.items() if not one.is_right]:
        lines.append(f"Not as you said: {', '.join(other)}. The boxes above say why.")
    if waiting := [name for name in kept if name not in shown]:
        lines.append(f"Answered, and not run yet: {', '.join(waiting)}. Run the cells after them.")
    if left := [item.id for item in asked if item.id not in kept]:
        lines.append(f"Not answered: {', '.join(left)}.")
    return lines


def _target(save: str | Path) -> Path:
    """Where to write. Raises ValueError for what cannot or must not be written."""
    if not isinstance(save, str | Path) or not str(save).strip():
        raise ValueError(f"save is {save!r}; give the name of a file, such as 'my_score.json'")
    path = Path(save).expanduser()
    if not path.parent.is_dir():
        raise ValueError(f"save is {str(save)!r}, and there is no folder {str(path.parent)!r}")
    if path.exists() and not _is_score(path):
        raise ValueError(f"save is {str(save)!r}, which is there and no score; name another file")
    return path


def _is_score(path: Path) -> bool:
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return False
        return json.loads(path.read_text(encoding="utf-8"))["kind"] == KIND
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _write(path: Path, section: str, shown: dict[str, Commitment], count: int) -> None:
    answers = {
        name: {"said": one.first, "run": one.actual, "as_predicted": one.is_right}
        for name, one in shown.items()
    }
    found = {"kind": KIND, "section": section, "questions": count, "answers": answers}
    write_whole(path, json.dumps(found, indent=1) + "\n")
