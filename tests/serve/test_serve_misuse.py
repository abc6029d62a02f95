"""Calls that would wait for themselves, ends that meet calls, keys that nobody could send."""

import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from serve_cases import PROMPT, settled

from kvlab import LLM
from kvlab.serve import Server

PATIENCE = 20  # seconds until what hangs is given up


def in_time(function):
    """What it returns or raises; a TimeoutError for one that hangs."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(function).result(PATIENCE)
    finally:
        pool.shutdown(wait=False)


def test_a_call_within_a_call_and_a_close_within_one_are_refused():
    server = Server(LLM("tiny")).start()
    for inner in (lambda: server.call(len), server.close):
        with pytest.raises(RuntimeError, match=r"within call\(\)"):
            in_time(lambda inner=inner: server.call(lambda llm: inner()))
    body = {"prompt": PROMPT}
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=PATIENCE)
    assert answer.status_code == 200  # nothing of it has touched the server
    assert settled(server) == (0, 0)
    server.close()
    with Server(server.llm) as again:
        assert again.call(lambda llm: llm.name) == "tiny"


class LateInbox:
    """An inbox whose next message comes at the worst moment: when its reader is about to end."""

    def __init__(self, inbox: queue.SimpleQueue, reader: threading.Thread) -> None:
        self.get, self._inbox, self._reader = inbox.get, inbox, reader
        self.late = threading.Event()

    def put(self, message) -> None:
        if threading.current_thread() is not threading.main_thread():
            self.late.set()
            self._reader.join(1)
        self._inbox.put(message)


def test_a_call_that_meets_the_end_is_carried_out_or_refused():
    server = Server(LLM("tiny")).start()
    engine = server._engine
    engine.call(lambda llm: None).result(PATIENCE)
    inbox = LateInbox(engine._inbox, engine._thread)
    engine.call(lambda llm: setattr(engine, "_inbox", inbox)).result(PATIENCE)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: engine.call(lambda llm: "done"))
        inbox.late.wait(PATIENCE)
        engine._stopping = True  # as when a step has ended the thread
        inbox._inbox.put(lambda: None)  # it wakes, and sees that it is to end
        assert found.result(PATIENCE).result(PATIENCE) == "done"
    server.close()


def test_many_calls_while_servers_end():
    llm, ended = LLM("tiny"), []

    def ask_on(server: Server) -> None:
        with pytest.raises(RuntimeError, match="use it directly"):
            while True:
                server.call(lambda llm: None)
        ended.append(server)

    for _ in range(5):
        server = Server(llm).start()
        threads = [threading.Thread(target=ask_on, args=(server,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        server.call(lambda llm: None)
        server.close()
        for thread in threads:
            thread.join(PATIENCE)
    assert len(ended) == 15


@pytest.mark.parametrize("key", ["", " ", " k", "k ", "k\n", "a\r\nb", "ключ", "k\x00", b"k", 5])
def test_a_key_that_no_client_could_send_is_refused(llm, key):
    with pytest.raises(ValueError, match="api_key is empty, or has") as refused:
        Server(llm, api_key=key)
    assert "ключ" not in str(refused.value)


@pytest.mark.parametrize("key", ["k", "two words", "a:b=c/+~\"'\\", "x" * 4000])
def test_any_other_key_opens(llm, key):
    with Server(llm, api_key=key) as server:
        headers = {"Authorization": f"Bearer {key}"}
        assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == 200
        assert httpx.get(f"{server.url}/v1/models").status_code == 401
