"""`kvlab serve`: what it passes on, how it starts, and how it stops."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import types

import httpx
import pytest
from serve_cases import LONG, PROMPT
from typer.testing import CliRunner

import kvlab
from kvlab import cli, cli_serve

COMMAND = [sys.executable, "-m", "kvlab.cli", "serve", "--port", "0"]


@pytest.fixture
def passed(monkeypatch) -> list:
    """Stands in for kvlab.cli_serve; the list holds what `run` was called with."""
    calls = []
    fake = types.SimpleNamespace(
        run=lambda model, **options: calls.append((model, options)),
        named_folders=cli_serve.named_folders,
    )
    monkeypatch.setattr(kvlab, "cli_serve", fake, raising=False)
    monkeypatch.delenv("KVLAB_API_KEY", raising=False)
    return calls


def test_options_are_passed_on(passed, monkeypatch):
    assert CliRunner().invoke(cli.app, ["serve"]).exit_code == 0
    monkeypatch.setenv("KVLAB_API_KEY", "from the environment")
    chosen = ["--model", "here", "--host", "::1", "--port", "9", "--num-blocks", "7", "--grace",
              "2.5", "--max-queue", "0", "--order", "priority", "--no-prefix-caching"]  # fmt: skip
    assert CliRunner().invoke(cli.app, ["serve", *chosen]).exit_code == 0
    (model, default), (other, options) = passed
    assert (model, default["host"], default["port"]) == ("tiny", "127.0.0.1", 8000)
    assert (default["api_key"], default["max_queue"], default["max_body"]) == (None, 256, 4 * 2**20)
    assert (other, options["host"], options["port"]) == ("here", "::1", 9)
    assert options["api_key"] == "from the environment"
    assert (options["num_blocks"], options["grace"], options["max_queue"]) == (7, 2.5, 0)
    assert (options["order"], options["enable_prefix_caching"]) == ("priority", False)


def test_adapters_are_named_once_each_or_several_in_a_row(passed):
    for words in (["a=x", "--lora-modules", "b=y=z"], ["a=x", "b=y=z"]):
        assert CliRunner().invoke(cli.app, ["serve", "--lora-modules", *words]).exit_code == 0
        assert passed.pop()[1]["lora_modules"] == {"a": "x", "b": "y=z"}
    assert CliRunner().invoke(cli.app, ["serve"]).exit_code == 0
    assert passed[0][1]["lora_modules"] == {}


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["--host", "0.0.0.0"], "set an API key"),
        (["--api-key", " "], "api_key is empty"),
        (["--model", "/no/such/folder"], "neither 'tiny' nor a folder"),
        (["--port", "70000"], "port is 70000"),
        (["--order", "random"], "order is 'random'"),
        (["--lora-modules", "short"], "has 'short'; give NAME=FOLDER"),
        (["--lora-modules", "a=x", "a=y"], "has 'a=y'; give NAME=FOLDER, each name once"),
        (
            ["--lora-modules", "short=/no/such"],
            "adapter 'short' of lora_modules: '/no/such' is not a folder",
        ),
        (["a=x"], "'a=x' belongs to no option"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, named, monkeypatch):
    monkeypatch.delenv("KVLAB_API_KEY", raising=False)
    result = CliRunner().invoke(cli.app, ["serve", *arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith("kvlab: ") and named in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.fixture
def start():
    """Starts `kvlab serve` in a process of its own; gives the process and its address."""
    started = []

    def begin(*arguments: str) -> tuple[subprocess.Popen, str]:
        environment = {k: v for k, v in os.environ.items() if k != "KVLAB_API_KEY"}
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment | {"OMP_NUM_THREADS": "1"},
        )
        started.append(process)
        line = process.stdout.readline()
        assert line.startswith("Serving tiny at http://127.0.0.1:"), process.stderr.read()
        return process, line.split()[3]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_and_stops_when_told(start, signal_):
    process, url = start("--api-key", "secret")
    headers = {"Authorization": "Bearer secret"}
    body = {"prompt": PROMPT, "temperature": 0}
    answer = httpx.post(f"{url}/v1/completions", json=body, headers=headers, timeout=60)
    assert answer.json()["choices"][0]["text"] == " Ada likes pears."
    assert httpx.post(f"{url}/v1/completions", json=body).status_code == 401
    process.send_signal(signal_)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.endswith("Stopped; all blocks are free.\n")
    assert "secret" not in out


def test_it_lets_what_runs_finish_and_takes_nothing_new(start):
    process, url = start("--grace", "60")
    found = []

    def ask() -> None:
        with httpx.stream(
            "POST", f"{url}/v1/completions", json=LONG | {"stream": True}, timeout=60
        ) as response:
            for line in response.iter_lines():
                found.append(line)

    asking = threading.Thread(target=ask)
    asking.start()
    while not found:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    asking.join()
    assert found[-2] == "data: [DONE]"
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")


def test_told_twice_it_ends_what_runs(start):
    process, url = start("--grace", "600")
    body = LONG | {"stream": True, "n": 8}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as response:
        raw = response.iter_lines()
        next(raw)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        rest = [line for line in raw if line]
    assert '"code":"stopping"' in rest[-1]
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.endswith("all blocks are free.\n")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_an_import_swallows_ends_it_all_the_same(monkeypatch, sent):
    """Loading torch catches what it pleases; a server that went on would hear nothing of it."""
    from kvlab import LLM
    from kvlab.serve import server

    def deaf(model: str) -> LLM:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), sent)
            time.sleep(5)
        return LLM(model)

    monkeypatch.setattr("kvlab.llm.LLM", deaf)
    monkeypatch.setattr(server.Server, "run", lambda self: self.close())
    before = signal.getsignal(sent)
    if sent == signal.SIGTERM and before == signal.SIG_DFL:  # would end the tests, not the server
        signal.signal(sent, lambda *_: None)
    asked = {"host": "127.0.0.1", "port": 0, "api_key": None, "max_queue": 1, "max_body": 1000}
    with pytest.raises(KeyboardInterrupt):
        cli_serve.run("tiny", **asked, grace=0, stream_interval=1, early_role=False)
    signal.signal(sent, before)
