"""The equalities of tests/tensors on a CUDA device, in fp32: one model, many ways to run it."""

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

from kvlab import LLM, SamplingParams, tiny

token = st.integers(0, 60)
prompts = st.lists(token, min_size=1, max_size=24)
sizes = st.sampled_from([1, 3, 4, 16])


@pytest.fixture(scope="module")
def model():
    return random_model(1).to("cuda")


def engine_on_gpu(model, *args, **options):
    return make_engine(model, *args, device="cuda", **options)


@settings(max_examples=15)
@given(st.lists(prompts, min_size=1, max_size=5), st.integers(5, 40), sizes)
def test_cached_chunked_and_batched_equal_recomputed(model, several, budget, block_size):
    engine = engine_on_gpu(model, 256, block_size, max_num_batched_tokens=budget)
    logits = record_logits(engine)
    requests = [
        engine.add_request(p, greedy(5), request_id=str(i))[0] for i, p in enumerate(several)
    ]
    run(engine)
    for prompt, r in zip(several, requests, strict=True):
        assert_same_run(model, prompt, r.output_token_ids, logits[r.request_id])


@settings(max_examples=10)
@given(st.lists(st.lists(token, min_size=4, max_size=10), min_size=2, max_size=4))
def test_after_preemption_equals_undisturbed(model, several):
    longest = max(len(p) for p in several) + 12
    engine = engine_on_gpu(model, -(-longest // 2) + 2, 2)
    logits = record_logits(engine)
    requests = [
        engine.add_request(p, greedy(12), request_id=str(i))[0] for i, p in enumerate(several)
    ]
    run(engine)
    for prompt, r in zip(several, requests, strict=True):
        assert_same_run(model, prompt, r.output_token_ids, logits[r.request_id])


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_fork_equals_separate_runs(model, block_size):
    params = SamplingParams(max_tokens=6, temperature=0.8, seed=3, n=3)
    forked = engine_on_gpu(model, 64, block_size)
    group = forked.add_request([5, 6, 7, 8, 9], params)
    run(forked)
    for index, r in enumerate(group):
        apart = engine_on_gpu(model, 64, block_size)
        alone = SamplingParams(max_tokens=6, temperature=0.8, seed=3)
        (s,) = apart.add_request([5, 6, 7, 8, 9], alone)
        s.sample_index = index
        run(apart)
        assert r.output_token_ids == s.output_token_ids


def test_the_device_agrees_with_the_cpu(model):
    prompt = list(range(1, 30))
    _, on_gpu = recomputed(model, prompt, 4)
    _, on_cpu = recomputed(random_model(1), prompt, 4)
    if not near_tie(on_cpu):
        for a, b in zip(on_gpu, on_cpu, strict=True):
            assert (a.cpu() - b).abs().max() < 1e-4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_narrower_store(model, dtype):
    engine = engine_on_gpu(model, dtype=dtype)
    logits = record_logits(engine)
    engine.add_request(list(range(1, 14)), greedy(1), request_id="A")
    run(engine)
    _, (want,) = recomputed(model, list(range(1, 14)), 1)
    assert 0 < float((logits["A"][0] - want).abs().max()) < 0.1


def test_the_tiny_model_answers():
    llm = LLM("tiny", device="cuda", block_size=4)
    notes = "Ada likes soup. The key is red."
    asked = [tiny.prompt(notes, q) for q in ("What colour is the key?", "What does Ada like?")]
    texts = [out.outputs[0].text for out in llm.generate(asked, SamplingParams(max_tokens=10))]
    assert texts == [" The key is red.", " Ada likes soup."]
