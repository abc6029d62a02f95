"""The sets themselves: right answers pass in every form, wrong ones are refused and named."""

import dataclasses
import re

import exercise_cases
import exercise_cases_21_0
import exercise_cases_21_2
import exercise_cases_21_3
import exercise_cases_21_4
import exercise_cases_21_5
import exercise_cases_21_5b_torch
import exercise_cases_21_7
import pytest

from kvlab.exercises import Exercise, Prediction, check, hint, ids, sections, solution
from kvlab.exercises.function_kinds import InPlace
from kvlab.exercises.kinds import Function
from kvlab.exercises.registry import load
from kvlab.exercises.solutions import s21_0, s21_1, s21_2, s21_3, s21_4, s21_5, s21_5b, s21_6, s21_7
from kvlab.tensors import attention, kv_cache

SETS = (
    exercise_cases,
    exercise_cases_21_4,
    exercise_cases_21_5,
    exercise_cases_21_3,
    exercise_cases_21_2,
    exercise_cases_21_7,
    exercise_cases_21_0,
    exercise_cases_21_5b_torch,
)
RIGHT = {name: answers for module in SETS for name, answers in module.RIGHT.items()}
WRONG = {name: answers for module in SETS for name, answers in module.WRONG.items()}
SECTIONS = ("21.1", "21.6", "21.4", "21.5", "21.3", "21.2", "21.7", "21.0")
ALL = {name: item for section in SECTIONS for name, item in load(section).items()}
ALL |= {name: load("21.5b")[name] for name in exercise_cases_21_5b_torch.RIGHT}
EXERCISES = [item for item in ALL.values() if isinstance(item, Exercise)]
PREDICTIONS = [item for item in ALL.values() if isinstance(item, Prediction)]
SOLUTIONS = s21_1.SOLUTIONS | s21_6.SOLUTIONS | s21_4.SOLUTIONS | s21_5.SOLUTIONS
SOLUTIONS |= s21_3.SOLUTIONS | s21_2.SOLUTIONS | s21_7.SOLUTIONS
SOLUTIONS |= s21_0.SOLUTIONS | s21_5b.SOLUTIONS
VALUES = [e for e in EXERCISES if not isinstance(e.kind, Function)]
FUNCTIONS = [e for e in EXERCISES if isinstance(e.kind, Function)]


def named(exercises):
    return pytest.mark.parametrize("exercise", exercises, ids=lambda e: e.id)


def test_the_sections_and_their_ids():
    assert set(SECTIONS) <= set(sections())
    for section in sections():
        mine = [item for item in load(section).values() if isinstance(item, Exercise)]
        short = section == "21.0"  # a quarter of an hour, and nothing to predict
        assert len(mine) >= (3 if short else 4)
        assert short or len(load(section)) - len(mine) >= 2
        assert any(isinstance(e.kind, Function) for e in mine)
        assert ids(section) == list(dict.fromkeys(ids(section)))
        for number, exercise in enumerate(mine, 1):
            assert exercise.id == f"{section}-{number}"


def test_every_exercise_has_cases_here():
    assert list(RIGHT) == list(WRONG) == [e.id for e in EXERCISES]
    assert all(len(answers) >= 2 for answers in RIGHT.values())
    assert all(len(answers) >= 3 for answers in WRONG.values())


@pytest.mark.parametrize(
    ("name", "answer"), [(name, answer) for name, answers in RIGHT.items() for answer in answers]
)
def test_a_right_answer_is_right_in_every_form(name, answer):
    found = check(name, answer)
    assert found.is_right and found.state == "right", found
    assert ALL[name].why in found.lines


@pytest.mark.parametrize(
    ("name", "answer", "said"), [(name, *pair) for name, pairs in WRONG.items() for pair in pairs]
)
def test_a_wrong_answer_is_refused_and_the_mistake_named(name, answer, said):
    found = check(name, answer)
    assert found.state == "wrong" and not found.is_right
    assert said in repr(found), found


