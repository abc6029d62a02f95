"""The view "TTFT taken apart": which intervals a time to first token includes."""

from kvlab.core.ttft import FirstTokenStamps
from kvlab.widgets.ttft_story import ttft_payload
from kvlab.widgets.ttft_table import ttft_html
from kvlab.widgets.view import View


class TtftParts(View):
    """Boundaries down, time across. Arguments: see `ttft_parts`."""

    view = "ttft_parts"

    def __init__(self, stamps: FirstTokenStamps, **options: object) -> None:
        super().__init__(payload=ttft_payload(stamps, **options))

    def html(self) -> str:
        return ttft_html(self.payload)

    def __repr__(self) -> str:
        unit = self.payload["unit"]
        rows = ", ".join(f"{r['boundary']} {r['text']} {unit}" for r in self.payload["rows"])
        return f"TtftParts({rows})"


def ttft_parts(
    stamps: FirstTokenStamps,
    *,
    title: str | None = None,
    request_id: str | None = None,
    num_prompt_tokens: int | None = None,
    num_cached_tokens: int | None = None,
    unit: str = "s",
) -> TtftParts:
    """One request's way to its first token, at each boundary that was timed; section 21.2.

        ttft_parts(FirstTokenStamps.from_times(request.times))

    Where delivery at the server was noted, a last row gives equation 21.4's own sum: it begins as
    the engine's boundary, ends as the server's, and is neither's TTFT.

    stamps: moments of one real request on one clock. request_id, num_prompt_tokens,
    num_cached_tokens: what is said of it. unit: "s", or "steps" where the clock counts steps; the
    view chooses µs, ms or s by the size. Raises ValueError for other stamps and units.
    """
    return TtftParts(
        stamps,
        title=title,
        request_id=request_id,
        num_prompt_tokens=num_prompt_tokens,
        num_cached_tokens=num_cached_tokens,
        unit=unit,
    )
