"""/metrics under vLLM's names, and the stamps of one request."""

import json
import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from serve_cases import PROMPT, settled

from kvlab import LLM
from kvlab.core.counters import read_prometheus
from kvlab.core.ttft import FirstTokenStamps
from kvlab.serve import Server

MOMENTS = ("server_arrival", "submitted", "first_scheduled", "first_logits", "selected")


def samples(server: Server) -> dict[str, float]:
    """Name of each sample, with its reason where it has one -> value."""
    text = httpx.get(f"{server.url}/metrics").text
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels["model_name"] == "tiny" and sample.labels["engine"] == "0"
            reason = sample.labels.get("finished_reason")
            found[sample.name + (f" {reason}" if reason else "")] = sample.value
    return found


def test_what_three_requests_leave_in_the_counters():
    with Server(LLM("tiny")) as server:
        before = samples(server)
        assert before["vllm:num_requests_running"] == before["vllm:kv_cache_usage_perc"] == 0
        for extra in ({}, {"n": 2, "max_tokens": 3}, {}):
            body = {"prompt": PROMPT, "temperature": 0, **extra}
            answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
        usage = answer.json()["usage"]
        assert settled(server) == (0, 0)
        after = samples(server)
        prompt = usage["prompt_tokens"]
        assert after["vllm:prompt_tokens_total"] == 3 * prompt
        assert after["vllm:generation_tokens_total"] == 5 + 2 * 3 + 5
        assert after["vllm:request_success_total stop"] == 2
        assert after["vllm:request_success_total length"] == 2
        assert after["vllm:prefix_cache_queries_total"] == 3 * prompt
        assert after["vllm:prefix_cache_hits_total"] == 2 * (prompt // 16 * 16)
        assert after["vllm:num_preemptions_total"] == 0
        for name, count in {
            "time_to_first_token": 4,
            "e2e_request_latency": 4,
            "request_queue_time": 4,
            "request_prefill_time": 4,
            "request_decode_time": 4,
            "request_inference_time": 4,
            "inter_token_latency": 4 + 2 + 2 + 4,
            "request_time_per_output_token": 4,
        }.items():
            assert after[f"vllm:{name}_seconds_count"] == count
        counted = read_prometheus(httpx.get(f"{server.url}/metrics").text)
        assert (counted.queries, counted.hits) == (3 * prompt, 2 * (prompt // 16 * 16))


def test_counters_go_on_when_the_prefix_cache_forgets():
    with Server(LLM("tiny")) as server:
        body = {"prompt": PROMPT, "temperature": 0}
        for _ in range(2):
            httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
        queries = samples(server)["vllm:prefix_cache_queries_total"]
        assert server.call(lambda llm: llm.reset_prefix_cache())
        assert server.call(lambda llm: llm.prefix_cache_stats.queries) == 0
        httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
        assert samples(server)["vllm:prefix_cache_queries_total"] == queries * 3 / 2


def test_a_preempted_request_is_counted():
    with Server(LLM("tiny", num_blocks=8)) as server:
        body = {"prompt": [[5] * 30, [6] * 30], "max_tokens": 60, "ignore_eos": True}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
        assert answer.json()["usage"]["completion_tokens"] == 120
        assert samples(server)["vllm:num_preemptions_total"] >= 1


def test_two_servers_have_figures_of_their_own():
    with Server(LLM("tiny")) as one, Server(LLM("tiny")) as two:
        httpx.post(f"{one.url}/v1/completions", json={"prompt": PROMPT}, timeout=60)
        assert samples(one)["vllm:prompt_tokens_total"] > 0
        assert samples(two)["vllm:prompt_tokens_total"] == 0


def streamed(server: Server, body: dict) -> tuple[float, float, list[dict], str]:
    """When the request left, when its first bytes came, its chunks, and its id."""
    received, parts, sent = None, [], time.perf_counter()
    url = f"{server.url}/v1/completions"
    with httpx.stream("POST", url, json=body | {"stream": True}, timeout=60) as response:
        for part in response.iter_raw():
            received = received or time.perf_counter()
            parts.append(part)
    events = b"".join(parts).split(b"\n\n")
    chunks = [json.loads(e[6:]) for e in events if e.startswith(b"data: {")]
    return sent, received, chunks, response.headers["x-request-id"]


@pytest.mark.parametrize("usage", [True, False])
@pytest.mark.parametrize("max_tokens", [1, 16])
def test_the_stamps_of_a_stream_are_in_order_on_both_sides(server, usage, max_tokens):
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": max_tokens}
    body |= {"stream_options": {"include_usage": True}} if usage else {}
    sent, received, chunks, request_id = streamed(server, body)
    assert [c for c in chunks if "kvlab" in c] == [chunks[-1]]
    stamps = chunks[-1]["kvlab"]
    order = [sent, *(stamps[name] for name in MOMENTS), stamps["server_sent"], received]
    assert order == sorted(order)
    assert settled(server) == (0, 0)
    times = server.times(request_id)
    assert times.to_dict() == {"request_id": request_id, **stamps}
    fields = {name: stamps[name] for name in (*MOMENTS, "server_sent")}
    taken_apart = FirstTokenStamps(**fields, client_sent=sent, client_received=received)
    assert taken_apart.ttft("server") < taken_apart.ttft("client")


def test_the_stamps_of_a_whole_answer(server):
    answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": PROMPT}, timeout=60).json()
    stamps = answer["kvlab"]
    assert stamps["server_sent"] is None
    order = [stamps[name] for name in MOMENTS]
    assert order == sorted(order)
    assert settled(server) == (0, 0)
    assert server.times(answer["id"]).server_sent >= order[-1]
    assert server.times("no such id") is None


def test_waiting_for_the_step_of_others_is_queue_time(server):
    """Between two steps the engine is held for a while: the request's wait is its queue's."""
    import threading

    held = threading.Thread(target=server.call, args=(lambda llm: time.sleep(0.3),))
    held.start()
    stamps = httpx.post(f"{server.url}/v1/completions", json={"prompt": PROMPT}, timeout=60).json()[
        "kvlab"
    ]
    held.join()
    queue = stamps["first_scheduled"] - stamps["submitted"]
    assert queue > stamps["submitted"] - stamps["server_arrival"]


def test_the_engine_alone_has_the_stamp_too():
    llm = LLM("tiny")
    for prompts in ([PROMPT], [PROMPT, PROMPT + " Tom"]):
        for output in llm.generate(prompts):
            times = output.outputs[0].times
            order = [times.arrival, times.first_scheduled, times.first_logits, times.first_token]
            assert order == sorted(order)
            assert times.prefill_time + times.selection_time + times.queue_time == pytest.approx(
                times.ttft
            )
