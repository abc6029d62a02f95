"""Our latency figures beside those of `vllm bench serve`: the same names, and each difference.

Two reports can be compared where their words mean the same. This table says for each word what the
two programs count, over the same bytes received. Section 21.2.

Source: vLLM, vllm/benchmarks/serve.py (commit 009e6d4) and
vllm/benchmarks/lib/endpoint_request_func.py (commit 02cfb53), as of v0.30; read, not copied.
"""

from typing import NamedTuple

VERSION = "v0.30"


class Comparison(NamedTuple):
    """One figure: what each program counts, and when the two give the same number.

    names: their key in the result file, without mean_, median_, std_, p99_ and _ms.
    """

    names: str
    theirs: str
    ours: str
    equal: str


COMPARISONS = (
    Comparison(
        "ttft",
        "sending to the first chunk that has `choices`, text or not: a chat's role counts",
        "intended start to the first chunk with text; `service_ttft` from sending",
        "service_ttft: the first chunk has text",
    ),
    Comparison(
        "tpot",
        "(last chunk with `choices` - first one) / (output tokens - 1), for 2 tokens or more; "
        "an empty finishing chunk counts as the last",
        "(last chunk with text - first one) / (output tokens - 1), for 2 tokens or more in 2 "
        "chunks or more; an answer in one chunk is undefined, theirs is 0",
        "first and last chunk have text",
    ),
    Comparison(
        "itl",
        "gaps between chunks with `choices`, all requests together, whatever tokens they carry",
        "gaps between chunks with text, all requests together; `itl_by_token` shares each gap "
        "over its tokens",
        "every chunk has text",
    ),
    Comparison(
        "e2el",
        "sending to the last chunk with `choices`; for chats to the usage chunk, before pull "
        "request 55508 of September 2026",
        "intended start to the end of the answer; `service_e2el` from sending",
        "service_e2el: the end was noted at the last chunk",
    ),
    Comparison(
        "client_queue_time",
        "time in the queue of --max-concurrency; given only if asked for (since v0.30)",
        "`wait_before_sending`: intended start to sending, for whatever reason",
        "nothing but --max-concurrency held requests back",
    ),
    Comparison(
        "e2el_including_client_queue",
        "e2el + client_queue_time, for a finite --request-rate, if asked for (since v0.30)",
        "`e2el`, always",
        "as e2el and client_queue_time",
    ),
    Comparison(
        "completed, failed",
        "completed: HTTP 200 and one chunk with `choices`; an error event in the stream is passed "
        "over",
        "completed: the answer came to its end; an error event makes it failed",
        "without errors inside a stream",
    ),
    Comparison(
        "total_input_tokens",
        "usage.prompt_tokens, else the length asked for; completed requests",
        "num_prompt_tokens of the records; None where a completed one does not tell",
        "with usage",
    ),
    Comparison(
        "total_output_tokens",
        "usage.completion_tokens, else the text put through a tokenizer; completed requests",
        "usage.completion_tokens, else counted from chunks and flagged `estimated`; completed "
        "requests",
        "with usage",
    ),
    Comparison(
        "duration",
        "before the first request is made until every one has ended, failed ones too",
        "the same where given; else first intended start to last event",
        "given",
    ),
    Comparison(
        "request_throughput, output_throughput, total_token_throughput",
        "completed, output tokens, input + output tokens, each / duration",
        "the same; None where the duration is 0",
        "with equal counts and duration",
    ),
    Comparison(
        "request_goodput",
        "completed requests with ttft, tpot and e2el at most the stated ones / duration; tpot of "
        "fewer than 2 tokens counts as 0",
        "the same with latencies from the intended start, and a target for the longest gap, itl; "
        "an undefined tpot breaks no target",
        "requests leave when they were meant to, without an itl target",
    ),
    Comparison(
        "mean, median, std, p99",
        "numpy's mean, median, std (divided by n) and percentile (linear); 0 without values",
        "the same formulas; None without values, and undefined ones counted",
        "there is a value",
    ),
    Comparison(
        "max_output_tokens_per_s, max_concurrent_requests",
        "most chunks in one second counted from the first start; most requests under way",
        "not given: the first counts chunks under the name of tokens",
        "never",
    ),
)


def markdown(*names: str) -> str:
    """The comparison as a Markdown table, for a notebook or a report: the rows of these names, or
    all. Raises ValueError for a name that no row has.
    """
    known = [row.names for row in COMPARISONS]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{unknown[0]!r} is no row; give some of {'; '.join(known)}")
    shown = [row for row in COMPARISONS if not names or row.names in names]
    rows = [("figure", f"vllm bench serve ({VERSION})", "kvlab", "equal where"), ("---",) * 4]
    return "\n".join(f"| {' | '.join(row)} |" for row in (*rows, *shown)) + "\n"
