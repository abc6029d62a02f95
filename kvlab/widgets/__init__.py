"""Views of a trace and live editors (the extra `lab`). Names load when they are first used.

`module_source`, `growth_payload` and `growth_html` need no widget library: the static book uses
them. No module is called like a function, so that importing one never hides the other.
"""

import importlib

_HOME = {
    "CacheGrowth": "kvlab.widgets.growth_view",
    "cache_growth": "kvlab.widgets.growth_view",
    "growth_payload": "kvlab.widgets.growth_story",
    "growth_html": "kvlab.widgets.growth_table",
    "growth_editor": "kvlab.widgets.growth_live",
    "LiveEditor": "kvlab.widgets.editor",
    "Slider": "kvlab.widgets.controls",
    "TextArea": "kvlab.widgets.controls",
    "Choice": "kvlab.widgets.controls",
    "View": "kvlab.widgets.view",
    "module_source": "kvlab.widgets.modules",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'kvlab.widgets' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
