"""The command line: what each command passes on, and how it fails."""

import subprocess
import sys
import types
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kvlab
from kvlab import cli, doctor, workbook

ROOT = Path(__file__).parents[2]
START = "notebooks/21_0_start.ipynb"


def run(*arguments: str):
    return CliRunner().invoke(cli.app, list(arguments))


@pytest.fixture
def generation(monkeypatch) -> list:
    """Stands in for kvlab.cli_generate; the list holds what `run` was called with."""
    calls = []

    def answer(text: str, **options) -> int:
        calls.append((text, options))
        return 0

    fake = types.SimpleNamespace(run=answer)
    monkeypatch.setattr(kvlab, "cli_generate", fake, raising=False)
    return calls


def test_help_names_the_commands_and_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from kvlab import cli\n"
        "print(CliRunner().invoke(cli.app, ['--help']).output)\n"
        "print([m for m in ('torch', 'triton', 'numpy', 'jupyterlab') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    assert all(command in shown for command in ("lab", "doctor", "generate", "bench"))
    assert shown.strip().endswith("[]")


def test_doctor_prints_its_findings(monkeypatch) -> None:
    monkeypatch.setattr(doctor, "findings", lambda: [doctor.Finding("torch", "note", "small")])
    result = run("doctor")
    assert result.exit_code == 0
    assert result.output == "note     torch  small\n"


def test_doctor_exits_with_1_if_there_is_a_problem(monkeypatch) -> None:
    monkeypatch.setattr(doctor, "findings", lambda: [doctor.Finding("torch", "problem", "gone")])
    assert run("doctor").exit_code == 1


def test_generate_passes_its_options_on(generation: list) -> None:
    assert run("generate", "Ada likes").exit_code == 0
    result = run(
        "generate", "Tom", "--model", "here", "--max-tokens", "5", "--temperature", "0.8",
        "--seed", "7", "--trace", "t.json", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    default, chosen = generation
    assert default == (
        "Ada likes",
        {
            "model": "tiny",
            "max_tokens": 32,
            "temperature": 0.0,
            "seed": None,
            "trace": None,
            "as_json": False,
        },
    )
    assert chosen == (
        "Tom",
        {
            "model": "here",
            "max_tokens": 5,
            "temperature": 0.8,
            "seed": 7,
            "trace": Path("t.json"),
            "as_json": True,
        },
    )


@pytest.mark.parametrize(
    "error", [ValueError("max_tokens must be 1 or more"), FileNotFoundError("no such folder")]
)
def test_a_mistake_is_one_line_and_exit_code_2(monkeypatch, error: Exception) -> None:
    def fail(text: str, **options) -> int:
        raise error

    monkeypatch.setattr(kvlab, "cli_generate", types.SimpleNamespace(run=fail), raising=False)
    result = run("generate", "x")
    assert result.exit_code == 2
    assert result.stderr == f"kvlab: {error}\n"
    assert result.stdout == ""


def test_the_exit_code_of_generate_is_kept(monkeypatch) -> None:
    fake = types.SimpleNamespace(run=lambda text, **options: 3)
    monkeypatch.setattr(kvlab, "cli_generate", fake, raising=False)
    assert run("generate", "x").exit_code == 3


def test_bench_passes_its_options_on(monkeypatch) -> None:
    calls = []
    fake = types.ModuleType("kvlab.measure")
    fake.bench = types.SimpleNamespace(main=lambda **options: calls.append(options))
    monkeypatch.setitem(sys.modules, "kvlab.measure", fake)
    assert run("bench").exit_code == 0
    assert run("bench", "--out", "results", "--quick").exit_code == 0
    assert calls == [{"out": None, "quick": False}, {"out": Path("results"), "quick": True}]


# lab


@pytest.fixture
def jupyter(monkeypatch) -> list:
    """Stands in for JupyterLab; the list holds the arguments it was started with."""
    calls = []
    fake = types.ModuleType("jupyterlab.labapp")
    fake.LabApp = types.SimpleNamespace(launch_instance=lambda argv: calls.append(argv))
    monkeypatch.setitem(sys.modules, "jupyterlab.labapp", fake)
    return calls


@pytest.fixture
def clone(tmp_path: Path, monkeypatch) -> Path:
    """The running package's clone, as working directory: a start page and a book.toml."""
    (tmp_path / START).parent.mkdir()
    (tmp_path / START).write_text("{}", encoding="utf-8")
    (tmp_path / "book.toml").touch()
    monkeypatch.setattr(workbook, "CLONE", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_lab_opens_the_start_page_on_this_machine_alone(clone, jupyter, monkeypatch) -> None:
    monkeypatch.setattr(cli, "has_display", lambda: True)
    assert run("lab", "--port", "8899").exit_code == 0
    (arguments,) = jupyter
    assert "--ip=127.0.0.1" in arguments
    assert "--port=8899" in arguments
    assert f"--ServerApp.root_dir={clone}" in arguments
    assert "--LabApp.default_url=/lab/tree/workbook/21_0_start.ipynb" in arguments
    assert (clone / "workbook" / "21_0_start.ipynb").is_file()
    assert "--LabApp.news_url=None" in arguments
    assert "--no-browser" not in arguments


def test_lab_without_a_display_prints_instead_of_opening(clone, jupyter, monkeypatch) -> None:
    monkeypatch.setattr(cli, "has_display", lambda: False)
    result = run("lab")
    assert "No display here: open the address" in result.output
    assert "--no-browser" in jupyter[0]


def test_lab_no_browser(clone, jupyter, monkeypatch) -> None:
    monkeypatch.setattr(cli, "has_display", lambda: True)
    assert run("lab", "--no-browser").exit_code == 0
    assert "--no-browser" in jupyter[0]


def test_lab_names_the_page_that_it_put_beside_an_edited_one(clone, jupyter) -> None:
    run("lab")
    cell = '{"cells": [{"cell_type": "code", "source": ["mine"]}]}'
    (clone / "workbook" / "21_0_start.ipynb").write_text(cell, encoding="utf-8")
    (clone / START).write_text(cell.replace("mine", "newer"), encoding="utf-8")
    said = run("lab").output.replace("\n", "")
    beside = clone / "workbook" / f"21_0_start.new-{kvlab.__version__}.ipynb"
    assert f"A newer page is beside the one that you have edited: {beside}" in said
    assert "newer" in beside.read_text(encoding="utf-8")


def test_lab_without_jupyterlab_says_how_to_get_it(clone, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "jupyterlab.labapp", None)
    result = run("lab")
    assert result.exit_code == 2
    assert 'pip install "kvlab[lab]"' in result.stderr
    assert not (clone / "workbook").exists()


def test_lab_outside_a_clone_says_so(tmp_path: Path, jupyter, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(workbook, "CLONE", tmp_path)
    monkeypatch.setattr(workbook, "INSTALLED", tmp_path / "share")
    result = run("lab")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"kvlab: {tmp_path / 'share'}, where pip puts the notebooks, ")
    assert "run make lab in a clone" in result.stderr
    assert jupyter == []


def test_a_display_is_one_that_the_environment_names(monkeypatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert not cli.has_display()
    monkeypatch.setenv("DISPLAY", ":0")
    assert cli.has_display()
