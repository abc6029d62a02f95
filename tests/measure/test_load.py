"""A whole run of the load client: what is sent, what is kept, and how it ends."""

import _thread
import asyncio
import json
import math
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from scripted_server import DONE, HeldClock, at_times, chunk, serving, usage

from kvlab.core.arrivals import OnOff, Poisson, Regular
from kvlab.core.goodput import Targets
from kvlab.core.latency_record import LatencyRecord
from kvlab.core.workload import SharedPrefix
from kvlab.measure.load import LoadRequest, LoadResult, load
from kvlab.measure.load_requests import WORDS, of_workload, random_requests

KEY = "sk-very-secret-key"


def fine(reply):
    reply.stream(chunk("a"), chunk("b", finish="length"), usage(2, 3), DONE)


def test_what_is_sent_for_completions_and_for_chat():
    with serving(fine) as server:
        load(server.url, ["hello", [1, 2, 3]], max_tokens=7, ignore_eos=True)
        load(
            f"{server.url}/v1/chat/completions",
            ["hello", [1, 2], [{"role": "system", "content": "Be brief."}]],
            api="chat",
            model="other",
            temperature=None,
            extra_body={"top_k": 5},
        )
    bodies = [reply.body for reply in server.asked]
    assert bodies[0] == {
        "model": "scripted",
        "prompt": "hello",
        "max_tokens": 7,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert bodies[1]["prompt"] == [1, 2, 3]
    assert bodies[2]["messages"] == [{"role": "user", "content": "hello"}]
    assert bodies[3]["messages"] == [{"role": "user", "content": f"{WORDS[1]} {WORDS[2]}"}]
    assert bodies[4]["messages"] == [{"role": "system", "content": "Be brief."}]
    assert bodies[4]["model"] == "other" and bodies[4]["top_k"] == 5
    assert "temperature" not in bodies[4]


def test_t11_through_http_waits_before_sending_are_counted():
    """A server that takes 20 ms each, asked every 10 ms with one place: the waits grow."""

    def slow(reply):
        time.sleep(0.02)
        fine(reply)

    with serving(slow) as server:
        result = load(server.url, ["hello"] * 8, arrivals=Regular(100.0), concurrency=1)
    for i, record in enumerate(result.records):
        assert record.times.arrival == pytest.approx(0.01 * i)
        assert record.sent >= 0.02 * i  # those before it took that long
        assert record.times.ttft >= record.wait_before_sending + 0.02
    summary = result.summary()
    assert summary.wait_before_sending.mean >= 0.01 * 3.5
    assert summary.e2el.mean == pytest.approx(
        summary.wait_before_sending.mean + summary.service_e2el.mean
    )


def test_as_many_as_there_are_places_are_under_way_and_no_more():
    under_way, most, lock = 0, [], threading.Lock()
    three = threading.Barrier(3)

    def counting(reply):
        nonlocal under_way
        with lock:
            under_way += 1
            most.append(under_way)
        three.wait(20)  # goes on when three requests are here
        with lock:
            under_way -= 1
        fine(reply)

    with serving(counting) as server:
        closed = load(server.url, ["hello"] * 12, concurrency=3)
        opened = load(server.url, ["hello"] * 12, arrivals=math.inf, concurrency=3)
    assert max(most) == 3
    assert closed.summary().completed == opened.summary().completed == 12
    assert max(r.wait_before_sending for r in opened.records) > 0
    assert [r.times.arrival for r in opened.records] == [0.0] * 12
    assert closed.setting["arrivals"] == "closed loop"
    assert opened.setting["arrivals"] == {"kind": "AtOnce"}


def test_a_seed_repeats_the_intended_times():
    with serving(fine) as server:
        runs = [load(server.url, ["x"] * 5, arrivals=500.0, seed=s).records for s in (3, 3, 4)]
    times = [[r.times.arrival for r in run] for run in runs]
    assert times[0] == pytest.approx(times[1])
    assert times[0] != pytest.approx(times[2])


def test_a_workload_comes_at_its_own_times():
    drawn = random_requests(
        6, prompt_tokens=4, shared=SharedPrefix(0.5, 8), arrivals=OnOff(900.0, 0.01, 0.01)
    )
    with serving(fine) as server:
        result = load(server.url, drawn, stretch=2.0)
    arrivals = [record.times.arrival for record in result.records]
    assert arrivals == pytest.approx([2 * arrival.time for arrival in drawn])
    by_group = {r.request_id: r.labels.get("group") for r in result.records}
    assert by_group == {arrival.request_id: arrival.group for arrival in drawn}
    prompts = {reply.body["prompt"][0] for reply in server.asked}
    assert prompts <= set(range(len(WORDS)))


def test_warm_ups_are_sent_and_not_counted():
    with serving(fine) as server:
        result = load(server.url, ["hello"] * 2, warmups=3)
    assert len(server.asked) == 5
    assert len(result.records) == 2


def test_the_prefix_cache_is_a_difference_of_the_servers_counters():
    pages = iter([(100, 40), (160, 85)])

    def metrics():
        queries, hits = next(pages)
        return (
            f'vllm:prefix_cache_queries_total{{engine="0"}} {queries}\n'
            f'vllm:prefix_cache_hits_total{{engine="0"}} {hits}\n'
        )

    with serving(fine, pages={"/metrics": metrics}) as server:
        result = load(server.url, ["hello"])
    assert (result.prefix_cache.queries, result.prefix_cache.hits) == (60, 45)
    assert result.prefix_cache.hit_rate == 0.75


def test_a_server_without_counters_has_none():
    with serving(fine) as server:
        assert load(server.url, ["hello"]).prefix_cache is None


def test_it_runs_inside_a_running_event_loop():
    async def cell(url):
        return load(url, ["hello"] * 2)

    with serving(fine) as server, ThreadPoolExecutor(1) as pool:  # a browser's test leaves a loop
        result = pool.submit(lambda: asyncio.run(cell(server.url))).result()  # in the main thread
    assert result.summary().completed == 2


@pytest.mark.parametrize("loop", ["open", "closed"])
def test_an_interrupt_keeps_what_was_measured(loop):
    """Two answers, then silence: the third is under way, the others never leave."""
    hold = threading.Event()

    def silent_after_two(reply):
        if reply.number < 2:
            fine(reply)
            return
        reply.start()
        reply.send(chunk("a"))
        _thread.interrupt_main()
        hold.wait(20)

    times = [0.0, 0.0, 0.0, 500.0, 600.0] if loop == "open" else [None] * 5
    listed = [LoadRequest(f"r{i}", "hello", time=time) for i, time in enumerate(times)]
    with serving(silent_after_two) as server:
        result = load(server.url, listed, concurrency=1)
    hold.set()
    assert max(record.times.arrival for record in result.records) <= result.duration < 400
    errors = [record.error for record in result.records]
    assert errors[:2] == [None, None]
    assert errors[2].startswith("interrupted after ")
    assert errors[3:] == ["not sent: the run was interrupted"] * 2
    assert (result.interrupted, result.not_sent) == (True, 2)
    summary = result.summary()
    assert (summary.completed, summary.failed) == (2, 1)
    assert repr(result) == "LoadResult(2 completed, 1 failed, 2 not sent)"


def test_an_interrupt_before_the_measurement_is_passed_on():
    hold = threading.Event()

    def silent(reply):
        reply.start()
        _thread.interrupt_main()
        hold.wait(20)

    with serving(silent) as server, pytest.raises(KeyboardInterrupt):
        load(server.url, ["hello"] * 5, warmups=1)
    hold.set()
    assert len(server.asked) == 1


def test_progress_is_told_in_the_callers_thread():
    seen = []

    def slow(reply):
        time.sleep(0.15)
        fine(reply)

    def progress(*counts):
        seen.append((threading.current_thread(), *counts))

    with serving(slow) as server:
        load(server.url, ["hello"] * 2, progress=progress)
    assert {entry[0] for entry in seen} == {threading.current_thread()}
    assert seen[-1][1:] == (2, 0, 2)


def test_a_fault_in_progress_ends_the_run():
    def progress(*counts):
        raise RuntimeError("a fault of the caller's")

    with serving(fine) as server, pytest.raises(RuntimeError, match="a fault of the caller's"):
        load(server.url, ["hello"] * 50, progress=progress)


def test_a_run_is_saved_and_read_again(tmp_path):
    with serving(fine) as server:
        result = load(
            server.url,
            ["hello"] * 3,
            arrivals=Poisson(300.0),
            hardware="one small machine",
            date="2026-01-02T03:04:05+00:00",
            keep_text=True,
        )
    targets = Targets(ttft=60.0)
    written = result.save(tmp_path / "run.jsonl", targets)
    assert [path.name for path in written] == ["run.jsonl", "run.json", "run.texts.jsonl"]
    lines = (tmp_path / "run.jsonl").read_text().splitlines()
    assert [LatencyRecord.from_dict(json.loads(line)) for line in lines] == list(result.records)
    again = LoadResult.read(tmp_path / "run.jsonl")
    assert again.records == result.records
    assert again.summary(targets) == result.summary(targets)
    assert again.setting == result.setting
    saved = json.loads((tmp_path / "run.json").read_text())
    assert saved["model_id"] == "scripted"
    assert saved["date"] == "2026-01-02T03:04:05+00:00"
    assert (saved["request_rate"], saved["num_prompts"], saved["completed"]) == (300.0, 3, 3)
    assert saved["total_output_tokens"] == 6
    assert saved["mean_ttft_ms"] == pytest.approx(1000 * result.summary().service_ttft.mean)
    assert saved["kvlab"]["setting"]["hardware"] == "one small machine"


def test_answers_are_kept_only_when_asked_for(tmp_path):
    with serving(fine) as server:
        result = load(server.url, ["hello"])
    assert result.texts == {}
    assert len(result.save(tmp_path / "run.jsonl")) == 2


def test_records_without_their_summary_can_be_read(tmp_path):
    with serving(fine) as server:
        result = load(server.url, ["hello"] * 3)
    result.save(tmp_path / "run.jsonl")
    (tmp_path / "run.json").unlink()
    again = LoadResult.read(tmp_path / "run.jsonl")
    assert again.records == result.records
    assert again.setting == {}
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ValueError, match="no summary that was saved with these records"):
        LoadResult.read(tmp_path / "run.jsonl")


