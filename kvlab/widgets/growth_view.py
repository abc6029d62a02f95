"""The view "cache growth": keys and values of a request, filled as passes process positions."""

from collections.abc import Sequence

from kvlab.core.trace import Trace
from kvlab.widgets.growth_story import growth_payload, growth_stops
from kvlab.widgets.growth_table import growth_html
from kvlab.widgets.view import View


class CacheGrowth(View):
    """Rows are layers with K and V, columns positions. Arguments as for `growth_payload`."""

    view = "cache_growth"

    def __init__(
        self, trace: Trace, request_id: str | None = None, layers: Sequence[int] | None = None
    ) -> None:
        super().__init__(payload=growth_payload(trace, request_id, layers))

    def html(self) -> str:
        return growth_html(self.payload)

    def __repr__(self) -> str:
        stops = growth_stops(Trace.from_dict(self.payload["trace"]), self.payload["request"])
        held, nbytes = max((s.held, s.nbytes or 0) for s in stops)
        size = f"{held:,} positions, {nbytes:,} bytes"
        return f"CacheGrowth(request {self.payload['request']!r}, {len(stops)} stops, {size})"


def cache_growth(trace: Trace, request_id: str | None = None) -> CacheGrowth:
    """The view of a trace, section 21.6."""
    return CacheGrowth(trace, request_id)
