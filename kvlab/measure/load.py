"""A load client for any server with OpenAI's API: kvlab, vLLM, SGLang, TensorRT-LLM, llama.cpp.

    from kvlab.measure.load import load
    result = load("http://127.0.0.1:8000", ["Say hello."] * 8, arrivals=2.0, api="chat")
    result.summary().ttft.p99

It sends requests as users would, notes when bytes come back, and counts what went wrong. It runs
in a thread with an event loop of its own, so it works in a notebook, whose loop is busy already.
An interrupt ends it and gives what was measured. Section 21.2.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from kvlab.core.arrivals import Arrivals
from kvlab.core.checked import number, whole
from kvlab.core.workload import Workload
from kvlab.measure.load_asking import Asking
from kvlab.measure.load_client import Client
from kvlab.measure.load_plan import as_requests, checked_body, checked_texts, intended_times
from kvlab.measure.load_requests import LoadRequest, Prompt
from kvlab.measure.load_result import LoadResult
from kvlab.measure.load_run import Run
from kvlab.measure.load_server import Server
from kvlab.measure.load_thread import in_thread

__all__ = ["LoadRequest", "LoadResult", "load"]
Progress = Callable[[int, int, int], None]  # ended, failed, of


def load(
    url: str,
    requests: Workload | Sequence[Prompt | LoadRequest],
    *,
    arrivals: Arrivals | float | None = None,
    concurrency: int | None = None,
    api: str = "completions",
    model: str | None = None,
    api_key: str | None = None,
    max_tokens: int = 32,
    words: bool = False,
    temperature: float | None = 0.0,
    ignore_eos: bool = False,
    extra_body: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 600.0,
    warmups: int = 0,
    seed: int = 0,
    stretch: float = 1.0,
    keep_text: bool = False,
    hardware: str | None = None,
    date: str | None = None,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> LoadResult:
    """Send requests to a server, and note when each answer's text arrived.

    requests: a workload (its token ids, or words in their place with words=True), or prompts:
    texts, lists of token ids, lists of chat messages, or `LoadRequest`s.
    arrivals: a process, or a rate in requests a second (Poisson; math.inf sends all at once).
    None takes the requests' own times; without any, the loop is closed: each request is meant to
    start when a place is free. concurrency: most under way at a time, in a closed loop 1 if None.
    api: "completions" or "chat". model: None asks the server, and takes the first it names.
    api_key: None takes the environment's KVLAB_API_KEY. max_tokens: for prompts that do not say.
    temperature None leaves it to the server. extra_body: further fields of each request.
    timeout: seconds from leaving until a request counts as failed. warmups: requests like the
    first one, sent before and not counted. stretch: times are multiplied by it.
    hardware: in your words, for the report. date: ISO 8601; None reads the clock.
    progress: called with (ended, failed, of) in the caller's thread, about ten times a second.

    Ctrl-C, or the kernel's interrupt, ends the run: what is under way counts as failed, and the
    rest as not sent. Raises ValueError, with nothing sent, for a value that does not fit, and
    ConnectionError where no server answers the question for its model.
    """
    checked_texts(hardware=hardware, date=date)
    listed = as_requests(requests, max_tokens=max_tokens, api=api, words=words)
    number("timeout", timeout, above=0)
    times, process = intended_times(listed, arrivals, seed, number("stretch", stretch, above=0))
    if concurrency is not None or times is None:
        concurrency = whole("concurrency", 1 if concurrency is None else concurrency, 1)
    asking = Asking(api, model or "", temperature, ignore_eos, checked_body(extra_body))
    client = Client(Server.at(url, api_key, headers), asking, timeout=float(timeout), clock=clock)
    run = Run(listed, times, concurrency, client, whole("warmups", warmups))
    in_thread(run.play, lambda: progress and progress(*run.progress()))
    setting = {
        "arrivals": process,
        "stretch": stretch,
        "seed": seed,
        "hardware": hardware,
        "date": date or datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    return run.result(setting, keep_text)
