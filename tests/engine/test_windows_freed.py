"""Blocks behind a window come back in a running engine (block size 4, window 8): bounded, shared
pools, prompts longer than the pool, preemption, forks, the CPU tier; outputs as if undisturbed."""

import pytest
from history_runner import alone, make_engine, make_reserved, run_checked
from hypothesis import given, settings
from hypothesis import strategies as st
from tiered_runner import ask, check_empty, make_tiered, run_tiered

from kvlab.core.request import FinishReason, Request, RequestStatus, SamplingParams
from kvlab.core.step_cost import CostModel
from kvlab.simulated_engine import SimulatedEngine

WINDOW = 8


def add(engine, tokens, max_tokens, name, **more):
    return engine.add_request(tokens, SamplingParams(max_tokens, **more), request_id=name)[0]


def most_held(engine):
    """Step to the end. Returns the largest number of blocks in use between and in steps."""
    pool, most = engine.scheduler.manager.pool, [0]
    execute = engine.runner.execute

    def watched(output):
        most.append(pool.num_blocks - pool.num_free_blocks)
        return execute(output)

    engine.runner.execute = watched
    run_checked(engine)
    return max(most)


def test_a_long_output_holds_three_blocks():
    engine = make_engine(num_blocks=64, window=WINDOW)
    request = add(engine, range(5), 90, "A")
    assert most_held(engine) == 3 == engine.scheduler.manager.window.most_blocks(94)
    assert request.output_token_ids == alone(range(5), 90)
    everything = make_engine(num_blocks=64)
    request = add(everything, range(5), 90, "A")
    assert most_held(everything) == 24  # 94 positions are stored
    assert request.output_token_ids == alone(range(5), 90)


@pytest.mark.parametrize(("budget", "most"), [(1, 3), (4, 4), (6, 4), (20, 8)])
def test_a_prompt_in_chunks_holds_its_window_and_a_chunk(budget, most):
    engine = make_engine(num_blocks=64, window=WINDOW, max_num_batched_tokens=budget)
    request = add(engine, range(100), 3, "A")
    assert most_held(engine) <= most == engine.scheduler.manager.window.most_blocks(102, budget)
    assert request.output_token_ids == alone(range(100), 3)


@pytest.mark.parametrize("num_blocks", [3, 4, 7])
def test_a_request_longer_than_the_pool_runs(num_blocks):
    engine = make_engine(num_blocks=num_blocks, window=WINDOW)
    request = add(engine, range(100), 60, "A")
    run_checked(engine)
    assert request.output_token_ids == alone(range(100), 60)
    assert request.finish_reason is FinishReason.LENGTH and request.num_preemptions == 0
    first = engine.runner.steps[0]["A"]
    assert first == 4 * num_blocks  # as much of the prompt as the pool has room for


def test_what_the_pool_can_never_hold_is_refused_with_both_numbers():
    engine = make_engine(num_blocks=2, window=WINDOW)
    with pytest.raises(ValueError, match="needs 3 blocks of 4 tokens and the whole pool has 2"):
        add(engine, range(100), 1, "A")
    short = add(engine, range(8), 9, "B")  # it fits, and outgrows the pool
    run_checked(engine)
    assert short.finish_reason is FinishReason.CAPACITY
    whole = make_engine(num_blocks=7, window=WINDOW, enable_chunked_prefill=False)
    with pytest.raises(ValueError, match="needs 25 blocks of 4 tokens and the whole pool has 7"):
        add(whole, range(100), 1, "A")  # its whole prompt in one step
    full = make_engine(num_blocks=7)
    with pytest.raises(ValueError, match="needs 25 blocks of 4 tokens and the whole pool has 7"):
        add(full, range(100), 1, "A")


def test_two_long_requests_share_a_pool_that_holds_neither():
    engine = make_engine(num_blocks=9, window=WINDOW, max_num_batched_tokens=12)
    requests = [add(engine, range(i, 60 + i), 40, str(i)) for i in (0, 500)]
    together = 0
    while engine.has_unfinished_requests():
        engine.step()
        engine.scheduler.check_invariants()
        together += len(engine.runner.steps[-1]) == 2
    assert together > 30  # both decode side by side
    for i, request in zip((0, 500), requests, strict=True):
        assert request.output_token_ids == alone(range(i, 60 + i), 40)


def test_preempted_and_recomputed_it_goes_on_where_it_was():
    engine = make_engine(num_blocks=5, window=WINDOW)
    requests = [add(engine, range(i, 30 + i), 30, str(i)) for i in (0, 500)]
    run_checked(engine)
    assert sum(r.num_preemptions for r in requests) > 0
    for i, request in zip((0, 500), requests, strict=True):
        assert request.output_token_ids == alone(range(i, 30 + i), 30)


