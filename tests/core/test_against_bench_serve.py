"""Our figures against the formulas of `vllm bench serve`, over the same chunks received.

The formulas are written anew from their description in `kvlab.core.bench_serve`, which names the
source. A chunk is (time, kind, tokens). Kinds with `choices`: "role", "text", "empty" and "finish";
without: "usage" and "error".
"""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.bench_serve import COMPARISONS, markdown
from kvlab.core.latency_record import LatencyRecord
from kvlab.core.latency_summary import Targets, summarize
from kvlab.core.metrics import RequestTimes

numpy = pytest.importorskip("numpy")

WITH_CHOICES = ("role", "text", "empty", "finish")


@dataclass
class Stream:
    """One answer as it came in: when it was meant to leave, when it left, and its chunks."""

    arrival: float
    sent: float
    chunks: tuple
    prompt_tokens: int = 4

    @property
    def output_tokens(self):
        return sum(tokens for _, _, tokens in self.chunks)


# ---- their reading, in our words


def their_output(stream):
    """What their client keeps of one answer: any chunk with choices is an event."""
    seen = [time for time, kind, _ in stream.chunks if kind in WITH_CHOICES]
    return {
        "success": bool(seen),
        "ttft": seen[0] - stream.sent if seen else 0.0,
        "itl": list(numpy.diff(seen)),
        "latency": seen[-1] - stream.sent if seen else 0.0,
        "queue": stream.sent - stream.arrival,
        "tokens": stream.output_tokens,
        "prompt": stream.prompt_tokens,
    }


def their_result(streams, duration, goodput=None):
    """Their result file: sums, rates, and mean, median, std and p99 in milliseconds."""
    done = [output for output in map(their_output, streams) if output["success"]]
    per_token = [
        (o["latency"] - o["ttft"]) / (o["tokens"] - 1) if o["tokens"] > 1 else 0.0 for o in done
    ]
    values = {
        "ttft": [o["ttft"] for o in done],
        "tpot": [t for t, o in zip(per_token, done, strict=True) if o["tokens"] > 1],
        "itl": [gap for o in done for gap in o["itl"]],
        "e2el": [o["latency"] for o in done],
        "client_queue_time": [o["queue"] for o in done],
        "e2el_including_client_queue": [o["latency"] + o["queue"] for o in done],
    }
    judged = {**values, "tpot": per_token}
    good = sum(
        all(judged[name][i] <= limit for name, limit in (goodput or {}).items())
        for i in range(len(done))
    )
    inputs, outputs = sum(o["prompt"] for o in done), sum(o["tokens"] for o in done)
    result = {
        "duration": duration,
        "completed": len(done),
        "failed": len(streams) - len(done),
        "total_input_tokens": inputs,
        "total_output_tokens": outputs,
        "request_throughput": len(done) / duration,
        "request_goodput": good / duration if goodput else None,
        "output_throughput": outputs / duration,
        "total_token_throughput": (inputs + outputs) / duration,
    }
    for name, given_ in values.items():
        found = numpy.array(given_ or [0.0]) * 1000
        result |= {f"mean_{name}_ms": found.mean(), f"std_{name}_ms": found.std()}
        result |= {f"median_{name}_ms": numpy.median(found)}
        result |= {f"p{p}_{name}_ms": numpy.percentile(found, p) for p in (50, 90, 99)}
    return result


# ---- our reading


def our_record(number, stream):
    """What our client keeps: chunks with text are events; an error event fails the request."""
    times = RequestTimes(stream.arrival, counted=stream.output_tokens)
    for time, kind, tokens in stream.chunks:
        if kind == "text":
            times.note(time, tokens)
    times.finished = stream.chunks[-1][0] if stream.chunks else stream.sent
    kinds = [kind for _, kind, _ in stream.chunks]
    failed = "error" in kinds or "text" not in kinds
    return LatencyRecord(
        f"r{number}",
        times,
        "client",
        num_prompt_tokens=stream.prompt_tokens,
        sent=stream.sent,
        error="an error event" if failed else None,
    )


