"""Ceilings are measured on this device, counted as they say, and refuse what is not here."""

import json
import time

import pytest
import torch

from kvlab.measure import ceilings, devices, hardware
from kvlab.measure.ceilings import MIB, measure_ceilings
from kvlab.measure.roofline_records import Ceilings

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def found() -> Ceilings:
    return measure_ceilings("cpu", seconds=0.05, quick=True)


def test_three_rates_with_every_size_that_was_tried(found):
    assert [rate.unit for rate in (found.copy, found.read, found.matmul)] == [
        "B/s",
        "B/s",
        "FLOP/s",
    ]
    assert [at.size for at in found.copy.tried] == ["0.5 MiB", "2 MiB", "8 MiB"]
    assert {at.how for at in found.read.tried} == {"sum", "matrix-vector"}
    assert [at.size for at in found.matmul.tried] == ["64 x 64", "128 x 128"]
    for rate in (found.copy, found.read, found.matmul):
        assert 0 < rate.min <= rate.median <= rate.max
        assert rate.median == max(at.rate.median for at in rate.tried)
        assert all(len(at.rate.repetitions) >= ceilings.REPETITIONS[0] for at in rate.tried)
    assert found.bandwidth == max(found.copy.median, found.read.median)
    assert (found.device, found.dtype) == ("cpu", "float32") and found.name
    assert found.threads == torch.get_num_threads()


def test_json_and_back(found):
    assert Ceilings.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_a_copy_counts_both_sides_and_copies_the_whole_pool():
    by_kind = {}
    for trial in ceilings.memory_trials(CPU, torch.float32, quick=True):
        by_kind.setdefault((trial.kind, trial.how), []).append(trial.amount)
    assert by_kind == {
        ("copy", "copy"): [16 * MIB] * 3,  # 8 MiB read and 8 MiB written
        ("read", "sum"): [8 * MIB] * 3,
        ("read", "matrix-vector"): [8 * MIB] * 3,
    }


def test_every_byte_is_moved_read_and_multiplied():
    """What the trials return shows that no piece was left out."""
    trials = list(ceilings.memory_trials(CPU, torch.float32, quick=True))
    sums = {t.size: sum(map(float, t.work())) for t in trials if t.how == "sum"}
    products = {
        t.size: sum(float(x.sum()) for x in t.work()) for t in trials if t.how == "matrix-vector"
    }
    whole = float(ceilings._filled(8 * MIB // 4, torch.float32, CPU).sum(dtype=torch.float64))
    assert whole != 0
    for size, value in (*sums.items(), *products.items()):
        assert value == pytest.approx(whole, abs=0.5), size
    pairs = trials[0].work.__defaults__[0]
    pairs[-1][1].zero_()
    trials[0].work()
    assert all(torch.equal(source, target) for source, target in pairs) and len(pairs) == 16


def test_products_count_2_n_cubed_each_and_rotate_over_pairs():
    trial = next(iter(ceilings.matmul_trials(CPU, torch.float32, quick=True)))
    pairs, out = trial.work.__defaults__
    assert trial.amount == len(pairs) * 2 * 64**3 and len(pairs) >= 2
    trial.work()
    torch.testing.assert_close(out, pairs[-1][0] @ pairs[-1][1])


@pytest.mark.parametrize("cache", [None, 1, 96 * MIB, 300 * MIB, 10**12])
def test_a_pool_exceeds_the_last_level_cache(monkeypatch, cache):
    monkeypatch.setattr(devices, "cache_nbytes", lambda _: cache)
    nbytes = ceilings.pool_nbytes(CPU)
    assert 256 * MIB <= nbytes <= ceilings.MOST_POOL
    assert nbytes >= min(4 * (cache or 0), ceilings.MOST_POOL)


def test_progress_counts_to_the_end():
    told = []
    measure_ceilings(seconds=0.01, quick=True, progress=lambda *a: told.append(a))
    assert [done for done, _, _ in told] == list(range(12)) and {of for _, of, _ in told} == {11}
    assert told[0][2] == "copy, copy, 0.5 MiB" and told[-1][2] == ""


def test_devices_and_dtypes_of_this_machine():
    assert devices.names()[0] == "cpu" and devices.default_device() == devices.names()[-1]
    assert devices.checked_device("cpu") == CPU
    assert devices.checked_dtype(None, CPU) is torch.float32
    assert devices.checked_dtype("float64", CPU) is torch.float64
    assert devices.checked_dtype(None, torch.device("mps")) is torch.float16
    assert devices.device_name(CPU)
    labels = [devices.label(torch.device(d)) for d in ("cpu", "cuda", "cuda:0", "cuda:1")]
    assert labels == ["cpu", "cuda", "cuda", "cuda:1"]
    cache, free = devices.cache_nbytes(CPU), devices.free_nbytes(CPU)
    assert cache is None or cache > 2**15
    assert free is None or free > 2**20


def test_elapsed_holds_all_of_the_work():
    assert devices.elapsed(CPU, lambda: time.sleep(0.02)) >= 0.02
    assert ceilings.sample(lambda: time.sleep(0.02), CPU, inner=2) >= 0.02


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "tpu"}, "device is 'tpu'; here there is cpu"),
        ({"device": "meta"}, "device is 'meta'"),
        ({"device": 3.5}, "device is 3.5"),
        ({"dtype": "int8"}, "dtype is 'int8'; give float32"),
        ({"dtype": "float99"}, "dtype is 'float99'"),
        ({"dtype": torch.bfloat16}, "bfloat16 on a CPU; give float32"),
        ({"dtype": "float16"}, "float16 on a CPU"),
        ({"seconds": 0}, "seconds is 0; give a number above 0"),
        ({"seconds": True}, "seconds is True; give a number above 0"),
        ({"seconds": None}, "seconds is None; give a number above 0"),
    ],
)
def test_bad_input_is_named_with_its_remedy(options, said):
    with pytest.raises(ValueError, match=said):
        measure_ceilings(**options)


def test_buffers_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(devices, "free_nbytes", lambda _: 4 * MIB)
    with pytest.raises(ValueError, match=r"copies of 8 MiB takes .* close what else runs"):
        measure_ceilings(quick=True)


def test_the_bench_table_shows_both_ratios_with_goal_and_what_eats_the_rest():
    found = hardware.measure(1, quick=True)
    printed = hardware.table(found)
    assert printed.count("50% met") + printed.count("50% MISSED") == 2  # a goal for each phase
    for words in ("prefill 1 x 16", "decode 1 x 16", "matrix product", "products alone"):
        assert words in printed
    ratio = found["ratios"]["decode"]["repetitions"][0]
    rates = found["rates"]
    assert ratio == rates["decode"]["repetitions"][0] / rates["copy"]["repetitions"][0]
    read = json.loads(json.dumps(found))["ceilings"]
    assert Ceilings.from_dict(read) == Ceilings.from_dict(found["ceilings"])
