"""Section 21.3's bench and its kinds; what the predictions ask, computed; right and wrong code."""

import pytest
from exercise_cases_21_3 import fair_by_counting, still_by_steps, waiting_by_queue

from kvlab.core.policies import Turns, longest_decode_gap
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.exercises import check, predict, predicting, reveal
from kvlab.exercises.errors_21_3 import ADMISSION, FAIRNESS, RULES, goes_on, is_fair
from kvlab.exercises.runs_21_3 import (
    gap_beside,
    schedule_waiting,
    twelve_beside_two,
    two_too_large,
    waiting_cases,
)
from kvlab.exercises.serving_21_3 import Serving

# ---- the right code and the wrong code are what they are said to be


def test_only_two_schedulers_are_fair_and_one_is_the_engine_s_own():
    assert [is_fair(kind) for kind in FAIRNESS] == [True, True] + [False] * 4
    assert FAIRNESS[0] is Serving and all(kind.__doc__ for kind in FAIRNESS)
    assert (Serving.Scheduler, Serving.Turns) == (Scheduler, Turns)


def test_three_rules_of_admission_go_on_and_four_dead_end():
    assert [goes_on(kind) for kind in ADMISSION] == [True] * 3 + [False] * 4
    assert [letter for letter, kind in RULES.items() if not goes_on(kind)] == ["b"]
    assert RULES["a"].Scheduler is Scheduler and not RULES["a"].fixed


def test_the_unfair_ones_in_numbers():
    """Three requests decode on a budget of 8; a prompt of 40 tokens arrives in each of 9 steps."""
    waits = {}
    for kind in FAIRNESS:
        serving = kind(max_num_batched_tokens=8)
        for name in "ABC":
            serving.ask(name, 1, outputs=30)
        serving.step()
        for i in range(9):
            serving.ask(f"P{i}", 40)
            serving.step()
        waits[kind.__name__] = [serving.longest_gap(name) for name in "ABC"]
    assert waits == {
        "Serving": [1, 1, 1],
        "LeavesRoom": [1, 1, 1],
        "PromptsFirst": [9, 9, 9],
        "BegunFirst": [8, 8, 8],
        "EveryThird": [3, 3, 3],
        "OneDecode": [3, 3, 3],
    }


@pytest.mark.parametrize("letter", "abcd")
def test_s02_under_each_rule(letter):
    """Both begin under a and b; a takes B's blocks, under b both keep theirs."""
    serving = two_too_large(RULES[letter])
    both = any({"A", "B"} <= step.keys() for step in serving.steps)
    assert both == (letter in "ab")
    assert (serving.running, serving.free) == ((["A", "B"], 63) if letter == "b" else ([], 2047))
    assert serving.ended == ({} if letter == "b" else {"A": "length", "B": "length"})
    assert (serving.steps[-2:] == [{}, {}]) == (letter == "b")


# ---- what the predictions ask


@pytest.fixture
def new_kernel():
    predicting.forget()
    yield
    predicting.forget()


@pytest.mark.parametrize(
    ("chunk", "order"), [(4, "P4 D P4 D P4"), (6, "P6 D P6"), (12, "P12"), (5, "P5 D P5 D P2")]
)
def test_p1_the_order_of_steps(new_kernel, chunk, order):
    found = twelve_beside_two(chunk).order("C")
    assert found == order
    predict("21.3-p2", "P4 D P4 D P4")
    assert reveal("21.3-p2", found).is_right == (chunk == 4)


def test_p2_two_slots():
    found = []
    for policy in ("static", "continuous"):
        serving = Serving(policy=policy, max_num_seqs=2)
        for name, outputs in (("A", 2), ("B", 4), ("C", 2)):
            serving.ask(name, 2, outputs)
        serving.run()
        last = max(i for i, step in enumerate(serving.steps) if "A" in step)
        first = min(i for i, step in enumerate(serving.steps) if "C" in step)
        found.append(first - last - 1)
    assert found == [2, 0]


