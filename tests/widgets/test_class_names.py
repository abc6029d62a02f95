"""A page holds many views, and JupyterLab many notebooks: no view styles another's elements."""

import re

import pytest

from kvlab.widgets.modules import FOLDER, PARTS

SHARED = {"player.js", "editor.js"}  # the frame and the fields, whose names start with kv- and kve-
VIEWS = {  # views that stand alone, and the files that each of them alone brings
    "kernel_watch": {"kernel_pool.js", "kernel_state.js", "kernel_watch.js"},
    "latency_report": {"latency_plot.js", "latency_report.js"},
    "phase_timer": {"phases_plot.js", "phases.js", "phase_timer.js"},
    "schedule": {"schedule_cells.js", "schedule_panel.js", "schedule_timeline.js"},
    "ttft_parts": {"ttft_parts.js"},
}
IN_AN_EDITOR = {  # these come as one module, and the print page shows them all
    "cache_shape": {"cache_shape.js"},
    "memory_budget": {"memory_budget.js"},
    "prefix_blocks": {"prefix_blocks.js"},
    "wrong_cache": {"wrong_cache.js"},
}


def styled(name: str) -> set[str]:
    """The kv... classes, as far as the first hyphen, that a file's style rules speak of."""
    css = "".join(re.findall(r"_CSS = `(.*?)`", (FOLDER / name).read_text("utf-8"), re.S))
    return {found for found in re.findall(r"\.(kv[a-z]+)\b", css) if found != "kve"}


@pytest.mark.parametrize("view", VIEWS | IN_AN_EDITOR)
def test_the_classes_of_a_view_are_styled_by_no_other_view(view: str) -> None:
    files = (VIEWS | IN_AN_EDITOR)[view]
    mine = set().union(*map(styled, files))
    others = {path.name for path in FOLDER.glob("*.js")} - files - SHARED
    assert mine and others
    assert {name: styled(name) & mine for name in sorted(others) if styled(name) & mine} == {}


@pytest.mark.parametrize("view", VIEWS)
def test_the_listed_files_are_all_that_the_view_brings(view: str) -> None:
    assert set(PARTS[view]) - SHARED == VIEWS[view]