@named(EXERCISES)
def test_each_known_mistake_is_recognised_and_no_two_are_alike(exercise):
    assert len(exercise.mistakes) >= 3
    for mistake in exercise.mistakes:
        is_function = isinstance(exercise.kind, Function)
        found = check(exercise.id, mistake.gives if is_function else mistake.gives())
        assert (found.state, found.lines[0]) == ("wrong", mistake.says)


@named(EXERCISES)
def test_a_worked_solution_is_there_and_right(exercise):
    worked = SOLUTIONS[exercise.id]
    assert check(exercise.id, worked if exercise in FUNCTIONS else worked()).is_right
    shown = solution(exercise.id)
    assert ("check says", "right") in shown.facts
    assert shown.code.startswith(f"def {worked.__name__}(")
    if exercise in FUNCTIONS:
        assert worked.__name__ == exercise.kind.name


@named(EXERCISES)
def test_three_hints_of_growing_help(exercise):
    assert len(exercise.hints) == 3 and len(set(exercise.hints)) == 3
    for n, text in enumerate(exercise.hints, 1):
        shown = hint(exercise.id, n)
        assert text in shown.lines and f"{n} of 3" in shown.name
        following = f'hint("{exercise.id}", {n + 1})' if n < 3 else f'solution("{exercise.id}")'
        assert following in shown.lines[-1]
    assert hint(exercise.id) == hint(exercise.id, 1)


@named(VALUES)
def test_the_first_hint_does_not_hold_the_answer(exercise):
    right = RIGHT[exercise.id][0]
    numbers = {str(n) for n in (right if isinstance(right, list) else [right])}
    assert not numbers & set(re.findall(r"[\d.]*\d", exercise.hints[0]))


@named(FUNCTIONS)
def test_the_first_hint_does_not_hold_the_formula(exercise):
    assert not re.search(r"//|%|\*|torch|\d =", exercise.hints[0])


INSIGHTS = {
    "21.1-1": "processed",
    "21.1-3": "[Nn]eighbour",
    "21.1-4": "padding|causal|later",
    "21.1-5": "itself|own|[Aa]ppend",
    "21.6-1": "but the|one less",
    "21.6-3": "selects one|counts up",
    "21.6-5": "cat|dim=|last",
    "21.4-1": "full|last position",
    "21.4-2": "full|computed",
    "21.4-3": "identity|stays",
    "21.4-4": "first block|next block",
    "21.4-5": "deepest|identity",
    "21.5-1": "[Ff]ull|alone",
    "21.5-2": "last block|rounded",
    "21.5-3": "from 0|len",
    "21.5-4": "> 1|partly",
    "21.5-5": "Deepest|small",
    "21.5-6": "every position|twice",
    "21.3-1": "last chunk|between any",
    "21.3-2": "one position|left over",
    "21.3-3": "first in every|guard",
    "21.3-4": "cached|seat",
    "21.3-5": "guard, max|Continuous",
    "21.3-6": "three|small",
    "21.3-7": "this moment|way back",
    "21.3-8": "outputs|whole",
    "21.2-1": "no output|three gaps",
    "21.2-2": "[Ff]ewer|carry",
    "21.2-3": "n - 1|over requests",
    "21.2-4": "longest|keep nothing",
    "21.2-5": "once a step|layers",
    "21.2-6": "starts|intervals",
    "21.2-7": "longer|middle",
    "21.7-1": "selected last|not stored",
    "21.7-2": r"10\^9|fit",
    "21.7-3": "[Cc]ount",
    "21.7-4": "second|twice",
    "21.0-1": "KV head",
    "21.0-2": "to 0|takes it away",
    "21.0-3": "at least one",
    "21.1-10": "unequal|weigh the same",
    "21.2-8": "one gap|many tokens end",
    "21.3-9": "Two of|Waiting for A",
    "21.4-6": "its own block|first difference",
    "21.5-7": "only full|equal tokens in front",
    "21.5b-5": "unequal|all empty",
    "21.5b-6": "each request, position",
    "21.6-6": "several tokens",
    "21.6-7": "one more|17",
}


@pytest.mark.parametrize(("name", "insight"), INSIGHTS.items())
def test_the_first_hint_leaves_the_insight_to_the_reader(name, insight):
    first, *later = ALL[name].hints
    assert not re.search(insight, first) and re.search(insight, " ".join(later))


