"""A page's cells as slides: what begins one, how much fits on one, and in what type.

A slide's type grows with the window's width, so that a slide of 16:9 looks the same on every
screen, and its room can be reckoned in advance: in pixels, on a screen of 1280 x 720. Long text is
cut between its paragraphs. What is longer than a slide by itself, such as a long function, scrolls.
"""

import re
from collections.abc import Iterator
from math import ceil
from typing import Any

Cell = dict[str, Any]
HEADING = re.compile(r"^(#{1,3}) (.*)$")
ASKS = re.compile(r"^(?:check|predict)\(", re.MULTILINE)
REVEALS = re.compile(r"^\s*reveal\(", re.MULTILINE)
VIEW = re.compile(r'data-view="(\w+)"')
SLIDE = {1: "slide", 2: "slide", 3: "subslide"}
TAGS = re.compile(r"<style.*?</style>|<[^>]*>", re.DOTALL)
FENCED = re.compile(r"^(?:```|\$\$|<)", re.MULTILINE)

# Set by jupyterlab-slideshow's companion jupyterlab-fonts, and while slides are shown alone.
STYLE = {
    ":is(.jp-Deck .jp-Notebook)": {
        "--jp-content-font-size1": "clamp(14px, 1.25vw, 28px)",
        "--jp-code-font-size": "clamp(13px, 1.02vw, 23px)",
    },
}
ROOM = 690  # pixels of height for a slide's cells
TEXT, CODE = 26, 17.2  # a line of prose, a line of code or output
PROSE_LINE, BOX_LINE = 110, 85  # signs
PAD, GAP, TITLE, FORMULA, ROW, BOX = 12, 14, 58, 70, 31, 240


def notebook_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """A notebook's metadata with the type of its slides."""
    return metadata | {"@deathbeds/jupyterlab-fonts": {"styles": STYLE}}


def pieces(cell: Cell) -> Iterator[Cell]:
    """A Markdown cell, cut before its headings, and where a piece would be longer than a slide."""
    text = "".join(cell["source"])
    cut = [text]
    if cell["cell_type"] == "markdown":
        cut = [part for headed in _at_headings(text) for part in _at_paragraphs(headed)]
    for number, part in enumerate(cut):
        name = cell["id"] if not number else f"{cell['id']}-{number + 1}"
        source = part.rstrip("\n") if len(cut) > 1 else part
        yield cell | {"id": name, "source": source.splitlines(keepends=True)}


def _at_headings(text: str) -> list[str]:
    return re.split(r"(?<=\n)(?=###? )", text)


def _at_paragraphs(text: str) -> list[str]:
    """Whole paragraphs, as many as a slide has room for; formulas, code and HTML are not cut."""
    if FENCED.search(text):
        return [text]
    parts = [""]
    for paragraph in re.split(r"(?<=\n\n)", text):
        longer = parts[-1] + paragraph
        if parts[-1] and not HEADING.match(parts[-1].strip()) and _prose(longer) > ROOM:
            parts.append(paragraph)
        else:
            parts[-1] = longer
    return parts


def on_slides(cells: list[Cell]) -> list[Cell]:
    """The cells with the kind of slide that each begins; the others stay on the slide above."""
    placed, used = [], 0.0
    for cell in cells:
        kind, needs = _kind(cell), height(cell)
        if kind is None and used + needs > ROOM:
            kind = "subslide"
        if kind not in ("skip", "notes"):
            used = needs + (0 if kind else used)
        if kind:
            metadata = cell["metadata"] | {"slideshow": {"slide_type": kind}}
            cell = cell | {"metadata": metadata}
        placed.append(cell)
    return placed


def _kind(cell: Cell) -> str | None:
    """The slide that a cell begins whatever stands above it."""
    if "setup" in cell["metadata"].get("tags", []):
        return "skip"
    if shown(cell) or asks(cell) or REVEALS.search("".join(cell["source"])):
        return "subslide"
    return SLIDE.get(heading(cell)[0])


def heading(cell: Cell) -> tuple[int, str]:
    """(1 to 3, the text) of a cell that begins with a heading; (0, "") of another."""
    first = cell["source"][0].rstrip("\n") if cell["source"] else ""
    found = HEADING.match(first) if cell["cell_type"] == "markdown" else None
    return (len(found[1]), found[2]) if found else (0, "")


def shown(cell: Cell) -> list[str]:
    """The views in a cell's outputs, by name."""
    forms = (output.get("data", {}).get("text/html", "") for output in cell.get("outputs", []))
    return [name for html in forms for name in VIEW.findall("".join(html))]


def asks(cell: Cell) -> bool:
    """Whether the reader is asked for an answer, or for a prediction, in this cell."""
    return cell["cell_type"] == "code" and ASKS.search("".join(cell["source"])) is not None


def height(cell: Cell) -> float:
    """About how many pixels a cell takes on a slide 1280 wide."""
    if cell["cell_type"] == "markdown":
        return _prose("".join(cell["source"]))
    return PAD + CODE * len(cell["source"]) + sum(map(_output, cell.get("outputs", [])))


def _output(output: dict[str, Any]) -> float:
    data = output.get("data", {})
    if "image/png" in data or "image/svg+xml" in data or shown({"outputs": [output]}):
        return ROOM
    if "text/html" in data:
        words = TAGS.sub("", "".join(data["text/html"]))
        return max(BOX, TEXT * ceil(len(words) / BOX_LINE))
    text = output.get("text") or data.get("text/plain") or output.get("traceback") or ""
    return GAP + CODE * len("".join(text).rstrip("\n").split("\n"))


def _prose(text: str) -> float:
    """Of Markdown: headings, paragraphs, lists, tables, formulas, code."""
    total, fenced = float(PAD), False
    for paragraph in re.split(r"\n\n+", text.strip("\n")):
        lines = paragraph.split("\n")
        if paragraph.startswith("```") or fenced:
            fenced ^= paragraph.count("```") % 2 == 1
            total += GAP + CODE * len(lines)
        elif paragraph.startswith("#"):
            total += TITLE
        elif paragraph.startswith("$$"):
            total += FORMULA
        elif paragraph.startswith("|"):
            total += GAP + sum(ROW * ceil(len(line) / (PROSE_LINE * 1.2)) for line in lines)
        elif re.match(r"\s*(?:[-*]|\d+\.) ", paragraph):
            total += GAP + sum(TEXT * ceil(len(line) / PROSE_LINE) for line in lines)
        else:
            total += GAP + TEXT * ceil(len(paragraph) / PROSE_LINE)
    return total
