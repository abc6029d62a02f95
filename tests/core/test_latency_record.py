"""One request's record: what it refuses, its JSON line, and the records of a played workload."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.latency_record import LatencyRecord, records_of
from kvlab.core.latency_summary import summarize
from kvlab.core.metrics import RequestTimes, TokenEvent
from kvlab.core.played import Played, PlayedRequest
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.step_cost import CostModel
from kvlab.core.workload import Arrival, Workload
from kvlab.playing import play
from kvlab.simulated_engine import SimulatedEngine

NAN, INF = float("nan"), float("inf")


def times(**changes):
    """Arrival at 1, work from 2, scores at 3, output at 4 and 5, the end at 6."""
    given_ = {
        "arrival": 1.0,
        "first_scheduled": 2.0,
        "first_logits": 3.0,
        "events": [TokenEvent(4.0), TokenEvent(5.0, 2)],
        "finished": 6.0,
    }
    return RequestTimes(**{**given_, **changes})


def test_times_in_order_make_a_record():
    found = LatencyRecord("a", times(), sent=1.5)
    assert found.boundary == "engine" and found.wait_before_sending == 0.5
    assert found.since_sent(found.times.finished) == 4.5
    assert found.since_sent(None) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrival": NAN}, "arrival is nan; give a finite time"),
        ({"arrival": None}, "arrival is None; give a finite time"),
        ({"arrival": 2.5}, r"first_scheduled is 2\.0, before arrival at 2\.5; give times of one"),
        ({"first_scheduled": 3.5}, r"first_logits is 3\.0, before first_scheduled at 3\.5"),
        ({"first_logits": 4.5}, r"event 1 is 4\.0, before first_logits at 4\.5"),
        ({"first_logits": INF}, "first_logits is inf; give a finite time"),
        ({"events": [TokenEvent(5.0), TokenEvent(4.0)]}, r"event 2 is 4\.0, before event 1 at 5"),
        ({"events": [TokenEvent(NAN)]}, "event 1 is nan; give a finite time"),
        ({"events": [TokenEvent(True)]}, "event 1 is True; give a finite time"),
        ({"events": [TokenEvent("4")]}, "event 1 is '4'; give a finite time"),
        ({"events": [TokenEvent(4.0, 0)]}, "num_tokens of event 1 is 0; give an integer of at le"),
        ({"finished": 10**400}, "finished is 1000.*; give a finite time"),
        ({"finished": 4.5}, r"finished is 4\.5, before event 2 at 5\.0"),
        ({"finished": 0.5, "events": []}, r"finished is 0\.5, before first_logits at 3\.0"),
        ({"counted": -1}, "counted output tokens is -1; give an integer of at least 0"),
    ],
)
def test_times_that_cannot_have_happened_are_refused(changes, message):
    with pytest.raises(ValueError, match=f"request 'a': {message}"):
        LatencyRecord("a", times(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sent": 0.9}, r"sent is 0\.9, before arrival at 1\.0"),
        ({"sent": 4.1}, r"event 1 is 4\.0, before sent at 4\.1"),
        ({"first_event": 0.9}, r"first_event is 0\.9, before arrival at 1\.0"),
        ({"sent": 1.5, "first_event": 1.4}, r"first_event is 1\.4, before sent at 1\.5"),
        ({"first_event": 4.1}, r"event 1 is 4\.0, before first_event at 4\.1"),
        ({"first_event": NAN}, "first_event is nan; give a finite time"),
        ({"first_event": True}, "first_event is True; give a finite time"),
        ({"error": False}, "error is False; give a text that says why it failed, or None"),
        ({"error": ""}, "error is ''; give a text that says why it failed"),
        ({"finish_reason": 1}, "finish_reason is 1; give text"),
        ({"estimated": None}, "estimated is None; give True or False"),
        ({"labels": None}, "labels is None; give a mapping of text to text"),
        ({"labels": {"kind": 1}}, "labels is {'kind': 1}; give a mapping of text to text"),
        ({"sent": NAN}, "sent is nan; give a finite time"),
        ({"boundary": "network"}, "boundary is 'network'; give one of engine, server, client"),
        ({"num_prompt_tokens": -1}, "num_prompt_tokens is -1; give an integer of at least 0"),
        ({"num_cached_tokens": 1.5}, r"num_cached_tokens is 1\.5; give an integer"),
        (
            {"num_prompt_tokens": 4, "num_cached_tokens": 5},
            "num_cached_tokens is 5 of a prompt of 4 tokens; give at most the prompt's length",
        ),
    ],
)
def test_fields_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=f"request 'a': {message}"):
        LatencyRecord("a", times(), **changes)


def test_a_name_that_is_no_text_is_refused():
    with pytest.raises(ValueError, match="request 7: request_id is 7; give text"):
        LatencyRecord(7, times())


def test_one_line_holds_what_was_recorded():
    found = LatencyRecord(
        "a",
        times(counted=7),
        "client",
        num_prompt_tokens=16,
        num_cached_tokens=12,
        sent=1.5,
        finish_reason="stop",
        labels={"kind": "chat"},
        first_event=2.5,
    )
    line = json.dumps(found.to_dict())
    assert '"events": [[4.0, 1], [5.0, 2]]' in line and "\n" not in line
    assert '"first_event": 2.5' in line
    assert LatencyRecord.from_dict(json.loads(line)) == found


def test_an_event_without_text_may_come_before_the_text_or_instead_of_it():
    """T07: a role at 2, text at 4; and a request that failed after its role."""
    found = LatencyRecord("a", times(), first_event=2.0)
    assert (found.first_event, found.times.ttft) == (2.0, 3.0)
    failed = LatencyRecord("b", RequestTimes(1.0), first_event=2.0, error="truncated: no text")
    assert LatencyRecord.from_dict(failed.to_dict()) == failed
    assert LatencyRecord("c", times(), first_event=4.0).first_event == found.times.first_token
    assert LatencyRecord("d", times()).first_event is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"events": None}, "events is None; give a list of"),
        ({"events": [4.0]}, r"events is \[4\.0\]; give a list of \[time, num_tokens\]"),
        ({"events": [[4.0, 1, 1]]}, "give a list of"),
        ({"ttft": 3.0}, "no field is named ttft; remove or rename it"),
        ({"times": {}}, "no field is named times; remove or rename it"),
        ({"finished": 0.0}, r"finished is 0\.0, before"),
    ],
)
def test_a_line_that_is_no_record_is_refused(changes, message):
    line = {**LatencyRecord("a", times()).to_dict(), **changes}
    with pytest.raises(ValueError, match=f"request 'a': .*{message}"):
        LatencyRecord.from_dict(line)


def test_a_line_without_its_times_is_refused():
    with pytest.raises(ValueError, match="a latency record needs arrival, events; add what is mis"):
        LatencyRecord.from_dict({"request_id": "a"})


optional = st.none() | st.integers(0, 9)


@given(
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 5))),
    optional,
    st.none() | st.text(min_size=1),
)
def test_every_record_survives_its_line(gaps, counted, error):
    now, found = 2.0, RequestTimes(1.0, counted=counted)
    for gap, tokens in gaps:
        now += gap
        found.note(now, tokens)
    record = LatencyRecord("é\n", found, "server", sent=1.25, error=error, labels={"": "x"})
    assert LatencyRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record


def test_the_records_of_a_played_workload():
    """Times of a cost model, so that they are known: one step takes 0.5 s."""
    arrivals = (Arrival("a", 0.0, (0, 1, 2, 3), 3), Arrival("b", 0.0, tuple(range(400)), 1))
    scheduler = Scheduler(KVCacheManager(BlockPool(9), 4), SchedulerConfig())
    engine = SimulatedEngine(scheduler, CostModel(per_step=0.5))
    records = records_of(play(engine, Workload(arrivals)))
    assert [r.request_id for r in records] == ["a", "b"]
    a, b = records
    assert (a.boundary, a.num_prompt_tokens, a.finish_reason) == ("engine", 4, "length")
    assert a.error is None and a.labels == {"simulated": "yes"}
    assert a.times.token_times == pytest.approx([0.5, 1.0, 1.5])
    assert b.error.startswith("refused: ") and b.times.events == []
    summary = summarize(records)
    assert (summary.completed, summary.failed) == (1, 1)
    assert summary.ttft.mean == summary.tpot.mean == pytest.approx(0.5)


def test_times_that_count_steps_say_so():
    played = Played((PlayedRequest("a", 4, times(), finish_reason="stop"),), (), unit="steps")
    assert [r.labels for r in records_of(played)] == [{"unit": "steps"}]


def test_an_answer_that_was_cut_off_is_a_failed_one():
    ended = [
        PlayedRequest(reason, 4, times(first_logits=None), finish_reason=reason)
        for reason in ("stop", "length", "abort", "capacity")
    ]
    errors = {r.request_id: r.error for r in records_of(Played(tuple(ended), ()))}
    assert errors == {
        "stop": None,
        "length": None,
        "abort": "aborted before its end",
        "capacity": "ended early: no block of the cache was left",
    }
