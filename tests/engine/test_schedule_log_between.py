"""The schedule log and what lies between two steps: it changes no step that has been."""

import pytest
from history_runner import make_engine, run_checked
from hypothesis import given
from hypothesis import strategies as st
from tiered_runner import ask, make_tiered, run_tiered

from kvlab.core.schedule_log import ScheduleLog
from kvlab.core.schedule_spans import QUEUED, Span


def seconds(engine):
    """A clock that a test sets; each pass takes one second."""
    now, execute = [0.0], engine.runner.execute

    def one_second(output):
        now[0] += 1
        return execute(output)

    engine.clock, engine.runner.execute = (lambda: now[0]), one_second
    return now


def fail(engine):
    engine.runner.fail_next = True
    with pytest.raises(RuntimeError, match="model pass failed"):
        engine.step()


# ---- times and blocks


def test_a_step_ends_before_an_arrival_that_comes_a_minute_later():
    engine = make_engine()
    now = seconds(engine)
    with ScheduleLog(engine.scheduler, clock=engine.clock) as log:
        ask(engine, [1, 2], 2, "A")
        engine.step()
        now[0] = 60
        ask(engine, [3], 1, "B")
        engine.step()
        now[0] = 90
    assert [(s.begin, s.end) for s in log.steps] == [(0, 1), (60, 61)]
    assert (log.requests["B"].arrival, log.requests["B"].ttft) == (60, 1)


def test_a_copy_that_ends_in_a_pause_makes_the_step_before_no_longer():
    engine = make_tiered(8, 4, 2, prefix_caching=False, delays=(0, 2))
    now = seconds(engine)
    with ScheduleLog(engine.scheduler, clock=engine.clock) as log:
        ask(engine, [1, 2], 3, "A")
        ask(engine, [3, 4], 9, "B")
        engine.step()
        engine.suspend("A")
        engine.step()  # stores A's block at once
        engine.resume("A")
        engine.step()  # B decodes, and A's load is under way
        now[0] = 60
        engine.runner._time += 2  # passes, by which this runner counts its copies
        engine.step()
    assert [(s.begin, s.end) for s in log.steps] == [(0, 1), (1, 2), (2, 3), (60, 61)]
    kinds = [span.kind for span in log.requests["A"].spans]
    assert kinds == ["prefill", "suspended", "loading", "decode"]


@pytest.mark.parametrize("change", ["suspend", "abort"])
def test_blocks_that_are_given_back_between_steps_are_free_from_the_next_one(change):
    engine = make_engine(8, 2, prefix_caching=False)
    with ScheduleLog(engine.scheduler) as log:
        ask(engine, [1, 2, 3, 4], 4, "A")
        ask(engine, [5], 3, "B")
        engine.step()
        getattr(engine, change)("A")
        engine.step()
    assert [s.free_blocks for s in log.steps] == [5, 7]


def test_steps_of_which_nothing_is_heard_begin_and_end_where_the_last_one_ended():
    engine = make_engine(8, 2, prefix_caching=False)
    now = seconds(engine)
    with ScheduleLog(engine.scheduler, clock=engine.clock) as log:
        ask(engine, [1, 2], 3, "A")
        engine.step()
        engine.suspend("A")
        engine.step()
        engine.step()
        now[0] = 60
        engine.resume("A")
        engine.step()
    assert [(s.begin, s.end) for s in log.steps] == [(0, 1), (1, 1), (1, 1), (60, 61)]
    assert [s.free_blocks for s in log.steps] == [7, 8, 8, 6]


# ---- ids and heirs


def test_an_id_that_is_used_again_before_the_next_step_is_another_request():
    engine = make_engine(prefix_caching=False)
    with ScheduleLog(engine.scheduler) as log:
        ask(engine, [1, 2], 4, "A")
        engine.step()
        engine.abort("A")
        ask(engine, [3, 4, 5], 1, "A")
        run_checked(engine)
        ask(engine, [6], 1, "A")
        run_checked(engine)
    assert {name: record.spans for name, record in log.requests.items()} == {
        "A": [Span("prefill", 1, 1, 2)],
        "A (2)": [Span("prefill", 2, 1, 3)],
        "A (3)": [Span("prefill", 3, 1, 1)],
    }
    assert [r.finish_reason for r in log.requests.values()] == ["abort", "length", "length"]


def test_the_heir_of_an_aborted_leader_waits_for_a_seat():
    engine = make_engine(max_num_seqs=2, prefix_caching=False)
    with ScheduleLog(engine.scheduler) as log:
        for name in "BC":
            ask(engine, [9], 4, name)
        ask(engine, [1, 2], 1, "A", n=2)
        engine.step()
        engine.abort("A")
        run_checked(engine)
    assert log.requests["A"].spans == [Span("waiting", 1, 1)]
    assert log.requests["A.1"].spans == [Span("waiting", 2, 3), Span("prefill", 5, 1, 2)]
    assert (log.requests["A.1"].arrival, log.requests["A.1"].ttft) == (0, 5)  # came with A
    assert [(s.waiting, s.running) for s in log.steps] == [(1, 2)] * 4 + [(0, 1)]


def test_a_continuation_that_is_aborted_before_it_begins_was_in_no_step():
    engine = make_engine(max_num_batched_tokens=2, prefix_caching=False)
    with ScheduleLog(engine.scheduler) as log:
        ask(engine, [1, 2, 3], 1, "A", n=2)
        engine.step()
        engine.abort("A.1")
        run_checked(engine)
    assert (log.requests["A.1"].spans, log.requests["A.1"].finish_reason) == ([], "abort")