def test_continuations_share_what_is_held():
    engine = make_engine(num_blocks=12, window=WINDOW)
    group = engine.add_request(range(30), SamplingParams(40, n=3), request_id="A")
    engine.step()
    tables = [engine.scheduler.manager.block_table(r.request_id) for r in group]
    assert tables[0] == tables[1] == tables[2] and tables[0].count(None) == 5
    assert [b for b in tables[0] if b is not None] == [5, 6, 7]
    run_checked(engine)
    for r in group:
        assert r.output_token_ids == alone(range(30), 40, r.sample_index)
        assert r.num_preemptions == 0


def test_a_second_prompt_finds_the_end_of_the_first():
    engine = make_engine(num_blocks=12, window=WINDOW)
    add(engine, range(40), 1, "A")
    run_checked(engine)
    add(engine, range(200, 224), 1, "other")  # takes the six blocks that A let go first
    run_checked(engine)
    b = add(engine, [*range(40), 90], 6, "B")
    run_checked(engine)
    assert b.num_cached_tokens == 40
    assert b.output_token_ids == alone([*range(40), 90], 6)


@pytest.mark.parametrize("preempt_by", ["offload", "recompute"])
def test_the_cpu_tier_takes_what_is_held_and_gives_it_back(preempt_by):
    engine = make_tiered(5, 40, window=WINDOW, preempt_by=preempt_by)
    requests = [ask(engine, range(i, 30 + i), 40, str(i)) for i in (0, 500)]
    run_tiered(engine)
    for i, request in zip((0, 500), requests, strict=True):
        assert request.output_token_ids == alone(range(i, 30 + i), 40)
        assert request.finish_reason is FinishReason.LENGTH
    assert sum(r.num_preemptions for r in requests) > 0
    check_empty(engine)


def test_suspended_it_takes_three_blocks_there_and_three_back():
    engine = make_tiered(20, 40, window=WINDOW, prefix_caching=False)
    request = ask(engine, range(50), 30, "A")
    for _ in range(3):
        engine.step()
    assert request.num_computed_tokens == 52
    assert engine.suspend("A")
    record = engine.scheduler.offload.record_of(request)
    assert (len(record.table), record.num_tokens) == (2, 52)  # the next query reads 45 to 52
    assert engine.scheduler.manager.pool.num_free_blocks == 20
    engine.resume("A")
    while request.status is not RequestStatus.RUNNING:
        engine.step()
    assert engine.scheduler.manager.block_table("A").count(None) == 11
    run_tiered(engine)
    assert request.output_token_ids == alone(range(50), 30)
    assert engine.scheduler.offload.stats.blocks_loaded == 2
    check_empty(engine)


def test_a_prompt_longer_than_the_pool_comes_back_from_the_tier_and_goes_on():
    engine = make_tiered(7, 40, window=WINDOW, prefix_caching=False)
    request = ask(engine, range(100), 5, "A")
    engine.step()
    assert request.num_computed_tokens == 28 and engine.suspend("A")
    engine.step()
    engine.resume("A")
    run_tiered(engine)
    assert request.output_token_ids == alone(range(100), 5)
    assert engine.scheduler.offload.stats.requests_loaded == 1
    check_empty(engine)


def test_what_came_back_from_the_tier_is_found_by_others():
    """The first loaded block follows one that is out; its identity still stands for all before."""
    engine = make_tiered(12, 40, window=WINDOW)
    request = ask(engine, range(50), 30, "A")
    engine.step()
    assert engine.suspend("A")
    ask(engine, range(200, 248), 1, "other")  # takes every block, and with it A's identities
    run_tiered(engine)
    engine.resume("A")
    while request.status is not RequestStatus.RUNNING:
        engine.step()
    hits, num_hit = engine.scheduler.manager.get_computed_blocks(Request("B", range(50)))
    assert num_hit == 48 and [b.block_id is None for b in hits] == [True] * 10 + [False] * 2
    other = [7, *range(1, 50)]
    assert engine.scheduler.manager.get_computed_blocks(Request("C", other))[1] == 0
    run_tiered(engine)
    assert request.output_token_ids == alone(range(50), 30)


