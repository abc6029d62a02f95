"""One model, many ways to run it, one answer (fp32, logits within 1e-4, tokens equal).

cached = recomputed, paged = contiguous, chunked = whole, batched = alone, after preemption =
undisturbed, fork = two separate runs. Pools are full of NaN beforehand.
"""

import pytest
import torch
from builders import (
    assert_same_run,
    greedy,
    make_engine,
    near_tie,
    random_model,
    recomputed,
    record_logits,
    run,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlab.core.request import SamplingParams
from kvlab.tensors.kv_cache import ContiguousCache, contiguous_forward

MODELS = {
    "gqa": random_model(1),
    "mha": random_model(2, num_kv_heads=4),
    "mqa": random_model(3, num_kv_heads=1),
    "qk_norm": random_model(4, qk_norm=True, qkv_bias=True, head_dim=6),
}
models = st.sampled_from(sorted(MODELS)).map(MODELS.get)
token = st.integers(0, 60)
prompts = st.lists(token, min_size=1, max_size=24)
sizes = st.sampled_from([1, 2, 3, 4, 7, 16])


@settings(max_examples=40)
@given(models, prompts, st.integers(1, 10), sizes)
def test_cached_equals_recomputed(model, prompt, outputs, block_size):
    engine = make_engine(model, 64, block_size)
    logits = record_logits(engine)
    (r,) = engine.add_request(prompt, greedy(outputs), request_id="A")
    run(engine)
    assert_same_run(model, prompt, r.output_token_ids, logits["A"])


@settings(max_examples=25)
@given(models, prompts, sizes)
def test_paged_equals_contiguous(model, prompt, block_size):
    """Not only the outputs: every stored key and value."""
    engine = make_engine(model, 64, block_size)
    engine.add_request(prompt, greedy(3), request_id="A")
    engine.step()
    engine.step()
    table = engine.scheduler.manager.block_table("A")
    request = engine.requests["A"]
    tokens = request.all_token_ids[: request.num_computed_tokens]
    keys, values = engine.runner.cache.read(table, len(tokens))
    cache = ContiguousCache(model.config)
    contiguous_forward(model, torch.tensor([tokens]), cache)
    torch.testing.assert_close(keys, torch.cat(cache.keys), atol=1e-5, rtol=0)
    torch.testing.assert_close(values, torch.cat(cache.values), atol=1e-5, rtol=0)
    engine.abort("A")


@settings(max_examples=30)
@given(models, st.lists(token, min_size=2, max_size=30), st.integers(1, 7), sizes)
def test_chunked_equals_whole(model, prompt, chunk, block_size):
    engine = make_engine(model, 64, block_size, max_num_batched_tokens=chunk)
    logits = record_logits(engine)
    (r,) = engine.add_request(prompt, greedy(4), request_id="A")
    run(engine)
    assert_same_run(model, prompt, r.output_token_ids, logits["A"])


@settings(max_examples=25)
@given(models, st.lists(prompts, min_size=2, max_size=6), st.integers(6, 40), sizes, st.booleans())
def test_batched_equals_alone(model, several, budget, block_size, caching):
    engine = make_engine(
        model, 256, block_size, caching=caching, max_num_batched_tokens=budget, max_num_seqs=4
    )
    logits = record_logits(engine)
    requests = [
        engine.add_request(p, greedy(5), request_id=str(i))[0] for i, p in enumerate(several)
    ]
    run(engine)
    for prompt, r in zip(several, requests, strict=True):
        assert_same_run(model, prompt, r.output_token_ids, logits[r.request_id])


@settings(max_examples=25)
@given(
    models,
    st.lists(st.lists(token, min_size=4, max_size=10), min_size=2, max_size=4),
    st.booleans(),
)
def test_after_preemption_equals_undisturbed(model, several, caching):
    longest = max(len(p) for p in several) + 12
    engine = make_engine(model, -(-longest // 2) + 2, 2, caching=caching)
    logits = record_logits(engine)
    requests = [
        engine.add_request(p, greedy(12), request_id=str(i))[0] for i, p in enumerate(several)
    ]
    run(engine)
    assert sum(r.num_preemptions for r in requests) > 0
    for prompt, r in zip(several, requests, strict=True):
        assert_same_run(model, prompt, r.output_token_ids, logits[r.request_id])


@settings(max_examples=25)
@given(models, prompts, st.integers(2, 4), sizes, st.integers(0, 9))
def test_fork_equals_separate_runs(model, prompt, n, block_size, seed):
    """n continuations share the prompt's blocks; each equals a run that shares nothing."""
    params = SamplingParams(max_tokens=6, temperature=0.8, seed=seed, n=n)
    forked = make_engine(model, 64, block_size)
    logits = record_logits(forked)
    group = forked.add_request(prompt, params, request_id="A")
    run(forked)
    for index, r in enumerate(group):
        apart = make_engine(model, 64, block_size)
        alone_logits = record_logits(apart)
        (s,) = apart.add_request(prompt, SamplingParams(max_tokens=6, temperature=0.8, seed=seed))
        s.sample_index = index
        run(apart)
        if near_draw(alone_logits[s.request_id], s):
            continue
        assert r.output_token_ids == s.output_token_ids
        for a, b in zip(logits[r.request_id], alone_logits[s.request_id], strict=True):
            assert (a - b).abs().max() < 1e-4


def near_draw(logits, request):
    """Whether a draw fell so close to the border between two tokens that noise decides it."""
    from kvlab.tensors.sampling import probabilities, uniform

    for i, row in enumerate(logits):
        u = uniform(request.sampling_params.seed, request.sample_index, i)
        borders = probabilities(row, request.sampling_params).cumsum(0)
        if float((borders - u).abs().min()) < 1e-5:
            return True
    return False


def test_seeded_sampling_is_the_same_alone_in_a_batch_chunked_and_preempted():
    model = MODELS["gqa"]
    params = SamplingParams(max_tokens=10, temperature=1.0, seed=7, top_k=20, top_p=0.95)

    def tokens(others, **options):
        engine = make_engine(model, block_size=2, **options)
        for i in range(others):
            engine.add_request([i + 1] * 9, greedy(10))
        (r,) = engine.add_request([5, 6, 7, 8, 9], params, request_id="mine")
        run(engine)
        return r.output_token_ids, r.num_preemptions

    alone, _ = tokens(0)
    assert tokens(5)[0] == alone
    assert tokens(2, max_num_batched_tokens=3)[0] == alone
    preempted, times = tokens(1, num_blocks=14)
    assert times > 0
    assert preempted == alone
    assert len(set(alone)) > 3  # it did draw


def test_n01_a_padded_rectangle_equals_single_runs():
    """Lengths 3 and 5: positions count real tokens, padded slots are no keys."""
    model = MODELS["gqa"]
    three, five = [7, 8, 9], [1, 2, 3, 4, 5]
    cache = ContiguousCache(model.config, batch=2)
    logits = contiguous_forward(model, torch.tensor([[*three, 0, 0], five]), cache, [3, 5])
    assert (cache.width, cache.seq_lens) == (5, [3, 5])
    rows = [logits[0, 2], logits[1, 4]]
    for step in range(3):
        tokens = [int(row.argmax()) for row in rows]
        three, five = [*three, tokens[0]], [*five, tokens[1]]
        rows = list(contiguous_forward(model, torch.tensor(tokens)[:, None], cache)[:, 0])
        assert cache.seq_lens == [4 + step, 6 + step]
    for prompt, row in ((three, rows[0]), (five, rows[1])):
        _, (want,) = recomputed(model, prompt, 1)
        assert (row - want).abs().max() < 1e-4


def test_n01_unmasked_padding_gives_another_answer():
    model = MODELS["gqa"]
    cache = ContiguousCache(model.config)
    contiguous_forward(model, torch.tensor([[7, 8, 9, 0, 0]]), cache, [3])
    cache.valid[:] = True
    wrong = contiguous_forward(model, torch.tensor([[4]]), cache)[0, 0]
    _, (right,) = recomputed(model, [7, 8, 9, 4], 1)
    assert (wrong - right).abs().max() > 1e-2


@pytest.mark.parametrize("chunk", range(1, 8))
def test_n09_every_chunk_size_gives_the_same_logits(chunk):
    model, prompt = MODELS["gqa"], list(range(3, 20))
    cache, rows = ContiguousCache(model.config), []
    for at in range(0, len(prompt), chunk):
        rows.append(contiguous_forward(model, torch.tensor([prompt[at : at + chunk]]), cache)[0])
    whole = contiguous_forward(model, torch.tensor([prompt]), ContiguousCache(model.config))[0]
    assert (torch.cat(rows) - whole).abs().max() < 1e-4


def test_n10_positions_go_on_where_the_prefill_ended():
    model, seen = MODELS["gqa"], []
    engine = make_engine(model)
    hook = model.register_forward_pre_hook(lambda _, args: seen.append(args[1].tolist()))
    engine.add_request([1, 2, 3, 4, 5, 6], greedy(4))
    run(engine)
    hook.remove()
    assert seen == [[0, 1, 2, 3, 4, 5], [6], [7], [8]]


def test_p19_a_prompt_hit_between_chunks_or_in_the_same_step_reads_only_what_is_written():
    """The second request may share blocks that are registered but filled in this very step."""
    model, prompt = MODELS["gqa"], list(range(1, 17))
    for budget in (10, 64):
        engine = make_engine(model, 64, 4, max_num_batched_tokens=budget)
        logits = record_logits(engine)
        a = engine.add_request(prompt, greedy(4), request_id="A")[0]
        if budget == 10:
            engine.step()
        b = engine.add_request([*prompt, 33], greedy(4), request_id="B")[0]
        run(engine)
        assert b.num_cached_tokens == 16
        for r in (a, b):
            assert_same_run(model, r.prompt_token_ids, r.output_token_ids, logits[r.request_id])


def test_p19_after_a_failed_step_nobody_hits_what_was_never_written():
    model, prompt = MODELS["gqa"], list(range(1, 17))
    engine = make_engine(model, 64, 4)
    logits = record_logits(engine)
    engine.add_request(prompt, greedy(3), request_id="A")
    execute, engine.runner.execute = engine.runner.execute, fails
    with pytest.raises(MemoryError):
        engine.step()
    engine.runner.execute = execute
    engine.abort("A")
    (b,) = engine.add_request([*prompt, 33], greedy(3), request_id="B")
    run(engine)
    assert b.num_cached_tokens == 0
    assert_same_run(model, b.prompt_token_ids, b.output_token_ids, logits["B"])


def fails(output):
    raise MemoryError("no room for the activations")


def test_p22_copies_in_the_tensors():
    """Two continuations: shared tail copied, K/V of the prompt bit-equal, writes apart."""
    model = MODELS["gqa"]
    engine = make_engine(model, block_size=4)
    group = engine.add_request(
        [1, 2, 3, 4, 5, 6],
        SamplingParams(max_tokens=3, temperature=5.0, seed=1, n=2),
        request_id="A",
    )
    engine.step()
    manager, cache = engine.scheduler.manager, engine.runner.cache
    before = cache.read(manager.block_table("A"), 6)
    engine.step()
    tables = [manager.block_table(r.request_id) for r in group]
    assert tables[0][0] == tables[1][0] and tables[0][1] != tables[1][1]
    for table in tables:
        for was, now in zip(before, cache.read(table, 6), strict=True):
            assert torch.equal(was, now)
    assert group[0].output_token_ids[0] != group[1].output_token_ids[0]
    seventh = [cache.read(table, 7)[0][:, :, 6] for table in tables]
    assert not torch.equal(*seventh)
    run(engine)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_stored_dtype_is_apart_from_the_computing_one(dtype):
    model, prompt = MODELS["gqa"], list(range(1, 14))
    engine = make_engine(model, block_size=4, dtype=dtype)
    logits = record_logits(engine)
    engine.add_request(prompt, greedy(1), request_id="A")
    engine.step()
    assert engine.runner.cache.key_cache.dtype == dtype
    _, (want,) = recomputed(model, prompt, 1)
    assert logits["A"][0].dtype == torch.float32
    error = float((logits["A"][0] - want).abs().max())
    assert 0 < error < 0.1


def test_near_tie_guard_is_not_always_on():
    _, logits = recomputed(MODELS["gqa"], [1, 2, 3], 5)
    assert not near_tie(logits)
