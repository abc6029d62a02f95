"""What an exercise is, and what a prediction is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvlab.exercises.kinds import Kind


@dataclass(frozen=True)
class Mistake:
    """A mistake that readers make.

    gives: what somebody who makes it answers. It gets the same arguments as the exercise's `run`;
    in a prediction, the value of the run. says: what to tell them, a sentence.
    """

    says: str
    gives: Callable[..., object]


def no_arguments() -> Sequence[tuple]:
    """The one case of an exercise that asks for a value."""
    return ((),)


def no_pattern(value: list) -> str:
    """The numbers of a wrong list say nothing by their pattern."""
    return ""


@dataclass(frozen=True)
class Exercise:
    """A question with a checker.

    run: computes what is right for a case's arguments, with kvlab's own code.
    cases: the arguments of each case, smallest first; made afresh at each call, since a reader's
    function may change what it gets. truth: begins the sentence that ends in what `run` gives
    ("the real cache holds"). why: one line for those who have it right. hints: each says more than
    the one before; the first does not contain the answer. pattern: what a list without a single
    right entry says of its reader's thoughts, a sentence, or nothing. remark: the same of a list
    with any wrong entry. against: what a right function agrees with.
    """

    id: str  # "21.1-2"
    question: str
    kind: Kind
    run: Callable[..., object]
    hints: tuple[str, str, str]
    mistakes: tuple[Mistake, ...]
    why: str
    truth: str = "the run gives"
    cases: Callable[[], Sequence[tuple]] = no_arguments
    pattern: Callable[[list], str] = no_pattern
    remark: Callable[[list], str] = no_pattern
    against: str = "the real run"


@dataclass(frozen=True)
class Prediction:
    """A question that a run of the notebook answers. why: said beside the run's value."""

    id: str  # "21.1-p2"
    question: str
    kind: Kind
    mistakes: tuple[Mistake, ...]
    why: str
