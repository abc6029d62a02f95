"""Scheduling on the real engine, block size 4 unless said (cases S01 to S13)."""

import pytest
from history_runner import alone, make_engine, run_checked

from kvlab.core.request import FinishReason, RequestStatus, SamplingParams


def params(max_tokens, **more):
    return SamplingParams(max_tokens=max_tokens, **more)


def test_whole_prompt_then_one_token_a_step():
    engine = make_engine()
    (a,) = engine.add_request(range(6), params(3), request_id="A")
    run_checked(engine)
    assert engine.runner.steps == [{"A": 6}, {"A": 1}, {"A": 1}]
    assert a.output_token_ids == alone(range(6), 3)
    assert (a.num_tokens, a.num_computed_tokens) == (9, 8)  # the last output is never processed


def test_membership_changes_between_steps():
    engine = make_engine(max_num_seqs=2)
    for name, n in (("A", 2), ("B", 4), ("C", 2)):
        engine.add_request([ord(name)], params(n), request_id=name)
    run_checked(engine)
    assert [sorted(s) for s in engine.runner.steps] == [
        ["A", "B"],
        ["A", "B"],
        ["B", "C"],
        ["B", "C"],
    ]


def test_s01_a_prompt_that_can_never_fit_is_refused_at_submission():
    engine = make_engine(num_blocks=4)
    (small,) = engine.add_request(range(8), params(2))
    with pytest.raises(ValueError, match=r"needs 5 blocks of 4 tokens and the whole pool has 4"):
        engine.add_request(range(17), params(2))
    run_checked(engine)
    assert small.output_token_ids == alone(range(8), 2)


def test_s02_two_long_requests_that_do_not_fit_together_both_end():
    """Pool of 2,047 blocks; A needs 1,600 and B 1,200, both load in chunks."""
    engine = make_engine(num_blocks=2047, block_size=1, max_num_batched_tokens=128)
    (a,) = engine.add_request(range(1600), params(3))
    (b,) = engine.add_request(range(5000, 6200), params(3))
    run_checked(engine)
    assert (a.finish_reason, b.finish_reason) == (FinishReason.LENGTH, FinishReason.LENGTH)
    assert a.output_token_ids == alone(range(1600), 3)
    assert b.output_token_ids == alone(range(5000, 6200), 3)


def test_s04_a_long_prompt_in_chunks_only_the_last_one_selects():
    engine = make_engine(num_blocks=2100, block_size=16, max_num_batched_tokens=2048)
    (a,) = engine.add_request(range(32889), params(1), request_id="A")
    outputs = run_checked(engine)
    assert [s["A"] for s in engine.runner.steps] == [2048] * 16 + [121]
    assert [len(o) for o in outputs] == [0] * 16 + [1]
    assert len(a.output_token_ids) == 1


def test_s04_with_chunking_off_a_clear_error():
    engine = make_engine(
        num_blocks=2100, block_size=16, max_num_batched_tokens=2048, enable_chunked_prefill=False
    )
    with pytest.raises(ValueError, match="32889 tokens and a step computes at most 2048"):
        engine.add_request(range(32889), params(1))


def test_with_chunking_off_a_prompt_waits_for_a_whole_budget():
    engine = make_engine(max_num_batched_tokens=10, enable_chunked_prefill=False)
    engine.add_request(range(6), params(2), request_id="A")
    engine.add_request(range(100, 108), params(1), request_id="B")
    run_checked(engine)
    assert engine.runner.steps == [{"A": 6}, {"A": 1, "B": 8}]


def test_s05_decode_takes_its_share_of_the_budget_first():
    """A steady stream of prompts: the decoding request gets a token in every step."""
    engine = make_engine(num_blocks=400, max_num_batched_tokens=16, max_num_seqs=32)
    engine.add_request(range(5), params(20), request_id="A")
    engine.step()
    for step in range(19):
        engine.add_request(range(1000 * (step + 1), 1000 * (step + 1) + 40), params(1))
        outputs = engine.step()
        assert "A" in [o.request_id for o in outputs]
        assert engine.runner.steps[-1]["A"] == 1
        assert sum(engine.runner.steps[-1].values()) == 16
    run_checked(engine)


def test_more_decodes_than_budget_take_turns():
    """Four continuations, two places a step: the one that waited longest goes first."""
    engine = make_engine(max_num_batched_tokens=2, max_num_seqs=4)
    engine.add_request([1], params(4, n=4), request_id="A")
    run_checked(engine)
    assert [sorted(s) for s in engine.runner.steps] == [["A"], *[["A.1", "A.2"], ["A", "A.3"]] * 3]


def test_a_decode_goes_before_a_chunk_whatever_their_order():
    engine = make_engine(max_num_batched_tokens=8)
    engine.add_request(range(4), params(5), request_id="decodes")
    engine.add_request(range(100, 130), params(2), request_id="prompt")
    engine.step()
    engine.scheduler.running.reverse()
    engine.step()
    assert engine.runner.steps == [{"decodes": 4, "prompt": 4}, {"decodes": 1, "prompt": 7}]