def our_summary(streams, duration, **targets):
    records = [our_record(i, stream) for i, stream in enumerate(streams)]
    return summarize(records, duration=duration, targets=Targets(**targets))


def both(*streams, duration=100.0, **goodput):
    theirs = their_result(streams, duration, goodput)
    return theirs, our_summary(streams, duration, **goodput)


def text(*times, sent=0.0, arrival=None, tokens=1):
    """An answer whose every chunk has text, with its end at the last one."""
    chunks = tuple((time, "text", tokens) for time in times)
    return Stream(sent if arrival is None else arrival, sent, chunks)


# ---- where they agree


def test_the_same_figures_from_a_run_written_by_hand():
    """Two streams of single tokens, one that carries four a chunk, one that got nothing."""
    streams = [
        text(1.0, 1.1, 1.3, sent=0.5),
        text(2.0, 2.5, sent=1.0, arrival=0.4),
        text(3.0, 3.2, 3.6, sent=2.0, tokens=4),
        Stream(2.0, 2.0, ()),
    ]
    theirs, ours = both(*streams, duration=4.0)
    result = ours.to_bench_serve()
    assert result == pytest.approx(theirs)
    assert (result["completed"], result["failed"]) == (3, 1)
    assert result["mean_ttft_ms"] == pytest.approx((500 + 1000 + 1000) / 3)
    assert result["mean_tpot_ms"] == pytest.approx((150 + 500 + 600 / 11) / 3)
    assert result["mean_itl_ms"] == pytest.approx((100 + 200 + 500 + 200 + 400) / 5)
    assert result["mean_e2el_ms"] == pytest.approx((800 + 1500 + 1600) / 3)
    assert result["output_throughput"] == pytest.approx(17 / 4)


def test_the_same_goodput_where_nothing_waits_to_be_sent():
    streams = [text(0.5, 0.6, 0.7), text(1.5, 1.6), text(0.9), text(0.4, 2.4)]
    theirs, ours = both(*streams, duration=5.0, ttft=1.0, tpot=0.5)
    assert theirs["request_goodput"] == ours.request_goodput == pytest.approx(2 / 5)


gaps = st.lists(st.floats(0.001, 5), min_size=2, max_size=6)
answers = st.tuples(st.floats(0, 20), st.floats(0, 3), gaps, st.integers(1, 5))


def streamed(load):
    streams = []
    for arrival, wait, between, tokens in load:
        now = sent = arrival + wait
        chunks = []
        for gap in between:
            now += gap
            chunks.append((now, "text", tokens))
        streams.append(Stream(arrival, sent, tuple(chunks)))
    return streams


@given(st.lists(answers, min_size=1, max_size=6), st.integers(0, 2))
def test_the_same_figures_wherever_every_chunk_has_text(load, refused):
    streams = streamed(load) + [Stream(0.0, 0.0, ())] * refused
    theirs, ours = both(*streams)
    result = ours.to_bench_serve()
    assert result.pop("request_goodput") is None is theirs.pop("request_goodput")
    assert result == pytest.approx(theirs, rel=1e-9, abs=1e-6)


@given(st.lists(answers, min_size=1, max_size=6), st.floats(0.1, 10), st.floats(0.1, 10))
def test_the_same_goodput_of_any_such_run(load, ttft, e2el):
    streams = streamed([(arrival, 0.0, *rest) for arrival, _, *rest in load])
    theirs, ours = both(*streams, ttft=ttft, e2el=e2el)
    assert ours.request_goodput == theirs["request_goodput"]


# ---- where they differ: one test a difference of the table


def test_a_role_is_their_first_token_T07():
    chat = Stream(0, 0, ((0.9, "role", 0), (2.2, "text", 1), (2.22, "text", 1)))
    theirs, ours = both(chat)
    assert theirs["mean_ttft_ms"] == pytest.approx(900)
    assert ours.ttft.mean == 2.2
    assert theirs["mean_itl_ms"] == pytest.approx(660)
    assert ours.itl.mean == pytest.approx(0.02)
    assert theirs["mean_tpot_ms"] == pytest.approx(1320)
    assert ours.tpot.mean == pytest.approx(0.02)


