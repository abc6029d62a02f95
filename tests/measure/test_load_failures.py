"""What goes wrong is counted, with its reason, and never dropped: against a real server."""

import gzip
import json
import threading
import time

import pytest
from scripted_server import DONE, chunk, event, serving, usage

from kvlab.measure.load import load


def one(answer, **options):
    """The record of one request to a server that answers so."""
    with serving(answer) as server:
        result = load(server.url, ["hello"], model="scripted", keep_text=True, **options)
    (record,) = result.records
    assert len(result.summary().to_dict()) and result.summary().completed == (not record.error)
    return record, result


FINE = (chunk("a"), chunk("b", finish="stop"))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda r: r.whole("500 Internal Server Error", b"{}"), "HTTP 500: {}"),
        (
            lambda r: r.whole(
                "429 Too Many Requests",
                b'{"error": {"message": "the queue is full"}}',
                headers=["Retry-After: 7"],
            ),
            "HTTP 429 (Retry-After 7): the queue is full",
        ),
        (
            lambda r: r.whole("422 Unprocessable", b'{"detail": [{"msg": "no such field"}]}'),
            'HTTP 422: [{"msg": "no such field"}]',
        ),
        (lambda r: r.whole("404 Not Found", b"", kind="text/html"), "HTTP 404: Not Found"),
        (
            lambda r: r.whole("307 Temporary", b"", headers=["Location: http://a:b@h/v1?key=1"]),
            "HTTP 307: redirected to http://h/v1; give the address of the server itself",
        ),
        (
            lambda r: r.whole("200 OK", b"<html>Welcome</html>", kind="text/html"),
            "the answer is text/html and holds no event",
        ),
        (
            lambda r: r.whole("200 OK", b"", kind="text/event-stream"),
            "the answer is text/event-stream and holds no event",
        ),
        (lambda r: r.whole("200 OK", b"[1, 2]"), "the answer is no JSON object: '[1, 2]'"),
        (lambda r: r.stream(b'data: {"cho\n\n'), 'invalid JSON in the stream: {"cho'),
        (lambda r: r.stream(b"data: 7\n\n"), "the stream holds 7, no JSON object"),
        (
            lambda r: r.stream(chunk("a"), event({"object": "error", "message": "gone"})),
            "error event: gone",
        ),
        (
            lambda r: r.stream(chunk("a"), b"event: error\ndata: {}\n\n"),
            "error event: {}",
        ),
        (
            lambda r: r.stream(chunk("a"), event({"error": "model crashed"}), *FINE, DONE),
            "error event: model crashed",
        ),
        (
            lambda r: r.stream(chunk(""), chunk("", finish="stop"), usage(0), DONE),
            "no text: the answer ended (stop) without any",
        ),
        (
            lambda r: r.stream(chunk("a"), chunk("b")),
            "truncated: the stream ended after 2 pieces of text, without an end",
        ),
        (
            lambda r: r.stream(chunk("a"), chunk("", finish="abort"), DONE),
            "abort: the server gave the request up",
        ),
    ],
)
def test_a_failure_says_why(answer, error):
    record, _ = one(answer)
    assert record.error == error
    assert record.times.finished is not None


def test_a_connection_that_breaks_is_truncated_or_none():
    def midway(reply):
        reply.start()
        reply.send(chunk("a"))
        reply.send(chunk("b"))
        reply.hang_up()

    record, _ = one(midway)
    assert record.error.startswith("truncated: ")
    assert record.error.endswith("after 2 pieces of text")
    record, _ = one(lambda reply: reply.hang_up())
    assert record.error.startswith("connection: ")


def test_nobody_listens():
    with serving(lambda reply: None) as server:
        pass
    result = load(server.url, ["hello"] * 3, model="scripted", concurrency=3)
    assert [r.error.split(":")[0] for r in result.records] == ["connection"] * 3
    assert result.summary().failed == 3
    with pytest.raises(ConnectionError, match=r"no server answers at http://127\.0\.0\.1"):
        load(server.url, ["hello"])


def test_a_server_that_never_ends_is_a_timeout():
    go_on = threading.Event()

    def slow(reply):
        reply.start()
        reply.send(chunk("a"))
        go_on.wait(20)

    record, _ = one(slow, timeout=0.2)
    go_on.set()
    assert record.error == "timeout: no end within 0.2 s, after 1 pieces of text"
    assert record.times.finished - record.sent >= 0.2


def test_a_connection_that_stays_open_behind_done_is_a_complete_answer():
    go_on = threading.Event()

    def lingering(reply):
        reply.start()
        reply.send(b"".join(FINE) + DONE)
        go_on.wait(20)

    record, _ = one(lingering, timeout=15.0)
    go_on.set()
    assert record.error is None
    assert record.finish_reason == "stop"