def test_p3_after_a_preemption_130_positions_are_computed():
    """Blocks of one position: A takes 10 for its prompt, B 100; after 30 outputs each needs one
    more than the pool has."""
    serving = Serving(168, 1)
    serving.ask("A", 10, outputs=40)
    serving.ask("B", 100, outputs=40)
    while "B" in serving.running or not serving.steps:
        serving.step()
    assert (serving.outputs("B"), serving.waiting) == (30, ["B"])
    begun = len(serving.steps)
    serving.run()
    assert [step["B"] for step in serving.steps[begun:] if "B" in step] == [130] + [1] * 9
    assert serving.ended == {"A": "length", "B": "length"} and serving.outputs("B") == 40


def test_p4_one_of_the_two_begins_again(new_kernel):
    serving = two_too_large(Serving)
    computed = {name: sum(step.get(name, 0) for step in serving.steps) for name in "AB"}
    assert computed["A"] == 1600 and computed["B"] > 1200
    assert predict("21.3-p4", "both wait for ever").state == "kept"
    assert "gives its blocks back" in repr(reveal("21.3-p4", "c"))


def test_p5_the_gap_beside_long_prompts():
    found = []
    for prompt in (10, 1000):
        serving = Serving(2000, policy="mixed", max_num_batched_tokens=16)
        serving.ask("A", 2, outputs=50)
        serving.step()
        for i in range(6):
            serving.ask(str(i), prompt)
            serving.step()
        serving.run()
        found.append(serving.longest_gap("A"))
    assert found == [1, 1]


# ---- kinds


@pytest.mark.parametrize(
    "answer",
    [
        "P4 D P4 D P4",
        "p4, d, p4, d, p4",
        "P4 -> D → P4; D then P4",
        ["P4", "D", "P4", "D", "P4"],
        ("P4 D", "P4 D", "P4"),
    ],
)
def test_an_order_may_be_written_in_many_ways(new_kernel, answer):
    assert predict("21.3-p2", answer).facts == (("you say", "P4 D P4 D P4"),)
    assert reveal("21.3-p2", "P4 D P4 D P4").is_right


def test_one_step_may_do_both(new_kernel):
    assert predict("21.3-p2", "P4+D D+P4 P4+D").facts == (("you say", "D+P4 D+P4 D+P4"),)
    assert "mixed policy" in repr(reveal("21.3-p2", "P4 D P4 D P4"))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("prefill, decode", "'PREFILL' is no step"),
        (5, "You gave 5; give the steps in order"),
        (["P4", 5], "You gave ['P4', 5]"),
        ("", "You gave ''"),
        ({"P4": 1}, "You gave a dictionary"),
        ("P D P", "'P' is no step"),
    ],
)
def test_what_is_no_order_is_named(new_kernel, answer, said):
    shown = predict("21.3-p2", answer)
    assert shown.state == "unreadable" and said in shown.lines[0]


def test_a_gap_counts_if_a_serving_of_the_call_has_seen_it():
    kept = []

    def from_an_earlier_call(kind, prompts):
        serving = kind(policy="continuous", max_num_batched_tokens=16, max_decode_gap=1000)
        kept.append(gap_beside(serving, 50))
        return prompts + 1

    found = check("21.3-5", from_an_earlier_call)
    assert found.state == "wrong" and "gives 2, and A waited 51 at most" in repr(found)
    assert kept == [51] * 4


def test_a_serving_that_is_taken_apart_does_no_harm():
    def rude(kind, prompts):
        serving = kind()
        serving._outputs = serving.engine = serving.ended = None
        kind.made.append(7)
        return 2

    assert "no Serving was played" in repr(check("21.3-5", rude))
    assert gap_beside(Serving(policy="mixed", max_num_batched_tokens=16), 3) == 1


