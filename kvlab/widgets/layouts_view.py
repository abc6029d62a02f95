"""The view "cache in two layouts": a padded rectangle beside blocks, pass by pass."""

from kvlab.core.layouts import LayoutRun
from kvlab.widgets.growth_words import count
from kvlab.widgets.layouts_story import fullest, layouts_payload, layouts_stops
from kvlab.widgets.layouts_table import layouts_html
from kvlab.widgets.view import View


class CacheLayouts(View):
    """Left the rectangle, right the blocks, a row a request; `run` holds the numbers."""

    view = "cache_layouts"

    def __init__(self, run: LayoutRun) -> None:
        super().__init__(payload=layouts_payload(run))
        self.run = run

    def html(self) -> str:
        return layouts_html(self.payload)

    def __repr__(self) -> str:
        stops = layouts_stops(self.run)
        state = stops[fullest(stops)].state
        sizes = f"rectangle {state.rectangle_nbytes:,} bytes"
        blocks = f"blocks {sum(state.block_nbytes):,} bytes"
        counts = f"{count(len(self.run.requests), 'request')}, {len(stops)} stops"
        return f"CacheLayouts({counts}, {sizes}, {blocks})"