def test_a_prefix_in_the_tier_is_loaded_as_far_as_it_is_read():
    engine = make_tiered(12, 40, window=WINDOW)
    ask(engine, range(40), 1, "A")
    run_tiered(engine)
    ask(engine, range(200, 248), 1, "other")  # evicts all of A's blocks into the tier
    run_tiered(engine)
    b = ask(engine, [*range(40), 90], 6, "B")
    run_tiered(engine)
    assert b.num_cached_tokens == 40 and b.output_token_ids == alone([*range(40), 90], 6)
    assert engine.scheduler.offload.stats.blocks_loaded == 2


def test_a_failed_step_is_computed_again():
    engine = make_engine(num_blocks=6, window=WINDOW)
    request = add(engine, range(50), 20, "A")
    for step in range(40):
        engine.runner.fail_next = step % 5 == 3
        try:
            engine.step()
        except RuntimeError:
            assert request.num_computed_tokens == 0
        engine.scheduler.check_invariants()
    engine.runner.fail_next = False
    run_checked(engine)
    assert request.output_token_ids == alone(range(50), 20)


work = st.lists(
    st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 3), st.integers(0, 20)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=150)
@given(work, st.integers(1, 12), st.integers(1, 5), st.integers(0, 20), st.integers(1, 12))
def test_reserved_admission_never_preempts_behind_a_window_either(
    plans, window, size, spare, chunk
):
    engine = make_reserved(window, size, spare, chunk)
    todo, step, everyone = sorted(enumerate(plans), key=lambda p: p[1][3]), 0, []
    while todo or engine.has_unfinished_requests():
        while todo and todo[0][1][3] <= step:
            i, (prompt, outputs, n, _) = todo.pop(0)
            params = SamplingParams(outputs, n=n)
            everyone += engine.add_request(range(i, i + prompt), params, request_id=f"q{i}")
        engine.step()
        engine.scheduler.check_invariants()
        step += 1
    for r in everyone:
        assert r.num_preemptions == 0 and r.finish_reason is FinishReason.LENGTH
        assert r.output_token_ids == alone(
            r.prompt_token_ids, r.sampling_params.max_tokens, r.sample_index
        )


def test_a_prompt_begins_with_what_the_watermark_leaves_it():
    """12 blocks, 6 of them the watermark's; A holds 2, so B's first chunk gets 4 blocks."""
    engine = make_engine(num_blocks=12, window=WINDOW, watermark=0.5)
    add(engine, range(5), 40, "A")
    engine.step()
    b = add(engine, range(200, 300), 3, "B")
    engine.step()
    assert engine.runner.steps[-1] == {"A": 1, "B": 16}
    run_checked(engine)
    assert b.output_token_ids == alone(range(200, 300), 3)


def test_reserved_admission_counts_the_window_and_not_the_length():
    """Two requests of 100 positions each, held in 8 blocks: 4 each while a chunk is computed."""
    config = {"window": WINDOW, "admission": "reserved", "prefill_chunk": 4}
    engine = make_engine(num_blocks=8, **config)
    requests = [add(engine, range(i, i + 50), 50, str(i)) for i in (0, 500)]
    engine.step()
    assert [r.status for r in requests] == [RequestStatus.RUNNING] * 2
    run_checked(engine)
    assert [r.num_preemptions for r in requests] == [0, 0]
    engine = make_engine(num_blocks=7, **config)
    requests = [add(engine, range(i, i + 50), 50, str(i)) for i in (0, 500)]
    engine.step()
    assert [r.status for r in requests] == [RequestStatus.RUNNING, RequestStatus.WAITING]


def test_a_simulated_engine_frees_like_the_one_it_is_made_of():
    twin = SimulatedEngine.like(make_engine(num_blocks=4, window=WINDOW), CostModel(per_step=1.0))
    request = add(twin, range(100), 60, "A")
    twin.run()
    assert len(request.output_token_ids) == 60 and request.num_preemptions == 0


def test_the_trace_shows_blocks_leaving_and_the_table_keeping_its_length():
    engine = make_engine(num_blocks=6, window=WINDOW)
    engine.start_trace()
    add(engine, range(14), 3, "A")
    run_checked(engine)
    trace = engine.stop_trace()
    frames = list(trace.frames())
    at = [f for f in frames if f.event and f.event.kind == "out_of_window"]
    assert [f.event.data["block_ids"] for f in at] == [[0], [1]]
    assert [f.state["requests"]["A"]["block_table"] for f in at] == [
        [None, 1, 2, 3],
        [None, None, 2, 3],
    ]
    for frame in frames:
        held = [b for b in frame.state["blocks"].values() if b["ref_cnt"]]
        table = frame.state["requests"].get("A", {"block_table": []})["block_table"]
        assert len(held) == len([b for b in table if b is not None])
