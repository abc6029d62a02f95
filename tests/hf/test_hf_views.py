"""Views and live editors on a model of transformers: they read the same traces and caches."""

import pytest
from families import model_of, own_logits, tokens

from kvlab import SamplingParams
from kvlab.hf import load_llm
from kvlab.tensors.reads import padded_reads
from kvlab.widgets import (
    attention_read,
    block_table,
    cache_growth,
    compare_layouts,
    growth_editor,
    prefix_blocks,
)


@pytest.fixture(scope="module")
def gemma():
    """Gemma-2, 4 layers of 2 KV heads of 12: 768 bytes a position."""
    return load_llm(model_of("Gemma2"), block_size=4, num_blocks=32)


@pytest.fixture(scope="module")
def trace(gemma):
    gemma.start_trace(attention_layers=[0])
    gemma.generate(tokens(9), SamplingParams(max_tokens=5, ignore_eos=True))
    return gemma.stop_trace()


def test_views_of_a_trace(trace):
    assert repr(cache_growth(trace)).endswith(f"13 positions, {13 * 768:,} bytes)")
    assert "1 request, at most 4 blocks in use" in repr(block_table(trace))
    assert "5 stops, 1 layer, 4 query heads on 2 KV heads" in repr(attention_read(trace))


def test_live_editors_with_the_models_own_words():
    llm = load_llm("tiny", block_size=16, num_blocks=64)
    assert repr(growth_editor(llm)).endswith(": ok)")
    assert repr(prefix_blocks(llm)).endswith(": ok)")
    run = compare_layouts(llm, ["The key", "The key is red."])
    assert "2 requests" in repr(run)


def test_an_attention_without_caps_is_refused_where_a_layer_has_one(gemma):
    """The padded lesson attends in its own way: right for Granite, not for Gemma-2."""
    granite = model_of("Granite")
    reads = padded_reads(load_llm(granite, num_blocks=4).model, [tokens(5), tokens(9)], passes=2)
    assert reads.passes[0].masked_token == int(own_logits(granite, tokens(5))[-1].argmax())
    with pytest.raises(ValueError, match="neither caps scores nor knows sinks"):
        padded_reads(gemma.model, [tokens(5), tokens(9)], passes=2)
