"""Servers, clocks, files and interrupts that nobody would plan for: the other requests survive."""

import json
import math
import queue
import threading
import time
from _thread import interrupt_main

import pytest
from scripted_server import DONE, chunk, serving, usage
from typer.testing import CliRunner

from kvlab import cli_load
from kvlab.cli import app
from kvlab.measure import load_client
from kvlab.measure.load import load
from kvlab.measure.load_result import LoadResult

COUNTERS = "vllm:prefix_cache_queries_total 8\nvllm:prefix_cache_hits_total 4\n"


def fine(reply):
    reply.stream(chunk("a"), chunk("b", finish="stop"), usage(2), DONE)


def first_odd(odd):
    """The first answer is odd, all others are fine."""
    return lambda reply: odd(reply) if reply.number == 0 else fine(reply)


def text_behind_done(reply):
    reply.start()
    reply.send(chunk("a") + DONE)
    reply.send(chunk("b"))
    reply.end()


def test_text_behind_done_does_not_cost_the_run():
    with serving(first_odd(text_behind_done)) as server:
        result = load(server.url, ["x"] * 3, model="m")
    first = result.records[0].times
    assert result.summary().completed == 3
    assert len(first.events) == 2 and first.finished == first.events[-1].time


@pytest.mark.parametrize("count", [10**400, 10**12], ids=["beyond floats", "beyond memory"])
def test_a_count_that_no_server_counted_is_no_usage(tmp_path, count):
    last = chunk("b", finish="stop", usage={"completion_tokens": count, "prompt_tokens": count})
    with serving(first_odd(lambda reply: reply.stream(chunk("a"), last, DONE))) as server:
        result = load(server.url, ["x"] * 2, model="m")
    odd, good = result.records
    assert (odd.estimated, odd.num_prompt_tokens, odd.times.num_output_tokens) == (True, None, 2)
    assert (good.estimated, good.times.num_output_tokens) == (False, 2)
    result.save(tmp_path / "run.jsonl")
    assert LoadResult.read(tmp_path / "run.jsonl").records == result.records


@pytest.mark.parametrize("owner", ["NaN", '{"a": [1]}', "7"])
def test_an_owner_that_is_no_text_is_not_kept(tmp_path, owner):
    page = f'{{"data": [{{"id": "x", "owned_by": {owner}}}]}}'
    with serving(fine, pages={"/v1/models": page}) as server:
        result = load(server.url, ["x"])
    assert result.setting["server"] is None
    assert result.save(tmp_path / "run.jsonl")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra_body": {"a": math.nan}}, "extra_body is .* no JSON"),
        ({"extra_body": {"a": {1}}}, "extra_body is .* no JSON"),
        ({"hardware": 7}, "hardware is 7; give a text"),
        ({"date": object()}, "date is .*; give a text"),
    ],
)
def test_what_no_file_could_hold_is_said_before_anything_is_sent(change, message):
    with serving(fine) as server:
        with pytest.raises(ValueError, match=message):
            load(server.url, ["x"], model="m", **change)
        assert server.asked == []


def test_a_host_that_is_no_name_is_one_line():
    with pytest.raises(ValueError, match="Invalid IDNA"):
        load("http://ex\u00e4mple..\u00e4", ["x"], model="m")


def test_more_users_than_requests_do_not_delay_the_first_one(monkeypatch):
    made = []
    create = load_client.asyncio.create_task

    def counted(main, **options):
        made.append(main)
        return create(main, **options)

    monkeypatch.setattr("kvlab.measure.load_drive.asyncio.create_task", counted)
    with serving(fine) as server:
        result = load(server.url, ["x"] * 2, model="m", concurrency=100_000)
    assert result.summary().completed == 2
    assert result.setting["concurrency"] == 100_000 and len(made) < 100


