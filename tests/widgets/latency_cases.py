"""Hand-made latency records for the tests of the report."""

import random

from kvlab.core.latency_record import LatencyRecord
from kvlab.core.metrics import RequestTimes

HOSTILE = "<img src=x onerror=alert(1)>"


def record(name: str, arrival: float, *output: float, **others: object) -> LatencyRecord:
    """A request whose output events came at these times, one token each; it ended with the last."""
    times = RequestTimes(arrival)
    for moment in output:
        times.note(moment)
    times.finished = output[-1] if output else None
    return LatencyRecord(name, times, **{"boundary": "client", **others})


def four() -> list[LatencyRecord]:
    """Two chats, a long document, and one that failed."""
    return [
        record("A", 0.0, 0.2, 0.3, 0.4, num_prompt_tokens=64, labels={"kind": "chat"}),
        record("B", 1.0, 1.4, num_prompt_tokens=64, num_cached_tokens=48, labels={"kind": "chat"}),
        record("C", 2.0, 6.0, 6.1, num_prompt_tokens=6000, labels={"kind": "document"}),
        record("D", 3.0, 3.1, num_prompt_tokens=64, error="connection reset", estimated=True),
    ]


def heavy(count: int, seed: int = 0, tokens: int = 30) -> list[LatencyRecord]:
    """Mostly short prompts, some documents: the mean looks fine and p99 does not."""
    rng, records, now = random.Random(seed), [], 0.0
    for i in range(count):
        now += rng.expovariate(4.0)
        is_long = i % 40 == 17
        at, output = now + (rng.uniform(3.4, 5.4) if is_long else rng.uniform(0.1, 0.6)), []
        for _ in range(1 if i % 25 == 3 else rng.randint(2, tokens)):
            output.append(at)
            at += rng.uniform(0.2, 0.6) if rng.random() < 0.01 else rng.uniform(0.018, 0.03)
        kind = "document" if is_long else rng.choice(["chat", "search"])
        prompt = 6000 if is_long else rng.randint(16, 512)
        records.append(
            record(
                *(f"r{i}", now, *output),
                num_prompt_tokens=prompt,
                num_cached_tokens=prompt // 2 if i % 3 else 0,
                estimated=i % 10 == 0,
                error="connection reset" if i % 60 == 9 else None,
                labels={"kind": kind},
            )
        )
    return records
