"""The order of one request's events, by hand, and what a broken loop would look like."""

import pytest

from kvlab import LLM, SamplingParams
from kvlab.measure.generation_loop import Stage, arrows, follow

PROMPT = [7, 8, 9, 10, 11, 12]


def small(**options):
    return LLM("tiny", device="cpu", block_size=4, num_blocks=16, **options)


def three(**more):
    return SamplingParams(max_tokens=3, ignore_eos=True, **more)


def test_three_outputs_in_order():
    llm = small()
    first, second, third = llm.generate(PROMPT, three())[0].outputs[0].token_ids
    llm.reset_prefix_cache()
    assert follow(llm, PROMPT, three()) == [
        Stage("prefill", tuple(PROMPT)),
        Stage("logits"),
        Stage("selection", (first,)),
        Stage("decode", (first,)),
        Stage("logits"),
        Stage("selection", (second,)),
        Stage("decode", (second,)),
        Stage("logits"),
        Stage("selection", (third,)),
        Stage("end"),
    ]


def test_the_arrow_back_is_one_fewer_than_the_outputs():
    found = arrows(follow(small(), PROMPT, three()))
    assert found == {
        ("prefill", "logits"): 1,
        ("logits", "selection"): 3,
        ("selection", "decode"): 2,
        ("decode", "logits"): 2,
        ("selection", "end"): 1,
    }


def test_chunks_follow_each_other_without_logits():
    found = arrows(follow(small(prefill_chunk=2), PROMPT, three()))
    assert (found["prefill", "prefill"], found["prefill", "logits"]) == (2, 1)


def test_everything_is_put_back():
    llm = small()
    follow(llm, PROMPT, three())
    assert llm.runner.on_logits is None and llm.engine.scheduler.observer is None
    assert len(llm.model._forward_pre_hooks) == 0
    llm.runner.execute = None
    with pytest.raises(TypeError):
        follow(llm, PROMPT, three())
    assert llm.runner.on_logits is None and llm.engine.scheduler.observer is None
    assert len(llm.model._forward_pre_hooks) == 0


def test_what_cannot_be_followed_is_refused():
    llm = small()
    with pytest.raises(ValueError, match="n is 2; give 1"):
        follow(llm, PROMPT, three(n=2))
    llm.start_trace()
    with pytest.raises(RuntimeError, match="stop its trace or log first"):
        follow(llm, PROMPT, three())
    llm.stop_trace()
    llm.engine.add_request(PROMPT, three())
    with pytest.raises(ValueError, match="unfinished requests; run them"):
        follow(llm, PROMPT, three())
