"""One run, seven reports: each figure by hand, and what each hides, alone and all together."""

import math
from dataclasses import replace

import pytest

from kvlab.core.latency_record import LatencyRecord
from kvlab.core.latency_summary import summarize
from kvlab.core.metrics import RequestTimes, TokenEvent
from kvlab.exercises import seven_reports
from kvlab.exercises.one_fault_21_2 import answered, in_a_row, one_fault
from kvlab.exercises.seven_reports import HIDDEN, REPORTS, conditions, recorded

BY_LETTER = {report.letter: report for report in REPORTS}
RECORDED = recorded()


def record(name, arrival, events, *, sent=None, first_event=None, error=None):
    times = RequestTimes(arrival, events=[TokenEvent(*event) for event in events])
    if events and error is None:
        times.finished = events[-1][0]
    return LatencyRecord(
        name, times, "client", 16, 0, sent=sent, first_event=first_event, error=error
    )


# Seconds. A role first; two slow tokens; four events of four tokens; one token; a wait; a failure.
RUN = (
    record("slow", 0.0, [(0.5, 1), (0.81, 1)], sent=0.0, first_event=0.1),
    record("long", 0.0, [(0.52, 1), (0.64, 4), (0.76, 4), (0.88, 4)], sent=0.1, first_event=0.2),
    record("one", 0.2, [(0.5, 1)], sent=0.2, first_event=0.3),
    record("refused", 0.3, [], error="HTTP 429: the queue is full"),
)


def test_the_letters_and_what_they_hide():
    assert "".join(BY_LETTER) == "ABCDEFG"
    assert {r.hides for r in REPORTS} < set(HIDDEN) and len({r.hides for r in REPORTS}) == 7


@pytest.mark.parametrize(
    ("letter", "figure", "honest"),
    [
        ("A", (0.1 + 0.2 + 0.1) / 3, (0.5 + 0.52 + 0.3) / 3),
        ("B", (0.31 + 12 * 0.03) / 13, (0.31 + 0.03) / 2),
        ("C", (0.31 + 0.03) / 2, (0.31 + 0.12) / 2),
        ("D", (0.31 + 0.03 + 0) / 3, (0.31 + 0.03) / 2),
        ("E", (0.81 + 0.78 + 0.3) / 3, (0.81 + 0.88 + 0.3) / 3),
        ("F", 0.5 + 0.98 * 0.02, math.inf),  # place 1.98 of 0.3, 0.5, 0.52
        ("G", 0.88 / 16, (0.31 + 12 * 0.03) / 13),
    ],
)
def test_each_figure_by_hand(letter, figure, honest):
    report = BY_LETTER[letter]
    assert report.figure(RUN) == pytest.approx(figure)
    assert report.honest_figure(RUN) == pytest.approx(honest)
    assert report.misleads(RUN)


def test_the_figures_are_those_of_the_summary():
    """Nothing in a report is miscomputed: what is wrong is the name."""
    summary = summarize(RUN)
    figure = {letter: report.figure(RUN) for letter, report in BY_LETTER.items()}
    assert figure["B"] == pytest.approx(summary.itl_by_token.mean)
    assert figure["C"] == pytest.approx(summary.tpot.mean)
    assert figure["E"] == pytest.approx(summary.service_e2el.mean)
    assert figure["F"] == pytest.approx(summary.ttft.p99)
    assert figure["G"] == pytest.approx(1 / summary.output_throughput)
    assert BY_LETTER["A"].honest_figure(RUN) == pytest.approx(summary.ttft.mean)
    assert BY_LETTER["E"].honest_figure(RUN) == pytest.approx(summary.e2el.mean)


def test_the_lines_of_the_reports():
    assert [report.says(RUN) for report in REPORTS] == [
        "first response after 133 ms on average",
        "a token every 51.5 ms on average",
        "170 ms between outputs, on average over the requests",
        "mean time per output token of all requests 113 ms",
        "complete answers after 630 ms on average",
        "99 of 100 first tokens within 520 ms",
        "55.0 ms per output token",
    ]


def test_what_they_should_have_said():
    honest = {letter: report.honest(RUN) for letter, report in BY_LETTER.items()}
    assert honest["A"].startswith("first text after 440 ms on average; the first event, after 133")
    assert "170 ms on average over the requests; 51.5 ms is the mean over all" in honest["B"]
    assert honest["C"].startswith("215 ms between two outputs that can be seen; 170 ms is the time")
    assert honest["D"].endswith("requests that have one; 1 of 3 have none, and were counted as 0")
    assert honest["E"].startswith("complete answers 663 ms after they were meant to be asked for")
    assert honest["F"] == "1 of 4 requests failed; the 99th percentile over all who asked: never"
    assert honest["G"].startswith("51.5 ms from one token to the next within an answer; 55.0 ms is")


def test_what_the_server_counted_goes_before_what_the_events_seem_to_carry():
    """Four events of who knows how many tokens; the usage says 13."""
    times = RequestTimes(0.0, events=[TokenEvent(t) for t in (0.52, 0.64, 0.76, 0.88)])
    times.counted, times.finished = 13, 0.88
    counted = (RUN[0], LatencyRecord("long", times, "client", 16, 0, sent=0.1, first_event=0.2))
    for letter in "BCDG":
        report, known = BY_LETTER[letter], RUN[:2]
        assert report.figure(counted) == pytest.approx(report.figure(known))
        assert report.honest_figure(counted) == pytest.approx(report.honest_figure(known))