def test_budget_of_a_preempted_row_goes_to_the_others():
    """Block size 1, 7 blocks: in step 4 A.2 is scheduled first, then loses its place to A."""
    engine = make_engine(num_blocks=7, block_size=1, max_num_batched_tokens=2)
    group = engine.add_request([1, 2], params(5, n=3), request_id="A")
    run_checked(engine)
    assert engine.runner.steps[:4] == [
        {"A": 2},
        {"A.1": 1, "A.2": 1},
        {"A": 1, "A.1": 1},
        {"A": 1, "A.1": 1},
    ]
    assert [r.output_token_ids for r in group] == [alone([1, 2], 5, i) for i in range(3)]


def test_a_preempted_request_does_not_come_back_in_the_same_step():
    engine = make_engine(num_blocks=7, block_size=1, max_num_batched_tokens=4)
    engine.add_request([1, 2], params(4), request_id="A")
    engine.add_request([3, 4], params(4), request_id="B")
    run_checked(engine)
    assert engine.runner.steps[:3] == [{"A": 2, "B": 2}, {"A": 1, "B": 1}, {"A": 1}]


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_s08_preempted_after_30_outputs_goes_on_with_output_31(prefix_caching):
    engine = make_engine(num_blocks=66, prefix_caching=prefix_caching)
    (old,) = engine.add_request(range(100), params(60), request_id="old")
    (new,) = engine.add_request(range(500, 600), params(60), request_id="new")
    while new.status is not RequestStatus.PREEMPTED:
        engine.step()
    outputs = len(new.output_token_ids)
    assert outputs == 33  # 2 * 25 blocks at the start, 16 more for growth
    assert (new.num_computed_tokens, new.num_tokens) == (0, 133)
    run_checked(engine)
    computed = [s["new"] for s in engine.runner.steps if "new" in s]
    again = next(n for n in computed[1:] if n > 1)
    assert again == 133 if not prefix_caching else again < 133
    assert new.output_token_ids == alone(range(500, 600), 60)
    assert old.output_token_ids == alone(range(100), 60)
    assert (old.num_preemptions, new.num_preemptions) == (0, 1)


def test_s10_the_last_running_request_without_a_block_ends_with_its_reason():
    engine = make_engine(num_blocks=3)
    (a,) = engine.add_request(range(8), params(50), request_id="A")
    (b,) = engine.add_request(range(100, 104), params(2), request_id="B")
    run_checked(engine)
    assert a.finish_reason is FinishReason.CAPACITY
    assert a.stop_reason == "13 positions need more than the pool's 3 blocks of 4"
    assert a.output_token_ids == alone(range(8), 50)[:5]
    assert b.output_token_ids == alone(range(100, 104), 2)


@pytest.mark.parametrize("moment", ["waiting", "between chunks", "decoding"])
def test_s13_abort_ends_a_request_once_and_frees_its_blocks(moment):
    engine = make_engine(max_num_batched_tokens=8, max_num_seqs=1 if moment == "waiting" else 8)
    engine.add_request(range(4), params(9), request_id="other")
    (a,) = engine.add_request(range(100, 120), params(9), request_id="A")
    steps = {"waiting": 1, "between chunks": 2, "decoding": 5}[moment]
    for _ in range(steps):
        engine.step()
    expected = {"waiting": (0, 0), "between chunks": (11, 0), "decoding": (21, 2)}[moment]
    assert (a.num_computed_tokens, len(a.output_token_ids)) == expected
    assert engine.abort("A")
    assert not engine.abort("A")
    assert (a.status, a.finish_reason) == (RequestStatus.FINISHED, FinishReason.ABORT)
    assert engine.scheduler.manager.block_table("A") == []
    engine.scheduler.check_invariants()
    run_checked(engine)


def test_a_failed_step_is_taken_back_and_the_engine_goes_on():
    engine = make_engine(num_blocks=20)
    (a,) = engine.add_request(range(8), params(4), request_id="A")
    engine.step()
    (b,) = engine.add_request([*range(8), 70, 71], params(4, n=2), request_id="B")[:1]
    engine.runner.fail_next = True
    with pytest.raises(RuntimeError, match="the model pass failed"):
        engine.step()
    engine.scheduler.check_invariants()
    assert [r.request_id for r in engine.scheduler.waiting] == ["A", "B"]
    run_checked(engine)
    assert a.output_token_ids == alone(range(8), 4)
    assert b.output_token_ids == alone([*range(8), 70, 71], 4)


def test_fork_shares_the_prompt_and_each_continuation_is_its_own():
    engine = make_engine(num_blocks=20)
    group = engine.add_request(range(6), params(5, n=3), request_id="A")
    outputs = engine.step()
    assert [o.request_id for o in outputs] == ["A", "A.1", "A.2"]
    tables = [engine.scheduler.manager.block_table(r.request_id) for r in group]
    assert tables == [[0, 1]] * 3
    assert engine.runner.steps == [{"A": 6}]  # the prompt is computed once
    run_checked(engine)
    assert [r.output_token_ids for r in group] == [alone(range(6), 5, i) for i in range(3)]


