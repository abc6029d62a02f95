"""A continuation that is put aside right after the fork, before a step of its own."""

import pytest
from history_runner import alone, run_checked
from policy_cases import POLICIES, engine_with
from tiered_runner import check_empty, make_tiered, run_tiered

from kvlab.core.request import FinishReason, RequestStatus, SamplingParams


def forked(engine):
    """A prompt of 3 with two continuations, computed in one step: each has its first output."""
    group = engine.add_request(range(3), SamplingParams(4, n=2), request_id="A")
    engine.step()
    return group


@pytest.mark.parametrize("policy", POLICIES)
def test_it_is_computed_again_in_parts_where_prompts_are_computed_whole(policy):
    """Budget 3, and the continuation has 4 positions when it comes back."""
    engine = engine_with(
        max_num_batched_tokens=3, enable_chunked_prefill=False, caching=False, policy=policy
    )
    leader, child = forked(engine)
    assert engine.suspend("A.1")
    assert engine.resume("A.1")
    assert child.status is RequestStatus.PREEMPTED
    run_checked(engine)
    for i, request in enumerate((leader, child)):
        assert request.finish_reason is FinishReason.LENGTH
        assert request.output_token_ids == alone(range(3), 4, i)
    parts = [2, 2] if policy == "mixed" else [3, 1]  # mixed: the leader decodes beside it
    assert [s["A.1"] for s in engine.runner.steps if "A.1" in s][:2] == parts


def test_the_same_where_the_cpu_tier_loses_what_it_kept():
    engine = make_tiered(
        8,
        4,
        fails=lambda kind, number: True,
        max_num_batched_tokens=3,
        enable_chunked_prefill=False,
        prefix_caching=False,
    )
    _, child = forked(engine)
    assert engine.suspend("A.1")
    engine.step()  # the store into the tier fails
    assert engine.resume("A.1")
    run_tiered(engine)
    assert child.output_token_ids == alone(range(3), 4, 1)
    check_empty(engine)
