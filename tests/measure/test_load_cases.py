"""Cases T01 to T13 through the real HTTP client, against a server that replays byte streams.

The server holds the clock, so the times are the cases' own, to the digit.
"""

import pytest
from scripted_server import DONE, HeldClock, at_times, chunk, event, serving, usage

from kvlab.measure.load import load


def replay(*scripts, api="completions", cut=None):
    """Each script is the answer to one request: [(time, bytes)]. Returns the run's result."""
    clock = HeldClock()

    def answer(reply):
        begin = 100.0 * reply.number
        script = scripts[reply.number]
        at_times(clock, reply, script, begin=begin, then=begin + 100.0, cut=cut)

    with serving(answer, clock=clock) as server:
        return load(server.url, ["hello"] * len(scripts), api=api, clock=clock, date="2026-01-01")


def tokens(*times, last=None):
    """A script with one token at each time."""
    *first, end = times
    return [(t, chunk("a")) for t in first] + [(end, chunk("a", finish="length") + DONE)]


def test_t01_n_tokens_have_n_minus_1_gaps():
    (record,) = replay(tokens(1.00, 1.01, 1.02)).records
    assert record.times.ttft == 1.0
    assert record.times.itl == pytest.approx([0.01, 0.01])


def test_t02_requests_are_averaged_for_tpot_and_gaps_for_itl():
    many = [1 + 0.01 * i for i in range(101)]
    summary = replay(tokens(1.0, 1.1), tokens(*many)).summary()
    assert 1000 * summary.tpot.mean == pytest.approx(55)
    assert 1000 * summary.itl.mean == pytest.approx(10.891, abs=5e-4)


def test_t03_the_end_divided_by_the_tokens_is_no_tpot():
    (record,) = replay(tokens(1.00, 1.01, 1.02, 1.03)).records
    assert record.times.tpot == pytest.approx(0.010)
    assert record.times.normalized_latency == pytest.approx(0.2575)


def test_t05_an_event_may_carry_several_tokens():
    def piece(time, total):
        return time, chunk("abcd", usage={"prompt_tokens": 5, "completion_tokens": total})

    script = [piece(0.5, 1), piece(0.6, 5), piece(0.7, 9), (0.7, chunk("", finish="stop") + DONE)]
    (record,) = replay(script).records
    assert record.times.itl == pytest.approx([0.1, 0.1])
    assert record.times.tpot == pytest.approx(0.2 / 8)
    assert [e.num_tokens for e in record.times.events] == [1, 4, 4]
    assert not record.estimated


def test_t07_a_role_and_empty_contents_are_no_tokens():
    script = [
        (0.9, chunk(chat=True, role="assistant") + chunk("", chat=True, role="assistant")),
        (1.5, chunk(chat=True, content=None)),
        (2.2, chunk("He", chat=True)),
        (2.22, chunk("y", chat=True)),
        (2.3, chunk("", chat=True, finish="stop")),
        (2.5, usage(2) + DONE),
    ]
    (record,) = replay(script, api="chat").records
    assert record.times.ttft == 2.2
    assert record.times.itl == pytest.approx([0.02])
    assert record.times.num_output_tokens == 2
    assert record.first_event == 0.9  # what a clock that takes the role for a token would show
    assert record.times.finished == 2.3  # the answer's end, not the stream's


def test_t09_one_token_has_no_tpot_and_is_counted():
    summary = replay(tokens(1.0), tokens(1.0), tokens(1.0, 1.1, 1.2)).summary()
    assert (summary.tpot.count, summary.tpot.undefined) == (1, 2)
    assert summary.tpot.mean == pytest.approx(0.1)


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_t12_a_stream_cut_at_every_offset_gives_the_same_record(ending):
    script = [
        (0.5, b": ping\n\n" + chunk("é", chat=True)),
        (0.7, chunk("😀", chat=True) + chunk("x", chat=True)),  # two events in one read
        (0.9, chunk("", chat=True, finish="stop") + usage(3, 4) + DONE),
    ]
    script = [(time, data.replace(b"\n", ending)) for time, data in script]
    size = sum(len(data) for _, data in script)
    clock = HeldClock()

    def answer(reply):
        begin = 100.0 * reply.number
        at_times(clock, reply, script, begin=begin, then=begin + 100.0, cut=reply.number)

    with serving(answer, clock=clock) as server:
        prompts = ["hello"] * (size + 1)
        result = load(server.url, prompts, api="chat", clock=clock, keep_text=True)
    for offset, record in enumerate(result.records):
        times = record.times.since(record.times.arrival)
        assert [e.time for e in times.events] == pytest.approx([0.5, 0.7, 0.7]), offset
        assert times.finished == pytest.approx(0.9)
        assert (times.num_output_tokens, record.num_prompt_tokens, record.error) == (3, 4, None)
    assert set(result.texts.values()) == {"é😀x"}


def test_t12_byte_by_byte():
    stream = chunk("é") + chunk("😀", finish="length") + DONE
    with serving(lambda reply: reply.stream(*(bytes([b]) for b in stream))) as server:
        result = load(server.url, ["hello"], keep_text=True)
    assert result.texts == {"r1": "é😀"}
    assert result.summary().completed == 1


def test_t13_an_error_event_after_three_tokens_is_a_failed_request():
    broken = [
        *[(1.0 + i / 10, chunk("a")) for i in range(3)],
        (1.4, event({"error": {"message": "out of memory", "code": 500}})),
    ]
    result = replay(tokens(1.0, 1.1), broken)
    good, bad = result.records
    assert bad.error == "error event: out of memory"
    assert len(bad.times.events) == 3  # kept, but in no figure
    summary = result.summary()
    assert (summary.completed, summary.failed) == (1, 1)
    assert summary.ttft.count == 1
    assert summary.total_output_tokens == good.times.num_output_tokens == 2
