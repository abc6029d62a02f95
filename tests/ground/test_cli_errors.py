"""What a command says where something goes wrong: one line, and never an empty one."""

import tomllib
from pathlib import Path

import pytest
import typer

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
