"""What happens at the edges: a full queue, clients that hang up, a failing engine, the end."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time

import httpx
import openai
import pytest
import torch
from serve_cases import LONG, PROMPT, settled

from kvlab import LLM, ModelConfig
from kvlab.measure.random_decoder import random_decoder
from kvlab.serve import Server, streaming

STREAM = LONG | {"stream": True}


@contextlib.contextmanager
def standing_still(server: Server):
    """The engine's thread waits between two steps for as long as the block lasts."""
    entered, gate = threading.Event(), threading.Event()

    def wait(llm: LLM) -> None:
        entered.set()
        gate.wait(60)

    waiting = threading.Thread(target=server.call, args=(wait,))
    waiting.start()
    entered.wait(60)
    try:
        yield
    finally:
        gate.set()
        waiting.join()


def lines(response: httpx.Response) -> list:
    """The data of a stream's events, "[DONE]" as it stands."""
    data = [line[6:] for line in response.iter_lines() if line.startswith("data: ")]
    return [d if d == "[DONE]" else json.loads(d) for d in data]


def test_a_full_queue_is_429_with_a_time_to_come_back():
    with Server(LLM("tiny", max_num_seqs=1), max_queue=1) as server:
        base = f"{server.url}/v1"
        answers = []

        def ask() -> None:
            answers.append(httpx.post(f"{base}/completions", json={"prompt": PROMPT}, timeout=60))

        with standing_still(server):
            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            while len(answers) < 2:  # two find a place, two do not, and are told at once
                threads[0].join(0.01)
            assert [a.status_code for a in answers] == [429, 429]
            assert answers[0].headers["retry-after"] == "1"
            assert answers[0].json()["error"]["type"] == "rate_limit_error"
            with openai.OpenAI(base_url=base, api_key="-", max_retries=0) as client:
                with pytest.raises(openai.RateLimitError, match="all 2 places"):
                    client.completions.create(model="tiny", prompt="x")
                with pytest.raises(openai.BadRequestError, match="3 sequences"):
                    client.completions.create(model="tiny", prompt="x", n=3)
        for thread in threads:
            thread.join()
        assert sorted(a.status_code for a in answers) == [200, 200, 429, 429]
        ask()
        assert answers[-1].status_code == 200  # the places are free again
        assert settled(server) == (0, 0)


def test_a_client_that_hangs_up_frees_its_place_and_its_blocks():
    with Server(LLM("tiny", max_num_seqs=1), max_queue=0) as server, httpx.Client() as http:
        for body in (LONG, STREAM):
            with contextlib.suppress(httpx.ReadTimeout):
                timeout = httpx.Timeout(30, read=0.2)
                with http.stream("POST", f"{server.url}/v1/completions", json=body,
                                 timeout=timeout) as response:  # fmt: skip
                    next(response.iter_raw())
            assert settled(server) == (0, 0)
        found = http.post(f"{server.url}/v1/completions", json={"prompt": PROMPT}, timeout=60)
        assert found.status_code == 200


