"""The CPU tier as a caller of `LLM` meets it, on the embedded model."""

import pytest

from kvlab import LLM, SamplingParams, tiny

RED = tiny.prompt("Ada likes soup. The key is red.", "What colour is the key?")
BLUE = tiny.prompt("Bob has a cat. The key is blue.", "What colour is the key?")
EIGHT = SamplingParams(max_tokens=8)


def test_without_cpu_blocks_there_is_no_tier():
    llm = LLM("tiny", num_blocks=32)
    assert llm.offload_stats is None
    assert llm.engine.scheduler.offload is None
    assert llm.runner.host_tier is None


def test_an_evicted_prefix_comes_back_from_the_tier():
    """The device holds one request at a time; the second prompt evicts the first one's blocks."""
    llm = LLM("tiny", block_size=4, num_blocks=12, cpu_blocks=32)
    (red,) = llm.generate(RED, EIGHT)
    (blue,) = llm.generate(BLUE, EIGHT)
    (again,) = llm.generate(RED, EIGHT)
    assert (red.outputs[0].text, blue.outputs[0].text) == (" The key is red.", " The key is blue.")
    assert again.outputs[0].text == " The key is red."
    assert red.num_cached_tokens == 0
    assert again.num_cached_tokens == (len(llm.encode(RED)) - 1) // 4 * 4
    stats = llm.offload_stats
    assert stats.bytes_loaded == stats.blocks_loaded * llm.runner.host_tier.block_nbytes > 0
    assert stats.seconds_storing > 0 and stats.seconds_loading > 0


def test_preempted_requests_come_back_with_the_same_answers():
    prompts = [RED, BLUE, RED + " ", BLUE + " "]
    roomy = LLM("tiny", block_size=4, num_blocks=256)
    wanted = [o.outputs[0].token_ids for o in roomy.generate(prompts, EIGHT)]
    llm = LLM(
        "tiny", block_size=4, num_blocks=16, cpu_blocks=64, preempt_by="offload",
        enable_prefix_caching=False, max_num_batched_tokens=16,
    )  # fmt: skip
    assert [o.outputs[0].token_ids for o in llm.generate(prompts, EIGHT)] == wanted
    assert llm.offload_stats.requests_loaded > 0


def test_a_stream_put_aside_and_resumed():
    llm = LLM("tiny", block_size=4, num_blocks=12, cpu_blocks=32)
    stream = llm.stream(RED, EIGHT, request_id="red")
    text = next(stream).text
    assert llm.suspend("red")
    (blue,) = llm.generate(BLUE, EIGHT)  # it has the device to itself meanwhile
    assert blue.outputs[0].text == " The key is blue."
    assert not llm.engine.has_unfinished_requests()
    assert llm.resume("red")
    text += "".join(delta.text for delta in stream)
    assert text == " The key is red."
    assert not llm.suspend("red") and not llm.resume("red")


def test_waiting_for_one_that_was_put_aside_is_an_error_and_no_endless_loop():
    llm = LLM("tiny", block_size=4, num_blocks=12, cpu_blocks=32)
    stream = llm.stream(RED, EIGHT, request_id="red")
    next(stream)
    llm.suspend("red")
    with pytest.raises(RuntimeError, match=r"only red is left, put aside; call resume\(\) first"):
        list(stream)
    assert not llm.engine.requests  # a stream that raises leaves no request behind
    assert llm.generate(BLUE, EIGHT)[0].outputs[0].text == " The key is blue."


@pytest.mark.parametrize("bad", [0, -3, 1.5, "many"])
def test_a_bad_number_of_cpu_blocks_is_named(bad):
    with pytest.raises(ValueError, match=f"the CPU tier has {bad!r} blocks"):
        LLM("tiny", num_blocks=8, cpu_blocks=bad)


def test_preempt_by_offload_needs_a_tier():
    with pytest.raises(ValueError, match=r"no CPU tier; give one \(LLM: cpu_blocks\)"):
        LLM("tiny", num_blocks=8, preempt_by="offload")
