"""The benchmark runs, prints every row and writes what it found. No test asserts a time."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from kvlab.core import presets
from kvlab.measure import (
    agreement,
    bench,
    editor_speed,
    footprint,
    hardware,
    machine,
    manager_speed,
    paged_decode,
    report,
    rounds,
    scheduler_cost,
    server_overhead,
    simulator_error,
    subjects,
    throughput,
)
from kvlab.measure import competitors as c

ROWS = (
    "random Llama",
    "tiny model",
    c.KVLAB,
    *("at 135 million parameters", "Paged decode", "paged / contiguous"),
    *("admit/s", "append/s", "free/s", "without hits", "with hits", "prompt 64", "pool 256"),
    *("Simulator against the machine", "held out"),
    *("embedded model", "16 running", "share of the step"),
    *("Ceilings of", "prefill 1 x 16", "decode 1 x 16", "outside torch"),
    *("engine alone", "through HTTP", "way back"),
    *("redraws/s", "llama-3.1-8b", "mamba-2.8b"),
    *footprint.PROGRAMS,
    "peak MiB",
    "Run All",
    "21_6_growth",
)


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory) -> tuple[str, dict, Path]:
    """What a quick run in a fresh process prints, and the one file that it writes."""
    out = tmp_path_factory.mktemp("results")
    program = (
        "import sys; from pathlib import Path; from kvlab.measure import bench\n"
        "code = bench.main(Path(sys.argv[1]), quick=True)\n"
        "print('transformers imported:', 'transformers' in sys.modules)\n"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(out)],
        capture_output=True,
        text=True,
        env=footprint.environment(),
    )
    assert done.returncode == 0, done.stderr
    (path,) = out.iterdir()
    return done.stdout, json.loads(path.read_text(encoding="utf-8")), path


def test_a_quick_run_prints_every_row(quick_run) -> None:
    printed = quick_run[0]
    assert [row for row in ROWS if row not in printed] == []
    assert printed.count(throughput.QUICK) == 3  # all their rates, 135 million, memory
    assert "transformers imported: False" in printed


def test_the_file_holds_machine_versions_settings_and_repetitions(quick_run) -> None:
    _, result, path = quick_run
    assert set(result["machine"]) >= {"cpu", "cores", "memory_bytes"}
    assert set(result["versions"]) == {"python", "torch", "transformers", "kvlab"}
    assert result["settings"]["quick"] is True and result["settings"]["threads"] == 1
    assert [(r["model"], r["batch"]) for r in result["generation"]] == [
        ("random Llama", 1),
        ("random Llama", 16),
        ("tiny model", 1),
        ("tiny model", 16),
    ]
    for row in result["generation"]:
        rate = row["engines"]["kvlab"]["tokens_per_second"]
        assert len(rate["repetitions"]) == 1 and rate["median"] == rate["repetitions"][0] > 0
    assert result["calculator"].keys() == set(presets.names())
    assert all(len(row["seconds"]["repetitions"]) == 1 for row in result["calculator"].values())
    assert result["memory"]["kvlab"]["median"] > result["memory"]["torch"]["median"] > 0
    assert path.name == f"{result['date']}-{machine.short_name(result['machine'])}.json"


def test_the_file_says_nothing_of_paths_or_names(quick_run) -> None:
    text = quick_run[2].read_text(encoding="utf-8")
    own = (platform.node(), sys.prefix, str(Path(__file__).parents[2]))
    assert [name for name in own if name in text] == []


def test_without_a_folder_no_file_is_written(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(throughput, "measure", lambda *_: [])
    monkeypatch.setattr(paged_decode, "measure", lambda *_: [])
    monkeypatch.setattr(manager_speed, "measure", lambda *_: {})
    monkeypatch.setattr(simulator_error, "measure", lambda *_: None)
    monkeypatch.setattr(simulator_error, "table", lambda _: "")
    monkeypatch.setattr(scheduler_cost, "measure", lambda *_: {})
    monkeypatch.setattr(hardware, "measure", lambda *_: {})
    monkeypatch.setattr(hardware, "table", lambda _: "")
    monkeypatch.setattr(server_overhead, "measure", lambda *_: {"missing": "httpx"})
    monkeypatch.setattr(editor_speed, "measure", lambda *_: {})
    monkeypatch.setattr(footprint, "import_times", lambda *_: {})
    monkeypatch.setattr(footprint, "peak_memory", lambda *_: {})
    assert bench.main(quick=True) == 0
    assert list(tmp_path.iterdir()) == [] and "Written" not in capsys.readouterr().out


@pytest.mark.parametrize("where", ["file", "file/below", "/dev/null", "/proc/none"])
def test_a_folder_that_takes_no_file_is_refused_before_anything_is_measured(
    tmp_path, capsys, where: str
) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match=f"--out is '.*{where}', and no file can be written in"):
        bench.main(out=tmp_path / where, quick=True)
    assert capsys.readouterr().out == ""
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("file", "mine")]


def test_a_folder_is_made_when_there_is_something_to_write(tmp_path) -> None:
    out, result = tmp_path / "new" / "results", bench._identity(bench.QUICK, True)
    target = bench._target(out, result)
    assert list(tmp_path.iterdir()) == []
    bench._write(target, result)
    assert json.loads(target.read_text(encoding="utf-8")) == json.loads(bench._json(result))
    target.unlink(), target.mkdir()
    with pytest.raises(ValueError, match="is no file; move it away, or name another --out"):
        bench._target(out, result)


def test_results_that_cannot_be_written_are_printed(tmp_path, capsys) -> None:
    (tmp_path / "today.json").mkdir()  # it came while the figures were taken
    with pytest.raises(OSError, match="today"):
        bench._write(tmp_path / "today.json", {"figures": [1, 2]})
    said, _, text = capsys.readouterr().out.strip().partition("\n")
    assert said == "Not written; what today.json was to hold:"
    assert json.loads(text) == {"figures": [1, 2]}


def test_competitors_take_turns() -> None:
    seen = []
    tasks = {"a": lambda i: seen.append(f"a{i}"), "b": lambda i: seen.append(f"b{i}")}
    assert rounds.interleave(tasks, 2) == {"a": [None, None], "b": [None, None]}
    assert seen == ["a0", "b0", "a1", "b1"]


def test_a_ratio_is_taken_round_by_round() -> None:
    """The second round was slow for both: the ratio does not see it."""
    ratio = rounds.paired_ratio([200, 20, 210], [100, 10, 100])
    assert ratio["repetitions"] == [2.0, 2.0, 2.1] and ratio["median"] == 2.0


def test_the_random_llama_has_5_4_million_parameters(tmp_path) -> None:
    from kvlab.tensors.checkpoint import load_model

    subject = subjects.write_random_llama(tmp_path)
    assert load_model(subject.folder).num_parameters == 5_401_856


def test_equal_outputs_a_near_tie_and_a_mismatch_are_told_apart() -> None:
    folder, prompt = subjects.tiny_model().folder, [0, 5, 9, 30]
    order = agreement.exact_logits(folder, prompt).argsort(descending=True).tolist()
    first, last = order[0], order[-1]
    assert agreement.differences(folder, [prompt], [[first]], [[first]]) == []
    (said,) = agreement.differences(folder, [prompt], [[first]], [[last]])
    assert said.startswith("MISMATCH at output 0")
    (said,) = agreement.differences(folder, [prompt], [[first]], [[first, 3]])
    assert said == "MISMATCH: 1 and 2 tokens"


def test_a_difference_between_tied_logits_is_no_mismatch(monkeypatch) -> None:
    import torch

    logits = torch.tensor([1.0, 3.0, 3.0 - 1e-5, 2.0], dtype=torch.float64)
    monkeypatch.setattr(agreement, "exact_logits", lambda *_: logits)
    (said,) = agreement.differences(Path(), [[0]], [[1, 5]], [[2, 7]])
    assert said == "near tie at output 0: 1 or 2, the lower 1.0e-05 below the largest"
    (said,) = agreement.differences(Path(), [[0]], [[1]], [[3]])
    assert said.startswith("MISMATCH")


def test_all_four_engines_give_the_same_greedy_tokens(tmp_path) -> None:
    pytest.importorskip("transformers")
    load = throughput.Workload(rounds=1, warm_up=0, batches=(1, 3), prompt_tokens=20, new_tokens=6)
    subject = subjects.write_random_llama(tmp_path)
    with throughput.one_thread():
        rows = throughput.measure(subject, load, quick=False)
    for row in rows:
        assert list(row["engines"]) == [
            c.KVLAB,
            c.LOOP,
            c.GENERATE,
            c.BATCHING,
            throughput.WHOLE_CALL,
        ]
        assert not any(found["mismatches"] for found in row["agreement"].values())
    assert report.generation(rows, vars(load)).count("all 1") == 3  # one request, three others


def test_an_absent_transformers_is_said(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    load = throughput.Workload(rounds=1, warm_up=0, batches=(1,), prompt_tokens=4, new_tokens=2)
    rows = throughput.measure(subjects.tiny_model(), load, quick=False)
    assert report.generation(rows, vars(load)).count("transformers is not installed") == 1


@pytest.mark.parametrize("hits", [False, True])
def test_the_bookkeeping_is_measured_in_a_full_pool(hits: bool) -> None:
    """After the warm-up every block carries an identity; a hit leaves one block to compute."""
    made = manager_speed.Bench(manager_speed.Case(prompt_tokens=64, pool_blocks=64, hits=hits))
    seconds = made.round(0)
    assert set(seconds) == {"admit", "append", "free"} and min(seconds.values()) > 0
    made.manager.check_invariants()
    assert made.manager.pool.num_free_blocks == 64
    request = made._requests()[0]
    assert made.manager.get_computed_blocks(request)[1] == (48 if hits else 0)


def test_a_big_parent_does_not_count_in_a_childs_peak() -> None:
    import torch

    held = torch.ones(600 * 2**20 // 4)  # 600 MiB
    peak = footprint.peak_memory(["torch"], 1, 1)["torch"]["median"]
    assert peak < held.nbytes
