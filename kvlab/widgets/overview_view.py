"""The chapter's map: prefill, decode, scheduling and cache blocks, drawn from one real run.

Static HTML without a script, so that it looks the same with and without a kernel. Each panel opens
the notebook of its section.
"""

from html import escape
from pathlib import Path

from kvlab.core.trace import Trace
from kvlab.widgets import overview_panels as panels
from kvlab.widgets.growth_words import count
from kvlab.widgets.modules import FOLDER
from kvlab.widgets.overview_story import overview_story

# title, what draws it, section, its notebook; a test compares them with book.toml
PANELS = (
    ("Prefill", panels.prefill, "21.1", "21_1_reuse.ipynb"),
    ("Decode", panels.decode, "21.6", "21_6_growth.ipynb"),
    ("Request scheduling", panels.scheduling, "21.3", "21_3_scheduling.ipynb"),
    ("Cache blocks", panels.blocks, "21.5", "21_5_paging.ipynb"),
)


class Overview:
    """Four panels of a trace, as HTML and as text. Same trace and same notebooks, same output."""

    def __init__(self, trace: Trace, folder: str | Path = ".") -> None:
        """folder: where the sections' notebooks lie; a panel links only to one that is there.

        Raises ValueError for what is no trace, and for one that lacks one of the four parts.
        """
        self.story = overview_story(trace)
        self.written = {name for *_, name in PANELS if (Path(folder) / name).is_file()}

    def html(self) -> str:
        style = (FOLDER / "overview.css").read_text(encoding="utf-8")
        drawn = "\n".join(self._panel(*panel) for panel in PANELS)
        page = f'<div class="kvo">\n<style>{style}</style>\n{drawn}\n</div>'
        return "\n".join(line for line in page.splitlines() if line.strip())

    def _panel(self, title: str, draw: object, section: str, notebook: str) -> str:
        way = f'<span class="kvo-soon">section {section}, on its way</span>'
        if notebook in self.written:
            words = f"open section {section} →"
            way = f'<a class="kvo-open" href="{escape(notebook)}">{words}</a>'
        head = f'<p class="kvo-head"><strong>{escape(title)}</strong> {way}</p>'
        return f'<div class="kvo-panel" data-section="{section}">\n{head}\n{draw(self.story)}</div>'

    def __repr__(self) -> str:
        story, sections = self.story, ", ".join(section for _, _, section, _ in PANELS)
        steps = count(len(story.steps), "step")
        return f"Overview({len(story.requests)} requests, {steps}; sections {sections})"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": repr(self)}


def overview(trace: Trace, folder: str | Path = ".") -> Overview:
    """The figure of the start page; arguments as for `Overview`."""
    return Overview(trace, folder)