def test_a_client_that_hangs_up_while_it_waits():
    with Server(LLM("tiny")) as server:
        with standing_still(server), contextlib.suppress(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/completions", json=LONG, timeout=0.3)
        assert settled(server) == (0, 0)
        assert httpx.get(f"{server.url}/health").status_code == 200


class Broken(RuntimeError):
    pass


def break_next_step(llm: LLM) -> None:
    """The next selection fails, as a kernel or the memory might; the one after does not."""

    def fail(rows: object) -> None:
        llm.runner.on_logits = None
        raise Broken("pine" + "apple")

    llm.runner.on_logits = fail


def test_a_step_that_fails_is_a_500_and_the_engine_goes_on(caplog):
    with Server(LLM("tiny")) as server:
        for stream in (False, True):
            server.call(break_next_step)
            body = {"prompt": PROMPT, "temperature": 0, "stream": stream}
            failed = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
            error = failed.json()["error"]
            assert (failed.status_code, error["type"]) == (500, "server_error")
            assert "Broken" in error["message"] and "pineapple" not in error["message"]
            assert settled(server) == (0, 0)
        good = httpx.post(f"{server.url}/v1/completions", json={"prompt": PROMPT}, timeout=60)
        assert good.status_code == 200
    assert "Broken in a step of the engine" in caplog.text and "pineapple" not in caplog.text


def test_a_step_that_fails_in_mid_stream_is_an_event_and_no_done():
    with Server(LLM("tiny")) as server:
        url = f"{server.url}/v1/completions"
        with httpx.stream("POST", url, json=STREAM, timeout=60) as response:
            raw = response.iter_lines()
            next(raw)
            server.call(break_next_step)
            rest = [line[6:] for line in raw if line.startswith("data: ")]
        assert json.loads(rest[-1])["error"]["code"] == "engine_error"
        assert "[DONE]" not in rest
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0) as client:
            body = {"prompt": PROMPT, "max_tokens": 900, "extra_body": {"ignore_eos": True}}
            stream = client.completions.create(model="tiny", stream=True, **body)
            next(stream)
            server.call(break_next_step)
            with pytest.raises(openai.APIError, match="engine failed"):
                list(stream)
        assert settled(server) == (0, 0)


def test_a_step_without_memory_tells_client_and_log_what_helps(caplog):
    """torch is asked for more than a machine has addresses, inside a step."""

    def take_too_much(llm: LLM) -> None:
        def take(rows: object) -> None:
            llm.runner.on_logits = None
            torch.empty(1 << 50)

        llm.runner.on_logits = take

    with Server(LLM("tiny")) as server:
        server.call(take_too_much)
        url = f"{server.url}/v1/completions"
        failed = httpx.post(url, json={"prompt": PROMPT}, timeout=60)
        error = failed.json()["error"]
        assert (failed.status_code, error["code"]) == (500, "out_of_memory")
        for said in (error["message"], caplog.text):
            assert "out of memory in a step that computes" in said
            assert "Give a smaller max_num_batched_tokens" in said
        assert "send it again" not in error["message"]
        assert settled(server) == (0, 0)
        assert httpx.post(url, json={"prompt": PROMPT}, timeout=60).status_code == 200


def test_a_prompt_that_the_pool_can_never_hold_is_refused():
    with Server(LLM("tiny", num_blocks=4)) as server:
        body = {"prompt": [5] * 100}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
        assert answer.status_code == 400
        assert "needs 7 blocks" in answer.json()["error"]["message"]
        body = {"prompt": ["Ada", [5] * 3]}
        assert httpx.post(f"{server.url}/v1/completions", json=body).status_code == 400
        assert settled(server) == (0, 0)


def test_a_pool_that_runs_out_cuts_the_output():
    with Server(LLM("tiny", num_blocks=4)) as server:
        answer = httpx.post(f"{server.url}/v1/completions", json=LONG, timeout=60).json()
        (choice,) = answer["choices"]
        assert choice["finish_reason"] == "length"
        assert "more than the pool's 4 blocks" in choice["stop_reason"]
        assert answer["usage"]["total_tokens"] == 65


def test_priority_where_the_order_is_by_priority():
    with Server(LLM("tiny", order="priority")) as server:
        body = {"prompt": PROMPT, "priority": -3, "temperature": 0}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
        assert answer.json()["choices"][0]["text"] == " Ada likes pears."


def test_closing_ends_running_requests_with_an_error_event():
    llm = LLM("tiny")
    server = Server(llm).start()
    found = []
    with httpx.stream("POST", f"{server.url}/v1/completions", json=STREAM, timeout=60) as response:
        raw = response.iter_lines()
        next(raw)
        closing = threading.Thread(target=server.close)
        closing.start()
        found = [line[6:] for line in raw if line.startswith("data: ")]
        closing.join()
    assert json.loads(found[-1])["error"]["code"] == "stopping"
    pool = llm.engine.scheduler.manager.pool
    assert llm.engine.requests == {} and pool.num_free_blocks == pool.num_blocks
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")
    assert llm.generate(PROMPT)[0].outputs[0].text == " Ada likes pears."  # ours again


