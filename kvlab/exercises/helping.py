"""Help with an exercise: three hints, and a worked solution if this copy has them."""

import importlib
import inspect
from types import ModuleType

from kvlab.exercises import registry
from kvlab.exercises.box import Box
from kvlab.exercises.checking import check
from kvlab.exercises.kinds import Function

SOLUTIONS = "kvlab.exercises.solutions"


def hint(exercise_id: str, n: int = 1) -> Box:
    """Hint n of 3; the third says the most. Raises ValueError for an unknown id or another n."""
    exercise = registry.exercise(exercise_id)
    if type(n) is not int or not 1 <= n <= 3:
        raise ValueError(f"hint({exercise_id!r}, {n!r}): there are hints 1, 2 and 3")
    more = f'hint("{exercise_id}", {n + 1})' if n < 3 else f'solution("{exercise_id}")'
    what = "says more" if n < 3 else "shows a worked solution"
    return Box("hint", f"{n} of 3 for {exercise_id}", (exercise.hints[n - 1], f"{more} {what}."))


def solution(exercise_id: str) -> Box:
    """The worked solution, and what `check` says of it. Raises ValueError for an unknown id."""
    exercise = registry.exercise(exercise_id)
    module = _solutions(exercise_id.rpartition("-")[0])
    if module is None:
        line = "This set comes without solutions; hint() and check() work as always."
        return Box("solution", exercise_id, (line,))
    worked = module.SOLUTIONS[exercise_id]
    is_function = isinstance(exercise.kind, Function)
    found = check(exercise_id, worked if is_function else worked())
    facts = [("check says", "right" if found.is_right else repr(found))]
    if not is_function:
        facts.insert(0, ("answer", exercise.kind.show(exercise.kind.read(worked()))))
    return Box("solution", exercise_id, (), tuple(facts), inspect.getsource(worked).rstrip())


def _solutions(section: str) -> ModuleType | None:
    """A section's solutions, or None where they have been left out."""
    name = f"{SOLUTIONS}.s{section.replace('.', '_')}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (SOLUTIONS, name):
            raise
        return None
