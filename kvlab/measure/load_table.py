"""A load run as text for a terminal: the setting first, then what the figures are of."""

from collections.abc import Mapping, Sequence

from kvlab.core.goodput import Targets
from kvlab.core.latency_summary import Distribution, LatencySummary
from kvlab.measure.load_answer import printable
from kvlab.measure.load_result import LoadResult

# name in the table: (attribute of the summary, what it runs from and to)
METRICS = {
    "ttft": ("ttft", "intended start to first text"),
    "tpot": ("tpot", "a token after the first, mean of each request"),
    "itl": ("itl", "gaps between pieces of text, all requests together"),
    "e2el": ("e2el", "intended start to the end"),
    "normalized": ("normalized", "e2el / output tokens"),
    "client_queue_time": ("wait_before_sending", "intended start to sending"),
    "service_ttft": ("service_ttft", "sending to first text"),
    "service_e2el": ("service_e2el", "sending to the end"),
}
SHOWN = ("ttft", "tpot", "itl", "e2el", "client_queue_time")
MOST_FAILURES = 5  # kinds of failure that are written out


def report(
    result: LoadResult, targets: Targets | None = None, metrics: Sequence[str] = SHOWN
) -> str:
    """Setting, counts, failures, and the table. Raises ValueError for an unknown metric."""
    lines = [*setting_lines(result.setting), *_counts(result), *_totals(result, targets), ""]
    return "\n".join([*map(printable, lines), table(result.summary(targets), metrics)])


def table(summary: LatencySummary, metrics: Sequence[str] = SHOWN) -> str:
    """Latencies in milliseconds. Raises ValueError for an unknown metric."""
    for name in metrics:
        if name not in METRICS:
            raise ValueError(f"metric is {name!r:.60}; give some of {', '.join(METRICS)}")
    rows = [["ms", "mean", "p50", "p90", "p99", "max", "values", "undefined", ""]]
    for name in metrics:
        attribute, meaning = METRICS[name]
        rows.append([name, *_cells(getattr(summary, attribute)), meaning])
    return _aligned(rows)


def _cells(found: Distribution) -> list[str]:
    values = (found.mean, found.p50, found.p90, found.p99, found.max)
    shown = ["-" if value is None else f"{1000 * value:,.1f}" for value in values]
    return [*shown, f"{found.count:,}", f"{found.undefined:,}"]


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell: the first and the last to the left, numbers right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for first, *numbers, last in rows:
        cells = [cell.rjust(width) for cell, width in zip(numbers, widths[1:-1], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells, last]).rstrip())
    return "\n".join(lines)


def setting_lines(setting: Mapping[str, object]) -> list[str]:
    """How it was measured; what nobody said is named as not stated."""
    if not setting:
        return ["Setting not stated: the records stand alone."]
    server = f" ({setting['server']})" if setting.get("server") else ""
    arrivals = setting.get("arrivals")
    if isinstance(arrivals, Mapping):
        values = [f"{k} {v:g}" for k, v in arrivals.items() if isinstance(v, int | float)]
        arrivals = " ".join([str(arrivals.get("kind")), *values, f"(seed {setting.get('seed')})"])
    most = setting.get("concurrency")
    lines = [
        f"{setting.get('url')} | {setting.get('api')} | {setting.get('model')}{server} | "
        f"{setting.get('date')}",
        f"Hardware: {setting.get('hardware') or 'not stated'}",
        f"Arrivals: {arrivals}; under way at most: {most or 'no limit'}; "
        f"max_tokens {setting.get('max_tokens')}",
    ]
    if setting.get("streamed") is False:
        lines.append("The server did not stream: an answer's text came at its end.")
    return lines


def _counts(result: LoadResult) -> list[str]:
    summary = result.summary()
    line = f"{summary.completed:,} completed, {summary.failed:,} failed"
    if result.interrupted:
        line += f", {result.not_sent:,} not sent: interrupted"
    lines = [f"{line}; {result.duration:.2f} s"]
    failures = list(result.failures().items())
    lines += [f"  {count:,} x {why}" for why, count in failures[:MOST_FAILURES]]
    if len(failures) > MOST_FAILURES:
        rest = sum(count for _, count in failures[MOST_FAILURES:])
        lines.append(f"  {rest:,} x other reasons, in the records")
    return lines


def _totals(result: LoadResult, targets: Targets | None) -> list[str]:
    summary = result.summary(targets)
    given = summary.total_input_tokens
    how = f", {summary.estimated:,} of the answers estimated" if summary.estimated else ""
    lines = [
        f"Tokens: {'unknown' if given is None else f'{given:,}'} in, "
        f"{summary.total_output_tokens:,} out{how}"
    ]
    if summary.request_throughput is not None:
        lines.append(
            f"Throughput: {summary.request_throughput:.2f} requests/s, "
            f"{summary.output_throughput:.1f} output tokens/s"
        )
    if summary.good is not None:
        asked = ", ".join(f"{n} {1000 * v:g} ms" for n, v in targets.stated().items())
        rate = "" if summary.request_goodput is None else f" ({summary.request_goodput:.2f}/s)"
        total = summary.completed + summary.failed
        lines.append(f"Goodput: {summary.good:,} of {total:,} requests{rate} within {asked}")
    count = result.prefix_cache
    if count is not None and count.queries:
        lines.append(
            f"Prefix cache: {count.hits:,.0f} of {count.queries:,.0f} prompt tokens found "
            f"({100 * count.hit_rate:.1f}%), by the server's counters"
        )
    return lines