def test_an_empty_finishing_chunk_is_their_last_token():
    found = Stream(0, 0, ((1.0, "text", 1), (1.1, "text", 1), (1.5, "finish", 0)))
    theirs, ours = both(found)
    assert theirs["mean_tpot_ms"] == pytest.approx(500)
    assert ours.tpot.mean == pytest.approx(0.1)
    assert theirs["mean_itl_ms"] == pytest.approx(250)
    assert ours.itl.count == 1


def test_an_error_event_after_three_tokens_is_their_success_T13():
    broken = Stream(0, 0, (*text(1.0, 1.1, 1.2).chunks, (1.3, "error", 0)))
    theirs, ours = both(broken, text(2.0))
    assert (theirs["completed"], theirs["failed"]) == (2, 0)
    assert (ours.completed, ours.failed) == (1, 1)
    assert ours.ttft.mean == 2.0 and theirs["mean_ttft_ms"] == pytest.approx(1500)


def test_an_answer_in_one_chunk_takes_no_time_a_token_by_their_formula():
    theirs, ours = both(text(3.0, tokens=50))
    assert theirs["mean_tpot_ms"] == 0
    assert (ours.tpot.mean, ours.tpot.undefined) == (None, 1)


def test_no_value_is_their_zero_T09():
    theirs, ours = both(text(3.0))
    assert theirs["mean_tpot_ms"] == theirs["p99_itl_ms"] == 0
    result = ours.to_bench_serve()
    assert result["mean_tpot_ms"] is None and result["p99_itl_ms"] is None


def test_a_usage_chunk_after_the_text_ends_ours_later():
    found = Stream(0, 0, (*text(1.0, 1.1).chunks, (1.4, "usage", 0)))
    theirs, ours = both(found)
    assert theirs["mean_e2el_ms"] == pytest.approx(1100)
    assert ours.e2el.mean == 1.4
    assert ours.tpot.mean == pytest.approx(0.1) == theirs["mean_tpot_ms"] / 1000


def test_waiting_to_be_sent_is_outside_their_latencies_and_goodput_T11():
    eight = [text(0.5 * i + 0.5, sent=0.5 * i, arrival=0.1 * i) for i in range(8)]
    theirs, ours = both(*eight, duration=4.0, e2el=1.0)
    assert theirs["mean_e2el_ms"] == pytest.approx(500)
    assert ours.e2el.mean == pytest.approx(1.9)
    assert theirs["mean_e2el_including_client_queue_ms"] == pytest.approx(1900)
    assert theirs["request_goodput"] == pytest.approx(8 / 4)
    assert ours.request_goodput == pytest.approx(2 / 4)


def test_without_a_duration_ours_ends_with_the_last_event():
    theirs = their_result([text(2.0, sent=1.0)], duration=3.0)
    ours = summarize([our_record(0, text(2.0, sent=1.0))])
    assert (theirs["duration"], ours.duration) == (3.0, 1.0)


# ---- the table


def test_the_table_covers_every_name_that_is_shared():
    named = {name for row in COMPARISONS for name in row.names.split(", ")}
    for key in our_summary([text(1.0)], 2.0).to_bench_serve():
        plain = key.removesuffix("_ms").removeprefix("mean_").removeprefix("median_")
        plain = plain.removeprefix("std_").removeprefix("p50_").removeprefix("p90_")
        assert plain.removeprefix("p99_") in named, key


def test_the_table_reads_as_markdown():
    lines = markdown().splitlines()
    assert len(lines) == len(COMPARISONS) + 2
    assert lines[1] == "| --- | --- | --- | --- |"
    assert all(line.count("|") == 5 for line in lines)


def test_a_page_may_show_some_rows_of_the_comparison() -> None:
    shown = markdown("tpot", "itl").splitlines()
    assert [line.split(" | ")[0] for line in shown[2:]] == ["| tpot", "| itl"]
    assert len(markdown().splitlines()) == 2 + len(COMPARISONS)
    with pytest.raises(ValueError, match="'gpu' is no row; give some of ttft"):
        markdown("gpu")
