"""A notebook's cells as a chapter of the book: Markdown for mdBook, outputs as HTML.

Of an output's forms the richest one is shown that needs no kernel: an HTML form (a view's carries
its payload, which static/host.js mounts), an SVG or PNG picture, Markdown, text. Raw HTML has no
blank line, since Markdown would end it there. What answers a prediction is folded, and so are the
page's checks of itself (folds.py).
"""

import re
from collections.abc import Iterator
from html import escape
from typing import Any

from kvlab.book.folds import explaining, folded, keeps, split_code, split_text
from kvlab.book.prose import Places, page_address, rewrite

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
CODE = re.compile(r"^ *(?:@|class |def )", re.MULTILINE)  # a printed source
SENTENCE = re.compile(r"^ *(?!.*\S {2,}\S).{60,}(?:\n|$)", re.MULTILINE)  # long, in no columns
BLANK = re.compile(r"\n[ \t]*\n")
EDITOR = re.compile(r'<div class="kvlab-view" data-view="(?:editor|phase_timer)">')
LINK = re.compile(r'href="([^"]+)"')
PICTURES = ("image/png", "image/jpeg")
SETUP = ("setup", "Setup: what this page imports")
KEPT = ("check", "A check that this page makes of itself")
RUN = ("run", "The run's output")
WHY = ("run", "The run's output, and why")
Cell = dict[str, Any]


def chapter(notebook: dict[str, Any], page: str, doors: str, places: Places) -> str:
    """The Markdown of a whole page. doors: a line of links, put under the title.

    Raises ValueError that names the cell for what the book cannot show.
    """
    parts = []
    cells = notebook["cells"]
    runs, below = folded(cells), explaining(cells)
    texts = {place: split_text(_joined(cells[place]["source"])) for place in below}
    for number, cell in enumerate(cells):
        try:
            if number in below:
                parts.append(rewrite(texts[number][1], places))
            elif number in runs and not keeps(cell):
                why, _ = texts.get(number + 1, ("", ""))
                parts.extend(_run(cell, page, places, rewrite(why, places)))
            else:
                parts.extend(_cell(cell, page, places))
        except ValueError as error:
            raise ValueError(f"{page}.ipynb, cell {number + 1}: {error}") from None
    title, end, rest = "\n\n".join(parts).partition("\n")
    if not title.startswith("# "):
        raise ValueError(f"{page}.ipynb must begin with its title, as '# 21.6 ...'")
    return f"{title}{end}\n{doors}\n\n{rest}\n"


def _cell(cell: Cell, page: str, places: Places) -> Iterator[str]:
    source = _joined(cell["source"])
    if cell["cell_type"] == "markdown":
        yield rewrite(source, places)
    elif cell["cell_type"] == "code" and source.strip():
        outputs = _outputs(cell, page, places)
        if "setup" in cell["metadata"].get("tags", []):
            yield from _fold(SETUP, [_code(source)])
        elif keeps(cell):
            yield from _fold(KEPT, [_code(source), *outputs])
            return
        else:
            yield _code(source)
        yield from outputs


def _run(cell: Cell, page: str, places: Places, why: str) -> Iterator[str]:
    """A cell that answers a prediction: its code, then a fold of checks, outputs and `why`."""
    seen, told = split_code(_joined(cell["source"]))
    if seen.strip():
        yield _code(seen)
    parts = [_code(told)] if told else []
    parts += _outputs(cell, page, places)
    if why or parts:
        yield from _fold(WHY if why else RUN, [*parts, why] if why else parts)


def _outputs(cell: Cell, page: str, places: Places) -> list[str]:
    return [_output(output, page, places) for output in cell["outputs"]]


def _code(source: str) -> str:
    longest = max(map(len, re.findall(r"`{3,}", source)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}python\n{source}\n{fence}"


def _fold(kind: tuple[str, str], blocks: list[str]) -> Iterator[str]:
    """A page without scripts opens it as well."""
    name, summary = kind
    yield f'<details class="kvlab-{name}"><summary>{summary}</summary>'
    yield from blocks
    yield "</details>"


def _output(output: dict[str, Any], page: str, places: Places) -> str:
    kind = output["output_type"]
    if kind == "stream":
        return _text(_joined(output["text"]), output["name"])
    if kind == "error":
        return _text("\n".join(output["traceback"]), "error")
    data = {form: content for form, content in output["data"].items()}
    if "text/html" in data:
        return _html(_joined(data["text/html"]), page)
    if "image/svg+xml" in data:
        svg = _joined(data["image/svg+xml"])
        if "<svg" not in svg:
            raise ValueError(f"an SVG picture without <svg: {svg[:60]!r}")
        return _block("picture", svg[svg.index("<svg") :])
    for form in PICTURES:
        if form in data:
            return _picture(form, _joined(data[form]), _described(output, form))
    if "text/markdown" in data:
        return rewrite(_joined(data["text/markdown"]), places)
    if set(data) == {"text/plain"}:
        return _text(_joined(data["text/plain"]), "stdout")
    raise ValueError(
        f"an output is only {', '.join(data) or 'empty'}: give it a PNG, SVG or HTML form as well"
    )


def _described(output: dict[str, Any], form: str) -> str:
    """What display(..., metadata={form: {"alt": ...}}) said of a picture, or its text form."""
    about = output["metadata"].get(form)
    alt = about.get("alt") if isinstance(about, dict) else None
    return str(alt or _joined(output["data"].get("text/plain", "")))


def _html(html: str, page: str) -> str:
    html = LINK.sub(lambda match: f'href="{page_address(match[1])}"', html)
    if not EDITOR.match(html):
        return _block("html", html)
    kernel = f'These inputs need a kernel: <a href="{page}.ipynb" download>open the notebook</a>.'
    return _block("html", f'{html}\n<p class="kvlab-needs-kernel">{kernel}</p>')


def _picture(form: str, data: str, text: str) -> str:
    encoded = "".join(data.split())
    described = escape(text) if not text.startswith("<") else "A figure, described in the text"
    return _block("picture", f'<img alt="{described}" src="data:{form};base64,{encoded}">')


def _text(text: str, name: str) -> str:
    """Printed lines. A long one that stands in no columns may be broken, as in JupyterLab."""
    body = escape(ANSI.sub("", text).rstrip("\n"), quote=False)
    if not CODE.search(body):
        body = SENTENCE.sub(r'<span class="kvlab-sentence">\g<0></span>', body)
    return _block(escape(name), f"<pre>{body}</pre>")


def _block(name: str, html: str) -> str:
    """Raw HTML without a blank line; inside <pre> the sign &#10; keeps the line there."""
    pieces = re.split(r"(<pre\b.*?</pre>)", html, flags=re.DOTALL)
    for place, piece in enumerate(pieces):
        if place % 2:
            pieces[place] = BLANK.sub("\n&#10;", piece)
        else:
            pieces[place] = re.sub(r"\n(?:[ \t]*\n)+", "\n", piece)
    return f'<div class="kvlab-output kvlab-{name}">{"".join(pieces).strip()}</div>'


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
