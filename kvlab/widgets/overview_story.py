"""The chapter's four parts, read off one run: prefill, decode, scheduling, cache blocks.

Every number comes from the trace: passes and their bytes, who was scheduled in which step, and who
held which block when most requests did.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kvlab.core.trace import Trace
from kvlab.widgets.overview_read import Moment, Served, busiest_moment, requests_of, steps_of

NEEDED = ("block_size", "num_layers", "bytes_per_position")


@dataclass(frozen=True)
class Story:
    """Requests, the one that is shown alone, the steps of the run, and its busiest moment."""

    meta: Mapping[str, object]
    requests: tuple[Served, ...]
    shown: Served
    steps: range
    busiest: Moment

    def text(self, token_id: int) -> str:
        """The token in quotes, or its number where the trace has no word for it."""
        text = self.meta.get("vocab", {}).get(str(token_id))
        return f"token {token_id}" if text is None else f"'{text.strip() or text}'"


def overview_story(trace: Trace) -> Story:
    """Raises ValueError for what is no trace, and for one that lacks a part, saying which."""
    if not isinstance(trace, Trace):
        raise ValueError(f"trace is {trace!r:.60}; give a Trace, as LLM.stop_trace() returns it")
    if missing := [key for key in NEEDED if key not in trace.meta]:
        raise ValueError(
            f"the trace does not say {', '.join(missing)}; record it with LLM.start_trace()"
        )
    if trace.meta.get("clock") != "step":
        raise ValueError(
            f"the trace runs on the {trace.meta.get('clock')} clock; the overview counts steps, "
            "record it without real_clock"
        )
    requests = requests_of(trace)
    whole = [r for r in requests if r.goes_through()]
    if not whole:
        raise ValueError(
            "no request of the trace goes from its prompt's first position to a decode pass in one "
            "go; record one with max_tokens of at least 2, without reuse and preemption"
        )
    if len(requests) < 2:
        raise ValueError(
            "the trace has one request; scheduling needs at least two that run together"
        )
    # the one whose prompt took the fewest passes, the earliest of these
    shown = min(whole, key=lambda r: len(r.prompt_passes()))
    letters = {r.request_id: r.letter for r in requests}
    return Story(trace.meta, requests, shown, steps_of(trace), busiest_moment(trace, letters))
