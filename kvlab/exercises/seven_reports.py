"""One run, reported seven ways (section 21.2): every figure is computed correctly, and misleads.

    report     figure                                           what a reader takes it for
    A          mean time to the first event of any kind         time to the first text
    B          mean over all intervals of tokens                what a typical request has
    C          mean TPOT                                        the time between two outputs
    D          mean TPOT, 0 where it is undefined               the mean of those that have one
    E          mean end-to-end time from sending                from when the answer was wanted
    F          p99 of the first token, of those that completed  of all who asked
    G          duration / output tokens of everybody            the time per token of a request

All come from the same records. `says` is the report, `honest` what it should have said.
"""

import importlib.resources
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable

from kvlab.core import json_lines
from kvlab.core.arrivals import in_words
from kvlab.core.latency_record import LatencyRecord
from kvlab.core.latency_summary import percentile, summarize

Records = Sequence[LatencyRecord]
FILE, SETTING = "seven_reports.jsonl", "seven_reports.json"
NO_SUCH_TIME = "no completed request has such a time; give a run with answers of several tokens"

HIDDEN = {  # what may be hidden, in the order of the numbers that readers choose from
    "failed": "requests that failed",
    "waited": "how long requests waited before they were sent",
    "cached": "prompts that lay in the prefix cache already",
    "role": "a first event that carries no text",
    "pieces": "events that carry several tokens",
    "short": "slow answers with few intervals, outvoted by the many intervals of long ones",
    "one token": "answers of one token, which have no interval",
    "others": "how many requests were served at the same time",
    "estimated": "token counts that are guesses",
}


@dataclass(frozen=True)
class Report:
    """One way to report a run. `hides`: a key of HIDDEN.

    figure: the number that the report gives, in the records' unit (seconds). honest_figure: what
    its reader takes it for. Both raise ValueError where no record has such a time.
    claim, truth: sentences, with places for both and for the counts asked, completed, failed and
    undefined (completed answers without a TPOT).
    """

    letter: str
    hides: str
    figure: Callable[[Records], float]
    honest_figure: Callable[[Records], float]
    claim: str
    truth: str

    def says(self, records: Records) -> str:
        """The report's one line."""
        return self._filled(self.claim, records)

    def honest(self, records: Records) -> str:
        """What it should have said."""
        return self._filled(self.truth, records)

    def misleads(self, records: Records) -> bool:
        """Whether its figure is another one than its reader thinks, in this run."""
        return not math.isclose(self.figure(records), self.honest_figure(records))

    def _filled(self, text: str, records: Records) -> str:
        summary = summarize(records)
        return text.format(
            figure=_milliseconds(self.figure(records)),
            honest=_milliseconds(self.honest_figure(records)),
            asked=len(records),
            completed=summary.completed,
            failed=summary.failed,
            undefined=summary.tpot.undefined,
        )


def recorded() -> tuple[LatencyRecord, ...]:
    """The shipped run: real requests to a real server, as `kvlab load` wrote them down.

    Empty in a copy without it. Raises ValueError for a line that is no record.
    """
    file = _beside(FILE)
    if not file.is_file():
        return ()
    lines = json_lines.objects(file.read_text(encoding="utf-8"), FILE)
    return tuple(LatencyRecord.from_dict(line) for _, line in lines)


def conditions() -> dict[str, object]:
    """What the shipped run was made on, and when: what a report of it has to state."""
    kept = json.loads(_beside(SETTING).read_text(encoding="utf-8"))["kvlab"]["setting"]
    named = ("model", "server", "hardware", "concurrency", "date")
    return {"arrivals": in_words(kept["arrivals"]), **{name: kept[name] for name in named}}


def _beside(name: str) -> Traversable:
    return importlib.resources.files("kvlab.exercises").joinpath("recorded", name)


# ---- the figures, and what they are taken for


def mean_first_event(records: Records) -> float:
    """From the intended start to the first event, with or without text (T07)."""
    return _mean(
        (r.times.first_token if r.first_event is None else r.first_event) - r.times.arrival
        for r in _done(records)
        if r.times.events
    )


def mean_ttft(records: Records) -> float:
    return _mean(r.times.ttft for r in _done(records) if r.times.events)


