"""`kvlab load` from the command line, against a real server."""

import json
import re
import signal
import subprocess
import sys
import threading

import pytest
from scripted_server import DONE, chunk, event, serving, usage
from typer.testing import CliRunner

from kvlab.cli import app
from kvlab.cli_load import arrivals_for, lengths_around, url_and_targets
from kvlab.core.arrivals import AtOnce, Gamma, OnOff
from kvlab.core.goodput import Targets
from kvlab.core.lengths import Fixed, Uniform

runner = CliRunner()


def fine(reply):
    reply.stream(chunk("a"), chunk("b", finish="length"), usage(2, 3), DONE)


def kvlab(*words, env=None):
    return runner.invoke(app, ["load", *map(str, words)], env=env)


def test_a_run_prints_its_setting_and_a_table():
    with serving(fine) as server:
        done = kvlab(server.url, "--num-prompts", 4, "--max-concurrency", 2, "--hardware", "a cat")
    assert done.exit_code == 0, done.output
    assert f"{server.url} | completions | scripted (a script)" in done.stdout
    assert "Hardware: a cat" in done.stdout
    assert "Arrivals: closed loop; under way at most: 2" in done.stdout
    assert "4 completed, 0 failed" in done.stdout
    assert "Tokens: 12 in, 8 out" in done.stdout
    assert re.search(r"^ttft .* 4 +0  intended start to first text$", done.stdout, re.MULTILINE)
    assert "estimated" not in done.stdout


def test_options_reach_the_server():
    with serving(fine) as server:
        done = kvlab(
            *(server.url, "--endpoint", "/v1/chat/completions", "--model", "m"),
            *("--num-prompts", 6, "--request-rate", 500, "--burstiness", 0.5, "--seed", 3),
            *("--random-input-len", 4, "--random-output-len", 9, "--random-prefix-len", 5),
            *("--ignore-eos", "--extra-body", '{"top_k": 1}', "--header", "x-team=blue"),
            *("--num-warmups", 1, "--json"),
        )
    assert done.exit_code == 0, done.output
    assert len(server.asked) == 7
    body = server.asked[1].body
    assert (body["model"], body["max_tokens"], body["top_k"], body["ignore_eos"]) == (
        "m",
        9,
        1,
        True,
    )
    prompts = [reply.body["messages"][0]["content"].split() for reply in server.asked]
    assert {len(words) for words in prompts} == {9}
    assert len({tuple(words[:5]) for words in prompts}) == 1
    assert server.asked[0].headers["x-team"] == "blue"
    result = json.loads(done.stdout)
    assert (result["request_rate"], result["burstiness"]) == (500.0, 0.5)


def test_failures_are_shown_and_a_run_without_success_says_so():
    def broken(reply):
        reply.stream(chunk("a"), event({"error": {"message": "no memory"}}))

    with serving(broken) as server:
        done = kvlab(server.url, "--num-prompts", 3)
    assert done.exit_code == 1
    assert "0 completed, 3 failed" in done.stdout
    assert "3 x error event: no memory" in done.stdout


def test_a_saved_run_is_reported_again(tmp_path):
    file = tmp_path / "run.jsonl"
    targets = ("--goodput", "ttft:60000", "tpot:60000")
    with serving(fine) as server:
        first = kvlab(server.url, "--num-prompts", 3, "--out", file, *targets)
    assert first.exit_code == 0, first.output
    assert "Goodput: 3 of 3 requests" in first.stdout
    again = kvlab("--report", file, *targets)
    assert again.exit_code == 0
    assert again.stdout == first.stdout
    short = kvlab("--report", file, "--percentile-metrics", "itl")
    assert "\nitl" in short.stdout and "\nttft" not in short.stdout


