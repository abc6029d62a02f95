"""A step is interrupted before the model pass (a second interrupt during the first one's clean-up),
and the caller then ends or puts aside a request of it. Nobody may find blocks that were never
written, and no continuation may be stranded."""

import pytest
from history_runner import alone, make_engine, run_checked
from tiered_runner import ask, check_empty, make_tiered, run_tiered

from kvlab.core.request import FinishReason, SamplingParams


def interrupted(n):
    """A prompt of two full blocks with n continuations, forked by a step that stays open."""
    engine = make_engine()
    group = engine.add_request(range(8), SamplingParams(3, n=n), request_id="A")
    engine.scheduler.schedule()
    assert engine.scheduler.step_is_open
    assert len(engine.scheduler.running) == n
    return engine, group


def test_the_blocks_of_an_aborted_request_are_not_found():
    engine, _ = interrupted(1)
    assert engine.abort("A")
    assert not engine.scheduler.step_is_open
    (again,) = engine.add_request(range(8), SamplingParams(3), request_id="again")
    run_checked(engine)
    assert again.num_cached_tokens == 0
    assert again.output_token_ids == alone(range(8), 3)


def test_nor_those_of_one_that_is_put_aside():
    engine, (a,) = interrupted(1)
    assert engine.suspend("A")
    (again,) = engine.add_request(range(8), SamplingParams(3), request_id="again")
    run_checked(engine)
    assert engine.resume("A")
    run_checked(engine)
    assert again.output_token_ids == a.output_token_ids == alone(range(8), 3)


@pytest.mark.parametrize("n", [2, 3])
def test_the_other_continuations_go_on_where_the_leader_is_aborted(n):
    engine, (leader, *others) = interrupted(n)
    assert engine.abort("A")
    run_checked(engine)
    assert leader.finish_reason is FinishReason.ABORT
    for i, request in enumerate(others, 1):
        assert request.output_token_ids == alone(range(8), 3, i)
    assert not engine.requests and not engine.scheduler.forks


def test_they_wait_where_the_leader_is_put_aside():
    engine, group = interrupted(2)
    assert engine.suspend("A")
    run_checked(engine)
    assert engine.resume("A")
    run_checked(engine)
    assert [r.output_token_ids for r in group] == [alone(range(8), 3, i) for i in range(2)]


def test_with_copies_of_the_step_before_still_under_way():
    """Pool of 5: B goes to the tier while A decodes; the next step is cut short, A is aborted."""
    engine = make_tiered(5, 8, delays=(3,))
    a, b = ask(engine, range(8), 6, "A"), ask(engine, range(100, 108), 6, "B")
    while not engine.scheduler.offload.under_way:
        engine.step()
    engine.scheduler.schedule()
    assert engine.abort("A")
    engine.scheduler.check_invariants()
    again = ask(engine, range(8), 6, "again")
    run_tiered(engine)
    assert a.finish_reason is FinishReason.ABORT
    assert b.output_token_ids == alone(range(100, 108), 6)
    assert again.output_token_ids == alone(range(8), 6)
    check_empty(engine)
