"""Explain a measured number: of several causes, each run, the one that gives it."""

from collections.abc import Callable, Mapping

from kvlab.exercises.exercise import Exercise, Mistake
from kvlab.exercises.kinds import Choice

Cause = tuple[str, Callable[[], int]]  # in words, and the run that measures the number under it


def the_cause(causes: Mapping[str, Cause], measured: int) -> str:
    """The letter of the one cause whose run measures this number.

    Raises ValueError unless it is one: the number would be explained by none, or by several.
    """
    found = [letter for letter, (_words, run) in causes.items() if run() == measured]
    if len(found) != 1:
        raise ValueError(f"{measured} is what {found or 'none of them'} gives; name one cause")
    return found[0]


def explain(
    exercise_id: str,
    question: str,
    causes: Mapping[str, Cause],
    measured: int,
    hints: tuple[str, str, str],
    says: Mapping[str, str],
    why: str,
) -> Exercise:
    """An exercise that asks for the cause of a number. says: what to tell who names another."""
    return Exercise(
        id=exercise_id,
        question=f"Explain a measured number. {question}",
        kind=Choice(tuple((letter, words) for letter, (words, _run) in causes.items())),
        run=lambda: the_cause(causes, measured),
        hints=hints,
        mistakes=tuple(Mistake(text, lambda given=given: given) for given, text in says.items()),
        why=why,
    )