def test_a_continuation_arrived_with_its_leader():
    engine = make_engine(max_num_batched_tokens=2, prefix_caching=False)
    with ScheduleLog(engine.scheduler) as log:
        ask(engine, [1, 2, 3], 1, "A", n=2)
        run_checked(engine)
    assert {name: record.ttft for name, record in log.requests.items()} == {"A": 2, "A.1": 2}


# ---- put aside


def test_a_failed_step_stays_failed_when_its_request_is_put_aside():
    engine = make_engine(prefix_caching=False)
    with ScheduleLog(engine.scheduler) as log:
        ask(engine, [1, 2], 2, "A")
        fail(engine)
        engine.suspend("A")
        engine.step()
        engine.resume("A")
        run_checked(engine)
    assert log.requests["A"].spans == [
        Span("failed", 1, 1),
        Span("suspended", 2, 1),
        Span("prefill", 3, 1, 2),
        Span("decode", 4, 1, 1, 2),
    ]


def test_a_request_that_was_idle_and_then_goes_to_the_tier_was_idle():
    engine = make_tiered(8, 8, 2, prefix_caching=False, policy="alternating", max_num_seqs=2)
    with ScheduleLog(engine.scheduler) as log:
        ask(engine, [1, 2], 4, "A")
        engine.step()
        ask(engine, [3, 4, 5], 4, "B")
        engine.step()  # B's prompt alone
        engine.suspend("A")
        engine.step()
        engine.resume("A")
        run_tiered(engine)
    kinds = [(span.kind, span.count) for span in log.requests["A"].spans]
    assert kinds[:4] == [("prefill", 1), ("idle", 1), ("suspended", 1), ("loading", 1)]
    assert [(s.waiting, s.running) for s in log.steps[:3]] == [(0, 1), (0, 2), (0, 1)]


def test_a_log_that_begins_while_a_request_is_put_aside_knows_of_it():
    engine = make_engine(prefix_caching=False)
    ask(engine, [1, 2], 2, "A")
    engine.step()
    engine.suspend("A")
    with ScheduleLog(engine.scheduler) as log:
        engine.step()
        engine.resume("A")
        run_checked(engine)
    assert log.requests["A"].spans == [Span("suspended", 2, 1), Span("prefill", 3, 1, 3)]
    assert [(s.step, s.running) for s in log.steps] == [(2, 0), (3, 1)]


def test_a_log_tells_of_no_step_before_it_began():
    engine = make_tiered(3, 4, 2, prefix_caching=False, delays=(2,))
    ask(engine, [1, 2], 4, "A")
    ask(engine, [4, 5], 3, "B")
    while not engine.scheduler.offload.is_loading:
        engine.step()
    begun = engine.scheduler.step_index
    engine.runner._time += 2  # the load ends before the next step begins
    with ScheduleLog(engine.scheduler) as log:
        run_tiered(engine)
    assert log.steps[0].step == begun + 1
    assert log.requests["B"].spans == [Span("decode", begun + 1, 2, 2, 2)]


def test_who_is_ended_for_want_of_blocks_is_not_counted_as_waiting():
    engine = make_engine(3, 2, prefix_caching=False)
    with ScheduleLog(engine.scheduler) as log:
        ask(engine, [1, 2, 3, 4, 5, 6], 4, "A")
        engine.step()
        engine.suspend("A")
        engine.resume("A")
        run_checked(engine)  # seven positions need four blocks
    assert log.requests["A"].finish_reason == "capacity"
    assert [(s.step, s.waiting, s.running) for s in log.steps] == [(1, 0, 1), (2, 0, 0)]


# ---- against the engine itself

ACTS = ("go on", "go on", "add", "abort", "suspend", "resume", "fail")


@given(
    st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 6)), max_size=25), st.integers(3, 9)
)
def test_every_step_is_told_as_the_engine_left_it(acts, num_blocks):
    engine = make_tiered(num_blocks, 4, 2, max_num_seqs=3, max_num_batched_tokens=6)
    scheduler, truth = engine.scheduler, {}
    ask(engine, [1, 2, 3], 4, "r")
    with ScheduleLog(scheduler) as log:
        for number, (act, which) in enumerate([*acts, *[("resume", 0)] * 40]):
            names = list(engine.requests)
            if act == "add" and which < num_blocks - 1:
                ask(engine, range(which + 1), 3, f"a{number}", n=1 + which % 2)
            elif act in ("abort", "suspend", "resume") and names:
                getattr(engine, act)(names[which % len(names)])
            engine.runner.fail_next = act == "fail"
            before, failed = len(engine.runner.steps), False
            try:
                engine.step()
            except RuntimeError:
                failed = True
            engine.runner.fail_next = False
            rows = engine.runner.steps[-1] if len(engine.runner.steps) > before else {}
            if not failed:
                waiting = {r.request_id for r in scheduler.waiting}
                free = scheduler.manager.pool.num_free_blocks
                truth[scheduler.step_index] = (dict(rows), waiting, free)
            for name in list(scheduler.suspended) if number > len(acts) else ():
                engine.resume(name)
    told = {s.step: s for s in log.steps}
    for step, (rows, waiting, free) in truth.items():
        at = {n: s for n, r in log.requests.items() for s in r.spans if s.first <= step < s.end}
        work = {n: s.tokens // s.count for n, s in at.items() if s.kind in ("prefill", "decode")}
        computed = [{n: count for n, count in some.items() if count} for some in (work, rows)]
        queued = {n for n, s in at.items() if s.kind in QUEUED}
        lost = {n for n in queued if log.requests[n].finish_reason == "capacity"}
        assert computed[0] == computed[1] and queued - lost == waiting - lost
        assert step not in told or told[step].free_blocks == free
