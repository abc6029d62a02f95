"""A run's latencies in a few numbers: cases T02, T09, T11, T13 and claims 21.2-e and -h."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.latency_record import LatencyRecord
from kvlab.core.latency_summary import (
    Distribution,
    Targets,
    distribution,
    percentile,
    summarize,
)
from kvlab.core.metrics import RequestTimes


def record(name, *token_times, arrival=0.0, finished=None, **more):
    """A request with one token at each time, ended at the last one."""
    times = RequestTimes(arrival, finished=finished)
    for time in token_times:
        times.note(time)
    if finished is None and token_times:
        times.finished = token_times[-1]
    return LatencyRecord(name, times, **more)


def test_a_mean_over_requests_and_a_mean_over_gaps_are_both_right_T02():
    short = record("A", 1.0, 1.1)
    long = record("B", *(1.0 + 0.01 * i for i in range(101)))
    summary = summarize([short, long])
    assert summary.tpot.mean == pytest.approx(0.055)
    assert round(1000 * summary.itl.mean, 3) == 10.891
    assert (summary.tpot.count, summary.itl.count) == (2, 101)


def test_undefined_is_counted_and_never_averaged_as_zero_T09():
    summary = summarize([record("a", 0.5), record("b", 0.5), record("c", 0.5, 0.6, 0.7)])
    assert (summary.tpot.count, summary.tpot.undefined) == (1, 2)
    assert summary.tpot.mean == summary.tpot.p99 == pytest.approx(0.1)
    assert (summary.ttft.count, summary.ttft.undefined) == (3, 0)


def one_at_a_time(count=8, rate=10.0, service=0.5):
    """An open loop on a virtual clock: requests are meant to leave `rate` a second, and a client
    that allows one at a time holds them back until the one before has ended."""
    free, records = 0.0, []
    for i in range(count):
        arrival = i / rate
        sent = max(arrival, free)
        free = sent + service
        times = RequestTimes(arrival, finished=free)
        times.note(sent + 0.2)
        times.note(free)
        records.append(LatencyRecord(f"r{i}", times, "client", sent=sent))
    return records


def test_the_wait_before_sending_is_part_of_the_latency_T11():
    summary = summarize(one_at_a_time())
    assert summary.wait_before_sending.mean == pytest.approx(1.4)
    assert summary.e2el.mean == pytest.approx(1.9)
    assert summary.service_e2el.mean == summary.service_e2el.max == pytest.approx(0.5)
    assert summary.ttft.mean == pytest.approx(1.6)
    assert summary.service_ttft.mean == pytest.approx(0.2)
    assert summary.duration == pytest.approx(4.0)
    assert summary.request_throughput == pytest.approx(2.0)


def test_without_a_note_of_sending_the_wait_is_undefined():
    summary = summarize([record("a", 1.0)])
    assert summary.wait_before_sending == Distribution(0, undefined=1)
    assert summary.service_ttft.mean == summary.ttft.mean == 1.0


def test_a_failed_request_is_counted_outside_the_latencies_T13():
    good = record("a", 1.0, 1.1, num_prompt_tokens=5)
    broken = record("b", 9.0, 9.1, 9.2, num_prompt_tokens=7, error="server error after 3 tokens")
    summary = summarize([good, broken])
    assert (summary.completed, summary.failed) == (1, 1)
    assert summary.ttft.max == 1.0 and summary.itl.count == 1
    assert (summary.total_input_tokens, summary.total_output_tokens) == (5, 2)
    assert summary.duration == 9.2


def test_a_failed_request_meets_no_target_however_quick_it_was_T13():
    quick = record("a", 0.1, 0.2)
    failed = record("b", 0.1, 0.2, error="an error event after 2 tokens")
    targets = Targets(ttft=1.0, tpot=1.0, itl=1.0, e2el=1.0)
    assert targets.met_by(quick) and not targets.met_by(failed)


def test_a_failed_request_that_came_first_begins_the_run():
    failed = LatencyRecord("a", RequestTimes(1.0), error="HTTP 429")
    assert summarize([record("b", 4.5, arrival=4.0), failed]).duration == 3.5


def test_gaps_by_event_and_by_token_T05():
    times = RequestTimes(0.0, finished=0.7)
    for event in ((0.5, 1), (0.6, 4), (0.7, 4)):
        times.note(*event)
    summary = summarize([LatencyRecord("a", times)])
    assert (summary.itl.count, summary.itl_by_token.count) == (2, 8)
    assert summary.itl.mean == pytest.approx(0.1)
    assert summary.itl_by_token.mean == pytest.approx(summary.tpot.mean) == pytest.approx(0.025)


def test_the_first_event_of_a_failed_request_is_still_within_the_run():
    """A role came at 5 s and then nothing: the run lasted 5 s, not 1 s."""
    failed = LatencyRecord("b", RequestTimes(0.0), error="timeout", first_event=5.0)
    assert summarize([record("a", 1.0), failed]).duration == 5.0


def test_throughput_is_no_requests_time_per_token():
    """Claim 21.2-e: 40 tokens in 200 ms are 200 a second. Four requests with a token every 20 ms
    make that rate too, while each waits 20 ms, not the 5 ms of the reciprocal."""
    ten = tuple(0.02 * i for i in range(1, 11))
    summary = summarize([record(name, *ten) for name in "abcd"], duration=0.2)
    assert summary.total_output_tokens == 40
    assert summary.output_throughput == pytest.approx(200)
    assert 1 / summary.output_throughput == pytest.approx(0.005)
    assert summary.tpot.mean == pytest.approx(0.020)


def test_a_mean_that_looks_fine_and_a_tail_that_does_not():
    """Claim 21.2-h: 97 requests at 0.5 s and 3 at 20 s."""
    records = [record(f"r{i}", 0.5 if i < 97 else 20.0) for i in range(100)]
    summary = summarize(records, targets=Targets(ttft=3.0))
    assert summary.ttft.mean == pytest.approx(1.085)
    assert (summary.ttft.p50, summary.ttft.p90, summary.ttft.p99) == (0.5, 0.5, 20.0)
    assert summary.good == 97
    assert summary.request_goodput == pytest.approx(97 / 20.0)
    assert summary.request_throughput == pytest.approx(5.0)


def test_each_stated_target_has_to_be_kept():
    slow_start = record("a", 4.0, 4.1)
    slow_gap = record("b", 1.0, 1.1, 1.6)
    one_token = record("c", 1.0)
    failed = record("d", 1.0, 1.1, error="connection reset")
    records = [slow_start, slow_gap, one_token, failed]

    def good(**stated):
        return summarize(records, targets=Targets(**stated)).good

    assert good(ttft=3.0) == 2
    assert good(itl=0.3) == 2
    assert good(tpot=0.2) == 2
    assert good(tpot=0.35) == 3
    assert good(e2el=1.5) == 1
    assert good(ttft=3.0, itl=0.3) == 1
    assert good(ttft=1.0) == 2  # at most, not below


def test_without_a_stated_target_there_is_no_goodput():
    for targets in (None, Targets()):
        summary = summarize([record("a", 1.0)], targets=targets)
        assert (summary.good, summary.request_goodput) == (None, None)


def test_a_request_without_output_keeps_no_target_for_the_first_token():
    silent = record("a", finished=0.5)
    assert summarize([silent], targets=Targets(ttft=3.0)).good == 0
    assert summarize([silent]).ttft == Distribution(0, undefined=1)


def test_nothing_and_only_failures_have_no_figures():
    empty = summarize([])
    assert (empty.completed, empty.failed, empty.duration) == (0, 0, 0.0)
    assert empty.request_throughput is None and empty.ttft == Distribution(0)
    only = summarize([record("a", error="refused")], targets=Targets(ttft=1.0))
    assert (only.completed, only.failed, only.good) == (0, 1, 0)
    assert only.e2el.mean is None


def test_unknown_prompt_lengths_make_no_total():
    summary = summarize([record("a", 1.0, num_prompt_tokens=5), record("b", 2.0)])
    assert (summary.total_input_tokens, summary.total_token_throughput) == (None, None)
    assert summary.total_output_tokens == 2


def test_estimated_counts_are_flagged():
    summary = summarize([record("a", 1.0, estimated=True), record("b", 1.0)])
    assert summary.estimated == 1


def test_by_the_names_of_bench_serve_in_milliseconds():
    result = summarize(one_at_a_time(), duration=5.0, targets=Targets(e2el=2.0)).to_bench_serve()
    assert (result["completed"], result["failed"], result["duration"]) == (8, 0, 5.0)
    assert result["mean_ttft_ms"] == pytest.approx(200)
    assert result["median_e2el_ms"] == result["p99_e2el_ms"] == pytest.approx(500)
    assert result["mean_e2el_including_client_queue_ms"] == pytest.approx(1900)
    assert result["mean_client_queue_time_ms"] == pytest.approx(1400)
    assert result["mean_tpot_ms"] == result["mean_itl_ms"] == pytest.approx(300)
    assert result["request_goodput"] == pytest.approx(4 / 5)
    assert json.loads(json.dumps(result)) == result


def test_a_summary_is_json():
    found = json.loads(json.dumps(summarize(one_at_a_time()).to_dict()))
    assert found["completed"] == 8 and found["ttft"]["count"] == 8
    assert found["wait_before_sending"]["undefined"] == 0


@pytest.mark.parametrize(
    ("percent", "value"), [(0, 1.0), (25, 2.0), (50, 3.0), (90, 8.8), (99, 9.88), (100, 10.0)]
)
def test_percentiles_are_linear_between_values(percent, value):
    assert percentile([1.0, 2.0, 3.0, 7.0, 10.0], percent) == pytest.approx(value)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 100))
def test_percentiles_are_numpys(values, percent):
    numpy = pytest.importorskip("numpy")
    expected = float(numpy.percentile(values, percent))
    assert percentile(sorted(values), percent) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_figures_lie_in_order_between_least_and_most(values):
    found = distribution(values)
    assert min(values) == found.min <= found.p50 <= found.p90 <= found.p99 <= found.max
    assert found.min <= found.mean <= found.max == max(values)
    assert 0 <= found.std <= (found.max - found.min) / 2 + 1e-6


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.001, "1.0", True])
def test_a_value_that_is_no_duration_is_refused(value):
    with pytest.raises(ValueError, match=r"a duration is .*; give a finite number of at least 0"):
        distribution([1.0, value])


@pytest.mark.parametrize(("values", "percent"), [([], 50), ([1.0], 101), ([1.0], float("nan"))])
def test_no_percentile_of_nothing_and_none_outside(values, percent):
    with pytest.raises(ValueError, match=r"needs one at least|from 0 to 100"):
        percentile(values, percent)


def test_requests_under_way_and_mixed_boundaries_are_refused():
    with pytest.raises(ValueError, match="request 'a' has no end and no error"):
        summarize([record("a")])
    with pytest.raises(ValueError, match="timed at client and engine; summarise each"):
        summarize([record("a", 1.0), record("b", 1.0, boundary="client")])


@pytest.mark.parametrize("duration", [0, -1.0, float("nan"), 1.9])
def test_a_duration_that_cannot_be_the_observations_is_refused(duration):
    with pytest.raises(ValueError, match=r"duration is .*; give"):
        summarize([record("a", 2.0)], duration=duration)


@pytest.mark.parametrize("name", ["ttft", "tpot", "itl", "e2el"])
def test_a_target_of_nothing_is_refused(name):
    with pytest.raises(ValueError, match=f"target {name} is 0; give a finite number above 0"):
        Targets(**{name: 0})


def test_a_figure_of_a_mistyped_target_is_refused():
    with pytest.raises(TypeError, match="itlx"):
        Targets(itlx=1.0)


gaps = st.lists(st.floats(0, 5), min_size=1, max_size=6)
loads = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 3), gaps), min_size=1, max_size=8)


def made(load):
    records = []
    for i, (arrival, wait, between) in enumerate(load):
        now, sent = arrival + wait, arrival + wait
        times = RequestTimes(arrival)
        for gap in between:
            now += gap
            times.note(now)
        times.finished = now
        records.append(LatencyRecord(f"r{i}", times, "client", 3, sent=sent))
    return records


@given(loads, st.randoms(use_true_random=False))
def test_the_order_of_records_does_not_matter(load, random):
    records = made(load)
    mixed = random.sample(records, len(records))
    targets = Targets(ttft=2.0, e2el=4.0)
    assert summarize(mixed, targets=targets) == summarize(records, targets=targets)


@given(loads, loads)
def test_failed_requests_change_no_latency(load, failing):
    records = made(load)
    failed = [
        LatencyRecord(f"failed {r.request_id}", r.times, "client", error="reset")
        for r in made(failing)
    ]
    plain, mixed = summarize(records, duration=1e4), summarize(records + failed, duration=1e4)
    assert mixed.failed == len(failed) and plain.failed == 0
    assert {**mixed.to_dict(), "failed": 0} == plain.to_dict()


@given(loads)
def test_goodput_never_exceeds_throughput_and_strict_targets_never_help(load):
    records = made(load)
    loose = summarize(records, duration=100, targets=Targets(ttft=3.0)).good
    strict = summarize(records, duration=100, targets=Targets(ttft=3.0, itl=1.0)).good
    assert strict <= loose <= len(records)


@given(loads)
def test_service_and_wait_make_the_whole(load):
    summary = summarize(made(load))
    waited = summary.wait_before_sending.mean
    assert summary.e2el.mean == pytest.approx(summary.service_e2el.mean + waited, abs=1e-9)
    assert summary.ttft.mean == pytest.approx(summary.service_ttft.mean + waited, abs=1e-9)
