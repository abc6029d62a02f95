"""The script for a GPU machine, in tiny sizes on the CPU: its logic, not its figures."""

import json

import pytest
import torch

from kvlab import triton_mode
from kvlab.measure import gpu_report, gpu_run
from kvlab.measure.gpu_pools import Pool, make_pool
from kvlab.measure.gpu_prefill import flops
from kvlab.measure.gpu_run import Part, run
from kvlab.measure.gpu_setting import DRY, FULL, Setting, tried

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without")
needs_kernels = pytest.mark.skipif(
    triton_mode.current().mode != "interpreted", reason="needs Triton's interpreter"
)


class Clock:
    """Seconds go by when a test says so."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(code, report read back) of a dry run of everything."""
    path = tmp_path_factory.mktemp("gpu") / "out" / "gpu.json"
    code = gpu_run.main(["--dry", "--tune", "--out", str(path)])
    return code, json.loads(path.read_text())


@needs_kernels
def test_all_parts_run_and_kernels_are_right(whole):
    code, report = whole
    assert code == 0 and report["dry"] is True
    parts = ["ceilings", "correctness", "decode", "prefill", "engine", "tune"]
    assert list(report) == ["machine", "dry", *parts]
    assert not [name for name in parts if "error" in report[name]]
    assert report["correctness"]["wrong"] == 0 and len(report["correctness"]["rows"]) == 9
    assert report["machine"]["triton_mode"] == "interpreted"


@needs_kernels
def test_ways_to_decode_agree_with_the_kernel(whole):
    (row,) = whole[1]["decode"]["rows"]
    for way in ("sdpa", "gather", "flex"):
        assert row[way]["differ"] < 1e-5, row[way]
    assert row["kv_bytes"] == 2 * 2 * 32 * 1 * 16 * 4  # K and V, 2 requests, 32 positions, 1 head
    assert [r["stored"] for r in whole[1]["decode"]["formats"]] == ["bf16", "fp8", "int8"]


@needs_kernels
def test_prefill_beside_torch_with_and_without_a_past(whole):
    rows = whole[1]["prefill"]["rows"]
    assert [(r["new"], r["before"]) for r in rows] == [(12, 0), (4, 9)]
    assert all(row["sdpa"]["differ"] < 1e-5 for row in rows)


@needs_kernels
def test_engines_continue_alike(whole):
    rows = {row["way"]: row for row in whole[1]["engine"]["rows"]}
    ran = [row for row in rows.values() if "seconds" in row]
    assert {"kvlab", "kvlab, eager"} <= {row["way"] for row in ran}
    assert all(row["same_tokens"] == row["tokens"] == 12 for row in ran)
    assert whole[1]["engine"]["runner"]["backend"] == "triton"


@needs_kernels
def test_the_table_of_each_part_can_be_read(whole):
    told = {name: gpu_report.section(name, whole[1]) for name in gpu_report.TABLES}
    assert "0 of 9 wrong" in told["correctness"]
    assert "kernel at least 85% of copy" in told["decode"]
    assert "goal: at least 0.7 of SDPA's speed" in told["prefill"]
    assert "decode, B 2, T 32, tile, splits" in told["tune"]


@needs_kernels
def test_a_wrong_kernel_is_found(monkeypatch, capsys):
    right = Pool.decode
    monkeypatch.setattr(Pool, "decode", lambda pool, **more: right(pool, **more) * 1.5)
    assert gpu_run.main(["--dry", "--only", "correctness"]) == 1
    told = capsys.readouterr().out
    assert "WRONG decode, 4/2 heads of 16" in told and "3 of 9 wrong" in told


def test_a_part_that_fails_leaves_the_rest():
    def broken(setting, so_far):
        raise MemoryError("no room")

    parts = [Part("one", 1, broken), Part("two", 1, lambda setting, so_far: {"n": len(so_far)})]
    seen = []
    report = run(Setting(CPU, DRY, dry=True), parts, lambda name, so_far: seen.append(name))
    assert report["one"]["error"] == "MemoryError: no room"
    assert report["two"]["n"] == 3 and seen == ["one", "two"]


def test_a_part_for_which_no_time_is_left_is_not_begun():
    clock = Clock()

    def slow(setting, so_far):
        clock.now += 80
        return {}

    setting = Setting(CPU, DRY, budget=100, clock=clock)
    report = run(setting, [Part("one", 30, slow), Part("two", 30, slow), Part("three", 10, slow)])
    assert report["one"] == {"seconds_taken": 80}
    assert report["two"]["skipped"] == "20 s left of 100, and it wants 30"
    assert report["three"]["seconds_taken"] == 80
    assert gpu_report.section("two", report) == (
        "\ntwo (0 s)\n  skipped: 20 s left of 100, and it wants 30"
    )


def test_without_a_gpu_it_says_what_can_be_done(capsys):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert gpu_run.main([]) == 1
    assert "--dry runs everything in tiny sizes on the CPU" in capsys.readouterr().out


def test_flops_of_a_prompt_and_of_a_chunk():
    setting = Setting(CPU, FULL)
    assert flops(setting, 1, 2, 0) == 4 * 32 * 128 * 3  # query 0 reads 1 key, query 1 reads 2
    assert flops(setting, 2, 2, 5) == 2 * 4 * 32 * 128 * (6 + 7)


def test_a_pool_and_its_rectangle_hold_the_same():
    setting = Setting(CPU, DRY, dry=True)
    pool = make_pool(setting, 3, 10)  # 3 blocks of 4, the last half full
    keys, _ = pool.rectangle()
    assert keys.shape == (3, 1, 10, 16) and pool.block_table.shape == (3, 3)
    block, offset = pool.block_table[2, 1], 5 % 4
    assert torch.equal(keys[2, 0, 5], pool.key_cache[block, offset, 0])
    assert sorted(pool.block_table.flatten().tolist()) == list(range(9))


def test_what_a_library_raises_is_kept_as_text():
    def fails():
        raise RuntimeError("CUDA error: out of memory")

    assert tried(fails) == {"error": "RuntimeError: CUDA error: out of memory"}
    assert tried(lambda: {"seconds": 1.0}) == {"seconds": 1.0}


def test_the_ratio_to_the_better_of_two():
    rows = [
        {"batch": 8, "way": "kvlab", "tokens_per_second": 300.0},
        {"batch": 8, "way": "generate_batch", "tokens_per_second": 60.0},
        {"batch": 8, "way": "generate_batch, graphs", "tokens_per_second": 100.0},
        {"batch": 64, "way": "kvlab", "tokens_per_second": 300.0},
        {"batch": 64, "way": "generate_batch", "error": "no"},
    ]
    assert gpu_report.over_batching(rows) == {8: "3.00 times generate_batch (goal: 2)"}
