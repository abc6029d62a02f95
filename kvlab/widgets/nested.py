"""Views that can stand inside a live editor, and what each looks like without scripts.

A view's JavaScript belongs to the parts of "editor" in modules.PARTS; its HTML is made by the
function named here, which gets the view's payload. It loads when it is first needed.
"""

import importlib
from collections.abc import Mapping

CONTENT = {
    "cache_growth": ("kvlab.widgets.growth_table", "growth_content"),
    "cache_shape": ("kvlab.widgets.grow_cache_words", "shape_content"),
    "playground": ("kvlab.widgets.playground_story", "playground_content"),
    "memory_budget": ("kvlab.widgets.memory_table", "budget_content"),
    "prefix_blocks": ("kvlab.widgets.prefix_table", "prefix_content"),
    "schedule": ("kvlab.widgets.schedule_table", "schedule_content"),
    "wrong_cache": ("kvlab.widgets.wrong_cache_strip", "strip_content"),
}


def nested_content(payload: Mapping) -> str:
    """The HTML of a nested view. Raises ValueError for a view that is not registered."""
    view = payload.get("view")
    if view not in CONTENT:
        raise ValueError(
            f"no view {view!r} stands inside an editor; there are {', '.join(CONTENT)}"
        )
    module, function = CONTENT[view]
    return getattr(importlib.import_module(module), function)(payload)
