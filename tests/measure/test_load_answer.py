"""What an answer's events say, on a clock of our own; and that nothing a server sends breaks it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.metrics import RequestTimes
from kvlab.measure.load_answer import Answer, message_of, printable
from kvlab.measure.load_client import Outcome
from kvlab.measure.load_requests import LoadRequest
from kvlab.measure.load_result import LoadResult
from kvlab.measure.sse import Event


def read(*chunks, step=1.0):
    """An answer whose chunks come one a second from 1.0 on."""
    answer = Answer(RequestTimes(0.0))
    for i, chunk in enumerate(chunks, 1):
        data = chunk if isinstance(chunk, str) else json.dumps(chunk)
        answer.read(Event(data), i * step)
    answer.close()
    return answer


def piece(text, finish=None, **more):
    return {"choices": [{"text": text, "finish_reason": finish}]} | more


def test_usage_in_every_chunk_counts_its_tokens():
    counts = [1, 1, 4, 5]  # the second piece is text of a token that was counted already
    chunks = [piece("x", usage={"completion_tokens": c}) for c in counts]
    answer = read(*chunks, piece("", "stop"), "[DONE]")
    assert [e.num_tokens for e in answer.times.events] == [1, 1, 2, 1]
    assert answer.times.counted == 5


def test_usage_at_the_end_leaves_the_pieces_as_they_were():
    answer = read(piece("a"), piece("b"), piece("", "stop"), {"usage": {"completion_tokens": 6}})
    assert [e.num_tokens for e in answer.times.events] == [1, 1]
    assert answer.times.num_output_tokens == 6
    assert answer.times.tpot == pytest.approx(1 / 5)
    assert answer.times.finished == 3.0
    assert not answer.estimated


def test_text_behind_the_finish_reason_moves_the_end():
    assert read(piece("a", "stop"), piece("b"), "[DONE]").times.finished == 2.0


@pytest.mark.parametrize(
    "error",
    ["gone", {"message": "gone"}, {"detail": "gone"}, {"error": {"message": "gone"}}, "go\nne "],
)
def test_a_servers_words_in_any_form(error):
    assert message_of(error) in ("gone", "go ne")
    assert len(message_of({"message": "x" * 999})) == 200


def test_control_letters_do_not_reach_a_terminal():
    assert printable("a\x1b[31mb\ud800") == "a\ufffd[31mb\ufffd"
    answer = read({"error": {"message": "\x1b]0;title\x07"}})
    assert answer.error == "error event: \ufffd]0;title\ufffd"


def test_numbers_that_json_does_not_have_are_none():
    answer = read('{"choices": [{"text": "a", "logprobs": NaN, "finish_reason": "stop"}]}')
    assert answer.error is None
    answer = read('{"kvlab": {"submitted": 1.5, "selected": Infinity, "note": "x", "late": 1e999}}')
    assert answer.extras == {"submitted": 1.5, "selected": None}


def test_json_that_is_nested_too_deeply_is_a_failure():
    assert read("[" * 100_000).error.startswith("invalid JSON in the stream")


NAMES = [
    "choices",
    "delta",
    "message",
    "text",
    "content",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "usage",
    "error",
    "completion_tokens",
    "prompt_tokens",
    "prompt_tokens_details",
    "cached_tokens",
    "finish_reason",
    "token_ids",
    "kvlab",
    "object",
    "reasoning_content",
]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(NAMES),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(st.lists(values, max_size=5))
def test_whatever_a_server_sends_becomes_a_record_that_can_be_saved(tmp_path_factory, chunks):
    answer = read(*chunks)
    answer.times.finished = 99.0
    record = Outcome(LoadRequest("r1", "x"), answer, 0.0).record(0.0)
    assert (record.error is None) == (answer.error is None)
    result = LoadResult((record,), 100.0, extras={"r1": answer.extras}, texts={"r1": "x"})
    path = tmp_path_factory.mktemp("run") / "run.jsonl"
    result.save(path)
    assert LoadResult.read(path).records == (record,)