def test_a_run_with_nothing_amiss_has_seven_honest_reports():
    assert not any(report.misleads(in_a_row()) for report in REPORTS)


@pytest.mark.parametrize("key", HIDDEN)
def test_one_fault_alone_moves_one_report_at_most(key):
    moved = [report.hides for report in REPORTS if report.misleads(one_fault(key))]
    assert moved == ([] if key in ("cached", "estimated") else [key])


def test_the_order_of_the_records_does_not_matter():
    for report in REPORTS:
        assert report.says(RUN[::-1]) == report.says(RUN)


def test_where_no_first_event_was_noted_the_first_text_is_taken():
    unnoted = [replace(r, first_event=None) for r in RUN]
    assert not BY_LETTER["A"].misleads(unnoted)


def test_where_sending_was_not_noted_the_arrival_is_taken():
    assert not BY_LETTER["E"].misleads([replace(r, sent=None) for r in RUN])


@pytest.mark.parametrize(
    ("completed", "failed", "value"),
    [(100, 0, 0.02), (199, 1, 0.02), (101, 1, 0.02), (100, 1, 0.02), (99, 1, math.inf)],
)
def test_failures_reach_the_99th_percentile_when_there_are_enough(completed, failed, value):
    """Of 101 requests the 99th percentile is the second longest wait; of 100 it lies behind it."""
    done = [record(str(i), 0.0, [(0.02, 1)]) for i in range(completed)]
    lost = [record(f"x{i}", 0.0, [], error="timeout: 10 s") for i in range(failed)]
    assert BY_LETTER["F"].honest_figure(done + lost) == pytest.approx(value)


def test_a_failure_after_its_first_tokens_counts_as_one():
    """T13: an error event after three tokens."""
    cut = record("cut", 0.0, [(0.01, 1), (0.02, 1), (0.03, 1)], error="error event: out of memory")
    shown = BY_LETTER["F"].honest([*RUN[:3], cut])
    assert shown.startswith("1 of 4 requests failed")
    assert BY_LETTER["F"].figure([*RUN[:3], cut]) == pytest.approx(0.5196)


@pytest.mark.parametrize(
    ("letter", "records", "said"),
    [
        ("A", RUN[3:], "no completed request has such a time"),
        ("B", RUN[2:3], "no completed request has such a time"),
        ("C", (), "no completed request has such a time"),
        ("F", RUN[3:], "no request completed with text"),
        ("G", RUN[3:], "no output came in any time"),
        ("E", (record("open", 0.0, []),), "request 'open' has no end and no error"),
    ],
)
def test_a_run_without_such_a_time_is_refused(letter, records, said):
    with pytest.raises(ValueError, match=said):
        BY_LETTER[letter].says(records)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00813, "8.13 ms"), (0.0412, "41.2 ms"), (1.73, "1,730 ms"), (0.0, "0.00 ms"),
     (math.inf, "never")],
)  # fmt: skip
def test_milliseconds_have_three_digits(seconds, text):
    assert seven_reports._milliseconds(seconds) == text


def test_a_file_of_records_is_read_strictly(tmp_path, monkeypatch):
    monkeypatch.setattr(seven_reports.importlib.resources, "files", lambda package: tmp_path)
    assert recorded() == ()
    folder = tmp_path / "recorded"
    folder.mkdir()
    lines = [seven_reports.json_lines.json.dumps(r.to_dict()) for r in RUN]
    (folder / seven_reports.FILE).write_text("\n".join(lines), encoding="utf-8")
    assert recorded() == RUN
    (folder / seven_reports.FILE).write_text('{"request_id": "a"}', encoding="utf-8")
    with pytest.raises(ValueError, match="a latency record needs arrival, events"):
        recorded()


@pytest.mark.skipif(not RECORDED, reason="this copy ships no recorded run")
@pytest.mark.parametrize("letter", BY_LETTER)
def test_in_the_recorded_run_every_report_misleads_by_a_quarter_or_more(letter):
    report = BY_LETTER[letter]
    figure, honest = report.figure(RECORDED), report.honest_figure(RECORDED)
    assert min(figure, honest) < 0.8 * max(figure, honest)


@pytest.mark.skipif(not RECORDED, reason="this copy ships no recorded run")
def test_the_recorded_run_hides_nothing_else():
    assert {r.boundary for r in RECORDED} == {"client"}
    assert not any(r.num_cached_tokens or r.estimated for r in RECORDED if r.error is None)


def test_a_run_may_be_held_back_and_answered():
    """The small runs' own tool: a wait of 50 ms before sending is in the end-to-end time."""
    held = answered(200, held_back=50)
    assert (held.wait_before_sending, held.times.e2el, held.times.ttft) == (50, 150, 70)


@pytest.mark.skipif(not RECORDED, reason="this copy ships no recorded run")
def test_the_recorded_run_says_what_it_was_made_on() -> None:
    told = conditions()
    assert told["model"] == "tiny" and "kvlab serve" in told["server"]
    assert told["arrivals"] == "Poisson, 40 a second" and told["concurrency"] == 8
    assert str(told["date"]).startswith("20")
