"""The schedule timeline without scripts: each request's way and delays; a small run as a grid."""

from collections.abc import Mapping, Sequence
from html import escape

from kvlab.widgets.growth_table import SCROLLS
from kvlab.widgets.html import html_form, table
from kvlab.widgets.schedule_figures import DELAYS
from kvlab.widgets.schedule_words import LETTERS, spans_text

MOST_ROWS, MOST_COLUMNS = 12, 32  # of a run that is drawn as a grid
MOST_SENTENCES = 60
KEY = "Pn: a step that computes n positions of the prompt; of the others, how many steps: " + (
    ", ".join(f"{letter} {kind}" for kind, letter in LETTERS.items() if letter != "P")
)


def schedule_html(payload: Mapping) -> str:
    """The HTML form of a payload made by `schedule_payload`."""
    return html_form(payload, schedule_content(payload))


def schedule_content(payload: Mapping) -> str:
    """A table a run; of a short run also its grid and its sentences."""
    parts = [f"<p><strong>{escape(payload['title'])}</strong></p>", f"<div {SCROLLS}>"]
    for run in payload["runs"]:
        parts += [requests_table(run, payload), grid(run), told(run)]
    return "\n".join([*parts, f"<p>{escape(KEY)}</p>", "</div>"])


def requests_table(run: Mapping, payload: Mapping) -> str:
    """One row a request: its way through the steps, its delays, its end."""
    timed = payload["clock"] == "time"
    unit = payload["unit"] if timed else "steps"
    rows = []
    for request in run["requests"]:
        delays = request["times" if timed else "delays"]
        shown = ["" if d is None else f"{d:g}" for d in delays]
        ended = request["ended"] or "not ended"
        way = spans_text(request["spans"])
        rows.append((request["name"], request["prompt"], way, *shown, request["outputs"], ended))
    head = ("request", "prompt", "way", *(f"{name}, {unit}" for name in DELAYS), "outputs", "ended")
    return table(f"{run['title']}: {run['summary']}", head, rows)


def step_numbers(run: Mapping) -> list[int]:
    """Of the steps that did something."""
    return [number for first, count in run["steps"] for number in range(first, first + count)]


def grid(run: Mapping) -> str:
    """Requests by steps, of a run that is small enough; else nothing."""
    numbers = step_numbers(run)
    if len(numbers) > MOST_COLUMNS or len(run["requests"]) > MOST_ROWS:
        return ""
    rows = [(r["name"], *_cells(r["spans"], numbers)) for r in run["requests"]]
    for name, key in (("waiting", "waiting"), ("free blocks", "free")):
        rows.append((name, *(value for value, times in run[key] for _ in range(times))))
    return table(f"{run['title']}, step by step", ("step", *map(str, numbers)), rows)


def _cells(spans: Sequence[Sequence], numbers: Sequence[int]) -> list[str]:
    cells = {}
    for letter, first, steps, tokens in spans:
        text = f"P{tokens}" if letter == "P" else letter
        cells |= dict.fromkeys(range(first, first + steps), text)
    return [cells.get(number, "") for number in numbers]


def told(run: Mapping) -> str:
    """The sentences of a short run."""
    if len(run["said"]) > MOST_SENTENCES:
        return ""
    steps = zip(step_numbers(run), run["said"], strict=True)
    lines = [f"<li>{escape(f'Step {number}: {sentence}')}</li>" for number, sentence in steps]
    return f"<ul>{''.join(lines)}</ul>"
