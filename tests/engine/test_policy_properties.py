"""Any arrivals, pools, policies, orders, admissions, aborts and failing steps: each request ends
once, with the tokens of an undisturbed run or a beginning of them and the reason, and every block
comes back. Never two steps in a row with nothing computed and someone waiting."""

from itertools import pairwise

from history_runner import alone
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_cases import POLICIES, ask, engine_with

from kvlab.core.policies import longest_decode_gap
from kvlab.core.request import FinishReason

request = st.fixed_dictionaries(
    {
        "shared": st.integers(0, 10),
        "own": st.integers(1, 12),
        "max_tokens": st.integers(1, 12),
        "n": st.integers(1, 3),
        "priority": st.integers(-1, 2),
        "arrives": st.integers(0, 12),
        "aborted_at": st.none() | st.integers(0, 20),
    }
)
POOL = {"num_blocks": st.integers(2, 30), "block_size": st.integers(1, 5), "caching": st.booleans()}
POOL |= {"window": st.sampled_from([None, None, 1, 2, 5, 8, 13])}
CONFIG = {
    "policy": st.sampled_from(POLICIES),
    "order": st.sampled_from(["fcfs", "priority"]),
    "admission": st.sampled_from(["current", "reserved"]),
    "priority_ageing": st.sampled_from([None, 1, 5]),
    "watermark": st.sampled_from([0, 0.1, 0.5, 0.9]),
    "max_bypass": st.integers(0, 4),
    "max_num_seqs": st.integers(3, 6),
    "max_num_batched_tokens": st.integers(1, 24),
    "max_model_len": st.sampled_from([20, 1 << 20]),
    "max_decode_gap": st.integers(2, 5),
    "max_prefill_gap": st.integers(2, 5),
}
whole = st.sampled_from([{}, {"enable_chunked_prefill": False}])
chunks = st.fixed_dictionaries({"prefill_chunk": st.none() | st.integers(1, 9)})


@st.composite
def settings_of_an_engine(draw):
    found = draw(st.fixed_dictionaries(POOL | CONFIG))
    splits = found["policy"] != "continuous" and draw(st.booleans())
    return found | draw(chunks if splits else whole)


def submit(engine, i, plan):
    """The group of requests, or none where it could never run."""
    prompt = [*range(plan["shared"]), *range(100 * (i + 1), 100 * (i + 1) + plan["own"])]
    more = {"n": plan["n"], "priority": plan["priority"]}
    try:
        return ask(engine, prompt, plan["max_tokens"], f"q{i}", **more)
    except ValueError:
        return []


def play(engine, plans, failing):
    """Run everything to its end. Returns the requests and how each was reported to end."""
    admitted, ended, idle, step = [], {}, 0, 0
    todo = sorted(enumerate(plans), key=lambda p: p[1]["arrives"])
    while todo or engine.has_unfinished_requests():
        while todo and todo[0][1]["arrives"] <= step:
            i, plan = todo.pop(0)
            admitted += [(r, plan) for r in submit(engine, i, plan)]
        for request, plan in admitted:
            if plan["aborted_at"] == step and request.sample_index == 0:
                engine.abort(request.request_id)
        engine.runner.fail_next, before = step in failing, len(engine.runner.steps)
        waits = engine.scheduler.has_unfinished_requests()
        try:
            outputs = engine.step()
        except RuntimeError:
            outputs = []
        engine.runner.fail_next = False
        for out in (out for out in outputs if out.finish_reason is not None):
            assert out.request_id not in ended, "ended twice"
            ended[out.request_id] = out.finish_reason
        engine.scheduler.check_invariants()
        works = len(engine.runner.steps) > before or step in failing or outputs
        idle = 0 if works or not waits else idle + 1
        assert idle < 2, "nothing is computed and someone waits"
        step += 1
        assert step < 2000, "no progress"
    return admitted, ended


@settings(max_examples=400)
@given(
    st.lists(request, min_size=1, max_size=8),
    settings_of_an_engine(),
    st.sets(st.integers(0, 30), max_size=3),
)
def test_every_request_ends_once_as_if_alone_under_every_policy(plans, options, failing):
    engine = engine_with(**options)
    admitted, ended = play(engine, plans, failing)
    for request, plan in admitted:
        whole = alone(request.prompt_token_ids, plan["max_tokens"], request.sample_index)
        assert request.output_token_ids == whole[: len(request.output_token_ids)]
        if request.finish_reason is FinishReason.LENGTH:
            cut = request.num_tokens == options["max_model_len"]
            assert cut or request.output_token_ids == whole
        else:
            assert request.finish_reason in (FinishReason.ABORT, FinishReason.CAPACITY)
        aborted = request.finish_reason is FinishReason.ABORT
        assert (request.request_id in ended) == (not aborted)
    pool = engine.scheduler.manager.pool
    assert pool.num_free_blocks == pool.num_blocks


@settings(max_examples=150)
@given(st.lists(request, min_size=1, max_size=8), settings_of_an_engine())
def test_nobody_who_was_admitted_by_reserved_growth_is_preempted(plans, options):
    """Unless a group of continuations could outgrow the whole pool: it runs alone, and its
    members take each other's blocks."""
    engine = engine_with(**options | {"admission": "reserved"})
    longest = min(22 + 12, options["max_model_len"])
    if -(-longest // options["block_size"]) * 3 > options["num_blocks"]:
        plans = [plan | {"n": 1} for plan in plans]
    admitted, _ = play(engine, plans, ())
    assert sum(request.num_preemptions for request, _ in admitted) == 0


@settings(max_examples=150)
@given(st.lists(request, min_size=1, max_size=8), settings_of_an_engine())
def test_a_decoding_request_waits_no_longer_than_its_policys_bound(plans, options):
    """With blocks for everybody, so that nobody is preempted."""
    engine = engine_with(**options | {"num_blocks": 400, "watermark": 0})
    admitted, _ = play(engine, plans, ())
    bound = longest_decode_gap(engine.scheduler.config, options["max_num_seqs"])
    for request, _ in admitted:
        mine = [i for i, s in enumerate(engine.runner.steps) if request.request_id in s]
        decodes = mine[-len(request.output_token_ids) :]
        gaps = [b - a for a, b in pairwise(decodes)]
        assert max(gaps, default=0) <= bound
