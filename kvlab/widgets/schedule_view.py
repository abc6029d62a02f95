"""The view "schedule timeline": who waits when the scheduler moves work."""

from collections.abc import Sequence

from kvlab.core.schedule_spans import Schedule
from kvlab.widgets.growth_words import count
from kvlab.widgets.schedule_story import schedule_payload
from kvlab.widgets.schedule_table import schedule_html, step_numbers
from kvlab.widgets.view import View


class ScheduleTimeline(View):
    """Requests down, steps or time across. Arguments: see `schedule_timeline`."""

    view = "schedule"

    def __init__(
        self,
        log: Schedule,
        *others: Schedule,
        titles: Sequence[str] | None = None,
        clock: str = "steps",
    ) -> None:
        super().__init__(payload=schedule_payload(log, *others, titles=titles, clock=clock))

    def html(self) -> str:
        return schedule_html(self.payload)

    def __repr__(self) -> str:
        runs = self.payload["runs"]
        requests = count(max(len(run["requests"]) for run in runs), "request")
        steps = ", ".join(
            f"{run['title']}: {count(len(step_numbers(run)), 'step')}" for run in runs
        )
        return f"ScheduleTimeline({requests}; {steps})"


def schedule_timeline(
    log: Schedule,
    *others: Schedule,
    titles: Sequence[str] | None = None,
    clock: str = "steps",
) -> ScheduleTimeline:
    """Runs below each other, on one axis and with one cursor; section 21.3.

        with ScheduleLog(engine.scheduler) as log:
            play(engine, workload, mode="step")
        schedule_timeline(log)

    log, others: up to four `ScheduleLog`s, such as two policies on the same arrivals. titles: one
    each; None takes the policies' names. clock: "steps", or "time" where the logs were recorded
    with a clock; a reader can switch between the two there. Raises ValueError for a log without
    steps, more than 5,000 steps, and a clock that the logs do not have.
    """
    return ScheduleTimeline(log, *others, titles=titles, clock=clock)