def test_a_check_may_change_the_class_that_it_is_given():
    def rude(kind):
        found = fair_by_counting(kind)
        kind.Scheduler.schedule = kind.Turns.plan = kind.step = None
        return found

    def ruder(kind):
        found = still_by_steps(kind)
        kind.Scheduler._admit = kind.Scheduler = kind.ask = None
        return found

    for _twice in range(2):
        assert check("21.3-6", rude).is_right and check("21.3-8", ruder).is_right
    assert callable(Scheduler.schedule) and callable(Turns.plan) and callable(Serving.ask)


# ---- who is admitted


def test_the_cases_hold_every_reason_to_wait():
    found = [(case, schedule_waiting(*case)) for case in waiting_cases()]
    assert all(waiting_by_queue(*case) == tuple(wanted) for case, wanted in found)
    assert {chunked for *_, chunked in waiting_cases()} == {True, False}
    assert sum(0 in wanted for _, wanted in found) > 6
    assert sum(bool(wanted) and 0 not in wanted for _, wanted in found) > 6


def test_the_real_scheduler_decides_who_is_admitted(monkeypatch):
    real = Scheduler._admit
    monkeypatch.setattr(Scheduler, "_seats", lambda self, requests: 0)
    assert check("21.3-4", waiting_by_queue).state == "wrong"
    monkeypatch.undo()
    monkeypatch.setattr(Scheduler, "_admit", lambda self, r, budget: real(self, r, budget // 2))
    assert check("21.3-4", waiting_by_queue).state == "wrong"


def test_the_arguments_are_fresh_each_time():
    def rude(waiting, *a):
        found = waiting_by_queue(waiting, *a)
        for request in waiting:
            request.clear()
        return found

    for _twice in range(2):
        assert check("21.3-4", rude).is_right


# ---- the bench


def test_the_steps_of_a_serving():
    serving = Serving(10, 4, policy="mixed", max_num_batched_tokens=6)
    serving.ask("A", 3, outputs=3)
    assert (serving.waiting, serving.running, serving.free) == (["A"], [], 10)
    assert serving.step() == {"A": 3}
    serving.ask("B", [7, 8, 9, 7, 8, 9, 7])
    assert [serving.step(), serving.step(), serving.step()] == [
        {"A": 1, "B": 5},
        {"A": 1, "B": 2},
        {},
    ]
    assert serving.steps == [{"A": 3}, {"A": 1, "B": 5}, {"A": 1, "B": 2}, {}]
    assert serving.ended == {"A": "length", "B": "length"} and serving.free == 10
    assert (serving.outputs("A"), serving.outputs("B"), serving.longest_gap("A")) == (3, 1, 1)
    assert (serving.order("A"), serving.order("B")) == ("P3", "D+P5 D+P2")


def test_a_wait_that_goes_on_counts():
    serving = Serving(policy="continuous", max_num_batched_tokens=16, max_decode_gap=1000)
    serving.ask("A", 2, outputs=5)
    serving.step()
    for i in range(9):
        serving.ask(str(i), 16)
        serving.step()
    assert (serving.longest_gap("A"), serving.longest_gap("8"), serving.outputs("A")) == (9, 0, 1)
    assert serving.order("8") == "P16"


def test_a_name_that_is_taken_or_missing_and_a_prompt_that_cannot_run():
    serving = Serving(4, 4)
    serving.ask("A", 3)
    with pytest.raises(ValueError, match="'A' was asked for already"):
        serving.ask("A", 3)
    with pytest.raises(ValueError, match=r"there is no request 'B'; there are \['A'\]"):
        serving.longest_gap("B")
    with pytest.raises(ValueError, match="the whole pool has 4"):
        serving.ask("B", 100)
    serving.ask("B", 4)
    assert serving.waiting == ["A", "B"]


def test_the_bound_of_the_guard_is_the_policies_own():
    for guard in (2, 5, 8):
        settings = {"policy": "continuous", "max_num_batched_tokens": 16, "max_decode_gap": guard}
        found = gap_beside(Serving(**settings), 30)
        assert found == guard == longest_decode_gap(SchedulerConfig(**settings), 1)
