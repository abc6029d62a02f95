"""How long a request can wait for its turn, in steps: the guards of each policy (case S05)."""

import pytest
from history_runner import run_checked
from policy_cases import POLICIES, ask, engine_with, gaps, members

from kvlab.core.policies import longest_decode_gap
from kvlab.core.scheduler_config import SchedulerConfig


def under_a_stream_of_prompts(prompt_tokens, decoding=1, **config):
    """A new prompt in every step while some requests decode. All their gaps, and the bound."""
    engine = engine_with(num_blocks=4000, max_num_seqs=200, max_num_batched_tokens=16, **config)
    names = [f"D{i}" for i in range(decoding)]
    for i, name in enumerate(names):
        ask(engine, [i, 7], 12, name)
    step = 0
    while any(name in engine.requests for name in names):
        step += 1
        ask(engine, range(1000 * step, 1000 * step + prompt_tokens), 1, f"P{step}")
        engine.step()
        engine.scheduler.check_invariants()
    bound = longest_decode_gap(engine.scheduler.config, decoding)
    return [gap for name in names for gap in gaps(engine, name)], bound


@pytest.mark.parametrize("decoding", [1, 3, 16, 20, 40])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("guard", [2, 5])
def test_s05_no_decoding_request_waits_longer_than_the_bound(policy, decoding, guard):
    found, bound = under_a_stream_of_prompts(
        13, decoding, policy=policy, max_decode_gap=guard, max_prefill_gap=guard
    )
    assert max(found) <= bound


@pytest.mark.parametrize(
    ("config", "gap"),
    [
        ({"policy": "mixed"}, 1),
        ({"policy": "alternating", "prefill_chunk": 4}, 2),
        ({"policy": "continuous", "max_decode_gap": 6}, 6),
    ],
)
def test_s05_the_bound_is_reached(config, gap):
    """Prompts as long as the budget."""
    found, bound = under_a_stream_of_prompts(16, **config)
    assert max(found) == gap == bound


def test_s05_a_static_group_that_is_still_being_filled_decodes_in_between():
    """The budget takes one prompt a step, and eight are there: the guard lets D decode after five
    of them. That closes the group, and the others come with the next one."""
    engine = engine_with(policy="static", max_num_batched_tokens=16, max_decode_gap=6)
    ask(engine, [1, 2], 3, "D")
    for i in range(8):
        ask(engine, range(100 * (i + 1), 100 * (i + 1) + 16), 1, "abcdefgh"[i])
    run_checked(engine)
    assert members(engine) == ["Da", "ab", "bc", "cd", "de", "ef", "D", "f", "D", "g", "h"]
    assert max(gaps(engine, "D")) == 6


@pytest.mark.parametrize("prompts", [1, 4, 16])
def test_without_a_guard_the_gap_grows_with_the_prompts_that_arrive(prompts):
    """A guard out of reach is none: every prompt goes first."""
    engine = engine_with(
        num_blocks=400, policy="continuous", max_num_batched_tokens=16, max_decode_gap=10**9
    )
    ask(engine, [1, 2], 4, "A")
    engine.step()
    for i in range(prompts):
        ask(engine, range(100 * (i + 1), 100 * (i + 1) + 16), 1, f"P{i}")
    run_checked(engine)
    assert max(gaps(engine, "A")) == prompts + 1


@pytest.mark.parametrize("guard", [2, 3, 8])
def test_prompts_do_not_starve_beside_as_many_decodes_as_the_budget(guard):
    """Four requests decode on a budget of four; the prompt gets every guard-th step."""
    engine = engine_with(max_num_batched_tokens=4, max_prefill_gap=guard)
    for i in range(4):
        ask(engine, [i], 40, f"D{i}")
    engine.step()
    ask(engine, range(100, 112), 1, "P")
    run_checked(engine)
    mine = [i for i, step in enumerate(engine.runner.steps) if "P" in step]
    assert [engine.runner.steps[i] for i in mine] == [{"P": 4}] * 3
    assert mine == [guard, 2 * guard, 3 * guard]
    bound = longest_decode_gap(engine.scheduler.config, 4)
    assert max(gaps(engine, "D0")) == bound == 2


def test_a_whole_prompt_does_not_starve_beside_one_decode():
    """It needs the whole budget, of which the decode takes a part in every step."""
    engine = engine_with(max_num_batched_tokens=8, enable_chunked_prefill=False, max_prefill_gap=4)
    ask(engine, [1], 30, "D")
    engine.step()
    ask(engine, range(100, 108), 1, "P")
    run_checked(engine)
    assert [i for i, step in enumerate(engine.runner.steps) if "P" in step] == [4]
    assert engine.runner.steps[4] == {"P": 8}
    assert max(gaps(engine, "D")) == longest_decode_gap(engine.scheduler.config, 1) == 2


@pytest.mark.parametrize("policy", ["continuous", "alternating"])
def test_a_prompt_goes_on_at_least_every_second_step(policy):
    """However many requests decode: a preempted or chunked prompt gets its next part."""
    chunk = {} if policy == "continuous" else {"prefill_chunk": 4}
    engine = engine_with(policy=policy, max_num_batched_tokens=12, max_num_seqs=40, **chunk)
    for i in range(30):
        ask(engine, [i], 6, f"D{i}")
    for _ in range(5):
        engine.step()
    ask(engine, range(100, 112), 1, "P")
    run_checked(engine)
    mine = [i for i, step in enumerate(engine.runner.steps) if "P" in step]
    assert mine[0] <= 6 and max(gaps(engine, "P"), default=0) <= 2


def test_bounds_in_numbers():
    """Budget of 16: 40 requests need k = 3 turns."""
    bounds = {
        policy: longest_decode_gap(SchedulerConfig(max_num_batched_tokens=16, policy=policy), 40)
        for policy in POLICIES
    }
    assert bounds == {"static": 24, "continuous": 24, "alternating": 6, "mixed": 4}
    narrow = SchedulerConfig(max_num_batched_tokens=16, max_prefill_gap=2)
    assert [longest_decode_gap(narrow, n) for n in (15, 16, 17, 40)] == [1, 2, 4, 6]
