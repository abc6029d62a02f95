"""Predict, then run: the reader commits to an answer, and the cell of the run compares.

The answer is typed into a cell, so the notebook keeps it. What is held here, as long as the kernel
lives, is what was said before the run and what was said after it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvlab.exercises import registry
from kvlab.exercises.box import Box, Boxes
from kvlab.exercises.calls import attempt
from kvlab.exercises.exercise import Prediction
from kvlab.exercises.reading import Unreadable, guarded, is_open, same


@dataclass
class Commitment:
    """first: what counts, fixed once the run has shown its value. now: what the cell says.

    actual: the value of the last run that was shown beside it.
    """

    first: object
    now: object
    is_revealed: bool = False
    actual: object = None

    @property
    def is_right(self) -> bool:
        """Whether the run has shown what was said before it."""
        return self.is_revealed and same(self.actual, self.first)


_kept: dict[str, Commitment] = {}


def predict(question: str | Mapping[str, object], answer: object = None) -> Box | Boxes:
    """Ask, or keep an answer until `reveal`. Says neither right nor wrong.

    question: an id, or several ids with their answers, {"21.6-p2": None, "21.6-p3": None}. With
    None for an answer it shows the question; an answer is shown with its question. One of another
    kind than asked for is not kept, and leaves an earlier one as it was. Raises ValueError for an
    unknown id, listing the section's; then nothing is kept.
    """
    if isinstance(question, Mapping):
        for name in question:
            registry.prediction(name)
        return Boxes(tuple(predict(name, given) for name, given in question.items()))
    asked = registry.prediction(question)
    kept = _kept.get(question)
    if is_open(answer):
        return _ask(asked, kept)
    try:
        value = guarded(lambda: asked.kind.read(answer))
    except Unreadable as found:
        return Box("unreadable", question, (str(found), "It has not been kept."))
    if kept is None or not kept.is_revealed:
        kept = _kept[question] = Commitment(value, value)
    kept.now = value
    if not same(kept.first, value):
        return Box("changed", question, (_changed(asked, kept),))
    line = "The run will show whether it is so."
    if kept.is_revealed:
        line = "The run has shown whether it is so. Your answer is unchanged."
    return Box("kept", question, (asked.question, line), (("you say", asked.kind.show(value)),))


def _ask(asked: Prediction, kept: Commitment | None) -> Box:
    lines = [asked.question, f"{asked.kind.asks} Nothing breaks if you leave it."]
    if kept is not None and kept.is_revealed:
        lines.append(f"Before the run you said {asked.kind.show(kept.first)}.")
    elif kept is not None:
        del _kept[asked.id]  # withdrawn in time
    return Box("question", asked.id, tuple(lines))


def _changed(asked: Prediction, kept: Commitment) -> str:
    show = asked.kind.show
    return f"You first said {show(kept.first)}; changed after the run to {show(kept.now)}."


def reveal(question: str | Mapping[str, object], actual: object = None) -> Box | Boxes:
    """What the run gives, beside what the reader said before it; names a known mistake.

    question: an id, or several with the run's values. actual: computed by the run. Raises
    ValueError for an unknown id, and for a value that is not of the question's kind; then nothing
    is revealed.
    """
    if isinstance(question, Mapping):
        for name, value in question.items():
            _of_the_run(name, value)
        return Boxes(tuple(reveal(name, value) for name, value in question.items()))
    asked, value = _of_the_run(question, actual)
    run = ("the run gives", asked.kind.show(value))
    kept = _kept.get(question)
    if kept is None:
        return Box("run", question, facts=(run,))
    kept.is_revealed, kept.actual = True, value
    facts = (("you said", asked.kind.show(kept.first)), run)
    lines = [] if same(kept.first, kept.now) else [_changed(asked, kept)]
    if same(value, kept.first):
        return Box("as predicted", question, (*lines, asked.why), facts)
    for mistake in asked.mistakes:
        theirs = attempt(mistake.gives, (value,))  # 1 / ratio fails for a run that gives 0
        if not theirs.failure and same(theirs.value, kept.first):
            lines.append(mistake.says)
            break
    return Box("other", question, (*lines, asked.why), facts)


def _of_the_run(question: str, actual: object) -> tuple[Prediction, object]:
    """A question, and the run's value of it, read."""
    asked = registry.prediction(question)
    try:
        return asked, asked.kind.read(actual)
    except Unreadable as found:
        raise ValueError(f"reveal({question!r}, ...) got no value of the run. {found}") from None


def commitments(section: str) -> dict[str, Commitment]:
    """What is kept of a section's predictions, by id, in the order of the section."""
    return {name: replace(_kept[name]) for name in registry.ids(section) if name in _kept}


def forget() -> None:
    """Drop every prediction, as a new kernel does."""
    _kept.clear()
