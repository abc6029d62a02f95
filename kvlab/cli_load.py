"""`kvlab load`: measure a server with OpenAI's API, or report a saved run again.

Options are named after those of `vllm bench serve` where they mean the same.
"""

import contextlib
import json
import math
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from kvlab.cli_signals import sigterm_interrupts
from kvlab.core.arrivals import Arrivals, AtOnce, Gamma, OnOff
from kvlab.core.goodput import Targets
from kvlab.core.lengths import Fixed, Lengths, Uniform
from kvlab.core.workload import SharedPrefix
from kvlab.measure.load import load
from kvlab.measure.load_asking import PATHS
from kvlab.measure.load_requests import (
    LoadRequest,
    of_workload,
    random_requests,
    read_prompts,
    trace_requests,
)
from kvlab.measure.load_result import LoadResult, checked_path
from kvlab.measure.load_table import report, table

ENDPOINTS = {path: api for api, path in PATHS.items()}
TARGETS = ("ttft", "tpot", "itl", "e2el")
DEFAULT_PROMPTS = 32
INTERRUPTED = 128  # and the signal's number: the exit code of a program that a signal ended


def run(
    words: Sequence[str],
    *,
    goodput: Sequence[str] = (),
    percentile_metrics: str = "ttft,tpot,itl,e2el,client_queue_time",
    report_file: Path | None = None,
    out: Path | None = None,
    as_json: bool = False,
    quiet: bool = False,
    asked: Mapping[str, object],
    sent: Mapping[str, object],
) -> int:
    """Measure, or read a saved run, and print it. Returns the exit code.

    words: the URL, and targets of --goodput that stand behind the first. asked: what the requests
    are (see `requests_for`); sent: arguments of `load`. Raises ValueError for what does not fit.
    """
    url, targets = url_and_targets(words, goodput)
    metrics = [name.strip() for name in percentile_metrics.split(",") if name.strip()]
    if report_file is not None:
        if url is not None:
            raise ValueError(f"--report reads a file, and {url!r} is to be measured; give one")
        result = LoadResult.read(report_file)
        _print(result, targets, metrics, as_json)
        return 0
    if url is None:
        raise ValueError(
            "the URL is missing; give one such as http://127.0.0.1:8000, or --report FILE.jsonl"
        )
    if out is not None:
        checked_path(out)
    table(_nothing().summary(), metrics)  # a wrong name is said before anything is sent
    requests, arrivals = requests_for(**asked)
    with _bar(len(requests), quiet) as progress, sigterm_interrupts() as came:
        result = load(url, requests, arrivals=arrivals, progress=progress, **sent)
    try:
        if out is not None:
            written = result.save(out, targets)
            print(f"Saved {', '.join(map(str, written))}", file=sys.stderr)
    finally:  # a disk that is full costs the file, not the measurement
        _print(result, targets, metrics, as_json)
    if result.interrupted:
        return INTERRUPTED + (came[0] if came else signal.SIGINT)
    return 0 if result.summary().completed else 1


def url_and_targets(
    words: Sequence[str], goodput: Sequence[str]
) -> tuple[str | None, Targets | None]:
    """The URL among the free words, and the targets among them and in --goodput.

    `--goodput ttft:3000 tpot:100` comes as one option and one free word; both are in milliseconds.
    Raises ValueError for two URLs, and for a target that is none.
    """
    pairs = [pair for value in goodput for pair in value.replace(",", " ").split()]
    rest = []
    for word in words:
        (pairs if goodput and word.partition(":")[0] in TARGETS else rest).append(word)
    if len(rest) > 1:
        raise ValueError(f"{rest[1]!r} stands behind {rest[0]!r}; give one URL")
    found: dict[str, float] = {}
    for pair in pairs:
        name, _, value = pair.partition(":")
        try:
            milliseconds = float(value)
        except ValueError:
            milliseconds = math.nan
        if name not in TARGETS or name in found or not milliseconds > 0:
            raise ValueError(
                f"--goodput has {pair!r:.60}; give each of {', '.join(TARGETS)} at most once, as "
                "in ttft:3000 tpot:100, in milliseconds"
            )
        found[name] = milliseconds / 1000
    return (rest[0] if rest else None), (Targets(**found) if found else None)