@pytest.mark.parametrize("n", [0, 4, -1, "1", None, 1.0, True])
def test_there_is_no_fourth_hint(n):
    with pytest.raises(ValueError, match="there are hints 1, 2 and 3"):
        hint("21.1-2", n)


def stub(*args): ...


def described_stub(*args):
    """The stub's own words."""
    pass


@named(FUNCTIONS)
@pytest.mark.parametrize(
    "answer", [None, ..., stub, described_stub, lambda *a: None, lambda *a: ...]
)
def test_a_stub_is_not_an_answer(exercise, answer):
    found = check(exercise.id, answer)
    assert found.state == "open" and exercise.question in found.lines
    assert f"{exercise.kind.name}({', '.join(exercise.kind.arguments)})" in found.lines[1]


def without_a_return(*args):
    found = [args]
    found.reverse()


def without_a_return_but_described(*args):
    """Looks at its arguments."""
    len(args)


@named(FUNCTIONS)
@pytest.mark.parametrize(
    "answer",
    [without_a_return, without_a_return_but_described, lambda *a: print(end="")],
)
def test_a_function_that_forgets_to_return_is_told_so(exercise, answer):
    found = check(exercise.id, answer)
    said = f"{exercise.kind.name} returned None on all inputs. Is a return missing?"
    assert found.state == "wrong" and found.lines[0] == said


def test_an_object_to_call_may_refuse_every_question():
    class Silent:
        def __call__(self, *args):
            return None

        def __getattr__(self, name):
            raise RuntimeError("no attribute")

    assert "Is a return missing?" in check("21.6-4", Silent()).lines[0]


def test_a_function_of_one_constant_is_no_stub():
    def described(*args):
        """Has the same code as a stub, but for the constant."""
        return 7

    for answer in (lambda *a: 7, lambda *a: "none", described):
        found = check("21.6-4", answer)
        assert found.state == "wrong" and "gives" in found.lines[0]


@named(VALUES)
@pytest.mark.parametrize("answer", [None, ..., [None, None, None], (..., ...)])
def test_nothing_written_is_not_an_answer(exercise, answer):
    assert check(exercise.id, answer).state == check(exercise.id).state == "open"


# ---- a broken expectation is caught


def test_an_answer_for_another_shape_fails():
    assert not check("21.1-1", [24, 24, 32]).is_right  # the page's own example
    assert not check("21.6-2", [1, 2]).is_right  # output 2


@named(FUNCTIONS)
def test_a_solution_of_another_exercise_fails(exercise):
    """Of the next three with as many arguments: another number of them is a TypeError anyway."""
    place = FUNCTIONS.index(exercise)
    others = FUNCTIONS[place + 1 :] + FUNCTIONS[:place]
    count = len(exercise.kind.arguments)
    alike = [other for other in others if len(other.kind.arguments) == count]
    for other in alike[:3] or others[:1]:
        assert check(exercise.id, SOLUTIONS[other.id]).state == "wrong"


def left_by(kind, function):
    """A function that changes lists, as a run that gives them, too."""
    if not isinstance(kind, InPlace):
        return function

    def run(*arguments):
        result = function(*arguments)
        return result, *(arguments[kind.arguments.index(name)] for name in kind.changed)

    return run


@named(EXERCISES)
def test_the_expectation_is_what_the_run_gives_and_nothing_else(exercise, monkeypatch):
    wrong = exercise.mistakes[0].gives
    broken = dataclasses.replace(exercise, run=left_by(exercise.kind, wrong))
    monkeypatch.setitem(load(exercise.id.partition("-")[0]), exercise.id, broken)
    for answer in RIGHT[exercise.id]:
        assert check(exercise.id, answer).state == "wrong"


@pytest.mark.parametrize("name", ["21.1-1", "21.1-2", "21.1-6"])
def test_bytes_are_read_off_the_arrays(name, monkeypatch):
    monkeypatch.setattr(kv_cache.ContiguousCache, "nbytes", 24)
    assert check(name, RIGHT[name][0]).state == "wrong"


