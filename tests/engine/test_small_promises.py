"""Promises of a line or two each, which other tests would not miss."""

import pytest
from history_runner import make_engine, run_checked

from kvlab.core.request import FinishReason, SamplingParams


def test_requests_that_ask_for_no_seed_draw_from_streams_of_their_own():
    engine = make_engine()
    drawn = [
        engine.add_request([1, 2, n], SamplingParams(max_tokens=1, temperature=1.0))[0]
        for n in range(3)
    ]
    seeds = [request.sampling_params.seed for request in drawn]
    assert len(set(seeds)) == 3 and None not in seeds
    again = make_engine()  # the engine's own seed is 0 in both: a run can be repeated
    (first,) = again.add_request([1, 2, 0], SamplingParams(max_tokens=1, temperature=1.0))
    assert first.sampling_params.seed == seeds[0]


def test_continuations_report_the_prefix_hit_of_their_prompt():
    engine = make_engine()
    engine.add_request(range(9), SamplingParams(max_tokens=1))
    run_checked(engine)
    first, second = engine.add_request(range(9), SamplingParams(max_tokens=2, n=2))
    run_checked(engine)
    assert (first.num_cached_tokens, second.num_cached_tokens) == (8, 8)


def test_a_preempted_request_is_the_next_to_come_back():
    """Pool of 4 blocks of 4: A and B run, C waits; B loses its blocks and goes before C."""
    engine = make_engine(num_blocks=4, max_num_seqs=2)
    for name, tokens in (("A", range(7)), ("B", range(20, 27)), ("C", range(40, 44))):
        engine.add_request(tokens, SamplingParams(max_tokens=4), request_id=name)
    while not engine.scheduler.waiting or engine.scheduler.waiting[0].request_id != "B":
        engine.step()
    assert [r.request_id for r in engine.scheduler.waiting] == ["B", "C"]
    run_checked(engine)


def test_a_request_that_ends_for_capacity_is_reported_beside_the_others_outputs():
    """Alone with what it holds, A outgrows the pool; B, admitted in that step, still reports."""
    engine = make_engine(num_blocks=2)
    engine.add_request(range(8), SamplingParams(max_tokens=4), request_id="A")
    engine.step()
    engine.add_request(range(20, 23), SamplingParams(max_tokens=1), request_id="B")
    reported = [o for outputs in run_checked(engine) for o in outputs]
    ends = {o.request_id: o.finish_reason for o in reported if o.finish_reason}
    assert ends == {"A": FinishReason.CAPACITY, "B": FinishReason.LENGTH}


def test_a_trace_counts_the_fullest_owner_of_a_shared_block():
    """Two continuations share blocks of 4 and 2 positions; the first writes into a copy. Blocks
    that are kept for their identity are full."""
    engine = make_engine()
    engine.start_trace()
    engine.add_request(range(6), SamplingParams(max_tokens=3, n=2), request_id="A")
    run_checked(engine)
    trace = engine.stop_trace()
    computed = [f.state for f in trace.frames() if f.event and f.event.kind == "computed"]
    shared = [b["filled"] for b in computed[0]["blocks"].values() if b["ref_cnt"] == 2]
    assert sorted(shared) == [2, 4]
    kept = [b["filled"] for b in trace.last_state()["blocks"].values() if b["identity"]]
    assert kept and set(kept) == {4}


@pytest.mark.parametrize("name", ["adapter", "cache_salt"])
@pytest.mark.parametrize("value", ["", 5, True, b"x", ["l"], object()])
def test_an_adapter_or_salt_of_another_kind_is_refused_and_the_others_run(name, value):
    engine = make_engine()
    engine.add_request([1, 2], SamplingParams(max_tokens=2), request_id="A")
    with pytest.raises(ValueError, match=f"{name} is .*give a text that is not empty, or None"):
        engine.add_request([1, 2], request_id="bad", **{name: value})
    assert list(engine.requests) == ["A"]
    run_checked(engine)