def requests_for(
    *,
    num_prompts: int | None,
    dataset_path: Path | None,
    trace: Path | None,
    trace_scale: int,
    input_len: int,
    output_len: int,
    range_ratio: float,
    prefix_len: int,
    prefix_share: float,
    prefix_groups: int,
    request_rate: float | None,
    burstiness: float,
    on: float | None,
    off: float | None,
    seed: int,
) -> tuple[list[LoadRequest], Arrivals | None]:
    """What is sent, and when: None is a closed loop, or the requests' own times."""
    arrivals = arrivals_for(request_rate, burstiness, on, off)
    if dataset_path is not None and trace is not None:
        raise ValueError("--dataset-path and --trace are both given; give one of them")
    if dataset_path is not None:
        return read_prompts(dataset_path, max_tokens=output_len, limit=num_prompts), arrivals
    if trace is not None:
        drawn = trace_requests(trace, scale=trace_scale, limit=num_prompts)
        return of_workload(drawn, words=True), arrivals
    drawn = random_requests(
        DEFAULT_PROMPTS if num_prompts is None else num_prompts,
        prompt_tokens=lengths_around(input_len, range_ratio),
        output_tokens=lengths_around(output_len, range_ratio),
        shared=SharedPrefix(prefix_share, prefix_len, prefix_groups) if prefix_len else None,
        seed=seed,
    )
    return of_workload(drawn, words=True, timed=False), arrivals


def arrivals_for(
    request_rate: float | None, burstiness: float, on: float | None, off: float | None
) -> Arrivals | None:
    """The process that the options describe. Raises ValueError for some without the others."""
    if (on is None) != (off is None):
        raise ValueError("--on and --off belong together; give both, in seconds")
    if request_rate is None or math.isinf(request_rate):
        if on is not None or burstiness != 1.0:
            raise ValueError("--burstiness, --on and --off need a finite --request-rate; give one")
        return None if request_rate is None else AtOnce()
    if on is not None:
        if burstiness != 1.0:
            raise ValueError("--burstiness and --on are both given; give one of them")
        return OnOff(request_rate, on, off)
    return Gamma(request_rate, burstiness)


def lengths_around(length: int, ratio: float) -> Lengths:
    """Uniform from length * (1 - ratio) to length * (1 + ratio), at least 1."""
    if not 0 <= ratio < 1:
        raise ValueError(f"--random-range-ratio is {ratio!r}; give a number from 0 to below 1")
    if ratio == 0:
        return Fixed(length)
    return Uniform(max(1, math.floor(length * (1 - ratio))), math.ceil(length * (1 + ratio)))


def pairs_of(option: str, values: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE words. Raises ValueError, without repeating a value that may be a secret."""
    found = {}
    for value in values:
        name, equals, rest = value.partition("=")
        if not equals or not name:
            raise ValueError(f"{option} needs KEY=VALUE, as in x-team=blue")
        found[name] = rest
    return found


def json_object(option: str, text: str | None) -> dict[str, object]:
    """Raises ValueError for what is no JSON object."""
    try:
        found = {} if text is None else json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{option} is {text!r:.60}; give a JSON object")
    return found


def _nothing() -> LoadResult:
    return LoadResult((), 0.0)


def _print(
    result: LoadResult, targets: Targets | None, metrics: Sequence[str], as_json: bool
) -> None:
    if as_json:
        print(json.dumps(result.to_bench_serve(targets), indent=1))
    else:
        print(report(result, targets, metrics))


@contextlib.contextmanager
def _bar(total: int, quiet: bool) -> Iterator[Callable[[int, int, int], None] | None]:
    """A progress bar on stderr, where somebody can see it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), Elapsed())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def show(ended: int, failed: int, of: int) -> None:
            bar.update(task, completed=ended, description=f"{failed} failed" if failed else "")

        yield show
