"""Text in, text out on the embedded model: generate, stream, stop strings, aborts, traces."""

import pytest
import torch

from kvlab import LLM, Decoder, ModelConfig, SamplingParams, tiny

PROMPT = tiny.prompt("Ada likes soup. The key is red.", "What colour is the key?")
ANSWER = " The key is red."


@pytest.fixture(scope="module")
def shared():
    return LLM("tiny", block_size=4, num_blocks=128)


@pytest.fixture
def llm(shared):
    yield shared
    assert shared.engine.requests == {}, "a request was left behind"
    assert shared._sinks == {}
    shared.engine.scheduler.check_invariants()
    pool = shared.engine.scheduler.manager.pool
    assert pool.num_free_blocks == pool.num_blocks


def params(max_tokens=12, **more):
    return SamplingParams(max_tokens=max_tokens, **more)


def test_the_tiny_model_answers_from_its_context(llm):
    (out,) = llm.generate(PROMPT, params())
    (completion,) = out.outputs
    assert completion.text == ANSWER
    assert completion.token_ids == (778, 357, 861, 417, 18, 4)
    assert (completion.finish_reason, completion.stop_reason) == ("stop", 4)
    assert out.prompt == PROMPT
    assert out.notice is None


def test_several_prompts_together_each_with_its_parameters(llm):
    other = tiny.prompt("Ada likes soup.", "What does Ada like?")
    a, b, c = llm.generate([PROMPT, other, llm.encode(other)], [params(2), params(), params()])
    assert a.outputs[0].text == " The key"
    assert a.outputs[0].finish_reason == "length"
    assert b.outputs[0].text == c.outputs[0].text == " Ada likes soup."
    assert c.prompt is None


def test_a_repeated_prompt_is_found_in_the_prefix_cache(llm):
    llm.generate(PROMPT, params())
    (out,) = llm.generate(PROMPT, params())
    assert out.num_cached_tokens == 24  # 27 tokens, blocks of 4, one position always computed
    (salted,) = llm.generate(PROMPT, params(), cache_salt="mine")
    assert salted.num_cached_tokens == 0
    assert salted.outputs[0].text == ANSWER


def test_stream_gives_the_same_text_piece_by_piece(llm):
    deltas = list(llm.stream(PROMPT, params()))
    assert "".join(d.text for d in deltas) == ANSWER
    assert [t for d in deltas for t in d.token_ids] == [778, 357, 861, 417, 18, 4]
    assert [d.finish_reason for d in deltas][-2:] == [None, "stop"]


@pytest.mark.parametrize(
    ("stop", "text", "which"),
    [
        ("key is", " The ", "key is"),  # across two tokens
        ("y i", " The ke", "y i"),  # inside tokens
        (["zebra", " is"], " The key", " is"),
        ("red", " The key is ", "red"),
        ("red.", " The key is ", "red."),
        (["key", "The key"], " ", "The key"),  # the one that begins first
        ("key is blue", ANSWER, None),
    ],
)
def test_stop_strings_across_token_boundaries(llm, stop, text, which):
    (out,) = llm.generate(PROMPT, params(stop=stop))
    completion = out.outputs[0]
    assert (completion.text, completion.finish_reason) == (text, "stop")
    assert completion.stop_reason == (which or 4)
    deltas = list(llm.stream(PROMPT, params(stop=stop)))
    assert "".join(d.text for d in deltas) == text
    assert deltas[-1].finish_reason == "stop"


def test_text_that_may_become_a_stop_string_is_held_back(llm):
    pieces = [d.text for d in llm.stream(PROMPT, params(stop="key is blue"))]
    assert pieces == [" The", " ", "", "key is red", ".", "", ""]


def test_n_continuations_share_the_prompt(llm):
    (out,) = llm.generate(PROMPT, params(n=3, temperature=3.0, seed=5))
    assert [c.index for c in out.outputs] == [0, 1, 2]
    assert len({c.text for c in out.outputs}) == 3
    (again,) = llm.generate(PROMPT, params(n=3, temperature=3.0, seed=5))
    assert [c.token_ids for c in again.outputs] == [c.token_ids for c in out.outputs]


def test_logprobs_of_outputs(llm):
    (out,) = llm.generate(PROMPT, params(logprobs=2))
    first = out.outputs[0].logprobs[0]
    assert next(iter(first)) == 778
    assert -0.01 < first[778] <= 0
    assert len(out.outputs[0].logprobs) == 6


def test_two_streams_taken_in_turns(llm):
    other = tiny.prompt("Ada likes soup.", "What does Ada like?")
    one, two = llm.stream(PROMPT, params()), llm.stream(other, params())
    texts = ["", ""]
    streams = {0: one, 1: two}
    while streams:
        for i in list(streams):
            delta = next(streams[i], None)
            if delta is None:
                del streams[i]
            else:
                texts[i] += delta.text
    assert texts == [ANSWER, " Ada likes soup."]


