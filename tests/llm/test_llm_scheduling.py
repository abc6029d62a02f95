"""Scheduling options of `LLM` on the embedded model: real schedules, and the same tokens always."""

import pytest

from kvlab import LLM, SamplingParams, tiny

PROMPTS = [
    tiny.prompt("Ada likes soup.", "What does Ada like?", rules=""),
    tiny.prompt("The key is red.", "What colour is the key?", rules=""),
    tiny.prompt("Tom plays chess.", "What does Tom play?", rules=""),
]
OPTIONS = [
    {},
    {"policy": "static", "max_num_seqs": 2},
    {"policy": "continuous", "admission": "reserved", "num_blocks": 12},
    {"policy": "alternating", "prefill_chunk": 4, "order": "priority"},
    {"policy": "mixed", "prefill_chunk": 3, "num_blocks": 12, "max_bypass": 2, "watermark": 0.1},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_every_policy_gives_the_same_answers(options):
    llm = LLM("tiny", device="cpu", **{"block_size": 4, "num_blocks": 64} | options)
    outputs = llm.generate(PROMPTS, SamplingParams(max_tokens=8))
    alone = LLM("tiny", device="cpu", block_size=4)
    expected = [alone.generate(p, SamplingParams(max_tokens=8))[0].outputs[0] for p in PROMPTS]
    assert [o.outputs[0].token_ids for o in outputs] == [e.token_ids for e in expected]


def test_a_prompt_in_chunks_alternates_with_the_decodes_of_others():
    llm = LLM("tiny", device="cpu", block_size=4, policy="alternating", prefill_chunk=4)
    engine, params = llm.engine, SamplingParams(max_tokens=9, ignore_eos=True)
    engine.add_request([1, 2, 3], params, request_id="A")
    engine.add_request([4, 5, 6], params, request_id="B")
    engine.step()
    engine.add_request(range(10, 22), SamplingParams(max_tokens=1), request_id="C")
    llm.start_trace()
    for _ in range(5):
        engine.step()
    events = [e for e in llm.stop_trace().events if e.kind == "scheduled"]
    steps = {e.clock: [] for e in events}
    for e in events:
        steps[e.clock].append((e.request_id, e.data["end"] - e.data["start"]))
    decode = [("A", 1), ("B", 1)]
    assert list(steps.values()) == [[("C", 4)], decode, [("C", 4)], decode, [("C", 4)]]


def test_an_urgent_stream_goes_before_a_batch_that_waits():
    llm = LLM("tiny", device="cpu", order="priority", max_num_seqs=1)
    params = SamplingParams(max_tokens=2, ignore_eos=True)
    later = llm.stream([5, 6], params, request_id="later", priority=1)
    urgent = llm.generate([[1, 2]], params, priority=0)
    assert len(urgent[0].outputs[0].token_ids) == 2
    assert llm.engine.requests["later"].output_token_ids == []
    list(later)
    assert not llm.engine.has_unfinished_requests()


def test_a_name_that_is_no_option_is_refused_with_those_that_are():
    with pytest.raises(TypeError, match="no argument 'polcy'; besides its own it takes policy, "):
        LLM("tiny", polcy="static")


def test_a_value_that_is_no_option_is_refused():
    with pytest.raises(ValueError, match="policy is 'batch'; give 'mixed' or 'static'"):
        LLM("tiny", policy="batch")
