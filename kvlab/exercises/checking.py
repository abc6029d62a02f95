"""Check an answer: right, not yet (and which mistake it is), or not answered yet."""

from collections.abc import Callable, Mapping

from kvlab.exercises import registry
from kvlab.exercises.box import Box, Boxes
from kvlab.exercises.calls import Outcome, agrees, agrees_in_half, alike, attempt, is_stub
from kvlab.exercises.exercise import Exercise
from kvlab.exercises.isolation import standard_settings
from kvlab.exercises.kinds import Function, Numbers
from kvlab.exercises.matches import Matches
from kvlab.exercises.reading import Elsewhere, Unreadable, guarded, is_open, plain, same

ROUNDED = 1e-2  # a wrong value is recognised when it is given rounded, too


def check(exercise_id: str | Mapping[str, object], answer: object = None) -> Box | Boxes:
    """Look at an answer to an exercise, or at a function written for one.

    exercise_id: an id, or several with their answers, {"21.6-1": None, "21.6-2": None}. None, an
    ellipsis, and a function whose body does nothing are not answers yet. Whatever the answer is,
    nothing is raised but KeyboardInterrupt; each call of a function gets fresh arguments, and what
    it changes of torch's settings is put back. Raises ValueError for an unknown id, listing those
    of the section.
    """
    if isinstance(exercise_id, Mapping):
        return Boxes(tuple(check(name, given) for name, given in exercise_id.items()))
    exercise = registry.exercise(exercise_id)
    if is_open(answer):
        return _open(exercise)
    try:
        value = guarded(lambda: exercise.kind.read(answer))
    except Elsewhere as found:
        return Box("elsewhere", exercise.id, (f"{found}.",))
    except Unreadable as found:
        said = str(found)
        sentence = said if said.startswith(("You", "Entry")) else f"You gave {said}."
        return Box("unreadable", exercise.id, (sentence,))
    with standard_settings():
        if isinstance(exercise.kind, Function):
            return _check_function(exercise, value)
        return _check_value(exercise, value)


def _open(exercise: Exercise) -> Box:
    help_line = f'hint("{exercise.id}") helps.'
    listed = exercise.kind.listed if isinstance(exercise.kind, Matches) else ()
    asks = f"{exercise.kind.asks} {help_line}"
    return Box("open", exercise.id, (exercise.question, *listed, asks))


def _check_value(exercise: Exercise, value: object) -> Box:
    wanted = plain(exercise.run())
    facts = (("your answer", exercise.kind.show(value)),)
    entries = isinstance(exercise.kind, Numbers | Matches)
    if all(exercise.kind.right(wanted, value)) if entries else same(wanted, value):
        return Box("right", exercise.id, (exercise.why,), facts)
    for mistake in exercise.mistakes:
        if same(plain(mistake.gives()), value, ROUNDED):
            return _wrong(exercise, (mistake.says,), facts)
    return _wrong(exercise, (_nearer(exercise, wanted, value),), facts)


def _nearer(exercise: Exercise, wanted: object, value: object) -> str:
    """What can be said of a wrong value without telling the right one."""
    if isinstance(exercise.kind, Numbers | Matches):
        remark = exercise.remark(value)
        verdicts = exercise.kind.right(wanted, value)
        good = [i for i, right in enumerate(verdicts, 1) if right]
        if not good:
            said = f"None of the entries is right yet. {exercise.pattern(value)}".rstrip()
            return f"{said} {remark}".rstrip()
        named = " and ".join(map(exercise.kind.entry, good))
        rest = "The others are not."
        if len(good) == len(verdicts) - 1:
            (other,) = {*range(1, len(verdicts) + 1)} - {*good}
            name = exercise.kind.entry(other)
            rest = f"{name[0].upper()}{name[1:]} is not."
        return f"Right so far: {named}. {rest} {remark}".rstrip()
    if isinstance(wanted, bool | str):
        return "It is another."
    return "That is too large." if value > wanted else "That is too small."


def _check_function(exercise: Exercise, function: Callable) -> Box:
    if is_stub(function):
        return _open(exercise)
    wanted = [plain(exercise.run(*arguments)) for arguments in exercise.cases()]
    cases = exercise.cases()
    calls = [attempt(function, arguments) for arguments in cases]
    if all(outcome.is_empty for outcome in calls):
        return _wrong(exercise, exercise.kind.silent)
    mine = exercise.kind.after(calls, cases)
    failing = [i for i, pair in enumerate(zip(wanted, mine, strict=True)) if not agrees(*pair)]
    if not failing:
        count = f"Agrees with {exercise.against} on {_inputs(len(mine))}."
        return Box("right", exercise.id, (count, *exercise.kind.unseen(function), exercise.why))
    first = failing[0]
    case = exercise.cases()[first]
    shown = exercise.kind.example(case, mine[first], wanted[first], exercise.truth)
    known = _known_mistake(exercise, wanted, mine)
    return _wrong(exercise, (known, shown) if known else (shown,))


def _inputs(count: int) -> str:
    return "1 input" if count == 1 else f"{count} inputs"


def _known_mistake(exercise: Exercise, wanted: list, mine: list[Outcome]) -> str:
    """What to say if the reader's function does on all inputs what a mistake does, or nothing."""
    for mistake in exercise.mistakes:
        cases = exercise.cases()
        calls = [attempt(mistake.gives, arguments) for arguments in cases]
        theirs = exercise.kind.after(calls, cases)
        if all(alike(*pair) for pair in zip(theirs, mine, strict=True)):
            return mistake.says
    if all(agrees_in_half(*pair) for pair in zip(wanted, mine, strict=True)):
        return "Right within half precision; compute in float32. If you round, leave that out."
    return ""


def _wrong(exercise: Exercise, lines: tuple[str, ...], facts: tuple = ()) -> Box:
    return Box("wrong", exercise.id, (*lines, f'hint("{exercise.id}") helps.'), facts)
