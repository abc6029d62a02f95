"""The chapter's map as HTML: prefill, decode, scheduling and cache blocks, drawn from one real run.

It needs no script and no widget library: so it stands on a page without a kernel, and inside the
live view, whose payload holds the same elements as a tree.
"""

from html import escape
from html.parser import HTMLParser
from pathlib import Path

from kvlab.core.trace import Trace
from kvlab.widgets import overview_panels as panels
from kvlab.widgets.growth_words import count
from kvlab.widgets.html import html_form
from kvlab.widgets.modules import FOLDER
from kvlab.widgets.overview_story import overview_story

TITLE = "The map of the chapter"
# title, what draws it, section, its notebook; a test compares them with book.toml
PANELS = (
    ("Prefill", panels.prefill, "21.1", "21_1_reuse.ipynb"),
    ("Decode", panels.decode, "21.6", "21_6_growth.ipynb"),
    ("Request scheduling", panels.scheduling, "21.3", "21_3_scheduling.ipynb"),
    ("Cache blocks", panels.blocks, "21.5", "21_5_paging.ipynb"),
)
STYLE = (FOLDER / "overview.css").read_text(encoding="utf-8")


class Figure:
    """Four panels of a trace, as HTML and as text. Same trace and same notebooks, same output."""

    def __init__(self, trace: Trace, folder: str | Path = ".") -> None:
        """folder: where the sections' notebooks lie; a panel links only to one that is there.

        Raises ValueError for what is no trace, and for one that lacks one of the four parts.
        """
        self.story = overview_story(trace)
        self.written = {name for *_, name in PANELS if (Path(folder) / name).is_file()}

    def panels(self) -> str:
        """The four panels, without their style."""
        drawn = "\n".join(self._panel(*panel) for panel in PANELS)
        return "\n".join(line for line in drawn.splitlines() if line.strip())

    def payload(self) -> dict[str, object]:
        """What the live view draws: elements as [tag, attributes, children], texts as text."""
        return {"view": "overview", "title": TITLE, "panels": tree(self.panels())}

    def html(self) -> str:
        """The HTML form: the figure stands there as it is, and a page with scripts frames it."""
        figure = f'<div class="kvo">\n<style>{STYLE}</style>\n{self.panels()}\n</div>'
        return html_form({"view": "overview", "title": TITLE}, figure)

    def _panel(self, title: str, draw: object, section: str, notebook: str) -> str:
        way = f'<span class="kvo-soon">section {section}, not in this folder</span>'
        if notebook in self.written:
            words = f"open section {section} →"
            way = f'<a class="kvo-open" href="{escape(notebook)}">{words}</a>'
        head = f'<p class="kvo-head"><strong>{escape(title)}</strong> {way}</p>'
        return f'<div class="kvo-panel" data-section="{section}">\n{head}\n{draw(self.story)}</div>'

    def __repr__(self) -> str:
        story, sections = self.story, ", ".join(section for _, _, section, _ in PANELS)
        steps = count(len(story.steps), "step")
        return f"Overview({len(story.requests)} requests, {steps}; sections {sections})"


class _Tree(HTMLParser):
    """Builds [tag, attributes, children] from HTML whose elements are all closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[list] = [[]]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        children: list = []
        self.open[-1].append([tag, dict(attrs), children])
        self.open.append(children)

    def handle_endtag(self, tag: str) -> None:
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if data.strip("\n"):
            self.open[-1].append(data)


def tree(html: str) -> list:
    """The elements of `html`, nested; line breaks between them are left out."""
    built = _Tree()
    built.feed(html)
    built.close()
    return built.open[0]
