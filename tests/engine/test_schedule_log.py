"""The schedule log: who was in which state in each step, from the scheduler's own events."""

import json
from itertools import pairwise

import pytest
from history_runner import make_engine, run_checked
from tiered_runner import make_tiered, run_tiered

from kvlab.core.prefix_cache import PrefixCachePolicy
from kvlab.core.request import SamplingParams
from kvlab.core.schedule_log import ScheduleLog
from kvlab.core.schedule_spans import KINDS, Schedule, Span


def logged(engine, **options):
    with ScheduleLog(engine.scheduler, **options) as log:
        run_checked(engine)
    return log


def test_a_chunked_prompt_beside_a_decoding_request():
    engine = make_engine(max_num_seqs=2, max_num_batched_tokens=4)
    engine.add_request([1, 2], SamplingParams(max_tokens=4), request_id="A")
    engine.step()
    with ScheduleLog(engine.scheduler) as log:  # a log may start midway
        engine.add_request(range(10, 17), SamplingParams(max_tokens=2), request_id="B")
        run_checked(engine)
    a, b = log.requests["A"], log.requests["B"]
    # a budget of 4: A's one position first, 3 of B's seven
    assert a.spans == [Span("decode", 2, 3, 3, 2)]
    assert b.spans == [
        Span("prefill", 2, 2, 6),
        Span("prefill", 4, 1, 1, 6),
        Span("decode", 5, 1, 1, 7),
    ]
    assert [b.spans[0].position(step) for step in (2, 3)] == [0, 3]
    assert (b.selected_steps, b.step_gaps, b.ttft) == ([4, 5], [1], 3)
    assert [s.running for s in log.steps] == [2, 2, 2, 1]
    assert (a.finish_reason, b.finish_reason) == ("length", "length")


def test_a_request_waits_from_the_first_step_that_could_have_taken_it():
    engine = make_engine(max_num_seqs=1)
    engine.add_request([1, 2, 3], SamplingParams(max_tokens=2), request_id="A")
    engine.add_request([4, 5, 6], SamplingParams(max_tokens=1), request_id="B")
    log = logged(engine)
    assert log.requests["B"].spans == [Span("waiting", 1, 2), Span("prefill", 3, 1, 3)]
    assert [(s.step, s.waiting, s.running) for s in log.steps] == [(1, 1, 1), (2, 1, 1), (3, 0, 1)]


def test_a_preempted_request_waits_again_and_recomputes():
    engine = make_engine(num_blocks=3, block_size=2, prefix_caching=False)
    engine.add_request([1, 2], SamplingParams(max_tokens=4), request_id="A")
    engine.add_request([4, 5], SamplingParams(max_tokens=2), request_id="B")
    log = logged(engine)
    assert log.requests["B"].spans == [
        Span("prefill", 1, 1, 2),
        Span("preempted", 2, 3),
        Span("prefill", 5, 1, 3),  # its prompt again, and the output that it had selected
    ]
    assert log.requests["B"].steps_in("preempted") == 3


def test_continuations_and_kept_logits_compute_nothing_in_their_first_step():
    engine = make_engine(block_size=2, policy=PrefixCachePolicy(kept_logits=1))
    engine.add_request([1, 2], SamplingParams(max_tokens=2, n=2), request_id="A")
    log = logged(engine)
    assert log.requests["A.1"].spans == [Span("prefill", 1, 1, 0), Span("decode", 2, 1, 1, 2)]
    engine.add_request([1, 2], SamplingParams(max_tokens=1), request_id="C")
    again = logged(engine)
    assert again.requests["C"].spans == [Span("prefill", 3, 1, 0)]
    assert again.requests["C"].num_cached_tokens == 2


def test_a_failed_step_and_an_abort():
    engine = make_engine(prefix_caching=False)
    engine.add_request([1, 2], SamplingParams(max_tokens=2), request_id="A")
    engine.add_request([3, 4], SamplingParams(max_tokens=2), request_id="B")
    with ScheduleLog(engine.scheduler) as log:
        engine.runner.fail_next = True
        with pytest.raises(RuntimeError, match="model pass failed"):
            engine.step()
        engine.abort("B")
        run_checked(engine)
    assert [s.kind for s in log.requests["A"].spans] == ["failed", "prefill", "decode"]
    assert (log.requests["B"].finish_reason, log.requests["B"].selected_steps) == ("abort", [])


def test_a_failed_request_stands_in_the_queue_until_it_is_admitted_again():
    engine = make_engine(max_num_seqs=1, prefix_caching=False)
    engine.add_request([1, 2], SamplingParams(max_tokens=2), request_id="A")
    with ScheduleLog(engine.scheduler) as log:
        engine.runner.fail_next = True
        with pytest.raises(RuntimeError, match="model pass failed"):
            engine.step()
        engine.add_request([3], SamplingParams(max_tokens=1), request_id="B")
        run_checked(engine)
    assert log.requests["A"].spans == [
        Span("failed", 1, 1),
        Span("prefill", 2, 1, 2),
        Span("decode", 3, 1, 1, 2),
    ]
    assert log.requests["B"].spans == [Span("waiting", 2, 2), Span("prefill", 4, 1, 1)]


