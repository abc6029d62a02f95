"""A prompt that is cached whole, with and without kept logits, on the real scheduler."""

import pytest
from history_runner import alone, make_engine, run_checked

from kvlab.core.prefix_cache import PrefixCachePolicy, PrefixCacheStats
from kvlab.core.request import FinishReason, SamplingParams


def engine_that_keeps(count, *args, **options):
    return make_engine(*args, policy=PrefixCachePolicy(kept_logits=count), **options)


def ask(engine, tokens, name, max_tokens=2, n=1):
    return engine.add_request(tokens, SamplingParams(max_tokens=max_tokens, n=n), request_id=name)


@pytest.mark.parametrize(
    ("kept", "computed", "cached"),
    [(0, [4, 1, 1], 4), (2, [0, 1, 1], 8)],
)
def test_a_whole_prompt_in_the_cache(kept, computed, cached):
    """Without kept logits the last block is computed again, because of its last position."""
    engine = engine_that_keeps(kept)
    ask(engine, range(8), "first")
    run_checked(engine)
    (again,) = ask(engine, range(8), "again", 3)
    run_checked(engine)
    assert [s["again"] for s in engine.runner.steps if "again" in s] == computed
    assert again.num_cached_tokens == cached
    assert again.output_token_ids == alone(range(8), 3)
    assert engine.scheduler.manager.stats == PrefixCacheStats(2, 16, cached)


def test_any_whole_block_of_a_longer_prompt_will_do():
    """The chapter's C: four tokens, of which A's prompt was the continuation."""
    engine = engine_that_keeps(4)
    ask(engine, range(10), "A", 8)
    engine.step()
    (c,) = ask(engine, range(4), "C", 3)
    run_checked(engine)
    assert engine.runner.steps[1] == {"A": 1, "C": 0}
    assert c.output_token_ids == alone(range(4), 3)


def test_a_block_that_outputs_filled_keeps_none():
    engine = engine_that_keeps(4)
    (a,) = ask(engine, range(6), "A", 6)
    run_checked(engine)
    assert len(engine.scheduler.manager.kept_logits) == 1  # block 0; block 1 is not all prompt
    ask(engine, a.all_token_ids[:8], "B", 1)
    run_checked(engine)
    assert engine.runner.steps[-1] == {"B": 4}


def test_several_continuations_begin_from_kept_logits():
    engine = engine_that_keeps(1)
    ask(engine, range(8), "first")
    run_checked(engine)
    group = ask(engine, range(8), "again", 3, n=3)
    run_checked(engine)
    assert engine.runner.steps[2:4] == [{"again": 0}, {"again": 1, "again.1": 1, "again.2": 1}]
    assert [r.output_token_ids for r in group] == [alone(range(8), 3, i) for i in range(3)]


def test_a_slot_read_in_a_step_may_be_given_away_in_the_same_step():
    engine = engine_that_keeps(1)
    ask(engine, range(8), "first")
    run_checked(engine)
    (a,) = ask(engine, range(8), "again")
    (b,) = ask(engine, range(50, 58), "other")
    run_checked(engine)
    assert engine.runner.steps[2] == {"again": 0, "other": 8}
    assert a.output_token_ids == alone(range(8), 2)
    assert b.output_token_ids == alone(range(50, 58), 2)
    ask(engine, range(8), "once more", 1)
    ask(engine, range(50, 58), "and the other", 1)
    run_checked(engine)
    assert engine.runner.steps[-1] == {"once more": 4, "and the other": 0}


def test_a_prompt_of_the_same_step_is_no_source_of_logits_yet():
    engine = engine_that_keeps(4)
    group = [ask(engine, range(8), name)[0] for name in "AB"]
    run_checked(engine)
    assert engine.runner.steps[0] == {"A": 8, "B": 4}
    assert [r.output_token_ids for r in group] == [alone(range(8), 2)] * 2


def test_a_failed_step_is_repeated_from_the_kept_logits():
    engine = engine_that_keeps(2)
    ask(engine, range(8), "first")
    run_checked(engine)
    (a,) = ask(engine, range(8), "again")
    engine.runner.fail_next = True
    with pytest.raises(RuntimeError):
        engine.step()
    run_checked(engine)
    assert engine.runner.steps[2] == {"again": 0}
    assert a.output_token_ids == alone(range(8), 2)
    assert engine.scheduler.manager.stats == PrefixCacheStats(2, 16, 8, 1, 8, 8)


def test_with_immediate_release_they_last_as_long_as_their_block():
    policy = PrefixCachePolicy(retain_freed=False, kept_logits=2)
    engine = make_engine(policy=policy)
    ask(engine, range(8), "A", 3)
    engine.step()
    ask(engine, range(8), "B", 1)
    engine.step()
    assert engine.runner.steps[-1] == {"A": 1, "B": 0}
    run_checked(engine)
    ask(engine, range(8), "C", 1)
    run_checked(engine)
    assert engine.runner.steps[-1] == {"C": 8}


def test_an_aborted_request_leaves_its_kept_logits_behind():
    engine = engine_that_keeps(2)
    ask(engine, range(8), "A", 9)
    engine.step()
    engine.abort("A")
    (b,) = ask(engine, range(8), "B", 1)
    run_checked(engine)
    assert engine.runner.steps[-1] == {"B": 0}
    assert b.finish_reason is FinishReason.LENGTH


def test_the_trace_shows_what_is_kept_and_used():
    engine = engine_that_keeps(1)
    engine.start_trace()
    ask(engine, range(8), "A", 1)
    run_checked(engine)
    ask(engine, range(8), "B", 1)
    run_checked(engine)
    trace = engine.stop_trace()
    of_b = [e.kind for e in trace.events if e.request_id == "B"]
    assert of_b == ["added", "shared", "admitted", "logits_reused", "selected", "freed", "finished"]
    kept = [(e.request_id, dict(e.data)) for e in trace.events if "logits" in e.kind]
    assert kept == [("A", {"position": 7}), ("B", {"block_id": 1})]
    blocks = trace.last_state()["blocks"]
    assert {k: b["keeps_logits"] for k, b in blocks.items()} == {"0": False, "1": True}


def test_a_trace_without_kept_logits_does_not_speak_of_them():
    engine = make_engine()
    engine.start_trace()
    ask(engine, range(8), "A", 1)
    run_checked(engine)
    assert "logits" not in engine.stop_trace().to_json()


def test_reset_between_requests_and_not_while_one_runs():
    engine = make_engine()
    engine.start_trace()
    ask(engine, range(9), "A", 3)
    engine.step()
    assert engine.reset_prefix_cache() is False
    run_checked(engine)
    assert engine.reset_prefix_cache() is True
    (b,) = ask(engine, range(9), "B", 1)
    run_checked(engine)
    assert b.num_cached_tokens == 0
    assert engine.scheduler.manager.stats == PrefixCacheStats(1, 9, 0)
    assert [e.kind for e in engine.stop_trace().events].count("reset") == 1


def test_counted_once_however_long_a_request_waits_and_apart_when_it_comes_back():
    engine = make_engine(num_blocks=66)
    ask(engine, range(100), "old", 60)
    ask(engine, range(500, 600), "new", 60)
    ask(engine, range(900, 1000), "waits", 2)
    run_checked(engine)
    stats = engine.scheduler.manager.stats
    assert (stats.requests, stats.queries, stats.hits) == (3, 300, 0)
    assert (stats.preempted_requests, stats.preempted_queries) == (1, 133)
    assert 0 < stats.preempted_hits < 133
