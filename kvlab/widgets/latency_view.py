"""The view "latency report": one dot a request, the mean beside the percentiles, targets."""

from collections.abc import Iterable, Mapping

from kvlab.core.goodput import Targets
from kvlab.core.latency_record import LatencyRecord
from kvlab.widgets.latency_figures import shown
from kvlab.widgets.latency_story import latency_payload
from kvlab.widgets.latency_table import latency_html
from kvlab.widgets.view import View


class LatencyReport(View):
    """Arrival across, latency up. Arguments: see `latency_report`."""

    view = "latency_report"

    def __init__(
        self, records: Iterable[LatencyRecord], targets: Targets | None = None, **options: object
    ) -> None:
        super().__init__(payload=latency_payload(records, targets, **options))

    def html(self) -> str:
        return latency_html(self.payload)

    def __repr__(self) -> str:
        whole, metric = self.payload["subsets"][0][0], self.payload["metrics"][0]
        ttft = whole["metrics"]["ttft"]
        figures = ", ".join(f"{name} {shown(ttft[name])}" for name in ("mean", "p99"))
        return (
            f"LatencyReport({whole['done']:,} completed, {whole['failed']:,} failed; "
            f"TTFT {figures} {metric['unit']})"
        )


def latency_report(
    records: Iterable[LatencyRecord],
    targets: Targets | None = None,
    *,
    title: str | None = None,
    duration: float | None = None,
    unit: str | None = None,
    conditions: Mapping[str, object] | None = None,
    metric: str | None = None,
) -> LatencyReport:
    """What a run's requests waited for, one by one and in figures; section 21.2.

        played = play(engine, workload)
        latency_report(records_of(played), Targets(ttft=3.0), conditions={"model": "tiny"})

    records: up to 2,000, all timed at one boundary; each completed or with an error. targets: what
    a request must keep, in the clock's unit. duration: see `summarize`. unit: "s" or "steps"; None
    takes it from the records' label `unit`, else seconds, which are shown as µs, ms or s by their
    size, with three digits. conditions: model, hardware, arrivals, concurrency and whatever else
    belongs to the numbers; of these four the report names those that are not stated. A label with
    one value for all is a condition, not a filter. An arrival process may be given by its fields,
    {"kind": "Poisson", "request_rate": 20}. metric: which one the picture shows first, "ttft",
    "tpot", "itl" or "e2el"; None takes the one whose target most requests miss, else "ttft".

    Raises ValueError for no records, more than 2,000, and what `summarize` refuses.
    """
    return LatencyReport(
        records,
        targets,
        title=title,
        duration=duration,
        unit=unit,
        conditions=conditions,
        metric=metric,
    )