def test_the_key_is_sent_and_stands_nowhere(tmp_path, monkeypatch):
    def gossip(reply):
        said = f'{{"error": {{"message": "no such key: {KEY}"}}}}'.encode()
        reply.whole("401 Unauthorized", said)

    with serving(gossip) as server:
        result = load(server.url, ["hello"], api_key=KEY, headers={"x-team": "a long secret"})
        monkeypatch.setenv("KVLAB_API_KEY", KEY)
        load(server.url, ["hello"])
    assert [r.headers["authorization"] for r in server.asked] == [f"Bearer {KEY}"] * 2
    assert server.asked[0].headers["x-team"] == "a long secret"
    assert result.records[0].error == "HTTP 401: no such key: [hidden]"
    shown = repr(result) + json.dumps(result.to_bench_serve()) + repr(result.records)
    shown += "".join(path.read_text() for path in result.save(tmp_path / "run.jsonl"))
    assert KEY not in shown and "a long secret" not in shown


def test_the_servers_own_stamps_of_a_first_token():
    """A server on this machine that tells when it did what, as kvlab's does."""
    clock = HeldClock()
    told = {"server_arrival": 0.1, "submitted": 0.2, "first_scheduled": 0.5}
    told |= {"first_logits": 2.0, "selected": 2.1, "server_sent": 2.2}
    first = json.loads(chunk("a")[6:]) | {"kvlab": told}

    def answer(reply):
        script = [(2.5, b"data: " + json.dumps(first).encode() + b"\n\n"), (3.0, DONE)]
        at_times(clock, reply, script)

    with serving(answer, clock=clock) as server:
        result = load(server.url, ["hello"], clock=clock)
    stamps = result.stamps("r1")
    assert (stamps.client_sent, stamps.client_received) == (0.0, 2.5)
    assert stamps.ttft("server") == pytest.approx(2.1)
    assert result.extras == {"r1": told}
    with serving(fine) as server:
        assert load(server.url, ["hello"]).stamps("r1") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": "localhost:8000"}, "url is 'localhost:8000'; give one such as http://127.0.0.1"),
        ({"url": "http://me:pass@host"}, "the URL holds a name or a password; give a key with"),
        ({"url": "http://host/v1?x=1"}, r"a part behind \? or #"),
        ({"url": 8000}, "url is 8000"),
        ({"requests": "hello"}, "give a Workload, or a list of prompts"),
        ({"requests": []}, "there is no request"),
        ({"requests": [""]}, "r1: prompt is ''; give a text"),
        ({"requests": [[1, -1]]}, "give a text, a list of token ids"),
        ({"requests": [[{"role": "user", "content": "x"}]]}, 'give api="chat", or a text'),
        ({"requests": [LoadRequest("a", "x"), LoadRequest("a", "y")]}, "'a' stands there twice"),
        (
            {"requests": [LoadRequest("a", "x", time=0.0), LoadRequest("b", "y")]},
            "b has no time and others have one",
        ),
        (
            {"requests": [LoadRequest("a", "x", time=2.0), LoadRequest("b", "y", time=1.0)]},
            "sort the requests by time",
        ),
        ({"api": "embeddings"}, "api is 'embeddings'; give one of completions, chat"),
        ({"arrivals": 0}, "Poisson: request_rate is 0"),
        ({"arrivals": "fast"}, "arrivals is 'fast'; give requests a second"),
        (
            {"arrivals": 5e-324},
            r"request 1 of 1 would leave after inf s \(.*'request_rate': 5e-324",
        ),
        ({"arrivals": Regular(1e-9), "requests": ["x"] * 3}, "request 2 of 3 would leave after 1e"),
        ({"arrivals": OnOff(1.0, 5e-324, 1.0)}, "request 1 of 1 would leave after nan s"),
        ({"arrivals": 1.0, "stretch": 1e300}, "a higher rate, fewer requests or a smaller stretch"),
        ({"requests": [LoadRequest("a", "x", time=3e6)]}, "2592000 s is the longest wait"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"timeout": 0}, "timeout is 0"),
        ({"warmups": -1}, "warmups is -1"),
        ({"stretch": 0}, "stretch is 0"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"model": 7}, "model is 7; give a name"),
        ({"extra_body": {"n": 2}}, "extra_body sets 'n'; the client needs one streamed answer"),
        ({"api_key": "two\nlines"}, "the API key is empty, or has a line break"),
        ({"headers": {"bad name": "x"}}, "header 'bad name' cannot be sent"),
    ],
)
def test_bad_input_is_named_before_anything_is_sent(change, message):
    with serving(fine) as server:
        arguments = {"url": server.url, "requests": ["hello"]} | change
        with pytest.raises(ValueError, match=message):
            load(**arguments)
    assert server.asked == []


def test_a_model_that_the_server_does_not_name():
    with (
        serving(fine, pages={"/v1/models": '{"data": []}'}) as server,
        pytest.raises(ValueError, match=r"names no model \(HTTP 200\); name the model yourself"),
    ):
        load(server.url, ["hello"])


def test_measuring_imports_httpx_only_when_it_runs():
    code = "import sys, kvlab.measure.load, kvlab.measure.load_table; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "kvlab" in loaded
    assert not loaded & {"httpx", "torch", "numpy", "rich", "IPython", "transformers"}


def test_drawn_requests_without_times_are_a_closed_loop():
    drawn = of_workload(random_requests(3, prompt_tokens=2), words=True, timed=False)
    with serving(fine) as server:
        result = load(server.url, drawn)
    assert result.setting["concurrency"] == 1
    assert result.setting["arrivals"] == "closed loop"
    ends = [record.times.finished for record in result.records]
    starts = [record.times.arrival for record in result.records]
    assert all(start >= end for start, end in zip(starts[1:], ends, strict=False))
