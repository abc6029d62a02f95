"""The first token's way, seen at three boundaries (section 21.2, equation 21.4)."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.metrics import RequestTimes
from kvlab.core.ttft import MOMENTS, PARTS, TERMS, FirstTokenStamps, Interval

WHOLE = FirstTokenStamps(  # milliseconds are easier to read than seconds
    client_sent=0,
    server_arrival=2,
    submitted=3,
    first_scheduled=11,
    first_logits=31,
    selected=32,
    server_sent=36,
    client_received=39,
)


def lengths(stamps: FirstTokenStamps, boundary: str) -> dict[str, float]:
    return {i.name: i.duration for i in stamps.intervals(boundary)}


def test_equation_21_4_with_the_book_s_numbers() -> None:
    """8 + 20 + 5 = 33 ms, the 5 shared by selection and delivery."""
    book = FirstTokenStamps.from_terms(queue=0.008, prefill=0.020, selection=0.002, delivery=0.003)
    assert book.ttft("server") == pytest.approx(0.033)
    assert list(lengths(book, "server").values()) == pytest.approx([0, 0.008, 0.020, 0.002, 0.003])
    assert book.remainder("server") == 0
    assert book.ttft("engine") == pytest.approx(0.030)  # the engine sees no delivery


def test_one_run_has_three_times_to_first_token() -> None:
    seen = {b: WHOLE.ttft(b) for b in WHOLE.boundaries}
    assert seen == {"engine": 29, "server": 34, "client": 39}
    assert lengths(WHOLE, "engine") == {"queue": 8, "prefill": 20, "selection": 1}
    assert lengths(WHOLE, "server") == {
        **{"preparation": 1, "queue": 8, "prefill": 20},
        **{"selection": 1, "delivery": 4},
    }
    assert list(lengths(WHOLE, "client")) == list(PARTS)
    assert [WHOLE.remainder(b) for b in WHOLE.boundaries] == [0, 1, 6]


def test_parts_that_nobody_told_apart_stay_together() -> None:
    stamps = FirstTokenStamps(3, 11, 32, client_sent=0, client_received=39)
    assert stamps.boundaries == ("engine", "client")
    assert stamps.intervals("client") == (
        Interval(("way there", "preparation"), 0, 3),
        Interval(("queue",), 3, 11),
        Interval(("prefill", "selection"), 11, 32),
        Interval(("delivery", "way back"), 32, 39),
    )
    assert stamps.intervals("engine")[1].is_term and not stamps.intervals("client")[3].is_term
    assert stamps.remainder("client") == 3 + 7


def test_the_engine_s_moments_come_from_request_times() -> None:
    times = RequestTimes(3.0, 11.0, 31.0)
    with pytest.raises(ValueError, match="no first token; wait until the engine gave one"):
        FirstTokenStamps.from_times(times)
    times.note(32.0)
    times.note(40.0)
    stamps = FirstTokenStamps.from_times(times, server_arrival=2.0, server_sent=36.0)
    assert stamps.ttft() == times.ttft == 29.0 and stamps.ttft("server") == 34.0
    terms = [i.duration for i in stamps.intervals("engine")]
    assert terms == [times.queue_time, times.prefill_time, times.selection_time]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"server_sent": 30}, "server_sent is 30, before selected at 32; give moments of one"),
        ({"submitted": 1}, "submitted is 1, before server_arrival at 2"),
        ({"client_received": 5, "server_sent": None}, "client_received is 5, before selected at"),
        ({"first_logits": float("nan")}, "first_logits is nan; give a finite time"),
        ({"client_sent": True}, "client_sent is True; give a finite time"),
        ({"selected": None}, "selected is None; give the engine's three moments"),
    ],
)
def test_an_order_that_cannot_have_happened_is_refused(changes: dict, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        FirstTokenStamps(**{**WHOLE.to_dict(), **changes})


def test_a_boundary_that_was_not_noted_is_refused() -> None:
    bare = FirstTokenStamps(3, 11, 32)
    assert bare.boundaries == ("engine",)
    with pytest.raises(ValueError, match="client's boundary needs client_sent and client_received"):
        bare.ttft("client")
    with pytest.raises(ValueError, match="boundary is 'kernel'; give one of engine, server, clien"):
        bare.intervals("kernel")


def test_json_both_ways() -> None:
    assert FirstTokenStamps.from_dict(WHOLE.to_dict()) == WHOLE
    with pytest.raises(ValueError, match="unknown: sent"):
        FirstTokenStamps.from_dict({**WHOLE.to_dict(), "sent": 1.0})
    with pytest.raises(ValueError, match="missing: selected"):
        FirstTokenStamps.from_dict({"submitted": 1.0, "first_scheduled": 1.0})


@given(
    st.lists(st.integers(0, 50), min_size=len(MOMENTS), max_size=len(MOMENTS)),
    st.sets(st.sampled_from(sorted(set(MOMENTS) - {"submitted", "first_scheduled", "selected"}))),
)
def test_intervals_cover_their_boundary_without_gap_or_overlap(gaps, left_out) -> None:
    moments, now = {}, 0
    for name, gap in zip(MOMENTS, gaps, strict=True):
        now += gap
        moments[name] = None if name in left_out else now
    stamps = FirstTokenStamps(**moments)
    for boundary in stamps.boundaries:
        found = stamps.intervals(boundary)
        assert (found[0].begin, found[-1].end) == stamps.ends(boundary)
        assert all(a.end == b.begin for a, b in pairwise(found))
        terms = sum(i.duration for i in found if i.is_term)
        assert terms + stamps.remainder(boundary) == stamps.ttft(boundary)
        assert all(set(i.parts) <= set(PARTS) and set(TERMS) < set(PARTS) for i in found)
    inner_to_outer = [stamps.ttft(b) for b in stamps.boundaries]
    assert inner_to_outer == sorted(inner_to_outer)  # a wider boundary never sees less