def test_closing_with_grace_lets_a_request_finish():
    server = Server(LLM("tiny")).start()
    body = {"prompt": PROMPT, "stream": True, "max_tokens": 40, "ignore_eos": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as response:
        raw = response.iter_lines()
        next(raw)
        closing = threading.Thread(target=server.close, args=(60.0,))
        closing.start()
        data = [line[6:] for line in raw if line.startswith("data: ")]
        closing.join()
    assert data[-1] == "[DONE]"


def test_a_server_can_be_closed_twice_and_made_again():
    llm = LLM("tiny")
    for _ in range(2):
        with Server(llm) as server:
            assert httpx.get(f"{server.url}/health").status_code == 200
            server.close()
        server.close()
    assert repr(server) == "Server('tiny' on 127.0.0.1)"


def test_a_model_without_words_takes_and_gives_token_ids():
    config = ModelConfig(vocab_size=50, hidden_size=16, intermediate_size=16, num_layers=1,
                         num_query_heads=2, num_kv_heads=1, head_dim=8)  # fmt: skip
    llm = LLM(random_decoder(config))
    with Server(llm, model_name="random") as server:
        body = {"prompt": [1, 2, 3], "max_tokens": 3, "return_token_ids": True, "temperature": 0}
        url = f"{server.url}/v1/completions"
        (choice,) = httpx.post(url, json=body, timeout=60).json()["choices"]
        assert len(choice["token_ids"]) == 3 and choice["text"] == ""
        with httpx.stream("POST", url, json=body | {"stream": True}, timeout=60) as response:
            *chunks, done = lines(response)
        assert done == "[DONE]"
        assert [c["choices"][0]["token_ids"] for c in chunks] == [[t] for t in choice["token_ids"]]
        assert httpx.post(url, json={"prompt": "text"}).status_code == 400
        chat = {"messages": [{"role": "user", "content": "x"}]}
        refused = httpx.post(f"{server.url}/v1/chat/completions", json=chat)
        assert refused.json()["error"]["code"] == "no_chat_template"


def test_an_llm_is_served_once_at_a_time_and_a_server_runs_once():
    llm = LLM("tiny")
    with Server(llm) as server:
        other = Server(llm)
        with pytest.raises(RuntimeError, match="is being served already"):
            other.start()
        other.close()
    with pytest.raises(RuntimeError, match="make another one"):
        server.start()
    with pytest.raises(RuntimeError, match="use it directly"):
        server.call(len)
    with Server(llm) as again, pytest.raises(TypeError):
        again.call(len)


def test_a_fault_of_the_server_is_a_500_that_says_nothing(monkeypatch, caplog):
    with Server(LLM("tiny")) as server:

        def fail(asked: object) -> None:
            raise KeyError("pine" + "apple")

        monkeypatch.setattr(server._desk, "_encode", fail)
        answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": "x"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
        monkeypatch.undo()
        assert httpx.post(f"{server.url}/v1/completions", json={"prompt": "x"}).status_code == 200
    assert "KeyError in the server" in caplog.text and "pineapple" not in caplog.text


def test_the_server_loads_no_jupyter_package_and_no_transformers():
    code = "import sys, kvlab.serve.server; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "uvicorn" in loaded
    assert not loaded & {"IPython", "ipywidgets", "anywidget", "transformers", "openai"}


def test_a_client_that_does_not_read_loses_its_place(monkeypatch):
    monkeypatch.setattr(streaming, "SEND_SECONDS", 0.2)
    server = Server(LLM("tiny"))
    for side in (server._socket, silent := socket.socket()):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        side.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with silent, server:
        silent.connect(("127.0.0.1", server.port))
        body = json.dumps(STREAM | {"logprobs": 20, "n": 4}).encode()
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
        silent.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        while server._desk._taken == 0:
            time.sleep(0.01)
        assert settled(server) == (0, 0)  # ended, not served to its end:
        reasons = httpx.get(f"{server.url}/metrics").text
        assert 'finished_reason="abort",model_name="tiny"} 4.0' in reasons
        assert server._desk._taken == 0
