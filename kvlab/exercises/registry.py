"""Which exercises there are: one module a section, found by its name."""

import importlib
import pkgutil
from functools import cache

from kvlab.exercises.exercise import Exercise, Prediction

PACKAGE = "kvlab.exercises"


@cache
def sections() -> tuple[str, ...]:
    """The sections that have exercises, in the order of the chapter: ("21.1", "21.6", ...)."""
    path = importlib.import_module(PACKAGE).__path__
    names = [m.name for m in pkgutil.iter_modules(path) if m.name.startswith("section_")]
    found = [name.removeprefix("section_").replace("_", ".") for name in names]
    return tuple(sorted(found, key=_place))


def _place(section: str) -> tuple[int, int, str]:
    """21.5, then the extra section 21.5b, then 21.6."""
    chapter, _, rest = section.partition(".")
    number = rest.rstrip("abcdefghijklmnopqrstuvwxyz")
    return int(chapter), int(number), rest.removeprefix(number)


@cache
def load(section: str) -> dict[str, Exercise | Prediction]:
    """A section's exercises and predictions by id. Raises ValueError for an unknown section."""
    if section not in sections():
        raise ValueError(
            f"there is no section {section!r} with exercises; there are {', '.join(sections())}"
        )
    module = importlib.import_module(f"{PACKAGE}.section_{section.replace('.', '_')}")
    found: dict[str, Exercise | Prediction] = {}
    for item in (*module.EXERCISES, *module.PREDICTIONS):
        mark = "p" if isinstance(item, Prediction) else ""
        number = item.id.removeprefix(f"{section}-{mark}")
        if not number.isdigit() or item.id in found:
            raise ValueError(f"{module.__name__}: the id {item.id!r} is taken, or not of its kind")
        found[item.id] = item
    return found


def ids(section: str) -> list[str]:
    """The ids of a section: exercises, then predictions."""
    return list(load(section))


def exercise(exercise_id: str) -> Exercise:
    """Raises ValueError, listing the section's ids, if there is no such exercise."""
    found = _find(exercise_id)
    if isinstance(found, Prediction):
        raise ValueError(f"{exercise_id} is a prediction; use predict({exercise_id!r}, answer)")
    return found


def prediction(exercise_id: str) -> Prediction:
    """Raises ValueError, listing the section's ids, if there is no such prediction."""
    found = _find(exercise_id)
    if isinstance(found, Exercise):
        raise ValueError(f"{exercise_id} is an exercise; use check({exercise_id!r}, answer)")
    return found


def _find(exercise_id: str) -> Exercise | Prediction:
    if not isinstance(exercise_id, str):
        raise ValueError(f"the id of an exercise is a text such as '21.1-2', not {exercise_id!r}")
    section = exercise_id.rpartition("-")[0]
    known = load(section if section else exercise_id)
    if exercise_id not in known:
        raise ValueError(f"there is no exercise {exercise_id!r}; there are {', '.join(known)}")
    return known[exercise_id]