class Dripping:
    """Of a scripted server: one page never ends, with a byte before every patience for one is
    over; `left` tells whether its client went away. The other pages are answered as usual."""

    def __init__(self, server, path):
        self._page, self._path = server._page, path
        self.left = queue.SimpleQueue()
        server._page = self

    def __call__(self, reply, path):
        if path != self._path:
            self._page(reply, path)
            return
        reply.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        try:
            for _ in range(100):
                reply.raw(b"#")
                time.sleep(0.05)
            self.left.put(False)
        except OSError:
            self.left.put(True)


def test_a_page_without_an_end_is_given_up(monkeypatch):
    monkeypatch.setattr(load_client, "SHORT", 0.3)
    with serving(fine) as server:
        page = Dripping(server, "/metrics")
        assert load(server.url, ["x"]).summary().completed == 1
        assert page.left.get(timeout=20)
    with serving(fine) as server:
        page = Dripping(server, "/v1/models")
        with pytest.raises(ConnectionError, match="no server answers"):
            load(server.url, ["x"])
        assert page.left.get(timeout=20)


def test_an_interrupt_during_the_last_question_keeps_what_was_measured():
    readings = []

    def metrics():
        readings.append(len(readings))
        if len(readings) > 1:  # the run is over: the user is tired of waiting
            interrupt_main()
            time.sleep(3)
        return COUNTERS

    with serving(fine, pages={"/metrics": metrics}) as server:
        result = load(server.url, ["x"] * 3, model="m")
    assert result.summary().completed == 3
    assert (result.interrupted, result.prefix_cache) == (False, None)


def test_an_interrupt_behind_done_leaves_the_answer_complete():
    open_still = threading.Event()

    def no_end(reply):
        reply.start()
        reply.send(chunk("a", finish="stop") + DONE)
        interrupt_main()
        open_still.wait(3)

    with serving(no_end) as server:
        result = load(server.url, ["x"], model="m")
        open_still.set()
    assert result.records[0].error is None


def saved(folder, name, count):
    with serving(fine) as server:
        load(server.url, ["x"] * count, model="m").save(folder / f"{name}.jsonl")
    return folder / f"{name}.jsonl"


def test_two_runs_in_one_file_are_refused(tmp_path):
    a, b = saved(tmp_path, "a", 2), saved(tmp_path, "b", 3)
    both = tmp_path / "both.jsonl"
    both.write_text(a.read_text() + b.read_text())
    with pytest.raises(ValueError, match=r"both.jsonl, line 3: request 'r1' is there already"):
        LoadResult.read(both)


@pytest.mark.parametrize("count", [3, 4])
def test_the_summary_of_another_run_is_refused(tmp_path, count):
    """Also where that run had as many requests."""
    a, b = saved(tmp_path, "a", 3), saved(tmp_path, "b", count)
    b.with_suffix(".json").replace(a.with_suffix(".json"))
    with pytest.raises(ValueError, match=r"a\.json is no summary that was saved with these"):
        LoadResult.read(a)


@pytest.mark.parametrize(
    "change",
    [
        {"duration": 10**400},
        {"start": "x"},
        {"prefix_cache": {"queries": 1}},
        {"extras": {"r1": 5}},
    ],
)
def test_a_summary_with_a_broken_part_is_named(tmp_path, change):
    path = saved(tmp_path, "a", 2)
    kept = json.loads(path.with_suffix(".json").read_text())
    kept["kvlab"] |= change
    path.with_suffix(".json").write_text(json.dumps(kept))
    with pytest.raises(ValueError, match=r"a\.json is no summary that was saved with these"):
        LoadResult.read(path)


def test_a_file_that_cannot_be_written_costs_no_figures(tmp_path, monkeypatch):
    def full(*words):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cli_load.LoadResult, "save", full)
    with serving(fine) as server:
        done = CliRunner().invoke(app, ["load", server.url, "--num-prompts", "2",
                                        "--out", str(tmp_path / "run.jsonl")])  # fmt: skip
    assert "2 completed, 0 failed" in done.output
    assert done.exit_code != 0 and "No space left" in done.output
