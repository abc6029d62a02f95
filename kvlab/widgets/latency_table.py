"""The latency report without scripts: figures for each label, conditions, and requests."""

from collections.abc import Iterable, Mapping
from html import escape

from kvlab.widgets.growth_table import SCROLLS
from kvlab.widgets.html import html_form, table
from kvlab.widgets.latency_figures import FIGURES, shown

MOST_ROWS = 40  # requests in the table; of more, those with the longest TTFT and the failed ones


def latency_html(payload: Mapping) -> str:
    """The HTML form of a payload made by `latency_payload`."""
    return html_form(payload, latency_content(payload))


def latency_content(payload: Mapping) -> str:
    """Verdicts and figures of all requests, of each label and length, then single requests."""
    whole = payload["subsets"][0][0]
    said = "".join(f"<li>{escape(whole['metrics'][m['name']]['said'])}</li>" for m in _of(payload))
    stated = "".join(
        f"<li>{escape(name)}: {escape(text)}</li>" for name, text in payload["conditions"]
    )
    return "\n".join(
        [
            f"<p><strong>{escape(payload['title'])}</strong>, {escape(outcome(payload))}</p>",
            f"<ul>{said}</ul>",
            f"<div {SCROLLS}>",
            figures_table(payload),
            "</div>",
            f"<ul>{stated}</ul>",
            f"<div {SCROLLS}>",
            requests_table(payload),
            "</div>",
        ]
    )


def _of(payload: Mapping) -> Iterable[Mapping]:
    return payload["metrics"]


def outcome(payload: Mapping) -> str:
    """Where it was timed, and how many requests completed, failed, kept the targets."""
    whole = payload["subsets"][0][0]
    where = f"timed at the {payload['boundary']}, {payload['starts']}"
    parts = [f"{where}: {whole['done']:,} completed"]
    parts += [f"{whole['failed']:,} failed"]
    if whole["good"] is not None:
        parts.append(f"{whole['good']:,} kept every target")
    if whole["estimated"]:
        parts.append(f"{whole['estimated']:,} with an estimated number of output tokens")
    return ", ".join(parts)


def figures_table(payload: Mapping) -> str:
    """A row for each metric of all requests, then of each label's and each length's choice."""
    subsets = [("all requests", payload["subsets"][0][0])]
    labels, lengths = payload["labels"], payload["lengths"]
    subsets += [(text, payload["subsets"][i][0]) for i, text in enumerate(labels) if i]
    subsets += [(f"prompts of {t}", payload["subsets"][0][i]) for i, t in enumerate(lengths) if i]
    rows = [
        (text, f"{metric['short']}, {metric['unit']}", *_cells(subset["metrics"][metric["name"]]))
        for text, subset in subsets
        for metric in payload["metrics"]
    ]
    head = ("requests", "metric", *FIGURES, "values", "undefined", "miss the target")
    targets = [
        f"{m['short']} {shown(m['target'])} {m['unit']}"
        for m in payload["metrics"]
        if m["target"] is not None
    ]
    caption = f"Targets: {', '.join(targets)}" if targets else "No targets were stated"
    return table(
        f"{caption}. ITL: all gaps; it misses where a request's longest gap does.", head, rows
    )


def _cells(figures: Mapping) -> list[str]:
    return [shown(figures[key]) for key in (*FIGURES, "count", "undefined", "misses")]


def requests_table(payload: Mapping) -> str:
    """Requests in the order of arrival; of many, the failed and the slowest."""
    records, caption = payload["records"], "Each request"
    if len(records) > MOST_ROWS:
        order = sorted(
            range(len(records)), key=lambda i: (records[i][5] is None, -(records[i][9][0] or 0))
        )
        caption = (
            f"{MOST_ROWS} of {len(records):,} requests: the failed and the slowest first tokens"
        )
        records = [records[i] for i in sorted(order[:MOST_ROWS])]
    head = [f"{m['short']}, {m['unit']}" for m in payload["metrics"]]
    head[2] = f"longest gap, {payload['metrics'][2]['unit']}"
    rows = [
        (r[0], *(shown(value) for value in (*r[1:5], *r[9])), r[5] or "completed") for r in records
    ]
    came = f"came at, {payload['came']}"
    return table(caption, ("request", came, "prompt", "outputs", "cached", *head, "outcome"), rows)
