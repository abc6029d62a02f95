"""Section 21.2's kind of answer; its runs, by other ways; what its predictions ask, computed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.latency_record import records_of
from kvlab.core.latency_summary import summarize
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.step_cost import CostModel
from kvlab.core.workload import Arrival, Workload
from kvlab.exercises import check, predict, predicting, reveal, solution
from kvlab.exercises import runs_21_2 as runs
from kvlab.exercises.matches import Matches
from kvlab.exercises.one_fault_21_2 import one_fault
from kvlab.exercises.reading import Unreadable
from kvlab.exercises.registry import exercise
from kvlab.exercises.seven_reports import HIDDEN, REPORTS
from kvlab.exercises.solutions import s21_2
from kvlab.playing import play
from kvlab.simulated_engine import SimulatedEngine

PAIRS = Matches(("A", "B"), (("1", "first"), ("2", "second")))


# ---- one option for each name


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ({"A": "2", "B": "1"}, ["2", "1"]),
        ({"b": 1, " a ": 2.0}, ["2", "1"]),
        (("Second", " FIRST "), ["2", "1"]),
        ({"A": 2}, ["2", None]),
        ({"A": 2, "B": ...}, ["2", None]),
        ([2, None], ["2", None]),
    ],
)
def test_names_and_options_may_be_written_in_many_ways(answer, value):
    assert PAIRS.read(answer) == value
    assert PAIRS.read(PAIRS.read(answer)) == value


def test_a_match_is_shown_by_its_names():
    assert PAIRS.show(["2", None]) == "A 2, B …"


class Hostile:
    def __eq__(self, other):
        raise RuntimeError("no comparison")

    __hash__ = object.__hash__


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"C": 1}, "You gave 'C' as a name; give a number for each of A to B"),
        ({1: "A"}, "You gave 1 as a name"),
        ({("A",): 1}, r"You gave \['A'\] as a name"),
        ({"A": 1, "a": 2}, "You gave A twice"),
        ({"A": 3}, "You gave 3 for A"),
        ({"A": True}, "You gave True for A"),
        ({"A": 1.5}, r"You gave 1\.5 for A"),
        ({"A": [1]}, r"You gave \[1\] for A"),
        ({"A": {"B": 1}}, "You gave a dictionary; give"),
        ({"A": float("nan")}, "You gave nan for A"),
        ({Hostile(): 1}, "You gave an object of type Hostile; give"),
        ({"A": Hostile()}, "You gave an object of type Hostile; give"),
        ([1], "You gave a list of 1; give"),
        ([1, 2, 1], "You gave a list of 3; give"),
        ("12", "You gave '12'; give"),
        (12, "You gave 12; give"),
        ({1, 2}, "You gave a set, which has no order; give"),
        (max, "You gave a function; give"),
    ],
)
def test_what_is_no_match_is_named(answer, said):
    with pytest.raises(Unreadable, match=said):
        PAIRS.read(answer)


@pytest.mark.parametrize("answer", [{}, [], 7, {"A": 10}, {"A": 10**5000}, {"H": 1}, object()])
def test_check_says_what_it_cannot_read(answer):
    shown = check("21.2-6", answer)
    unreadable = answer != {}
    assert shown.state == ("unreadable" if unreadable else "wrong")
    assert not unreadable or shown.lines[0].startswith("You gave")


def test_an_empty_match_is_not_an_answer_and_lists_what_to_choose_from():
    shown = check("21.2-6", dict.fromkeys("ABCDEFG"))
    assert shown.state == "open"
    assert list(shown.lines[1:10]) == [
        *("1: requests that failed", "2: how long requests waited before they were sent"),
        "3: prompts that lay in the prefix cache already",
        *("4: a first event that carries no text", "5: events that carry several tokens"),
        "6: slow answers with few intervals, outvoted by the many intervals of long ones",
        "7: answers of one token, which have no interval",
        *("8: how many requests were served at the same time", "9: token counts that are guesses"),
    ]
    assert shown.lines[10].startswith("Write a number for each of A to G") and len(HIDDEN) == 9
    assert "\n  5: events that carry several tokens\n" in repr(shown)
    assert "<div>5: events that carry several tokens</div>" in shown._repr_html_()
    assert check("21.2-6", {"A": ..., "B": None}).state == "open"


def test_the_worked_match_is_shown_as_a_match():
    (label, value), _ = solution("21.2-6").facts
    assert label == "answer" and value.startswith("A 4, B ")


# ---- the runs, by other ways


def test_what_a_report_hides_is_found_by_trying_each_fault_alone():
    keys = list(HIDDEN)
    declared = [str(keys.index(report.hides) + 1) for report in REPORTS]
    assert runs.what_each_hides() == declared
    assert len(set(declared)) == 7 and set(keys) - {r.hides for r in REPORTS} == {
        "cached",
        "estimated",
    }


def test_a_fault_that_does_not_exist():
    with pytest.raises(ValueError, match="there is no fault 'slow'; give one of failed, waited"):
        one_fault("slow")


def test_t11_and_its_sibling():
    """Eight at ten a second with 0.5 s: 1.4 s of wait. Here nine at five a second with 0.35 s."""
    in_ms = [350 * i - 200 * i for i in range(9)]
    assert runs.waits() == pytest.approx([sum(in_ms) / 9, sum(in_ms) / 9 + 350])


def test_k_v_outweigh_the_weights_from_there_on_and_not_before():
    _, first = runs.least_step()
    (weights, before), (_, at) = runs.bytes_read(first - 1), runs.bytes_read(first)
    assert before <= weights < at
    assert runs.bytes_read(1, batch=1) == (16_000_000_000, 131_072)


events = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3)), max_size=8)


@given(events)
def test_the_worked_tpot_is_that_of_request_times(pairs):
    stream, now = [], 0
    for gap, tokens in pairs:
        now += gap
        stream.append([now, tokens])
    assert s21_2.tpot(stream) == runs.tpot(stream)


request_ = st.tuples(
    st.integers(0, 20), st.lists(st.integers(0, 9), max_size=5), st.sampled_from([None, "HTTP 500"])
)


@given(st.lists(request_, max_size=5), st.integers(1, 9), st.integers(1, 9))
def test_the_worked_good_requests_counts_as_the_summary(given_, ttft, itl):
    asked = []
    for start, gaps, error in given_:
        times = [start + sum(gaps[: i + 1]) for i in range(len(gaps))]
        asked.append([start, times, error])
    assert s21_2.good_requests(asked, ttft, itl) == runs.good_requests(asked, ttft, itl)


def test_every_pair_of_faults_differs_somewhere():
    """No two mistakes in good_requests can be told apart by luck alone: some case shows each."""
    mine = exercise("21.2-4")
    told = [
        tuple(str(_outcome(mistake.gives, case)) for case in mine.cases())
        for mistake in mine.mistakes
    ]
    assert len(set(told)) == len(told)


def _outcome(function, case):
    try:
        return function(*case)
    except (TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        return type(error).__name__


# ---- what the predictions ask


@pytest.fixture(autouse=True)
def new_kernel():
    predicting.forget()
    yield
    predicting.forget()


def test_five_tokens_and_one():
    five = runs.noted([(time, 1) for time in (100, 120, 140, 160, 180)])
    one = runs.noted([(100, 1)])
    actual = {"21.2-p1": five.tpot, "21.2-p2": "undefined" if one.tpot is None else "0"}
    predict({"21.2-p1": 20, "21.2-p2": "a"})
    assert [box.state for box in reveal(actual).boxes] == ["as predicted"] * 2


def test_four_together_on_the_real_scheduler():
    scheduler = Scheduler(KVCacheManager(BlockPool(32), 16), SchedulerConfig())
    engine = SimulatedEngine(scheduler, CostModel(per_step=0.020))
    four = Workload(tuple(Arrival(name, 0.0, tuple(range(8)), 10) for name in "abcd"))
    summary = summarize(records_of(play(engine, four)))
    assert (summary.total_output_tokens, round(summary.duration, 9)) == (40, 0.2)
    predict("21.2-p3", 5)
    shown = reveal("21.2-p3", round(1000 * summary.tpot.mean))
    assert shown.facts[1] == ("the run gives", "20 ms")
    assert "reciprocal of the throughput" in shown.lines[0]


@pytest.mark.parametrize(
    ("name", "answer", "actual", "said"),
    [
        ("21.2-p1", 16, 20, "four intervals"),
        ("21.2-p1", 36, 20, "over all tokens"),
        ("21.2-p1", 45, 20, "wait for the first token"),
        ("21.2-p1", 80, 20, "four intervals together"),
        ("21.2-p1", 100, 20, "TTFT"),
        ("21.2-p1", 180, 20, "end-to-end time"),
        ("21.2-p2", "0", "undefined", "pull every mean down"),
        ("21.2-p2", "its TTFT", "undefined", "Before the first token"),
        ("21.2-p3", 50, 20, "one request's tokens"),
        ("21.2-p3", 22.2, 20, "nine intervals"),
        ("21.2-p3", 200, 20, "or the duration"),
        ("21.2-p3", 80, 20, "took turns"),
        ("21.2-p4", "decode", "prompt", "where the prompt has 512"),
        ("21.2-p5", "4 or more", "less than 4", "serves all four"),
        ("21.2-p6", "yes", "no", "Nine gaps in ten"),
        ("21.2-p6", True, False, "Nine gaps in ten"),
    ],
)
def test_a_known_mistake_is_named(name, answer, actual, said):
    predict(name, answer)
    shown = reveal(name, actual)
    assert shown.state == "other" and said in shown.lines[0]


@pytest.mark.parametrize(
    ("name", "answer", "actual"),
    [("21.2-p4", "prompt", "decode"), ("21.2-p5", "a", "4 or more"), ("21.2-p6", "no", True)],
)
def test_on_a_machine_where_it_is_the_other_way_round_no_mistake_is_claimed(name, answer, actual):
    predict(name, answer)
    shown = reveal(name, actual)
    assert shown.state == "other" and len(shown.lines) == 1
