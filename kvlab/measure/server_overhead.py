"""What HTTP adds to the time to first token: `kvlab serve` beside the engine alone (section 21.2).

    engine alone:    ask LLM.stream .......................... first text
    through HTTP:    client sends ... [ server: the same ] ... first bytes with text at the client

One request at a time, on loopback, over one connection that stays open. The server is a process of
its own, as it would be; the same prompts go to both in turn, so that what else the machine does
hits both. Where the added time goes is read from the server's own stamps of the same requests.
"""

import contextlib
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from kvlab import tiny
from kvlab.core.request import SamplingParams
from kvlab.llm import LLM

NEEDED = ("httpx", "starlette", "uvicorn", "prometheus_client")
PROMPT = tiny.prompt("Ada likes pears. Tom has a red bag.", "What does Ada like?")
NEW_TOKENS, WARM_UP = 4, 3
PARTS = ("way there", "preparation", "queue", "prefill", "selection", "delivery", "way back")
STAMPS = (
    *("client_sent", "server_arrival", "submitted", "first_scheduled"),
    *("first_logits", "selected", "server_sent", "client_received"),
)


def measure(rounds: int) -> dict[str, object]:
    """Seconds to the first text, of each round: "engine", "http", and the latter in "parts".

    Where a package of the server's is not installed, {"missing": its name}.
    """
    if absent := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        return {"missing": absent[0]}
    import httpx

    llm, engine, found = LLM("tiny"), [], []
    with served() as url, httpx.Client(base_url=url, timeout=60.0) as client:
        for number in range(rounds + WARM_UP):
            pair = _alone(llm, number), _through_http(client, number)
            if number >= WARM_UP:
                engine.append(pair[0])
                found.append(pair[1])
    return {
        "engine": engine,
        "http": [stamps[-1] - stamps[0] for stamps in found],
        "parts": {
            name: [stamps[i + 1] - stamps[i] for stamps in found] for i, name in enumerate(PARTS)
        },
    }


def table(result: dict[str, object]) -> str:
    """Medians and the best of all rounds in milliseconds; the goal is a median of 5 added."""
    title = "Server: time to first token, one request at a time on loopback, tiny model, ms"
    if "missing" in result:
        return f"{title}\n  not measured: {result['missing']} is not installed"
    http, engine = result["http"], result["engine"]
    added = [h - e for h, e in zip(http, engine, strict=True)]
    rows = {"engine alone": engine, "through HTTP": http, "added": added}
    rows |= {f"  {name}": values for name, values in result["parts"].items()}
    lines = [title, f"{'':16}{'median':>8}{'least':>8}"]
    for name, values in rows.items():
        middle, least = (1000 * f(values) for f in (statistics.median, min))
        lines.append(f"{name:<16}{middle:8.2f}{least:8.2f}")
    return "\n".join([*lines, f"(added: HTTP - engine, {len(added)} pairs; goal 5 ms, median)"])


@contextlib.contextmanager
def served() -> Iterator[str]:
    """The address of a `kvlab serve` of its own process, on a free port."""
    command = [sys.executable, "-m", "kvlab.cli", "serve", "--port", "0"]
    environment = {k: v for k, v in os.environ.items() if k != "KVLAB_API_KEY"}
    environment |= {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        line = process.stdout.readline()
        if " at http" not in line:
            raise ValueError("kvlab serve did not start; run it by itself to see why")
        yield line.split(" at ")[1].split()[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def _alone(llm: LLM, number: int) -> float:
    """Seconds from the call to the first text. The salt keeps prefixes of other rounds away."""
    params = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    start = time.perf_counter()
    stream = llm.stream(PROMPT, params, cache_salt=str(number))
    next(delta for delta in stream if delta.text)
    seconds = time.perf_counter() - start
    list(stream)  # to its end, as the server does
    return seconds


def _through_http(client: object, number: int) -> list[float]:
    """All stamps of one request, client's and server's: processes share this clock."""
    body = {
        "prompt": PROMPT,
        "max_tokens": NEW_TOKENS,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "cache_salt": str(number),
    }
    received, parts = None, []
    sent = time.perf_counter()
    with client.stream("POST", "/v1/completions", json=body) as response:
        for part in response.iter_raw():
            received = time.perf_counter() if received is None else received
            parts.append(part)
    events = [json.loads(e[6:]) for e in b"".join(parts).split(b"\n\n") if e.startswith(b"data: {")]
    stamps = {"client_sent": sent, **events[-1]["kvlab"], "client_received": received}
    return [stamps[name] for name in STAMPS]
