"""The log of a kernel's run: slots against the block table, and JSON both ways (section 21.5)."""

import json
import sys
from math import inf, isnan, nan
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from kernel_log_cases import FIRST, NOTHING, TURNS, small_log, turn

from kvlab.core.kernel_log import VERSION, KernelLog, recorded_log


def test_slots_that_were_read_are_those_of_the_table() -> None:
    log = small_log()
    assert log.table_slots(0) == [28, 29, 30, 31, 8, 9, 10, 11, 20, 21]
    assert log.slots_read(0, 0) == log.slots_read(0, 0, "values") == log.table_slots(0)
    assert small_log(window=3).table_slots(0) == [11, 20, 21]
    assert [t.masked for _, t in log.turns()] == [(), (), (10, 11)]
    assert [t.slots for _, t in log.turns()][2] == (20, 21)
    assert log.group == 2 and log.programs[1].ids == (0, 0, 1)


def test_splits_count_in_their_own_order_whenever_they_ran() -> None:
    log = small_log()
    backwards = small_log(programs=log.programs[::-1])
    assert backwards.slots_read(0, 0) == log.table_slots(0)
    assert [p.split for p in backwards.programs] == [1, 0]


def test_a_line_is_found_in_its_function() -> None:
    log = small_log()
    source = log.source_of(14)
    assert source.name == "decode" and source.line(14) == "        key = tl.load(key_ptr + slot)"
    assert log.source_of(9) is None and log.source_of(20) is None


def test_json_both_ways() -> None:
    log = small_log()
    text = json.dumps(log.to_dict(), allow_nan=False)  # minus infinity is a text
    assert KernelLog.from_dict(json.loads(text)) == log
    assert KernelLog.from_dict(json.loads(text)).programs[0].turns[0].max2_before == (-inf, -inf)


def test_a_running_sum_that_is_no_number_survives() -> None:
    broken = turn(0, (28, 29, 30, 31), ((0, 7),), NOTHING, (FIRST[0], (nan, 1.0)))
    again = KernelLog.from_dict(small_log((broken, *TURNS[1:])).to_dict())
    assert isnan(again.programs[0].turns[0].sums[0])


def test_what_is_no_log_is_refused() -> None:
    document = small_log().to_dict()
    with pytest.raises(ValueError, match=f"version {VERSION}: its version is 99"):
        KernelLog.from_dict({**document, "version": 99})
    with pytest.raises(ValueError, match="its version is None"):
        KernelLog.from_dict([1, 2])
    with pytest.raises(ValueError, match="no kernel log: TypeError"):
        KernelLog.from_dict({**document, "programs": [{"request": 0}]} | {"sources": 3})
    with pytest.raises(ValueError, match="no kernel log"):
        KernelLog.from_dict({**document, "colour": "red"})


def test_the_recorded_log_says_that_it_is_recorded() -> None:
    log = recorded_log()
    assert log.recorded and repr(log).endswith("turns, recorded)")
    assert repr(small_log()) == "KernelLog(2 programs, 3 turns)"
    for request in range(len(log.seq_lens)):
        for head in range(log.num_kv_heads):
            assert log.slots_read(request, head) == log.table_slots(request)
            assert log.slots_read(request, head, "values") == log.table_slots(request)
    assert all(abs(sum(one.weights) - 1) < 1e-5 for one in log.reduces)
