"""What a command says where something goes wrong: one line, and never an empty one."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kvlab import cli, cli_serve

LOADER = "libtorch_cpu.so: failed to map segment from shared object"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "kvlab: out of memory"),
        (ValueError(), "kvlab: ValueError()"),
        (OSError(), "kvlab: OSError()"),
        (ImportError(LOADER), f"kvlab: out of memory while a package was loaded ({LOADER})"),
    ],
)
def test_no_line_is_empty(error: Exception, said: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(typer.Exit) as ended, cli.plain_errors():
        raise error
    assert ended.value.exit_code == 2
    assert capsys.readouterr().err == f"{said}\n"


def test_a_fault_of_ours_is_a_traceback() -> None:
    with pytest.raises(ImportError, match="cannot import name"), cli.plain_errors():
        raise ImportError("cannot import name 'x'")


@pytest.mark.parametrize("port", ["-1", "65536", "99999"])
def test_lab_refuses_a_port_that_there_is_not(
    port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.app, ["lab", "--port", port])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"kvlab: port is {port}; give an integer from 0 to 65535\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_the_doctor_on_a_full_disk_says_so_in_one_line() -> None:
    program = (
        "from kvlab import cli, doctor\n"
        "doctor.findings = lambda: [doctor.check_python((3, 11, 0))]\n"  # torch's are slow
        "cli.app(['doctor'])"
    )
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr == "kvlab: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(
    ("missing", "remedy"), [("uvicorn", r"uvicorn is missing; .*serve"), ("starlette", "starlette")]
)
def test_a_package_of_the_server_that_is_not_installed(
    missing: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fails_to_import(monkeypatch, ModuleNotFoundError(f"No module named {missing}", name=missing))
    with pytest.raises(ValueError, match=remedy):
        cli_serve._server("tiny", "127.0.0.1", 0, None, {}, {})


@pytest.mark.parametrize(
    "error", [ImportError(LOADER, name="torch"), ModuleNotFoundError("No module", name="kvlab.x")]
)
def test_another_import_that_fails_is_no_missing_package(
    error: ImportError, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fails_to_import(monkeypatch, error)
    with pytest.raises(ImportError) as found:
        cli_serve._server("tiny", "127.0.0.1", 0, None, {}, {})
    assert found.value is error


def _fails_to_import(monkeypatch: pytest.MonkeyPatch, error: ImportError) -> None:
    """kvlab.serve.server cannot be loaded from now on."""
    import builtins

    load = builtins.__import__

    def refuse(name: str, *others: object) -> object:
        if name == "kvlab.serve.server":
            raise error
        return load(name, *others)

    monkeypatch.setattr(builtins, "__import__", refuse)


def test_the_packages_of_the_server_are_those_that_pip_is_told() -> None:
    told = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    assert tuple(told["project"]["optional-dependencies"]["serve"]) == cli_serve.EXTRA