def test_prompts_from_a_file_and_answers_kept(tmp_path):
    (tmp_path / "prompts.txt").write_text("one\ntwo\n")
    with serving(fine) as server:
        done = kvlab(
            *(server.url, "--dataset-path", tmp_path / "prompts.txt"),
            *("--out", tmp_path / "run.jsonl", "--keep-text"),
        )
    assert done.exit_code == 0, done.output
    assert [reply.body["prompt"] for reply in server.asked] == ["one", "two"]
    texts = (tmp_path / "run.texts.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in texts] == ["ab", "ab"]


def test_the_key_comes_from_the_environment_and_is_not_shown():
    key = "sk-of-the-environment"
    with serving(fine) as server:
        done = kvlab(server.url, "--num-prompts", 1, "--json", env={"KVLAB_API_KEY": key})
    assert server.asked[0].headers["authorization"] == f"Bearer {key}"
    assert key not in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the URL is missing"),
        (["http://a", "http://b"], "'http://b' stands behind 'http://a'; give one URL"),
        (["nowhere"], "url is 'nowhere'"),
        (["http://a", "--report", "x.jsonl"], "--report reads a file"),
        (["--report", "x.json"], "give a name that ends in .jsonl"),
        (["http://a", "--endpoint", "/v1/embeddings"], "--endpoint is '/v1/embeddings'"),
        (["http://a", "--goodput", "speed:3"], "--goodput has 'speed:3'"),
        (["http://a", "--goodput", "ttft:0"], "--goodput has 'ttft:0'"),
        (["http://a", "--percentile-metrics", "ttft,joy"], "metric is 'joy'"),
        (["http://a", "--out", "run.csv"], "'run.csv' is no file for records"),
        (["http://a", "--keep-text"], "give --out as well"),
        (["http://a", "--on", "3"], "--on and --off belong together"),
        (["http://a", "--burstiness", "2"], "need a finite --request-rate"),
        (["http://a", "--request-rate", "5e-324"], "would leave after inf s"),
        (["http://a", "--random-range-ratio", "1"], "--random-range-ratio is 1.0"),
        (["http://a", "--num-prompts", "0"], "num_requests is 0"),
        (["http://a", "--extra-body", "[1]"], "--extra-body is '[1]'; give a JSON object"),
        (["http://a", "--header", "secret"], "--header needs KEY=VALUE"),
        (["http://a", "--dataset-path", "nofile"], "nofile"),
        (["http://a", "--dataset-path", "a", "--trace", "b"], "are both given"),
    ],
)
def test_a_mistake_is_one_line(words, message):
    done = kvlab(*words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_targets_may_stand_anywhere():
    wanted = Targets(ttft=3.0, tpot=0.1)
    assert url_and_targets(["http://a", "tpot:100"], ["ttft:3000"]) == ("http://a", wanted)
    assert url_and_targets(["tpot:100", "http://a"], ["ttft:3000"]) == ("http://a", wanted)
    assert url_and_targets(["http://a"], ["ttft:3000,tpot:100"]) == ("http://a", wanted)
    assert url_and_targets(["http://a"], []) == ("http://a", None)


def test_arrivals_and_lengths_by_their_options():
    assert arrivals_for(None, 1.0, None, None) is None
    assert arrivals_for(float("inf"), 1.0, None, None) == AtOnce()
    assert arrivals_for(4.0, 0.5, None, None) == Gamma(4.0, 0.5)
    assert arrivals_for(4.0, 1.0, 2.0, 3.0) == OnOff(4.0, 2.0, 3.0)
    assert lengths_around(100, 0.0) == Fixed(100)
    assert lengths_around(100, 0.25) == Uniform(75, 125)


def in_the_background():
    """As a shell starts a job with &: SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def in_the_foreground():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("sent", "started", "code"),
    [
        (signal.SIGINT, in_the_foreground, 130),
        (signal.SIGTERM, in_the_foreground, 143),
        (signal.SIGTERM, in_the_background, 143),
    ],
)
def test_ctrl_c_or_kill_prints_what_was_measured(tmp_path, sent, started, code):
    """The real program gets a signal while its third request is under way."""
    stuck, hold = threading.Event(), threading.Event()

    def silent_after_two(reply):
        if reply.number < 2:
            fine(reply)
            return
        reply.start()
        stuck.set()
        hold.wait(60)

    with serving(silent_after_two) as server:
        file = tmp_path / "run.jsonl"
        command = [sys.executable, "-m", "kvlab.cli", "load", server.url]
        command += ["--num-prompts", "9", "--out", str(file)]
        program = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=started
        )
        assert stuck.wait(60)
        program.send_signal(sent)
        output, errors = program.communicate(timeout=60)
    hold.set()
    assert program.returncode == code, errors.decode()
    assert "2 completed, 1 failed, 6 not sent: interrupted" in output.decode()
    assert len(file.read_text().splitlines()) == 9