def test_leaving_a_stream_aborts_it(llm):
    stream = llm.stream(PROMPT, params())
    next(stream)
    assert len(llm.engine.requests) == 1
    stream.close()
    assert llm.engine.requests == {}


def test_a_stream_that_is_never_started_holds_nothing_once_dropped(llm):
    stream = llm.stream(PROMPT, params())
    assert len(llm.engine.requests) == 1
    del stream
    assert llm.engine.requests == {}


def test_abort_from_outside(llm):
    stream = llm.stream(PROMPT, params(), request_id="mine")
    next(stream)
    assert llm.abort("mine")
    assert not llm.abort("mine")
    assert list(stream)[-1].finish_reason == "abort"


def test_an_interrupted_generate_leaves_nothing_behind(llm):
    execute = llm.runner.execute

    def interrupt(output):
        if llm.engine.scheduler.step_index % 3 == 0:
            raise KeyboardInterrupt
        return execute(output)

    llm.runner.execute = interrupt
    try:
        with pytest.raises(KeyboardInterrupt):
            llm.generate([PROMPT, PROMPT], params(n=2))
    finally:
        llm.runner.execute = execute
    assert llm.generate(PROMPT, params())[0].outputs[0].text == ANSWER


def test_one_bad_prompt_among_good_ones_is_refused_and_leaves_nothing(llm):
    with pytest.raises(ValueError, match="prompt token 958"):
        llm.generate([PROMPT, [1, 958]], params())
    with pytest.raises(ValueError, match="no tokens"):
        llm.generate([PROMPT, ""], params())
    with pytest.raises(ValueError, match="2 prompts and 1 sampling_params"):
        llm.generate([PROMPT, PROMPT], [params()])


def test_no_prompts_no_outputs(llm):
    assert llm.generate([]) == []


def test_unknown_words_are_named_with_the_output(llm):
    (out,) = llm.generate(tiny.prompt("Ada likes soups.", "What does Ada like?"), params())
    assert "'soups' (try 'soup')" in out.notice
    assert "kvlab.tiny.words()" in out.notice


def test_a_request_that_outgrows_the_pool_says_so():
    llm = LLM("tiny", block_size=4, num_blocks=7)
    (out,) = llm.generate(PROMPT, params(30, ignore_eos=True))
    completion = out.outputs[0]
    assert completion.finish_reason == "capacity"
    assert "7 blocks of 4" in completion.stop_reason
    assert len(completion.token_ids) == 2


def test_a_decoder_of_any_shape_takes_token_ids():
    model = Decoder.random(ModelConfig(50, 16, 24, 1, 2, 1, 8), seed=3)
    llm = LLM(model, cache_dtype=torch.float16, num_blocks=8)
    (out,) = llm.generate([3, 4, 5], params(4))
    assert len(out.outputs[0].token_ids) == 4
    assert llm.cache.dtype == torch.float16
    with pytest.raises(ValueError, match="has no tokenizer"):
        llm.generate("text")
    with pytest.raises(ValueError, match="need a tokenizer"):
        llm.generate([1], params(stop="x"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "no/such/folder"}, "'no/such/folder' is neither 'tiny' nor a folder"),
        ({"max_model_len": 5000}, "max_model_len is 5000"),
        ({"num_blocks": 0}, "0 blocks"),
        ({"block_size": 0}, "block_size is 0"),
        ({"max_num_seqs": 0}, "max_num_seqs is 0"),
    ],
)
def test_arguments_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        LLM(**options)


def test_trace_measures_the_tensors_and_names_the_tokens(llm):
    llm.start_trace(attention_layers=[1])
    llm.generate(PROMPT, params(), cache_salt="fresh")
    trace = llm.stop_trace()
    computed = [e for e in trace.events if e.kind == "computed"]
    per_position = trace.meta["bytes_per_position"]
    assert per_position == 2 * 4 * 2 * 32 * 4
    assert [e.data["nbytes"] for e in computed] == [n * per_position for n in range(27, 33)]
    assert trace.meta["vocab"]["417"] == " red"
    (weights,) = computed[-1].data["attention"].values()
    assert (len(weights), len(weights[0])) == (4, 32)
    assert all(abs(sum(head) - 1) < 0.01 for head in weights)


def test_weights_and_block_size_enter_the_identity():
    def root(**options):
        return LLM(**options).engine.scheduler.manager.prefix.root

    assert root() == root()
    assert root() != root(block_size=4)
    assert root() != root(cache_dtype=torch.float16)
    model = LLM().model
    model.layers[0].mlp.down_proj.weight[0, 0] += 1e-3
    assert (
        LLM(model).engine.scheduler.manager.prefix.root
        != LLM(LLM().model).engine.scheduler.manager.prefix.root
    )


def test_a_decoder_without_weights_refuses_to_run():
    with pytest.raises(ValueError, match=r"no weights; use Decoder\.random"):
        LLM(Decoder(ModelConfig(50, 16, 24, 1, 2, 1, 8)), num_blocks=4).generate([1, 2])
