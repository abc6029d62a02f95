"""Each section asks its reader to write something, to break something, and to explain a number."""

import re
from pathlib import Path

import pytest

from kvlab.book import manifest
from kvlab.exercises import Exercise, explain_21_5b, sections
from kvlab.exercises.causes import the_cause
from kvlab.exercises.explain_21_6 import PAYLOAD, bytes_of_a_position
from kvlab.exercises.function_kinds import Verdict
from kvlab.exercises.judged import Judged
from kvlab.exercises.kinds import Function
from kvlab.exercises.kinds_21_3 import Played
from kvlab.exercises.registry import load

ROOT = Path(__file__).parents[2]
BREAKING = (Verdict, Judged, Played)  # a check that finds wrong code; a run that has to go wrong

# section: write it, break it, explain a measured number
KINDS = {
    "21.0": ("21.0-1", "21.0-2", "21.0-3"),
    "21.1": ("21.1-2", "21.1-10", "21.1-7"),
    "21.2": ("21.2-2", "21.2-8", "21.2-6"),
    "21.3": ("21.3-4", "21.3-5", "21.3-9"),
    "21.4": ("21.4-2", "21.4-4", "21.4-6"),
    "21.5": ("21.5-3", "21.5-5", "21.5-7"),
    "21.5b": ("21.5b-1", "21.5b-5", "21.5b-6"),
    "21.6": ("21.6-3", "21.6-6", "21.6-7"),
    "21.7": ("21.7-3", "21.7-4", "21.7-1"),
}
# These two explain measured numbers and say so in words of their own: what a user found in use,
# and what seven reports of one run hide.
OTHER_WORDS = {"21.1-7": "found .* in use", "21.2-6": "seven reports"}


def test_every_section_of_the_book_has_all_three_kinds():
    written = [section.id for section in manifest.read(ROOT).written]
    assert list(KINDS) == written == list(sections())
    for section, three in KINDS.items():
        assert len(set(three)) == 3
        assert all(isinstance(load(section)[name], Exercise) for name in three)


@pytest.mark.parametrize("section", KINDS)
def test_each_is_of_the_kind_that_it_stands_for(section):
    write, break_it, explain = (load(section)[name] for name in KINDS[section])
    assert isinstance(write.kind, Function) and not isinstance(write.kind, BREAKING)
    assert write.question.startswith(f"Write {write.kind.name}") or "Write the" in write.question
    assert isinstance(break_it.kind, BREAKING)
    assert re.match(r"Break (it|fairness)\.|Find the bug:", break_it.question)
    assert not isinstance(explain.kind, Function)
    assert re.search(OTHER_WORDS.get(explain.id, "^Explain a measured number"), explain.question)


@pytest.mark.parametrize("section", manifest.read(ROOT).written, ids=lambda s: s.id)
def test_each_exercise_is_asked_on_its_page(section):
    source = (ROOT / f"notebooks/source/{section.notebook}.py").read_text(encoding="utf-8")
    asked = set(re.findall(rf'"({re.escape(section.id)}-\d+)": None|check\("([^"]+)"', source))
    found = {name for pair in asked for name in pair if name}
    assert found == {n for n, item in load(section.id).items() if isinstance(item, Exercise)}


# ---- the numbers that are to be explained were measured


def test_a_number_has_one_cause_or_is_no_exercise():
    causes = {"a": ("first", lambda: 1), "b": ("second", lambda: 2), "c": ("third", lambda: 2)}
    assert the_cause(causes, 1) == "a"
    with pytest.raises(ValueError, match=r"2 is what \['b', 'c'\] gives; name one cause"):
        the_cause(causes, 2)
    with pytest.raises(ValueError, match="7 is what none of them gives"):
        the_cause(causes, 7)


def test_the_kernel_s_log_holds_the_loads_that_the_question_names():
    assert explain_21_5b.rows_loaded() == explain_21_5b.ROWS_LOADED == 140
    assert explain_21_5b.scores_computed() == 280
    measured = {letter: run() for letter, (_words, run) in explain_21_5b.CAUSES.items()}
    assert measured == {"a": 184, "b": 192, "c": 140, "d": 70}


def test_the_bytes_of_the_monitor_are_whole_positions():
    assert bytes_of_a_position() == 2048
    assert PAYLOAD == 34_816 == 17 * 2048
