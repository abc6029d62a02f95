"""Whatever JSON object comes, it is an `Asked` or a refusal that names a field; never a fault."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.request import SamplingParams
from kvlab.serve import protocol
from kvlab.serve.errors import ApiError
from kvlab.serve.fields import parse
from kvlab.serve.streaming import as_json, event

FIELDS = (
    *("model", "prompt", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p"),
    *("top_k", "n", "seed", "stop", "stop_token_ids", "logprobs", "top_logprobs", "stream", "echo"),
    *("stream_options", "ignore_eos", "cache_salt", "priority", "return_token_ids", "best_of"),
    *(*protocol.NOT_OFFERED, *protocol.IGNORED, "no_such_field"),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
LIKELY = st.sampled_from(
    [None, 0, 1, 2, -1, 0.5, True, False, "tiny", "x", ["x"], [1], [[1], [2]], {}, "text",
     [{"role": "user", "content": "x"}], {"include_usage": True}, {"type": "text"}]
)  # fmt: skip
BODIES = st.dictionaries(st.sampled_from(FIELDS), LIKELY | ANYTHING, max_size=6)


@given(body=BODIES, chat=st.booleans())
def test_any_object_is_taken_or_refused_by_name(body, chat):
    base = {"messages": [{"role": "user", "content": "x"}]} if chat else {"prompt": "x"}
    read = protocol.chat if chat else protocol.completion
    try:
        asked = read(base | body, ("tiny",))
    except ApiError as error:
        assert error.status in (400, 404)
        assert error.param is not None and error.code is not None
        assert len(as_json(error.body())) < 1000
        return
    assert isinstance(asked.params, SamplingParams) and asked.num_sequences >= 1
    assert bool(asked.messages) == chat and bool(asked.prompts) != chat


@given(body=BODIES)
def test_a_neutral_field_changes_nothing(body):
    """What is not known is refused, so an accepted body without its unread fields is the same."""
    try:
        asked = protocol.completion({"prompt": "x"} | body, ("tiny",))
    except ApiError:
        return
    known = {k: v for k, v in body.items() if k not in (*protocol.NOT_OFFERED, *protocol.IGNORED)}
    assert protocol.completion({"prompt": "x"} | known, ("tiny",)) == asked


def test_every_field_that_is_not_offered_is_refused_with_a_value_that_asks_for_something():
    for name in protocol.NOT_OFFERED:
        with pytest.raises(ApiError, match=f"{name} is not offered") as refused:
            protocol.completion({"prompt": "x", name: "something"}, ("tiny",))
        assert refused.value.param == name


def test_true_is_not_one():
    with pytest.raises(ApiError, match="repetition_penalty is not offered"):
        protocol.completion({"prompt": "x", "repetition_penalty": True}, ("tiny",))
    with pytest.raises(ApiError, match="use_beam_search is not offered"):
        protocol.completion({"prompt": "x", "use_beam_search": 0}, ("tiny",))


def test_defaults_are_openais():
    asked = protocol.completion({"prompt": "x"}, ("tiny",))
    assert (asked.max_tokens, asked.params.temperature, asked.params.top_p) == (16, 1.0, 1.0)
    assert (asked.params.n, asked.params.seed, asked.stream, asked.echo) == (1, None, False, False)
    talk = protocol.chat({"messages": [{"role": "developer", "content": "x"}]}, ("tiny",))
    assert (talk.max_tokens, talk.messages) == (None, (("system", "x"),))
    newer = {"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": 3}
    assert protocol.chat(newer | {"max_tokens": 9}, ("tiny",)).max_tokens == 3


@given(st.binary(max_size=60))
def test_any_bytes_are_an_object_or_a_400(body):
    try:
        found = parse(body)
    except ApiError as error:
        assert (error.status, error.code) == (400, "invalid_json")
        return
    assert found == json.loads(body)


@given(st.text())
def test_an_event_is_one_line_and_gives_its_text_back(text):
    raw = event({"text": text})
    assert raw.startswith(b"data: ") and raw.endswith(b"\n\n")
    assert b"\n" not in raw[:-2] and b"\r" not in raw
    assert json.loads(raw[6:]) == {"text": text}


def test_half_a_surrogate_pair_stays_an_escape():
    assert as_json({"text": "a\ud800é\u2028"}) == '{"text":"a\\ud800é\u2028"}'.encode()
