"""The payload of the view "schedule timeline": spans, counts and delays of one or more runs."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from kvlab.core.schedule_spans import RequestRecord, Schedule
from kvlab.widgets.growth_words import count
from kvlab.widgets.schedule_figures import Figures, step_delays, time_delays
from kvlab.widgets.schedule_words import LETTERS, sentences, short_names

CLOCKS = ("steps", "time")
MOST_RUNS = 4
MOST_STEPS = 5000  # drawn; one stop each
UNITS = (("µs", 1e6, 0.01), ("ms", 1e3, 10.0), ("s", 1.0, float("inf")))  # up to which duration


def schedule_payload(
    log: Schedule,
    *others: Schedule,
    titles: Sequence[str] | None = None,
    clock: str = "steps",
) -> dict:
    """What the view draws: plain data, the same for the same logs. See `schedule_timeline`."""
    logs = [log, *others]
    _check(logs, titles, clock)
    timed = all(run.meta.get("clock") != "step" for run in logs)
    longest = max(run.steps[-1].end - _start(run) for run in logs)
    unit, scale, _ = next(u for u in UNITS if longest < u[2])
    return {
        "view": "schedule",
        "title": "Schedule timeline",
        "clock": clock,
        "unit": unit if timed else None,
        "runs": [
            _run(run, title, scale if timed else None)
            for run, title in zip(logs, _titles(logs, titles), strict=True)
        ],
    }


def _check(logs: Sequence[Schedule], titles: Sequence[str] | None, clock: str) -> None:
    for run in logs:
        if not isinstance(run, Schedule):
            raise ValueError(f"a log has type {type(run).__name__}; give a ScheduleLog")
        if not run.steps:
            raise ValueError(
                "a log has no steps; run the engine while it listens, and detach it at the end"
            )
    if len(logs) > MOST_RUNS:
        raise ValueError(f"{len(logs)} logs; the view draws {MOST_RUNS} at most, leave some out")
    if (steps := max(len(run.steps) for run in logs)) > MOST_STEPS:
        raise ValueError(
            f"{steps:,} steps; the view draws {MOST_STEPS:,} at most, log a part of the run"
        )
    if clock not in CLOCKS:
        raise ValueError(f"clock is {clock!r}; give one of {', '.join(CLOCKS)}")
    if clock == "time" and any(run.meta.get("clock") == "step" for run in logs):
        raise ValueError(
            "clock is 'time' and a log counts steps only; record it with a clock: "
            "ScheduleLog(engine.scheduler, clock=engine.clock)"
        )
    if titles is not None and len(titles) != len(logs):
        raise ValueError(f"{count(len(titles), 'title')} for {count(len(logs), 'log')}; "
                         "give one each, or None")  # fmt: skip


def _titles(logs: Sequence[Schedule], given: Sequence[str] | None) -> list[str]:
    """Those given, or the policies, numbered where they are alike."""
    if given is not None:
        return [str(title) for title in given]
    names = [str(run.meta.get("policy", "run")) for run in logs]
    return [f"{n} ({i + 1})" if names.count(n) > 1 else n for i, n in enumerate(names)]


def _run(log: Schedule, title: str, scale: float | None) -> dict:
    labels = short_names(list(log.requests))
    start = _start(log)
    begins = {step.step: step.begin for step in log.steps}
    run = {
        "title": title + (" (simulated)" if log.meta.get("simulated") else ""),
        "summary": str(Figures.of(log, labels)),
        "blocks": log.meta["num_blocks"],
        "before": _before(log),
        "steps": _stretches(step.step for step in log.steps),
        "waiting": _repeats(step.waiting for step in log.steps),
        "free": _repeats(step.free_blocks for step in log.steps),
        "requests": [
            _request(record, label, None if scale is None else (scale, start, begins))
            for record, label in zip(log.requests.values(), labels, strict=True)
        ],
        "said": sentences(log, labels),
    }
    if scale is not None:
        run["times"] = [
            [_rounded((step.begin - start) * scale), _rounded((step.end - start) * scale)]
            for step in log.steps
        ]
    return run


def _before(log: Schedule) -> str:
    """How things stand before the first step."""
    seats, blocks = log.meta.get("max_num_seqs"), count(log.meta["num_blocks"], "block")
    room = f"{count(seats, 'seat')} and {blocks}" if seats else blocks
    return f"{count(len(log.requests), 'request')} will share {room}."


def _start(log: Schedule) -> float:
    """Where the log's time begins: its first arrival or step."""
    arrivals = [record.arrival for record in log.requests.values() if record.spans]
    return min([log.steps[0].begin, *arrivals])


def _request(
    record: RequestRecord,
    label: str,
    timed: tuple[float, float, Mapping[int, float]] | None,
) -> dict:
    request = {
        "name": label,
        "id": record.request_id,
        "prompt": record.num_prompt_tokens,
        "cached": record.num_cached_tokens,
        "spans": [[LETTERS[s.kind], s.first, s.count, s.tokens // s.count] for s in record.spans],
        "outputs": len(record.selected_steps),
        "first": record.selected_steps[0] if record.selected_steps else None,
        "ended": record.finish_reason,
        "delays": list(step_delays(record)),
    }
    if timed is not None:
        scale, start, begins = timed
        delays = time_delays(record, begins)
        request["times"] = [None if d is None else _rounded(d * scale) for d in delays]
        request["arrival"] = _rounded((record.arrival - start) * scale)
    return request


def _rounded(value: float) -> float:
    return round(value, 3)


def _stretches(numbers: Iterable[int]) -> list[list[int]]:
    """1, 2, 3, 7, 8 as [first, count]: [[1, 3], [7, 2]]."""
    found: list[list[int]] = []
    for number in numbers:
        if found and sum(found[-1]) == number:
            found[-1][1] += 1
        else:
            found.append([number, 1])
    return found


def _repeats(values: Iterable[int]) -> list[list[int]]:
    """5, 5, 4 as [value, times]: [[5, 2], [4, 1]]."""
    return [[value, len(list(group))] for value, group in groupby(values)]
