"""Server-sent events: the same events wherever the bytes are cut (case T12)."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.measure.sse import Event, EventDecoder

STREAM = (
    b"\xef\xbb\xbf"  # a byte order mark
    b': ping\n\ndata: {"a": 1}\n\n'
    b'data:{"b":2}\r\n\r\n'
    b"event: error\ndata: one\ndata: two\n\n"
    b"data: caf\xc3\xa9 \xf0\x9f\x98\x80\r\r"
    b"id: 7\nretry: 10\n\n"  # no data: no event
    b"data\n\n"
    b"data: [DONE]\n\n"
)
EVENTS = [
    Event('{"a": 1}'),
    Event('{"b":2}'),
    Event("one\ntwo", "error"),
    Event("café 😀"),
    Event(""),
    Event("[DONE]"),
]


def decoded(pieces):
    decoder = EventDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.close()


def test_several_events_in_one_read():
    assert decoded([STREAM]) == EVENTS


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_a_cut_at_every_offset_changes_nothing(ending):
    stream = STREAM.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", ending)
    for offset in range(len(stream) + 1):
        assert decoded([stream[:offset], stream[offset:]]) == EVENTS, offset
    assert decoded([bytes([byte]) for byte in stream]) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_cuts_change_nothing(cuts):
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in itertools.pairwise(edges)]
    assert decoded(pieces) == EVENTS


def test_an_event_is_there_with_its_empty_line_and_not_before():
    decoder = EventDecoder()
    assert decoder.feed(b"data: x\n") == []
    assert decoder.feed(b"\n") == [Event("x")]
    assert decoder.feed(b"data: y\r") == []
    assert decoder.feed(b"\r") == [Event("y")]  # complete, though a LF may follow
    assert decoder.feed(b"\n") == []
    assert decoder.close() == []


def test_a_stream_that_ends_without_an_empty_line_gives_its_last_event():
    assert decoded([b"data: a\n\ndata: [DONE]"]) == [Event("a"), Event("[DONE]")]
    assert decoded([b"data: a\n\n: ping"]) == [Event("a")]
    assert decoded([b""]) == []


def test_only_one_space_belongs_to_the_field():
    assert decoded([b"data:  two spaces \n\n"]) == [Event(" two spaces ")]


def test_a_byte_order_mark_is_one_only_at_the_start():
    assert decoded([b"\xef\xbb", b"\xbfdata: x\n\n"]) == [Event("x")]
    assert decoded([b"data: \xef\xbb\xbfx\n\n"]) == [Event("\ufeffx")]


def test_bytes_that_are_no_utf8_are_marked():
    assert decoded([b"data: \xff\n\n"]) == [Event("\ufffd")]


def test_a_long_line_in_many_reads():
    text = "x" * 2_000_000
    stream = f"data: {text}\n\n".encode()
    pieces = [stream[i : i + 1000] for i in range(0, len(stream), 1000)]
    assert decoded(pieces) == [Event(text)]


def test_a_line_without_end_is_refused(monkeypatch):
    monkeypatch.setattr("kvlab.measure.sse.LARGEST_LINE", 1 << 20)
    decoder = EventDecoder()
    with pytest.raises(ValueError, match="longer than 1 MiB"):
        for _ in range(2000):
            decoder.feed(b"x" * 1000)