def mean_token_interval(records: Records) -> float:
    """Over the intervals of all requests together: a long answer has more say (T02).

    A request's N - 1 intervals last N - 1 times its TPOT, however its tokens came in events.
    """
    times = [record.times for record in _with_tpot(records)]
    weights = [t.num_output_tokens - 1 for t in times]
    if not weights:
        raise ValueError(NO_SUCH_TIME)
    return math.fsum(t.tpot * n for t, n in zip(times, weights, strict=True)) / sum(weights)


def mean_tpot(records: Records) -> float:
    """Over the requests that have one: each has one voice."""
    return _mean(r.times.tpot for r in _with_tpot(records))


def mean_tpot_with_zeros(records: Records) -> float:
    """As if a request without an interval had one of 0 (T09)."""
    return _mean(r.times.tpot or 0.0 for r in _done(records))


def mean_event_gap(records: Records) -> float:
    """Of each request its mean gap between events, and of these the mean over requests (T05)."""
    return _mean(_mean(r.times.itl) for r in _with_tpot(records))


def mean_from_sending(records: Records) -> float:
    return _mean(r.since_sent(r.times.finished) for r in _done(records))


def mean_from_start(records: Records) -> float:
    """From the intended start, as `times.arrival` has it (T11)."""
    return _mean(r.times.e2el for r in _done(records))


def p99_of_completed(records: Records) -> float:
    waits = sorted(r.times.ttft for r in _done(records) if r.times.events)
    if not waits:
        raise ValueError("no request completed with text; a percentile needs one at least")
    return percentile(waits, 99)


def p99_of_asked(records: Records) -> float:
    """With those that failed, whose answer never came: math.inf where they reach the 99th (T13)."""
    waits = sorted(r.times.ttft for r in _done(records) if r.times.events)
    place = math.ceil((len(records) - 1) * 99 / 100)
    if place >= len(waits):
        return math.inf
    longest = waits[-1]  # stands for those that `percentile` does not reach
    return percentile([*waits, *[longest] * (len(records) - len(waits))], 99)


def reciprocal_of_throughput(records: Records) -> float:
    """The run's duration over the output tokens of all requests together (claim 21.2-e)."""
    throughput = summarize(records).output_throughput
    if not throughput:
        raise ValueError("no output came in any time; give a run with completed requests")
    return 1 / throughput


def _done(records: Records) -> list[LatencyRecord]:
    return [record for record in records if record.error is None]


def _with_tpot(records: Records) -> list[LatencyRecord]:
    return [record for record in _done(records) if record.times.tpot is not None]


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    if not found:
        raise ValueError(NO_SUCH_TIME)
    return math.fsum(found) / len(found)


def _milliseconds(seconds: float) -> str:
    """Three digits, as far as there are: 8.13 ms, 41.2 ms, 1,730 ms; "never" for math.inf."""
    if math.isinf(seconds):
        return "never"
    value = 1000 * seconds
    places = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{places}f} ms"


REPORTS = (
    Report(
        "A",
        "role",
        mean_first_event,
        mean_ttft,
        "first response after {figure} on average",
        "first text after {honest} on average; the first event, after {figure}, said who speaks",
    ),
    Report(
        "B",
        "short",
        mean_token_interval,
        mean_tpot,
        "a token every {figure} on average",
        "a request's time per output token is {honest} on average over the requests; {figure} is "
        "the mean over all intervals, and most of those belong to a few long answers",
    ),
    Report(
        "C",
        "pieces",
        mean_tpot,
        mean_event_gap,
        "{figure} between outputs, on average over the requests",
        "{honest} between two outputs that can be seen; {figure} is the time per token, and an "
        "event carries several",
    ),
    Report(
        "D",
        "one token",
        mean_tpot_with_zeros,
        mean_tpot,
        "mean time per output token of all requests {figure}",
        "mean time per output token {honest}, over the requests that have one; {undefined} of "
        "{completed} have none, and were counted as 0",
    ),
    Report(
        "E",
        "waited",
        mean_from_sending,
        mean_from_start,
        "complete answers after {figure} on average",
        "complete answers {honest} after they were meant to be asked for, on average; {figure} "
        "leaves out the wait before sending",
    ),
    Report(
        "F",
        "failed",
        p99_of_completed,
        p99_of_asked,
        "99 of 100 first tokens within {figure}",
        "{failed} of {asked} requests failed; the 99th percentile over all who asked: {honest}",
    ),
    Report(
        "G",
        "others",
        reciprocal_of_throughput,
        mean_token_interval,
        "{figure} per output token",
        "{honest} from one token to the next within an answer; {figure} is the duration over the "
        "tokens of all requests together",
    ),
)
