"""The view "watch a kernel": stops, sentences, lines, and three forms (section 21.5)."""

import json
import re
import sys
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "core"))

from kernel_log_cases import FIRST, LAST, NOTHING, SECOND, TURNS, small_log, turn

from kvlab.core.kernel_log import Reduce, recorded_log
from kvlab.widgets import kernel_html, kernel_payload, kernel_view
from kvlab.widgets.kernel_story import lines_of_parts
from kvlab.widgets.kernel_words import number, ranges

HOSTILE = "<img src=x onerror=alert(1)>"


def said(log, kind: str) -> list[str]:
    return [stop["sentence"] for stop in kernel_payload(log)["stops"] if stop["kind"] == kind]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ((20, 21, 2, 3), "20 to 21, 2 to 3. The 2 masked places read no keys, but values all the"),
        ((20, 21, 2, None), "20 to 21, 2. The 2 masked places read no keys; 1 of them read values"),
        ((20, None, None, None), "values from slots 20. The 2 masked places read nothing."),
    ],
)
def test_values_read_without_a_mask_are_told(values, told) -> None:
    unmasked = turn(8, values, ((2, 5),), NOTHING, LAST, keys=(20, 21, None, None))
    sentence = said(small_log((*TURNS[:2], unmasked)), "read")[2]
    assert "keys are read from slots 20 to 21, values from slots" in sentence
    assert told in sentence


def test_it_opens_at_a_named_stop() -> None:
    plain = kernel_payload(small_log())
    at = kernel_payload(small_log(), at="turn 2 of 2")["at"]
    assert plain["stops"][at]["kind"] == "lookup" and plain["stops"][at]["turn"] == 1
    assert kernel_payload(small_log(), at=4) == plain | {"at": 4} and "at" not in plain
    assert kernel_view(recorded_log(), at="the earlier sum is scaled").payload["at"] == 7
    for wrong in (-1, 99, True, "", "turn 9"):
        with pytest.raises(ValueError, match=r"at is .*; give the number of a stop, 0 to \d+, or"):
            kernel_view(small_log(), at=wrong)


def test_blocks_freed_behind_a_window_are_told_and_not_drawn() -> None:
    log = small_log(block_table=((-1, 2, 5),), window=6, num_blocks=100)
    (started, _) = said(log, "start")
    assert "10 positions in blocks 2, 5 (1 before them was freed). Its share" in started
    assert -1 not in kernel_payload(log)["blocks"]


def test_scores_of_minus_infinity_alone_and_nan_are_shown_as_such() -> None:
    """-3.4e38 is what the kernel holds as their maximum."""
    first = replace(TURNS[0], max2=(-3.4028234663852886e38, 1.0), sums=(0.0, 1.0))
    second = replace(TURNS[1], max2_before=first.max2, sums_before=first.sums)
    log = small_log((first, second, TURNS[2]), reduces=(Reduce(0, 0, (nan, nan), (10,), None),))
    told = said(log, "sum")
    assert "Query head 0: running max −∞ → −∞, sum 0.00." in told[0]
    assert "Query head 0: running max −∞ → 4.10, sum 2.94." in told[1]
    payload = kernel_payload(log)
    assert payload["reduces"] == [[0, 0, [None, None]]]
    assert payload["scale"]["max2"][0] > -1e3
    assert "<td>NaN</td>" in kernel_html(payload)


def test_stops_come_in_the_order_in_which_things_happened() -> None:
    kinds = [stop["kind"] for stop in kernel_payload(small_log())["stops"]]
    turn_of = ["lookup", "read", "sum"]
    first = ["start", *turn_of, *turn_of, "store"]
    assert kinds == ["all", *first, "start", *turn_of, "store", "reduce", "end"]


def test_a_turn_tells_its_whole_story() -> None:
    log = small_log()
    assert said(log, "lookup")[2] == (
        "Program (request 0 (A), KV head 0, split 1), turn 1 of 1: positions 8 to 11, of which "
        "10 to 11 are masked. Entry 2 of the block table says block 5."
    )
    assert said(log, "read")[2] == (
        "Program (request 0 (A), KV head 0, split 1), turn 1 of 1: keys and values of KV head 0 "
        "are read from slots 20 to 21, that is 2 slots in this order. The 2 masked places read "
        "nothing."
    )
    assert said(log, "sum")[1] == (
        "Program (request 0 (A), KV head 0, split 0), turn 2 of 2: positions 4 to 7 → block 2 → "
        "slots 8 to 11. Query head 0: running max 3.20 → 4.10, so the earlier sum is scaled by "
        "2^(3.20 − 4.10) = 0.536; sum 1.75 × 0.536 + 2.00 = 2.94. Query head 1: max stays 5.00; "
        "sum 2.00 + 0.40 = 2.40."
    )
    assert "Query head 0: running max −∞ → −1.50, sum 1.25." in said(log, "sum")[2]