@pytest.mark.parametrize("end", [[], [b": bye\n\n"]])
def test_a_finish_reason_ends_an_answer_without_done(end):
    record, _ = one(lambda reply: reply.stream(*FINE, *end))
    assert (record.error, record.finish_reason) == (None, "stop")


def test_done_ends_an_answer_without_a_finish_reason():
    record, _ = one(lambda reply: reply.stream(chunk("a"), DONE))
    assert (record.error, record.finish_reason) == (None, None)
    assert record.times.finished >= record.times.events[-1].time


def test_without_usage_tokens_are_estimated_from_the_pieces():
    record, result = one(lambda reply: reply.stream(*FINE, DONE))
    assert record.estimated and record.times.num_output_tokens == 2
    assert record.num_prompt_tokens is None
    assert result.summary().estimated == 1
    assert result.setting["usage"] == "absent"


def test_with_usage_tokens_are_those_of_the_server():
    last = usage(7, 11, prompt_tokens_details={"cached_tokens": 8})
    record, result = one(lambda reply: reply.stream(*FINE, last, DONE))
    assert not record.estimated and record.times.num_output_tokens == 7
    assert (record.num_prompt_tokens, record.num_cached_tokens) == (11, 8)
    assert result.setting["usage"] == "given"


def test_token_ids_in_a_piece_are_its_tokens():
    piece = event({"choices": [{"text": "abc", "token_ids": [1, 2, 3], "finish_reason": "stop"}]})
    record, _ = one(lambda reply: reply.stream(piece, DONE))
    assert record.times.num_output_tokens == 3


def test_a_server_that_refuses_stream_options_is_asked_without():
    def strict(reply):
        if "stream_options" in reply.body:
            said = b'{"detail": "Extra inputs are not permitted: stream_options"}'
            reply.whole("422 Unprocessable Entity", said)
        else:
            reply.stream(*FINE, DONE)

    with serving(strict) as server:
        result = load(server.url, ["hello"] * 3)
    assert [r.error for r in result.records] == [None] * 3
    assert len(server.asked) == 4  # refused once, and not asked for again
    assert result.setting["usage"] == "refused"
    assert result.summary().estimated == 3
    assert result.records[0].wait_before_sending > 0  # the first try is a wait


def test_another_400_is_not_tried_again():
    with serving(lambda r: r.whole("400 Bad Request", b'{"error": "too long"}')) as server:
        result = load(server.url, ["hello"])
    assert result.records[0].error == "HTTP 400: too long"
    assert len(server.asked) == 1


def test_an_answer_that_is_not_streamed_comes_at_its_end():
    whole = {
        "choices": [{"message": {"content": "all of it"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }

    def answer(reply):
        reply.start(kind="application/json; charset=utf-8")
        for byte in json.dumps(whole).encode():
            reply.send(bytes([byte]))
        reply.end()

    record, result = one(answer, api="chat")
    assert record.error is None
    assert [e.num_tokens for e in record.times.events] == [4]
    assert record.times.ttft == record.times.e2el
    assert result.setting["streamed"] is False
    assert result.texts == {"r1": "all of it"}


def test_compression_is_declined_and_understood():
    packed = gzip.compress(b"".join(FINE) + DONE)

    def answer(reply):
        reply.start(headers=["Content-Encoding: gzip"])
        for byte in packed:
            reply.send(bytes([byte]))
        reply.end()

    with serving(answer) as server:
        result = load(server.url, ["hello"], keep_text=True)
    assert server.asked[0].headers["accept-encoding"] == "identity"
    assert result.texts == {"r1": "ab"}


def test_a_very_long_line():
    text = "x" * 3_000_000
    record, result = one(lambda reply: reply.stream(chunk(text, finish="stop"), DONE))
    assert record.error is None
    assert result.texts["r1"] == text


def test_thoughts_and_tool_calls_are_text():
    call = {"tool_calls": [{"function": {"name": "add", "arguments": "{}"}}]}
    _, result = one(
        lambda reply: reply.stream(
            chunk(chat=True, role="assistant", content=""),
            chunk(chat=True, reasoning_content="hm ", reasoning="hm "),
            chunk(chat=True, **call),
            chunk("done", chat=True, finish="stop"),
            DONE,
        ),
        api="chat",
    )
    assert result.texts == {"r1": "hm add{}done"}
    assert len(result.records[0].times.events) == 3


def test_text_is_timed_after_it_was_sent():
    stamps = []

    def answer(reply):
        reply.start()
        reply.send(chunk(chat=True, role="assistant"))
        time.sleep(0.02)
        stamps.append(time.perf_counter())
        reply.send(chunk("a", chat=True, finish="stop"))
        reply.end()

    record, result = one(answer, api="chat")
    assert result.start + record.times.first_token >= stamps[0]
    assert record.times.ttft >= 0.02
