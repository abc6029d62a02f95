"""Traces: patches are exact, small, and read off the live objects."""

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.request import SamplingParams
from kvlab.core.trace import Event, Trace, apply_patch, patch_of

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
from history_runner import make_engine, run_checked


def traced(prompts, *, max_tokens=4, n=1, num_blocks=16, **options):
    engine = make_engine(num_blocks, **options)
    engine.start_trace(meta={"bytes_per_position": 100})
    for i, prompt in enumerate(prompts):
        engine.add_request(prompt, SamplingParams(max_tokens=max_tokens, n=n), request_id="ABC"[i])
    run_checked(engine)
    return engine.stop_trace()


def test_one_request_event_by_event():
    trace = traced([range(5)], max_tokens=2)
    kinds = [e.kind for e in trace.events]
    assert kinds == [
        "added", "block_taken", "block_taken", "registered", "admitted", "scheduled", "computed",
        "selected", "scheduled", "computed", "selected", "freed", "finished",
    ]  # fmt: skip
    assert [e.clock for e in trace.events] == [0, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2]
    frames = list(trace.frames())
    assert len(frames) == len(trace) == 14
    selected = frames[8].state["requests"]["A"]
    assert (selected["num_computed_tokens"], len(selected["token_ids"])) == (5, 6)
    processed = frames[10].state
    assert processed["requests"]["A"]["num_computed_tokens"] == 6
    assert processed["bytes"] == {"payload": 600, "reserved": 800}
    assert [b["filled"] for b in processed["blocks"].values()] == [4, 2]


def test_selecting_and_processing_are_two_events_and_only_one_grows_the_cache():
    frames = list(traced([range(5)], max_tokens=3).frames())
    for before, after in pairwise(frames):
        grew = after.state["bytes"]["payload"] - before.state["bytes"]["payload"]
        if after.event.kind == "selected":
            assert grew == 0
        elif after.event.kind == "computed":
            assert grew == 100 * (after.event.data["end"] - after.event.data["start"])


def test_sharing_copying_and_evicting_are_events():
    trace = traced([range(6), [*range(4), 9], range(50, 56)], n=2, num_blocks=7, max_num_seqs=2)
    kinds = {e.kind for e in trace.events}
    assert {"forked", "copied", "shared", "evicted", "freed"} <= kinds
    copied = next(e for e in trace.events if e.kind == "copied")
    assert set(copied.data) == {"src", "dst"}


def test_the_state_is_read_off_the_live_objects():
    """A reference count set wrong by hand shows in the next frame."""
    engine = make_engine()
    engine.start_trace()
    engine.add_request(range(5), SamplingParams(max_tokens=9), request_id="A")
    engine.step()
    engine.scheduler.manager.pool.blocks[0].ref_cnt = 7
    engine.step()
    last = list(engine.stop_trace().frames())[-1].state
    assert last["blocks"]["0"]["ref_cnt"] == 7


def test_json_both_ways(tmp_path):
    trace = traced([range(6)], n=2)
    again = Trace.from_json(trace.to_json())
    assert again.to_json() == trace.to_json()
    assert [f.state for f in again.frames()] == [f.state for f in trace.frames()]
    trace.save(tmp_path / "t.json")
    assert Trace.load(tmp_path / "t.json").to_json() == trace.to_json()
    assert repr(trace) == f"Trace({len(trace.events)} events, step clock)"


def test_another_version_is_refused():
    document = json.loads(traced([range(3)]).to_json())
    with pytest.raises(ValueError, match=r"'kvlab\.trace' version 99"):
        Trace.from_dict(document | {"version": 99})
    with pytest.raises(ValueError, match="not a trace"):
        Trace.from_dict({})


def test_the_real_clock_is_the_engines():
    engine = make_engine()
    engine.start_trace(real_clock=True)
    engine.add_request(range(3), SamplingParams(max_tokens=2))
    run_checked(engine)
    clocks = [e.clock for e in engine.stop_trace().events]
    assert clocks == sorted(clocks)
    assert len(set(clocks)) == len(clocks)


def test_asked_for_none_nothing_listens():
    engine = make_engine()
    scheduler = engine.scheduler
    assert (
        scheduler.observer is scheduler.manager.observer is scheduler.manager.pool.on_evict is None
    )
    engine.start_trace()
    engine.stop_trace()
    assert (
        scheduler.observer is scheduler.manager.observer is scheduler.manager.pool.on_evict is None
    )
    with pytest.raises(RuntimeError, match="start_trace"):
        engine.stop_trace()


def test_a_thousand_steps_stay_small():
    trace = traced([range(4)], max_tokens=1000, num_blocks=300)
    steps = trace.events[-1].clock
    assert steps == 1000
    assert len(trace.to_json()) < 700 * steps


values = st.recursive(
    st.integers(0, 3) | st.text("ab", max_size=2),
    lambda v: st.dictionaries(st.sampled_from("xyz"), v, max_size=3),
    max_leaves=8,
)
lists = st.lists(st.integers(0, 3), max_size=8)
state = st.fixed_dictionaries({"a": lists, "b": values}, optional={"c": lists, "d": values})


def grows(old, new):
    """Whether no key is lost and no kind of value changes on the way from old to new."""
    if isinstance(old, dict) != isinstance(new, dict):
        return False
    return not isinstance(old, dict) or all(k in new and grows(old[k], new[k]) for k in old)


@given(state, state)
def test_a_patch_leads_exactly_from_one_state_to_the_other(old, new):
    if grows(old, new):
        kept = json.loads(json.dumps(old))
        assert apply_patch(old, patch_of(old, new)) == new
        assert old == kept
        assert patch_of(new, new) == {}


@given(lists, lists)
def test_a_list_patch_is_a_splice(old, new):
    patch = patch_of({"free": old}, {"free": new})
    assert apply_patch({"free": old}, patch) == {"free": new}
    if patch:
        assert len(patch["free"]["put"]) <= len(new)


def test_a_state_never_loses_a_key():
    with pytest.raises(ValueError, match=r"\['b'\] are gone"):
        patch_of({"a": 1, "b": 2}, {"a": 1})


def test_events_are_frozen():
    with pytest.raises(AttributeError):
        Event("added", "A", 0).kind = "freed"
