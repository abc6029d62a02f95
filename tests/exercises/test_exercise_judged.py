"""Exercises with a free answer: whatever a reader gives ends in a verdict, not in a traceback."""

import math

import pytest

from kvlab.exercises import check


def verdict(events: object) -> str:
    return repr(check("21.2-8", lambda tpot, wait: events))


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([[0, 1], [10**400, 1000]], "a time that is no number of ms up to 1,000,000,000"),
        ([[0, 1], [math.nan, 1000]], "a time that is no number of ms"),
        ([[0, 1], [math.inf, 1000]], "a time that is no number of ms"),
        ([[0, 1], [1e300, 1000]], "a time that is no number of ms"),
        ([[0, 1], [-1, 1000]], "times that go back"),
        ([[0, 1], [2000, 0.5]], "a part of one"),
        ([[0, 1], [2000, math.nan]], "a part of one"),
        ([[0, 1], [2000, 10**400]], "more than 1,000 tokens"),
    ],
)
def test_a_stream_that_no_clock_has_measured_is_refused_in_words(events: list, told: str) -> None:
    said = verdict(events)
    assert "not yet" in said and told in said


def test_whole_numbers_may_be_written_as_floats() -> None:
    assert "✓ right" in repr(check("21.2-8", lambda tpot, wait: [[0.0, 1.0], [wait, 1000.0]]))


def test_a_value_that_the_run_chokes_on_is_a_failure_of_the_answer() -> None:
    from kvlab.exercises.calls import Outcome
    from kvlab.exercises.judged import Judged

    kind = Judged("f", ("x",), judge=lambda value, arguments: str(1 / value))
    (found,) = kind.after([Outcome(0)], [(1,)])
    assert found.failure == "gives what the run cannot work with"