def test_the_mask_is_the_cache_s_own(monkeypatch):
    real = kv_cache.causal_mask
    monkeypatch.setattr(kv_cache, "causal_mask", lambda *a: ~real(*a))
    assert check("21.1-4", RIGHT["21.1-4"][0]).state == "wrong"


def test_the_attention_is_the_package_s_own(monkeypatch):
    real = attention.attention_weights
    monkeypatch.setattr(attention, "attention_weights", lambda q, k, m: real(q * 2, k, m))
    assert check("21.1-5", RIGHT["21.1-5"][0]).state == "wrong"


def test_the_slot_is_read_out_of_the_pool(monkeypatch):
    real = kv_cache.PagedCache.read
    monkeypatch.setattr(
        kv_cache.PagedCache, "read", lambda self, table, n: real(self, table[::-1], n)
    )
    assert check("21.6-4", RIGHT["21.6-4"][0]).state == "wrong"


# ---- predictions: what the runs of the pages give

ACTUAL = {
    "21.1-p1": 1,
    "21.1-p2": 24,
    "21.1-p3": False,
    "21.1-p4": 4.0,
    "21.6-p1": [1536, 1792, 2048],
    "21.6-p2": 4,
    "21.6-p3": 3,
    "21.4-p1": 1,
    "21.4-p2": 16,
    "21.4-p3": False,
    "21.4-p4": [0, 160],
    "21.4-p5": False,
    "21.5-p1": [2, 2],
    "21.5-p2": [5, 0],
    "21.5-p3": 0,
    "21.5-p4": {2, 5},
    "21.5-p5": 1,
    "21.5-p6": 1,
    "21.3-p1": [2, 0],
    "21.3-p2": "P4 D P4 D P4",
    "21.3-p3": False,
    "21.3-p4": "c",
    "21.3-p5": 130,
    "21.2-p1": 20,
    "21.2-p2": "undefined",
    "21.2-p3": 20,
    "21.2-p4": "prompt",
    "21.2-p5": "less than 4",
    "21.2-p6": "no",
    "21.7-p1": 5,
    "21.7-p2": False,
    "21.7-p3": 2,
    "21.7-p4": "b",
    "21.7-p5": "c",
    "21.7-p6": "c",
    "21.7-p7": False,
    "21.7-p8": 1,
    "21.7-p9": 48,
    "21.7-p10": False,
    "21.7-p11": "a",
    "21.7-p12": False,
    "21.7-p13": 0,
    "21.7-p14": "b",
    "21.7-p15": "c",
    "21.7-p16": "b",
}


@named(PREDICTIONS)
def test_the_mistakes_of_a_prediction_are_readable_and_differ_from_the_run(exercise):
    actual = exercise.kind.read(ACTUAL[exercise.id])
    answers = [exercise.kind.read(mistake.gives(actual)) for mistake in exercise.mistakes]
    assert actual not in answers and len({str(a) for a in answers}) == len(answers)


def test_no_set_stores_what_a_run_gives():
    import kvlab.exercises.section_21_1 as one
    import kvlab.exercises.section_21_2 as two
    import kvlab.exercises.section_21_3 as three
    import kvlab.exercises.section_21_4 as four
    import kvlab.exercises.section_21_5 as five
    import kvlab.exercises.section_21_6 as six

    results = (
        (one, ("288", "384", "0.75", "805")),
        (six, ("1536", "1,536", "2048")),
        (two, ("420, 90, 22.5", "22.5", "[50, 23", "10.048", "4883", "[600, 950", "4, 6, 5")),
        (three, ("5, 3, 1, 4, 6, 12", "17, 121, 19", "[1, 8, 21]")),
        (four, ("48, 64, 48", "0, 0, 32, 0, 0, 32", "5, 2, 1, 0, 4, 3")),
        (five, ("[2, 4, 2]", "3, 15, 31")),
    )
    for module, numbers in results:
        with open(module.__file__, encoding="utf-8") as file:
            text = file.read()
        assert not any(re.search(rf"(?<!\d){re.escape(n)}(?!\d)", text) for n in numbers)
