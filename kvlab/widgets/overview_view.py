"""The view "overview": the chapter's map, and with it the presenter switch of every view."""

from pathlib import Path

from kvlab.core.trace import Trace
from kvlab.widgets.overview_figure import STYLE, Figure
from kvlab.widgets.view import View


class Overview(View):
    """Four panels of a trace, each with the way to its section. Arguments as for `Figure`."""

    view = "overview"
    _css = STYLE

    def __init__(self, trace: Trace, folder: str | Path = ".") -> None:
        self.figure = Figure(trace, folder)
        super().__init__(payload=self.figure.payload())

    def html(self) -> str:
        return self.figure.html()

    def __repr__(self) -> str:
        return repr(self.figure)


def overview(trace: Trace, folder: str | Path = ".") -> Overview:
    """The figure of the start page; arguments as for `Overview`."""
    return Overview(trace, folder)
