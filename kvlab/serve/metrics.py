"""The server's figures in Prometheus's text form, under vLLM's names.

Source of names, labels and buckets: vLLM, v1/metrics/loggers.py. Times are of the server's
boundary: from the request's arrival at the server to the engine's outputs. A figure of a request
is noted when it ends. Each server has a registry of its own.
"""

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from kvlab.core.prefix_cache import PrefixCacheStats
from kvlab.core.request import FinishReason, Request
from kvlab.llm import LLM
from kvlab.serve.job import Job

LABELS = ("model_name", "engine")
FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5),
    *(5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
BETWEEN_TOKENS = (
    *(0.001, 0.0025, 0.005),  # vLLM begins at 0.01; a small model is below it
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
    *(5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
WHOLE_REQUEST = (
    *(0.001, 0.005, 0.01, 0.05, 0.1),  # vLLM begins at 0.3
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
COUNTERS = {
    "prefix_cache_queries": "Prompt tokens looked for in the prefix cache.",
    "prefix_cache_hits": "Prompt tokens found in the prefix cache.",
    "num_preemptions": "Preemptions, counted when a request ends.",
    "prompt_tokens": "Prompt tokens of requests that began, cached ones included.",
    "generation_tokens": "Output tokens.",
}
HISTOGRAMS = {
    "time_to_first_token_seconds": (FIRST_TOKEN, "Arrival to the first output token."),
    "inter_token_latency_seconds": (BETWEEN_TOKENS, "Between two output tokens."),
    "request_time_per_output_token_seconds": (
        BETWEEN_TOKENS,
        "Mean time per output token after the first, one value a request.",
    ),
    "e2e_request_latency_seconds": (WHOLE_REQUEST, "Arrival to the end."),
    "request_queue_time_seconds": (WHOLE_REQUEST, "Arrival to the first step that works on it."),
    "request_prefill_time_seconds": (WHOLE_REQUEST, "From that step to the first output token."),
    "request_decode_time_seconds": (WHOLE_REQUEST, "First output token to the last."),
    "request_inference_time_seconds": (WHOLE_REQUEST, "First step to the last output token."),
}


class Metrics:
    """Noted by the engine's thread, read by any."""

    def __init__(self, llm: LLM, model_name: str) -> None:
        self.registry = CollectorRegistry()
        self._labels = (model_name, "0")
        scheduler = llm.engine.scheduler
        pool = scheduler.manager.pool
        self._gauge("num_requests_running", lambda: len(scheduler.running), "In steps.")
        self._gauge("num_requests_waiting", lambda: len(scheduler.waiting), "Waiting.")
        self._gauge(
            "kv_cache_usage_perc",
            lambda: 1 - pool.num_free_blocks / pool.num_blocks,
            "Share of the blocks that requests hold; 1 is all.",
        )
        self._counters = {name: self._counter(name, text) for name, text in COUNTERS.items()}
        self._histograms = {
            name: self._histogram(name, buckets, text)
            for name, (buckets, text) in HISTOGRAMS.items()
        }
        self._success = Counter(
            "vllm:request_success",
            "Requests that ended, by reason.",
            (*LABELS, "finished_reason"),
            registry=self.registry,
        )
        for reason in FinishReason:
            self._success.labels(*self._labels, reason.value)
        self._seen = self._counts(llm.prefix_cache_stats)  # what was before this server

    def _gauge(self, name: str, read: Callable[[], float], text: str) -> None:
        gauge = Gauge(f"vllm:{name}", text, LABELS, registry=self.registry)
        gauge.labels(*self._labels).set_function(read)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"vllm:{name}", text, LABELS, registry=self.registry).labels(*self._labels)

    def _histogram(self, name: str, buckets: Sequence[float], text: str) -> Histogram:
        return Histogram(
            f"vllm:{name}", text, LABELS, buckets=buckets, registry=self.registry
        ).labels(*self._labels)

    # ---- noting

    def note_step(self, llm: LLM) -> None:
        """The prefix cache's counts. They go on where a reset of the cache sets its own to 0."""
        now = self._counts(llm.prefix_cache_stats)
        if now == self._seen:
            return
        for name, count in now.items():
            before = self._seen[name]
            self._counters[name].inc(count - before if count >= before else count)
        self._seen = now

    @staticmethod
    def _counts(stats: PrefixCacheStats) -> dict[str, int]:
        return {"prefix_cache_queries": stats.queries, "prefix_cache_hits": stats.hits}

    def note_end(self, job: Job) -> None:
        """All continuations of a job have ended."""
        for request in job.requests:
            self._note_request(request, job.server_arrival)

    def _note_request(self, request: Request, arrival: float) -> None:
        times = request.times
        if times.first_scheduled is not None and request.sample_index == 0:
            self._counters["prompt_tokens"].inc(request.num_prompt_tokens)
        self._counters["generation_tokens"].inc(len(request.output_token_ids))
        self._counters["num_preemptions"].inc(request.num_preemptions)
        if request.finish_reason is not None:
            self._success.labels(*self._labels, request.finish_reason.value).inc()
        for gap in times.itl:
            self._histograms["inter_token_latency_seconds"].observe(gap)
        first, last = times.first_token, times.events[-1].time if times.events else None
        spans = {
            "time_to_first_token_seconds": (arrival, first),
            "e2e_request_latency_seconds": (arrival, times.finished),
            "request_queue_time_seconds": (arrival, times.first_scheduled),
            "request_prefill_time_seconds": (times.first_scheduled, first),
            "request_decode_time_seconds": (first, last),
            "request_inference_time_seconds": (times.first_scheduled, last),
        }
        for name, (begin, end) in spans.items():
            if begin is not None and end is not None:
                self._histograms[name].observe(end - begin)
        if times.tpot is not None:
            self._histograms["request_time_per_output_token_seconds"].observe(times.tpot)

    # ---- reading

    def page(self, accept: str) -> tuple[bytes, str]:
        """The text, and its content type, in the form that the reader accepts."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type
