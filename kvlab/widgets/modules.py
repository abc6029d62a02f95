"""A view's JavaScript: files of static/ joined into one ES module without imports or network."""

import functools
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
PARTS = {
    "attention_read": (
        *("player.js", "cache_growth.js"),
        *("attention_words.js", "attention_read.js"),
    ),
    "block_table": ("player.js", "block_cards.js", "block_rows.js", "block_table.js"),
    "cache_growth": ("player.js", "cache_growth.js"),
    "cache_layouts": ("player.js", "cache_layouts.js"),
    "editor": (
        *("player.js", "cache_growth.js", "cache_shape.js", "wrong_cache.js"),
        *("memory_budget.js", "prefix_blocks.js"),
        *("block_cards.js", "block_rows.js", "block_table.js", "playground.js"),
        *("schedule_cells.js", "schedule_panel.js", "schedule_timeline.js"),
        *("playground_pad.js", "editor.js"),
    ),
    "kernel_watch": ("player.js", "kernel_pool.js", "kernel_state.js", "kernel_watch.js"),
    "latency_report": ("player.js", "latency_plot.js", "latency_report.js"),
    "overview": ("player.js", "overview.js"),
    "phase_timer": (
        *("player.js", "phases_plot.js", "phases.js"),
        *("editor.js", "phase_timer.js"),
    ),
    "phases": ("player.js", "phases_plot.js", "phases.js"),
    "schedule": (
        *("player.js", "schedule_cells.js"),
        *("schedule_panel.js", "schedule_timeline.js"),
    ),
    "ttft_parts": ("player.js", "ttft_parts.js"),
}


@functools.cache
def module_source(view: str) -> str:
    """The whole module of a view.

    It exports `default {render}` for a live widget and `mount(element, payload)` for a page
    without a kernel. Raises ValueError for a view that does not exist.
    """
    if view not in PARTS:
        raise ValueError(f"no view is called {view!r}; there are {', '.join(sorted(PARTS))}")
    return "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in PARTS[view])
