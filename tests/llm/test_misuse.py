"""What a user gets wrong, or does at an odd moment: a clear error, and nothing is lost."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from kvlab import LLM, Decoder, ModelConfig, SamplingParams, Trace, tiny
from kvlab.core.scheduler import Scheduler
from kvlab.measure.devices import names
from kvlab.tensors.sampling import probabilities
from kvlab.tensors.tokenizer import TextStream, Tokenizer

PROMPT = tiny.prompt("Ada likes soup.", "What does Ada like?")
ANSWER = " Ada likes soup."


@pytest.fixture(scope="module")
def llm():
    return LLM("tiny", block_size=4, num_blocks=64)


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        5,
        1.5,
        {"prompt": "a"},
        {1, 2},
        b"ab",
        [1.0],
        [None],
        [[1], 2],
        torch.tensor([1]),
        [True],
    ],
)
def test_a_prompt_of_a_wrong_kind_is_named(llm, prompt):
    with pytest.raises(ValueError, match=r"give a text|not an id"):
        llm.generate(prompt)
    assert llm.engine.requests == {}


@pytest.mark.parametrize("params", [5, "x", {"max_tokens": 3}, [{}], [None, None]])
def test_sampling_params_of_a_wrong_kind_are_named(llm, params):
    with pytest.raises(ValueError, match=r"SamplingParams|sampling_params"):
        llm.generate(PROMPT, params)


@pytest.mark.parametrize(
    "bad",
    [
        {"stop": None},
        {"stop": 5},
        {"stop_token_ids": None},
        {"temperature": "hot"},
        {"top_p": None},
    ],
)
def test_sampling_values_of_a_wrong_kind_are_named(bad):
    (name,) = bad
    with pytest.raises(ValueError, match=f"{name} is"):
        SamplingParams(**bad)


@pytest.mark.parametrize("model", [None, 5, "", b"tiny", ["tiny"]])
def test_a_model_of_a_wrong_kind_is_named(model):
    with pytest.raises(ValueError, match="neither 'tiny' nor a folder"):
        LLM(model)


@pytest.mark.parametrize(
    "options",
    [{"max_model_len": "5"}, {"max_num_seqs": True}, {"enable_chunked_prefill": "no"}],
)
def test_limits_of_a_wrong_kind_are_named(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        LLM(**options)


def test_text_that_is_no_unicode_is_refused(llm):
    with pytest.raises(ValueError, match="no valid Unicode"):
        llm.generate("a\ud800b")


def test_a_huge_n_is_refused_before_anything_is_made(llm):
    with pytest.raises(ValueError, match="n is 10000000000 and at most 64"):
        llm.generate(PROMPT, SamplingParams(n=10**10))


def test_a_tiny_temperature_is_greedy_not_nan():
    p = probabilities(torch.tensor([1.0, 3.0, 2.0]), SamplingParams(temperature=1e-310))
    assert p.tolist() == [0, 1, 0]


def test_interrupted_between_schedule_and_model_nothing_is_lost(llm, monkeypatch):
    schedule = Scheduler.schedule

    def interrupted(self):
        schedule(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(Scheduler, "schedule", interrupted)
    stream = llm.stream(PROMPT, SamplingParams(max_tokens=8), cache_salt="interrupted")
    with pytest.raises(KeyboardInterrupt):
        llm.engine.step()
    monkeypatch.undo()
    assert "".join(d.text for d in stream) == ANSWER
    llm.engine.scheduler.check_invariants()


def test_a_trace_may_start_midway_and_only_once(llm):
    stream = llm.stream(PROMPT, SamplingParams(max_tokens=8), request_id="mid")
    next(stream)
    llm.start_trace(attention_layers=[0])
    with pytest.raises(RuntimeError, match="already"):
        llm.start_trace()
    list(stream)
    trace = llm.stop_trace()
    assert trace.initial["requests"]["mid"]["num_computed_tokens"] > 0
    assert trace.last_state() == list(trace.frames())[-1].state


@pytest.mark.parametrize("text", ["[]", "null", "5", "{}", '{"format":"kvlab.trace","version":1}'])
def test_a_damaged_trace_is_refused(text):
    with pytest.raises(ValueError, match="trace"):
        Trace.from_dict(json.loads(text))


def byte_fallback_tokenizer():
    """As in Llama 2: words, and bytes for what is no word."""
    vocab = {f"<0x{i:02X}>": i for i in range(256)} | {"▁a": 256, "b": 257, "▁": 258}
    backend = Backend(models.BPE(vocab, [], byte_fallback=True))
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer = object.__new__(Tokenizer)
    tokenizer.backend = backend
    return tokenizer


@given(st.lists(st.sampled_from([0x62, 0x8E, 0xC3, 0xA9, 0xF0, 0x0A, 256, 257, 258]), max_size=12))
def test_bytes_that_never_become_a_character_do_not_break_a_stream(token_ids):
    tokenizer = byte_fallback_tokenizer()
    stream = TextStream(tokenizer)
    text = "".join(stream.push(t) for t in token_ids) + stream.finish()
    assert text.count("a") == token_ids.count(256)  # the words are all there
    if all(t > 255 for t in token_ids):
        assert text == tokenizer.decode(token_ids)


def test_a_tokenizer_with_more_ids_than_the_model_has_is_told():
    llm = LLM(Decoder.random(ModelConfig(50, 16, 24, 1, 2, 1, 8)), num_blocks=4)
    llm.tokenizer = Tokenizer(tiny.FOLDER)
    with pytest.raises(ValueError, match="not an id of this vocabulary"):
        llm.generate("Ada likes soup.")


def test_a_stream_follows_its_request_however_the_engine_is_stepped(llm):
    stream = llm.stream(PROMPT, SamplingParams(max_tokens=8), request_id="mine")
    llm.engine.step()
    llm.engine.run()
    assert "".join(d.text for d in stream) == ANSWER
    ended = llm.stream(PROMPT, SamplingParams(max_tokens=8), request_id="mine")
    llm.engine.abort("mine")
    assert [d.finish_reason for d in ended][-1] == "abort"


def test_another_dtype_leaves_the_given_decoder_alone():
    model = Decoder.random(ModelConfig(50, 16, 24, 1, 2, 1, 8))
    LLM(model, dtype=torch.bfloat16, num_blocks=4).generate([1, 2])
    assert model.dtype == torch.float32


def test_a_cache_of_integers_is_refused():
    with pytest.raises(ValueError, match=r"cache_dtype is torch\.int8"):
        LLM(cache_dtype=torch.int8)


@pytest.mark.parametrize("device", ["nope", "", 5, b"x", "meta", "xpu", "cuda:99", "cpu:-1", 1.5])
def test_a_device_that_is_not_here(device):
    if device == 5 and torch.cuda.device_count() > 5:
        pytest.skip("this machine has a cuda:5")
    with pytest.raises(
        ValueError, match=r"^device is .*; (here there is cpu|the last CUDA device)"
    ):
        LLM("tiny", device=device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="cuda is here")
def test_cuda_where_there_is_none():
    with pytest.raises(ValueError, match=f"^device is 'cuda'; here there is {names()[0]}"):
        LLM("tiny", device="cuda")
    assert LLM("tiny", device=None, num_blocks=8).device.type == "cpu"
