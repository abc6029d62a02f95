"""Any mix of requests, limits, aborts and failing steps: each request ends once, with the tokens
of an undisturbed run (or a beginning of them and the reason), and every block comes back."""

from history_runner import alone, make_engine
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlab.core.hashing import sha256, truncated_sha256
from kvlab.core.prefix_cache import PrefixCachePolicy
from kvlab.core.request import FinishReason, SamplingParams

request = st.fixed_dictionaries(
    {
        "shared": st.integers(0, 10),
        "own": st.integers(1, 12),
        "max_tokens": st.integers(1, 12),
        "n": st.integers(1, 3),
        "arrives": st.integers(0, 12),
        "aborted_at": st.none() | st.integers(0, 20),
    }
)
policies = st.builds(
    PrefixCachePolicy,
    st.sampled_from([sha256, truncated_sha256(0)]),
    retain_freed=st.booleans(),
    kept_logits=st.integers(0, 2),
)


@settings(max_examples=400)
@given(
    st.lists(request, min_size=1, max_size=7),
    st.integers(1, 5),
    st.integers(2, 30),
    st.integers(1, 24),
    st.booleans(),
    st.booleans(),
    policies,
    st.sampled_from([None, None, 1, 2, 5, 8, 13]),
    st.sets(st.integers(0, 30), max_size=3),
)
def test_every_request_ends_once_as_if_alone(
    plans, block_size, blocks, budget, chunked, caching, policy, window, failing
):
    engine = make_engine(
        blocks,
        block_size,
        prefix_caching=caching,
        policy=policy,
        window=window,
        max_num_seqs=5,
        max_num_batched_tokens=budget,
        enable_chunked_prefill=chunked,
    )
    admitted, ended = {}, {}
    todo = sorted(enumerate(plans), key=lambda p: p[1]["arrives"])
    step = 0
    while todo or engine.has_unfinished_requests():
        while todo and todo[0][1]["arrives"] <= step:
            i, plan = todo.pop(0)
            prompt = [*range(plan["shared"]), *range(100 * (i + 1), 100 * (i + 1) + plan["own"])]
            try:
                group = engine.add_request(
                    prompt,
                    SamplingParams(max_tokens=plan["max_tokens"], n=plan["n"]),
                    request_id=f"q{i}",
                )
            except ValueError:
                continue  # it could never run
            admitted.update({r.request_id: (r, plan) for r in group})
        for name, (r, plan) in admitted.items():
            if plan["aborted_at"] == step and r.sample_index == 0:
                engine.abort(name)
        engine.runner.fail_next = step in failing
        try:
            outputs = engine.step()
        except RuntimeError:
            outputs = []
        engine.runner.fail_next = False
        for out in outputs:
            if out.finish_reason is not None:
                assert out.request_id not in ended, "ended twice"
                ended[out.request_id] = out.finish_reason
        engine.scheduler.check_invariants()
        step += 1
        assert step < 600, "no progress"
    for name, (r, plan) in admitted.items():
        whole = alone(r.prompt_token_ids, plan["max_tokens"], r.sample_index)
        assert r.output_token_ids == whole[: len(r.output_token_ids)]
        if r.finish_reason is FinishReason.LENGTH:
            assert r.output_token_ids == whole
        else:
            assert r.finish_reason in (FinishReason.ABORT, FinishReason.CAPACITY)
        assert (name in ended) == (r.finish_reason is not FinishReason.ABORT)
    pool = engine.scheduler.manager.pool
    assert pool.num_free_blocks == pool.num_blocks
