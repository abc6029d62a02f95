"""Traces of real runs, small enough to know every number: section 21.6's example and its kin."""

from collections.abc import Sequence

import torch

from kvlab import LLM, Decoder, ModelConfig, SamplingParams, Trace

WORDS = {5: " a", 6: " gentle", 7: " breeze", 8: " stirred", 9: " leaves"}


def small_llm(num_blocks: int = 12, **options: object) -> LLM:
    """L = 2, H_kv = 4, d_h = 8, two bytes a value: 256 bytes a position. Blocks of 4."""
    config = ModelConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=64,
        num_layers=2,
        num_query_heads=8,
        num_kv_heads=4,
        head_dim=8,
        max_model_len=64,
    )
    options = {"block_size": 4, "cache_dtype": torch.bfloat16, **options}
    return LLM(Decoder.random(config), num_blocks=num_blocks, **options)


def traced(llm: LLM, prompts: object, params: SamplingParams) -> Trace:
    """Run prompts together and name every token that occurs."""
    llm.start_trace()
    llm.generate(prompts, params)
    trace = llm.stop_trace()
    vocab = {str(i): WORDS.get(i, f" w{i}") for i in range(64)}
    return Trace({**trace.meta, "vocab": vocab}, trace.initial, trace.events)


def example(max_tokens: int = 4) -> Trace:
    """Section 21.6: a prompt of five, four outputs selected, three of them processed."""
    return traced(small_llm(), [5, 6, 7, 8, 9], SamplingParams(max_tokens=max_tokens))


def with_vocab(trace: Trace, texts: Sequence[str]) -> Trace:
    """The same trace, its prompt's tokens called `texts`."""
    first = trace.events[0].patch["requests"]["r1"]["token_ids"]
    named = dict(zip(map(str, first), texts, strict=False))
    return Trace(
        {**trace.meta, "vocab": {**trace.meta["vocab"], **named}}, trace.initial, trace.events
    )
