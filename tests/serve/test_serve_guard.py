"""Who may ask: this machine's own programs, or whoever has the key."""

import logging
import socket

import httpx
import pytest
from serve_cases import PROMPT, settled

from kvlab import LLM
from kvlab.serve import Server
from kvlab.serve.guard import is_local, is_loopback

BODY = {"prompt": PROMPT, "max_tokens": 2}
KEY = "a-long-random-text"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8000"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost.evil.example:80"},
        {"Host": "0.0.0.0"},
        {"Host": ""},
        {"Host": "user@127.0.0.1@evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1.evil.example"},
        {"Origin": "file://"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_a_page_of_elsewhere_may_not_ask(server, headers):
    for path in ("/v1/completions", "/v1/chat/completions"):
        answer = httpx.post(server.url + path, json=BODY, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_local")
        assert "access-control-allow-origin" not in answer.headers
    assert httpx.get(f"{server.url}/metrics", headers=headers).status_code == 403
    assert settled(server) == (0, 0)


def test_two_hosts_or_none_are_refused(server):
    for hosts in (b"", b"Host: 127.0.0.1\r\nHost: evil.example\r\n"):
        with socket.create_connection(("127.0.0.1", server.port)) as raw:
            raw.sendall(b"GET /v1/models HTTP/1.1\r\n" + hosts + b"Connection: close\r\n\r\n")
            assert raw.recv(100).split()[1] in (b"400", b"403")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "localhost"},
        {"Host": "LOCALHOST:1234"},
        {"Host": "[::1]:8000"},
        {"Origin": "http://localhost:8888", "Sec-Fetch-Site": "same-site"},
        {"Origin": "http://127.0.0.1:8000"},
    ],
)
def test_this_machine_may(server, headers):
    answer = httpx.post(f"{server.url}/v1/completions", json=BODY, headers=headers)
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


def test_a_page_that_asks_first_gets_no_permission(server):
    headers = {"Origin": "http://localhost:8888", "Access-Control-Request-Method": "POST"}
    answer = httpx.options(f"{server.url}/v1/completions", headers=headers)
    assert answer.status_code == 405
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "host, loopback",
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("192.168.1.5", False), ("example.com", False),
     ("127.0.0.1.example.com", False), ("", False)],
)  # fmt: skip
def test_loopback_addresses(host, loopback):
    assert is_loopback(host) is loopback


def test_odd_addresses_are_not_local():
    assert not is_local("//[::1")
    assert not is_local("null")
    assert is_local("//[::1]:80") and is_local("http://localhost.:1/")


@pytest.fixture(scope="module")
def locked():
    with Server(LLM("tiny"), api_key=KEY) as found:
        yield found


@pytest.mark.parametrize(
    "value",
    [None, "", "Bearer", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", KEY, f"Basic {KEY}",
     b"Bearer \xff\xfe"],
)  # fmt: skip
def test_a_key_that_is_missing_or_wrong(locked, value):
    headers = {} if value is None else {"Authorization": value}
    for method, path in (("POST", "/v1/completions"), ("GET", "/v1/models"), ("GET", "/metrics")):
        answer = httpx.request(method, locked.url + path, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert httpx.get(f"{locked.url}/health", headers=headers).status_code == 200


def test_the_right_key(locked):
    headers = {"Authorization": f"bearer {KEY}", "Host": "kvlab.example"}
    answer = httpx.post(f"{locked.url}/v1/completions", json=BODY, headers=headers)
    assert answer.status_code == 200


def test_another_host_needs_a_key(llm):
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.com"):
        with pytest.raises(ValueError, match="set an API key"):
            Server(llm, host=host)
    with pytest.raises(ValueError, match="api_key is empty"):
        Server(llm, api_key=" ")


def test_nothing_of_a_users_text_is_logged(server, caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        for body in ({"prompt": "pineapple secret"}, {"prompt": "pineapple", "stop": 5}):
            httpx.post(f"{server.url}/v1/completions", json=body | {"model": "tiny"})
    mine = [r for r in caplog.records if not r.name.startswith(("httpx", "httpcore"))]
    shown = "".join(r.getMessage() for r in mine) + "".join(capfd.readouterr())
    assert "pineapple" not in shown


def test_odd_arguments_are_named(llm):
    for options, named in (
        ({"port": -1}, "port is -1"),
        ({"port": 70_000}, "port is 70000"),
        ({"max_queue": -1}, "max_queue is -1"),
        ({"max_body": 0}, "max_body is 0"),
        ({"grace": float("nan")}, "grace is nan"),
        ({"host": ""}, "host is ''"),
    ):
        with pytest.raises(ValueError, match=named):
            Server(llm, **options)
    with pytest.raises(ValueError, match="llm is 'tiny'"):
        Server("tiny")


def test_a_port_that_is_taken_is_named(server, llm):
    with pytest.raises(OSError, match=f"port {server.port}"):
        Server(llm, port=server.port)