def test_programs_begin_and_end() -> None:
    log = small_log()
    assert said(log, "start")[0] == (
        "Program (request 0 (A), KV head 0, split 0) starts. Its request has 10 positions in "
        "blocks 7, 2, 5. Its share is 2 tiles, positions 0 to 7. Running max −∞, running sum 0."
    )
    assert "max 4.10 and sum 2.94" in said(log, "store")[0]
    assert said(log, "reduce") == [
        "The second kernel puts the splits of request 0 (A) together, one program a query head. "
        "Shares of split 0 and split 1: 0.90 and 0.10 for query head 0; 1.00 and 0.00 for query "
        "head 1."
    ]
    assert said(log, "end")[0].endswith(
        "from the slot that the block table names: 10 slots of the pool in all. The other 30 were "
        "not touched, whatever lies in them."
    )


def test_a_split_without_positions_makes_no_turn() -> None:
    programs = (
        *small_log().programs[:1],
        small_log().programs[1].__class__(0, 0, 1, (11,), (), ()),
    )
    log = small_log(programs=programs, seq_lens=(8,), block_table=((7, 2),))
    assert "Its share is empty" in said(log, "start")[1]
    assert "stores zeros, and −∞ as its weight" in said(log, "store")[1]
    assert said(log, "end")[0].startswith("For each request and KV head, every position was read")


def test_a_kernel_that_reads_elsewhere_is_not_called_right() -> None:
    astray = turn(8, (20, 22, None, None), ((2, 5),), *(FIRST, SECOND))
    assert said(small_log((*TURNS[:2], astray)), "end") == [
        "WRONG: of request 0 (A) and KV head 0, the keys of slots 28 to 31, 8 to 11, 20, 22 were "
        "read; the block table says 28 to 31, 8 to 11, 20 to 21."
    ]
    unmasked = turn(8, (20, 21, 22, 23), ((2, 5),), FIRST, SECOND, keys=(20, 21, None, None))
    log = small_log((*TURNS[:2], unmasked))
    assert "the values of slots 28 to 31, 8 to 11, 20 to 23 were read" in said(log, "end")[0]
    assert "keys are read from slots 20 to 21, values from slots 20 to 23" in said(log, "read")[2]
    assert kernel_payload(log)["programs"][1]["turns"][0]["values"] == [20, 21, 22, 23]


def test_lines_are_divided_in_the_order_in_which_they_ran() -> None:
    parts = lines_of_parts(TURNS[1])
    assert parts == {
        "lookup": ((12, 13), [13]),
        "read": ((14, 15), [14, 15]),
        "sum": ((16, 17, 18), [16, 17]),
    }
    late = TURNS[1].__class__(**{**vars(TURNS[1]), "lines": (12, 13, 14, 16, 17, 18, 15)})
    assert lines_of_parts(late)["read"] == ((14,), [14])
    assert lines_of_parts(late)["sum"] == ((16, 17, 18, 15), [16, 17, 15])


def test_numbers_are_rounded_and_never_minus_nought() -> None:
    assert [number(x) for x in (3.2, -0.001, -1.504, -inf)] == ["3.20", "0.00", "−1.50", "−∞"]
    assert ranges([28, 29, 30, 8, 9, 5, 7]) == "28 to 30, 8 to 9, 5, 7" and ranges([]) == ""


def test_a_log_whose_sum_is_no_number_can_be_looked_at() -> None:
    no_number = (FIRST[0], (nan, nan))
    broken = turn(0, (28, 29, 30, 31), ((0, 7),), no_number, no_number)
    log = small_log((broken, *TURNS[1:]))
    payload = kernel_payload(log)
    assert payload["programs"][0]["turns"][0]["sums"][1][0] == [None, "NaN"]
    json.dumps(payload, allow_nan=False)
    assert "sum NaN" in said(log, "sum")[0]


def test_large_pools_draw_what_the_tables_name() -> None:
    payload = kernel_payload(small_log(num_blocks=500))
    assert payload["blocks"] == [2, 5, 7] and payload["left_out"] == 497


def test_three_forms() -> None:
    log = small_log(names=(HOSTILE,), about=HOSTILE)
    one, other = (kernel_view(log, title=HOSTILE) for _ in range(2))
    data, _ = one._repr_mimebundle_()
    assert data["text/plain"] == "KernelWatch(2 programs, 3 turns)"
    page = data["text/html"]
    assert page == other.html() and "<img" not in page and page.count("<li>") == 16
    assert json.loads(re.search(r"<script[^>]*>(.*?)</script>", page, re.S)[1]) == one.payload
    row = '<th scope="row">0, 0, 1</th><td>1 of 1</td><td>8 to 11</td><td>5</td><td>20 to 21</td>'
    assert row + "<td>10 to 11</td><td>−∞ → −1.50; −∞ → 0.25</td>" in page
    assert '<th scope="row">0, 0</th><td>0.90</td><td>0.10</td>' in page
    assert all(line.strip() for line in page.splitlines())


def test_a_recorded_log_is_marked_in_every_form() -> None:
    view = kernel_view(recorded_log())
    assert repr(view).endswith("turns, recorded)")
    assert view.payload["recorded"] and view.payload["about"].startswith("RECORDED, not run here")
    assert view.payload["stops"][0]["sentence"].startswith("Recorded elsewhere, since no kernel")
    assert "RECORDED, not run here" in view.html()
    assert "RECORDED" not in kernel_html(kernel_payload(small_log()))


def test_what_is_no_log_is_refused() -> None:
    with pytest.raises(ValueError, match="log has type dict; give what watch_decode returns"):
        kernel_view(small_log().to_dict())
