"""Latencies of one request from its events: cases T01, T03, T05, T07 and claims 21.2-b to -d."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.metrics import RequestTimes, TokenEvent


def times(*events, arrival=0.0, **more):
    """A request whose output came at (time, tokens), or at a time with one token."""
    found = RequestTimes(arrival, **more)
    for event in events:
        found.note(*event) if isinstance(event, tuple) else found.note(event)
    return found


def test_three_tokens_have_two_gaps_T01():
    found = times(1.00, 1.01, 1.02)
    assert found.ttft == 1.0
    assert found.itl == pytest.approx([0.01, 0.01])
    assert found.num_output_tokens == 3 and found.token_times == [1.00, 1.01, 1.02]


def test_normalized_latency_is_another_quantity_under_another_name_T03():
    found = times(1.00, 1.01, 1.02, 1.03, finished=1.03)
    assert found.ttft == 1.0
    assert found.tpot == pytest.approx(0.010)
    assert found.normalized_latency == pytest.approx(0.2575)
    assert found.e2el == 1.03


def test_gaps_between_events_and_time_per_token_count_different_things_T05():
    found = times((0.5, 1), (0.6, 4), (0.7, 4))
    assert found.num_output_tokens == 9
    assert found.itl == pytest.approx([0.1, 0.1])
    assert found.tpot == pytest.approx(0.025)
    assert found.itl_by_token == pytest.approx([0.025] * 8)
    assert found.token_times == [0.5, 0.6, 0.6, 0.6, 0.6, 0.7, 0.7, 0.7, 0.7]


def test_an_event_without_text_is_no_token_T07():
    found = times((0.9, 0), 2.2, (2.21, 0), 2.22, (2.3, 0))
    assert found.ttft == 2.2
    assert found.itl == pytest.approx([0.02])
    assert found.events == [TokenEvent(2.2, 1), TokenEvent(2.22, 1)]


def test_one_token_has_no_time_per_output_token_T09():
    alone, three = times(0.5, finished=0.5), times(0.5, 0.6, 0.7)
    assert alone.tpot is None and alone.itl == [] and alone.itl_by_token == []
    assert alone.normalized_latency == 0.5
    assert three.tpot == pytest.approx(0.1)


def test_the_parts_of_the_time_to_first_token_add_up():
    """Eq 21.4, and claim 21.2-b: 8 + 20 + 5 = 33 ms."""
    found = times(1.033, arrival=1.0, first_scheduled=1.008, first_logits=1.028)
    parts = (found.queue_time, found.prefill_time, found.selection_time)
    assert parts == pytest.approx((0.008, 0.020, 0.005))
    assert found.ttft == pytest.approx(0.033)


def test_time_per_output_token_from_end_to_end_latency():
    """Claim 21.2-c: (180 - 100) / (5 - 1) = 20 ms, where both end at the last token."""
    found = times(0.100, 0.115, 0.140, 0.160, 0.180, finished=0.180)
    assert found.tpot == pytest.approx(0.020)
    assert found.tpot == pytest.approx((found.e2el - found.ttft) / (5 - 1))


def test_an_end_after_the_last_token_is_no_part_of_the_time_per_token():
    found = times(0.1, 0.2, finished=0.9)
    assert found.tpot == pytest.approx(0.1) and found.e2el == 0.9


def test_the_count_of_the_server_goes_before_the_count_of_events():
    found = times(0.5, 0.6, 0.7, counted=9)
    assert found.num_output_tokens == 9
    assert found.tpot == pytest.approx(0.025)
    assert found.itl == pytest.approx([0.1, 0.1])


@pytest.mark.parametrize("counted", [0, 1])
def test_a_count_below_two_leaves_the_time_per_token_undefined(counted):
    """The server says one token, or none, and two pieces of text came."""
    found = times(0.5, 0.6, finished=0.6, counted=counted)
    assert found.tpot is None and found.num_output_tokens == counted
    assert found.itl == pytest.approx([0.1])
    assert found.normalized_latency == (0.6 if counted else None)


def test_an_answer_in_one_piece_shows_no_time_between_tokens():
    found = times((2.0, 40), finished=2.0)
    assert found.num_output_tokens == 40 and found.token_times == [2.0] * 40
    assert found.tpot is None and found.itl_by_token == []


def test_tokens_of_the_first_event_waited_for_no_gap():
    found = times((1.0, 3), (1.4, 2))
    assert found.itl_by_token == pytest.approx([0.0, 0.0, 0.2, 0.2])
    assert math.fsum(found.itl_by_token) / 4 == pytest.approx(found.tpot)


def test_what_has_not_happened_has_no_latency():
    waiting = RequestTimes(3.0)
    names = ("first_token", "queue_time", "prefill_time", "selection_time", "ttft", "tpot")
    for name in (*names, "e2el", "normalized_latency"):
        assert getattr(waiting, name) is None
    assert waiting.itl == waiting.itl_by_token == waiting.token_times == []
    assert RequestTimes(3.0, finished=4.0).normalized_latency is None


def test_prefill_is_unknown_where_nobody_noted_its_end():
    found = times(1.2, arrival=1.0, first_scheduled=1.1)
    assert (found.prefill_time, found.selection_time) == (None, None)
    assert found.queue_time == pytest.approx(0.1)


def test_a_negative_number_of_tokens_is_refused_and_changes_nothing():
    found = times(1.0)
    with pytest.raises(ValueError, match="num_tokens is -2; give 0 or more"):
        found.note(2.0, -2)
    assert found.events == [TokenEvent(1.0, 1)]


def test_times_counted_from_another_moment():
    found = times((12.0, 2), arrival=11.0, first_scheduled=11.5, finished=13.0, counted=4)
    shifted = found.since(10.0)
    assert shifted == RequestTimes(1.0, 1.5, None, [TokenEvent(2.0, 2)], 3.0, 4)
    assert found.arrival == 11.0


events = st.lists(st.tuples(st.floats(0, 10), st.integers(1, 6)), min_size=2)


@given(events, st.floats(0, 100))
def test_first_token_and_the_rest_make_the_whole(gaps_and_tokens, arrival):
    """ttft + tpot * (n - 1) is the time from arrival to the last token."""
    now, found = arrival, RequestTimes(arrival)
    for gap, tokens in gaps_and_tokens:
        now += gap
        found.note(now, tokens)
    n = found.num_output_tokens
    assert found.ttft + found.tpot * (n - 1) == pytest.approx(now - arrival, abs=1e-9)
    assert len(found.token_times) == n and len(found.itl_by_token) == n - 1
    assert math.fsum(found.itl) == pytest.approx(found.tpot * (n - 1), abs=1e-9)
    assert math.fsum(found.itl_by_token) == pytest.approx(math.fsum(found.itl), abs=1e-9)


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 3))))
def test_events_without_tokens_change_nothing(pieces):
    ordered = sorted(pieces)
    kept = [piece for piece in ordered if piece[1]]
    assert times(*ordered) == times(*kept)