def test_the_leader_of_a_fork_can_be_aborted_before_it_happens():
    engine = make_engine(max_num_batched_tokens=4)
    a, b, c = engine.add_request(range(6), params(3, n=3), request_id="A")
    engine.step()
    engine.abort("A")
    engine.abort("A.2")
    run_checked(engine)
    assert (a.output_token_ids, c.output_token_ids) == ([], [])
    assert b.output_token_ids == alone(range(6), 3, 1)


def test_seats_are_kept_for_continuations_that_are_still_to_fork():
    engine = make_engine(max_num_batched_tokens=4, max_num_seqs=3)
    engine.add_request(range(8), params(2, n=2), request_id="A")
    engine.add_request(range(50, 52), params(2, n=2), request_id="B")
    run_checked(engine)
    first_b = next(i for i, s in enumerate(engine.runner.steps) if "B" in s)
    assert not any({"A", "A.1"} & s.keys() for s in engine.runner.steps[first_b:][1:])


@pytest.mark.parametrize(
    ("tokens", "options", "limits", "message"),
    [
        (range(9), {}, {"max_model_len": 9}, "9 tokens and the longest sequence is 9"),
        (range(2), {"n": 5}, {"max_num_seqs": 4}, "n is 5 and at most 4"),
        ([], {}, {}, "no tokens"),
    ],
)
def test_what_cannot_run_is_refused_and_nothing_changes(tokens, options, limits, message):
    engine = make_engine(**limits)
    with pytest.raises(ValueError, match=message):
        engine.add_request(tokens, params(2, **options))
    assert not engine.has_unfinished_requests()
    assert engine.requests == {}


def test_an_id_in_use_is_refused():
    engine = make_engine()
    engine.add_request([1], params(2, n=2), request_id="A")
    with pytest.raises(ValueError, match=r"'A\.1' is in use"):
        engine.add_request([2], request_id="A.1")


def test_stops_by_end_token_stop_token_and_length():
    first = alone(range(5), 9)
    engine = make_engine(eos=(first[3],))
    (a,) = engine.add_request(range(5), params(9))
    (b,) = engine.add_request(range(5), params(9, ignore_eos=True, stop_token_ids=(first[5],)))
    (c,) = engine.add_request(range(5), params(2))
    run_checked(engine)
    assert (a.output_token_ids, a.finish_reason, a.stop_reason) == (
        first[:4],
        FinishReason.STOP,
        first[3],
    )
    assert (b.output_token_ids, b.stop_reason) == (first[:6], first[5])
    assert (c.output_token_ids, c.finish_reason) == (first[:2], FinishReason.LENGTH)


def test_the_longest_context_ends_a_request():
    engine = make_engine(max_model_len=8)
    (a,) = engine.add_request(range(5), params(50))
    run_checked(engine)
    assert (a.num_tokens, a.finish_reason) == (8, FinishReason.LENGTH)


def test_times_of_a_request_on_a_step_clock():
    engine = make_engine()
    (a,) = engine.add_request(range(5), params(3))  # arrival at 1
    run_checked(engine)
    assert a.times.arrival == 1.0
    assert a.times.first_scheduled == 2.0
    assert a.times.token_times == [3.0, 5.0, 7.0]
    assert (a.times.ttft, a.times.tpot, a.times.itl, a.times.e2el) == (2.0, 2.0, [2.0, 2.0], 6.0)


def test_one_output_token_has_no_tpot():
    engine = make_engine()
    (a,) = engine.add_request(range(5), params(1))
    run_checked(engine)
    assert a.times.tpot is None


@pytest.mark.parametrize(
    "bad",
    [
        {"max_tokens": 0},
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_k": 0},
        {"top_p": 0},
        {"top_p": 1.5},
        {"n": 0},
        {"logprobs": -1},
        {"stop": ["a", ""]},
        {"max_tokens": True},
    ],
)
def test_bad_sampling_parameters_name_the_value(bad):
    (name,) = bad
    with pytest.raises(ValueError, match=name):
        SamplingParams(**bad)


@pytest.mark.parametrize("caching", [True, False])
def test_a_continuation_that_outgrows_the_whole_pool_ends_with_its_reason(caching):
    """Two continuations share all 3 blocks; each needs a fourth, and there is none."""
    engine = make_engine(num_blocks=3, prefix_caching=caching)
    group = engine.add_request(range(12), params(9, n=2), request_id="A")
    run_checked(engine)
    assert [r.finish_reason for r in group] == [FinishReason.CAPACITY] * 2
    assert [len(r.output_token_ids) for r in group] == [1, 1]


def test_an_abort_asked_for_inside_a_step_waits_for_its_end():
    engine = make_engine()
    (a,) = engine.add_request(range(4), params(5), request_id="A")
    (b,) = engine.add_request(range(9, 13), params(3), request_id="B")
    execute = engine.runner.execute

    def aborting(output):
        engine.abort("A")
        return execute(output)

    engine.runner.execute = aborting
    run_checked(engine)
    assert a.finish_reason is FinishReason.ABORT
    assert b.output_token_ids == alone(range(9, 13), 3)
