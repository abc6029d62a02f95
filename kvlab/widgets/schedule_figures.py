"""Who waited how long: the delays of each request, and what sums up a whole run.

    wait   before its first part in a step        TTFT   until its first output
    gap    the longest between two outputs        end    until it ended

In steps, a request that gets its output in the first step that could have taken it has TTFT 1.
Sections 21.2 and 21.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from kvlab.core.schedule_spans import RequestRecord, Schedule
from kvlab.widgets.growth_words import count

DELAYS = ("wait", "TTFT", "longest gap", "end-to-end")
LOST = ("preempted", "offloaded")  # kinds in which a request has given its blocks up

Delays = tuple[float | None, float | None, float | None, float | None]


def step_delays(record: RequestRecord) -> Delays:
    """The four of them in steps; None where there is nothing to count yet."""
    if not record.spans:
        return (None, None, None, None)
    before = record.spans[0].first - 1
    ended = record.spans[-1].end - 1 - before if record.finish_reason else None
    first = record.selected_steps[0] - before if record.selected_steps else None
    return (record.steps_in("waiting"), first, max(record.step_gaps, default=None), ended)


def time_delays(record: RequestRecord, begins: dict[int, float]) -> Delays:
    """The four of them on the log's clock. begins: of each step."""
    started = next((s.first for s in record.spans if s.kind != "waiting"), None)
    wait = None if started is None else max(begins[started] - record.arrival, 0.0)
    return (wait, record.ttft, max(record.gaps, default=None), record.e2el)


def preemptions(record: RequestRecord) -> int:
    """How often it lost its blocks to others; not to a step that failed or to the caller."""
    kinds = [span.kind for span in record.spans]
    return sum(b in LOST and a not in (*LOST, "failed", "suspended") for a, b in pairwise(kinds))


@dataclass(frozen=True)
class Figures:
    """A run in numbers; all delays in steps. Those of nobody are None."""

    steps: int
    longest_wait: tuple[int, str] | None
    longest_gap: tuple[int, str] | None
    mean_ttft: float | None
    preemptions: int

    @classmethod
    def of(cls, log: Schedule, labels: Sequence[str]) -> "Figures":
        """labels: what the requests are called, in the log's order."""
        records = list(log.requests.values())
        columns = [list(column) for column in zip(*map(step_delays, records), strict=True)]
        waits, firsts, gaps, _ = columns or ([], [], [], [])
        known = [first for first in firsts if first is not None]
        return cls(
            len(log.steps),
            _longest(waits, labels),
            _longest(gaps, labels),
            fmean(known) if known else None,
            sum(map(preemptions, records)),
        )

    def __str__(self) -> str:
        parts = [
            count(self.steps, "step"),
            f"longest wait {_whose(self.longest_wait)}",
            f"longest gap {_whose(self.longest_gap)}",
            "mean TTFT " + ("none" if self.mean_ttft is None else f"{self.mean_ttft:.1f}"),
            f"{self.preemptions} preemption{'' if self.preemptions == 1 else 's'}",
        ]
        return " · ".join(parts)


def _longest(values: Sequence[int | None], labels: Sequence[str]) -> tuple[int, str] | None:
    """The largest and who has it: the first, "and others" where it is not alone."""
    known = [(value, name) for value, name in zip(values, labels, strict=True) if value is not None]
    if not known:
        return None
    most = max(value for value, _ in known)
    first, *others = [name for value, name in known if value == most]
    return most, f"{first} and others" if others else first


def _whose(longest: tuple[int, str] | None) -> str:
    if longest is None:
        return "none"
    count, name = longest
    return f"{count:,} ({name})" if count else "0"
