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
    "grow_a_cache": "kvlab.widgets.grow_cache_live",
    "memory_calculator": "kvlab.widgets.memory_live",
    "wrong_cache_lab": "kvlab.widgets.wrong_cache_live",
    "Overview": "kvlab.widgets.overview_view",
    "overview": "kvlab.widgets.overview_view",
    "CacheLayouts": "kvlab.widgets.layouts_view",
    "cache_layouts": "kvlab.widgets.layouts_live",
    "compare_layouts": "kvlab.widgets.layouts_live",
    "layouts_payload": "kvlab.widgets.layouts_story",
    "layouts_html": "kvlab.widgets.layouts_table",
    "AttentionRead": "kvlab.widgets.attention_view",
    "attention_read": "kvlab.widgets.attention_view",
    "attention_payload": "kvlab.widgets.attention_story",
    "attention_html": "kvlab.widgets.attention_table",
    "BlockTable": "kvlab.widgets.blocks_view",
    "block_table": "kvlab.widgets.blocks_view",
    "block_table_payload": "kvlab.widgets.blocks_story",
    "block_table_html": "kvlab.widgets.blocks_table",
    "prefix_blocks": "kvlab.widgets.prefix_live",
    "prefix_rows": "kvlab.widgets.prefix_run",
    "allocator_playground": "kvlab.widgets.playground_live",
    "AllocatorPlayground": "kvlab.widgets.playground_live",
    "ScheduleTimeline": "kvlab.widgets.schedule_view",
    "schedule_timeline": "kvlab.widgets.schedule_view",
    "schedule_payload": "kvlab.widgets.schedule_story",
    "schedule_html": "kvlab.widgets.schedule_table",
    "schedule_steps": "kvlab.widgets.schedule_words",
    "schedule_knobs": "kvlab.widgets.schedule_live",
    "TtftParts": "kvlab.widgets.ttft_view",
    "ttft_parts": "kvlab.widgets.ttft_view",
    "ttft_payload": "kvlab.widgets.ttft_story",
    "ttft_html": "kvlab.widgets.ttft_table",
    "LatencyReport": "kvlab.widgets.latency_view",
    "latency_report": "kvlab.widgets.latency_view",
    "latency_payload": "kvlab.widgets.latency_story",
    "latency_html": "kvlab.widgets.latency_table",
    "PhasesView": "kvlab.widgets.roofline_view",
    "phases_view": "kvlab.widgets.roofline_view",
    "phases_payload": "kvlab.widgets.roofline_story",
    "phases_html": "kvlab.widgets.roofline_table",
    "KernelWatch": "kvlab.widgets.kernel_widget",
    "kernel_view": "kvlab.widgets.kernel_widget",
    "kernel_payload": "kvlab.widgets.kernel_story",
    "kernel_html": "kvlab.widgets.kernel_table",
    "PhaseTimer": "kvlab.widgets.timer_live",
    "phase_timer": "kvlab.widgets.timer_live",
    "LiveEditor": "kvlab.widgets.editor",
    "Slider": "kvlab.widgets.controls",
    "Steps": "kvlab.widgets.controls",
    "TextArea": "kvlab.widgets.controls",
    "Choice": "kvlab.widgets.controls",
    "TextLine": "kvlab.widgets.controls",
    "Script": "kvlab.widgets.controls",
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