@pytest.mark.parametrize(("delay", "loading"), [(0, 1), (2, 2)])
def test_an_offloaded_request_is_loaded_before_it_goes_on(delay, loading):
    engine = make_tiered(3, 4, 2, prefix_caching=False, delays=(delay,))
    with ScheduleLog(engine.scheduler) as log:
        engine.add_request([1, 2], SamplingParams(max_tokens=4), request_id="A")
        engine.add_request([4, 5], SamplingParams(max_tokens=3), request_id="B")
        run_tiered(engine)
    assert log.requests["B"].spans == [
        Span("prefill", 1, 1, 2),
        Span("offloaded", 2, 3),
        Span("loading", 5, loading),  # as many steps as the copies take
        Span("decode", 5 + loading, 2, 2, 2),
    ]
    assert [(s.waiting, s.running) for s in log.steps[:5]] == [(0, 2), *[(1, 1)] * 3, (0, 1)]


def test_a_request_that_is_put_aside_and_resumed():
    engine = make_tiered(8, 8, 2, prefix_caching=False)
    with ScheduleLog(engine.scheduler) as log:
        engine.add_request([1, 2, 3, 4], SamplingParams(max_tokens=4), request_id="A")
        engine.add_request([5, 6], SamplingParams(max_tokens=6), request_id="B")
        engine.step()
        engine.step()
        engine.suspend("A")
        engine.step()
        engine.step()
        engine.resume("A")
        run_tiered(engine)
    kinds = [(s.kind, s.count) for s in log.requests["A"].spans]
    assert kinds == [("prefill", 1), ("decode", 1), ("suspended", 2), ("loading", 1), ("decode", 2)]
    assert [(s.waiting, s.running) for s in log.steps[2:4]] == [(0, 1), (0, 1)]


def test_a_step_in_which_everybody_waits_for_a_copy_is_there_too():
    engine = make_tiered(3, 4, 2, prefix_caching=False, delays=(5,))
    with ScheduleLog(engine.scheduler) as log:
        engine.add_request([1, 2], SamplingParams(max_tokens=3), request_id="A")
        engine.add_request([4, 5], SamplingParams(max_tokens=3), request_id="B")
        steps = run_tiered(engine)
    assert [s.step for s in log.steps] == list(range(1, steps + 1))
    for record in log.requests.values():  # no step without a word about it
        assert all(a.end == b.first for a, b in pairwise(record.spans))
    assert any(s.waiting and not s.running for s in log.steps)


def test_steps_before_anybody_comes_are_left_out():
    engine = make_engine()
    engine.step()
    with ScheduleLog(engine.scheduler) as log:
        engine.step()
        engine.step()
        engine.add_request([1], SamplingParams(max_tokens=1), request_id="A")
        run_checked(engine)
    assert [(s.step, s.running) for s in log.steps] == [(4, 1)]
    assert log.requests["A"].ttft == 1


def test_a_log_comes_back_from_plain_data():
    engine = make_engine(max_num_seqs=2)
    for name in "ABC":
        engine.add_request([1, 2, 3], SamplingParams(max_tokens=3), request_id=name)
    log = logged(engine)
    again = Schedule.from_dict(json.loads(json.dumps(log.to_dict())))
    assert (again.meta, again.steps, again.requests) == (log.meta, log.steps, log.requests)
    assert repr(again) == "Schedule(3 requests, 6 steps)" and log.meta["policy"] == "mixed"
    for damaged in ({}, {**log.to_dict(), "steps": [[1]]}, {**log.to_dict(), "requests": [{}]}):
        with pytest.raises(ValueError, match=r"not a schedule as to_dict\(\) gives it"):
            Schedule.from_dict(damaged)


def test_an_abort_before_any_step_makes_no_step():
    engine = make_engine()
    with ScheduleLog(engine.scheduler) as log:
        engine.add_request([1], request_id="A")
        engine.abort("A")
    assert (log.steps, log.requests["A"].spans) == ([], [])


def test_times_come_from_the_clock_that_is_given():
    engine = make_engine()
    engine.add_request([1, 2], SamplingParams(max_tokens=2), request_id="A", arrival_time=0.5)
    log = logged(engine, clock=engine.clock)
    record = log.requests["A"]
    assert record.arrival == 0.5 and record.ttft == record.selected_times[0] - 0.5
    assert all(s.begin <= s.end for s in log.steps) and record.e2el >= record.ttft
    assert log.meta["clock"] == "real"


def test_one_observer_at_a_time():
    engine = make_engine()
    engine.start_trace()
    with pytest.raises(RuntimeError, match="stop its trace or log first"):
        ScheduleLog(engine.scheduler)
    engine.stop_trace()
    log = ScheduleLog(engine.scheduler)
    log.detach()
    log.detach()
    assert engine.scheduler.observer is None


def test_a_hundred_requests_over_a_thousand_steps_stay_small():
    engine = make_engine(num_blocks=400, max_num_seqs=8, max_num_batched_tokens=16)
    for i in range(100):
        params = SamplingParams(max_tokens=60 + i % 40)
        engine.add_request(range(i, i + 5 + i % 30), params)
    log = logged(engine)
    document = json.dumps(log.to_dict(), separators=(",", ":"))
    assert len(log.steps) > 800 and len(document) < 200_000
    spans = [span for record in log.requests.values() for span in record.spans]
    assert {span.kind for span in spans} <= set(KINDS)
    total = sum(r.num_prompt_tokens + len(r.selected_steps) - 1 for r in log.requests.values())
    assert sum(span.tokens for span in spans) == total
