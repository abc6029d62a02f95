"""Requests that the caller puts aside and resumes, with a CPU tier and without (section 21.3)."""

import pytest
from history_runner import alone, make_engine
from tiered_runner import ask, check_empty, make_tiered, run_tiered, two_in_five

from kvlab.core.request import FinishReason, RequestStatus, SamplingParams


@pytest.mark.parametrize(
    "moment", ["waiting", "between chunks", "decoding", "loading", "offloaded"]
)
def test_put_aside_at_any_moment_and_resumed(moment):
    engine = make_tiered(8, 8, delays=(0, 2), max_num_batched_tokens=8, max_num_seqs=2)
    other = ask(engine, range(500, 508), 14, "other")
    a = ask(engine, range(100, 116), 6, "A")
    moments = {
        "waiting": lambda: a.status is RequestStatus.WAITING,
        "between chunks": lambda: 0 < a.num_computed_tokens < 16,
        "decoding": lambda: len(a.output_token_ids) > 1,
        "loading": lambda: a.status is RequestStatus.LOADING,
        "offloaded": lambda: a.status is RequestStatus.OFFLOADED,
    }
    for _ in range(60):
        if moments[moment]():
            break
        engine.step()
    assert moments[moment]()
    assert engine.suspend("A")
    assert not engine.suspend("A")
    assert a.status is RequestStatus.SUSPENDED
    engine.scheduler.check_invariants()
    run_tiered(engine)
    assert other.is_finished and not a.is_finished
    assert engine.resume("A")
    assert not engine.resume("A")
    run_tiered(engine)
    assert a.output_token_ids == alone(range(100, 116), 6)
    assert other.output_token_ids == alone(range(500, 508), 14)
    check_empty(engine)


def test_put_aside_without_a_tier_is_computed_again():
    engine = make_engine(8, prefix_caching=False)
    a = ask(engine, range(8), 6, "A")
    for _ in range(3):
        engine.step()
    assert engine.suspend("A")
    assert engine.scheduler.manager.pool.num_free_blocks == 8
    assert not engine.has_unfinished_requests()
    engine.resume("A")
    engine.run()
    assert engine.runner.steps == [{"A": 8}, {"A": 1}, {"A": 1}, {"A": 11}, {"A": 1}, {"A": 1}]
    assert a.output_token_ids == alone(range(8), 6)


def test_put_aside_and_aborted():
    engine, a, _ = two_in_five()
    engine.step()
    assert engine.suspend("A")
    assert engine.abort("A")
    assert not engine.resume("A")
    run_tiered(engine)
    assert a.finish_reason is FinishReason.ABORT
    check_empty(engine)


def test_only_what_is_there_can_be_put_aside():
    engine = make_tiered(16, 8)
    first, second = engine.add_request(range(4), SamplingParams(4, n=2), request_id="A")
    assert not engine.suspend("nobody")
    assert not engine.suspend("A.1")  # it waits for its prompt's fork
    assert not engine.resume("A")
    engine.step()
    assert engine.suspend("A.1")
    run_tiered(engine)
    assert (first.is_finished, second.status) == (True, RequestStatus.SUSPENDED)
    engine.resume("A.1")
    run_tiered(engine)
    assert second.output_token_ids == alone(range(4), 4, 1)
    check_empty(engine)


def test_not_inside_a_step():
    engine = make_tiered(16, 8)
    ask(engine, range(4), 4, "A")
    execute = engine.runner.execute
    engine.runner.execute = lambda output: engine.suspend("A") or execute(output)
    with pytest.raises(RuntimeError, match="'A': suspend and resume between steps"):
        engine.step()
