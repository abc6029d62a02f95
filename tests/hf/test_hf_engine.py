"""Models of transformers as kvlab's `LLM`: engine, prefix cache, tiers and traces work on them."""

import pytest
import torch
from families import FAMILIES, model_of, own_logits, tokens

from kvlab import LLM, SamplingParams
from kvlab.hf import TransformersDecoder, load_llm, open_decoder

SHARED = tokens(24, seed=5)  # three windows
ISSUE = ["Gemma2", "Gemma3", "Phi3", "Olmo2", "Granite", "Qwen3Moe"]


def ids_of(outputs):
    return [list(out.outputs[0].token_ids) for out in outputs]


def greedy(llm, prompts, max_tokens=64):
    return ids_of(llm.generate(prompts, SamplingParams(max_tokens=max_tokens, ignore_eos=True)))


def assert_greedy(model, prompt, output):
    """Every output is the best score of transformers' own forward over all before it."""
    logits = own_logits(model, prompt + output)[len(prompt) - 1 : -1]
    assert logits.argmax(dim=-1).tolist() == output


@pytest.fixture(scope="module", params=[*FAMILIES, "GPT2"])
def family(request):
    return open_decoder(model_of(request.param))


def test_greedy_tokens_are_the_same_over_64_steps(family):
    """Four requests of unequal lengths, chunked, far past the window of 8."""
    llm = load_llm(family, block_size=4, num_blocks=128, max_num_batched_tokens=11)
    prompts = [tokens(n, seed=n) for n in (3, 30, 9, 1)]
    for prompt, output in zip(prompts, greedy(llm, prompts), strict=True):
        assert len(output) == 64
        assert_greedy(family.lm, prompt, output)


def test_logits_of_every_decode_step(family):
    llm, prompt, seen = load_llm(family, block_size=4, num_blocks=32), tokens(13), []
    llm.runner.on_logits = lambda logits: seen.extend(x.clone() for x in logits.values())
    (output,) = greedy(llm, [prompt], max_tokens=20)
    wanted = own_logits(family.lm, prompt + output)[len(prompt) - 1 : -1]
    assert float((torch.stack(seen) - wanted).abs().max()) < 1e-4


@pytest.mark.parametrize("family", ISSUE, indirect=False)
def test_a_prefix_hit_changes_nothing(family):
    decoder = open_decoder(model_of(family))
    prompts = [[*SHARED, *tokens(n, seed=n)] for n in (5, 9)]
    without = load_llm(decoder, block_size=4, num_blocks=64, enable_prefix_caching=False)
    wanted = greedy(without, prompts, max_tokens=16)
    llm = load_llm(decoder, block_size=4, num_blocks=64)
    first, second = (llm.generate(p, SamplingParams(max_tokens=16)) for p in prompts)
    assert ids_of([*first, *second]) == wanted
    assert (first[0].num_cached_tokens, second[0].num_cached_tokens) == (0, 24)


@pytest.mark.parametrize("family", ISSUE)
@pytest.mark.parametrize("tier", [{}, {"cpu_blocks": 64, "preempt_by": "offload"}])
def test_preemption_and_offload_change_nothing(family, tier):
    decoder = open_decoder(model_of(family))
    prompts = [tokens(n, seed=n) for n in (9, 14, 11)]
    roomy = greedy(load_llm(decoder, block_size=4, num_blocks=128), prompts, 24)
    blocks = 14 if decoder.config.widest_window is None else 7  # behind a window 3 each are held
    llm = load_llm(
        decoder, block_size=4, num_blocks=blocks, max_num_batched_tokens=16,
        enable_prefix_caching=False, **tier,
    )  # fmt: skip
    llm.start_trace()
    assert greedy(llm, prompts, 24) == roomy
    kinds = {event.kind for event in llm.stop_trace().events}
    assert ("offloaded" if tier else "preempted") in kinds
    assert not tier or llm.offload_stats.requests_loaded > 0


def test_an_evicted_prefix_comes_back_from_the_tier():
    llm = load_llm(model_of("Gemma2"), block_size=4, num_blocks=8, cpu_blocks=32)
    prompts = [tokens(20, seed=1), tokens(20, seed=2), tokens(20, seed=1)]
    a, b, again = (llm.generate(p, SamplingParams(max_tokens=8))[0] for p in prompts)
    assert ids_of([a]) == ids_of([again]) != ids_of([b])
    assert (a.num_cached_tokens, again.num_cached_tokens) == (0, 16)
    assert llm.offload_stats.blocks_loaded > 0


def test_memory_has_the_shape_of_the_models_own_heads():
    llm = load_llm(model_of("Gemma3"), block_size=4, num_blocks=10)
    assert llm.cache.key_cache.shape == (6, 10, 4, 2, 12)
    assert llm.cache.bytes_per_position == 2 * 6 * 2 * 12 * 4
    assert (llm.name, repr(llm)) == (
        "Gemma3ForCausalLM",
        f"LLM('Gemma3ForCausalLM', {llm.model.num_parameters:,} parameters, 10 blocks of 4)",
    )
    assert llm.model.num_parameters == llm.model.lm.num_parameters()


def test_a_trace_holds_bytes_and_weights_of_the_model():
    """Gemma-2: layer 0 reads 8 keys, layer 1 all of them; a row of weights sums to 1."""
    llm = load_llm(model_of("Gemma2"), block_size=4, num_blocks=32)
    llm.start_trace(attention_layers=[0, 1])
    llm.generate(tokens(20), SamplingParams(max_tokens=3))
    trace = llm.stop_trace()
    assert (trace.meta["num_layers"], trace.meta["head_dim"]) == (4, 12)
    seen = [e.data["attention"] for e in trace.events if "attention" in e.data]
    assert len(seen) == 3
    windowed, full = seen[-1]["0"][0], seen[-1]["1"][0]
    assert len(windowed) == len(full) == 22
    assert windowed[:14] == [0.0] * 14 and 0.0 not in windowed[14:]
    assert sum(w > 0 for w in full) > 14
    assert sum(windowed) == pytest.approx(1, abs=1e-3) == sum(full)


def test_weights_of_a_capped_layer_are_those_of_transformers():
    model, ids = model_of("Gemma2"), tokens(20)
    llm = load_llm(model, block_size=4, num_blocks=32)
    llm.start_trace(attention_layers=[0, 1])
    llm.generate(ids, SamplingParams(max_tokens=1))
    (seen,) = [e.data["attention"] for e in llm.stop_trace().events if "attention" in e.data]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        wanted = model(torch.tensor([ids]), output_attentions=True).attentions
    for layer in (0, 1):
        torch.testing.assert_close(
            torch.tensor(seen[str(layer)]), wanted[layer][0, :, -1], atol=1e-4, rtol=0
        )


def test_a_fresh_engine_around_the_same_model_attends_the_same():
    """As views do that run a model of the reader's: `LLM(llm.model, ...)`."""
    first = load_llm(model_of("Gemma2"), block_size=4, num_blocks=64)
    second = LLM(first.model, block_size=16, num_blocks=16)
    assert second.model is first.model and isinstance(first.model, TransformersDecoder)
    prompt = tokens(30)
    assert greedy(first, [prompt], 16) == greedy(second, [prompt], 16)
