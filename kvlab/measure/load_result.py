"""What a run of the load client gives: records, the setting they belong to, and files of both.

    run.jsonl    one record a line (`LatencyRecord.to_dict`)
    run.json     the setting, and the summary by the names of `vllm bench serve`

A figure without its setting compares with nothing, so the two are saved together. Section 21.2.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvlab.core import json_lines
from kvlab.core.arrivals import in_words
from kvlab.core.checked import number
from kvlab.core.counters import PrefixCacheCount
from kvlab.core.goodput import Targets
from kvlab.core.latency_record import LatencyRecord
from kvlab.core.latency_summary import LatencySummary, summarize
from kvlab.core.ttft import FirstTokenStamps
from kvlab.core.whole_file import write_whole

NOT_SENT = "not sent: "
OWN_TIMES = "the requests' own times"
STAMPS = (
    *("submitted", "first_scheduled", "selected"),
    *("first_logits", "server_arrival", "server_sent"),
)


@dataclass(frozen=True)
class LoadResult:
    """One record a request, in the order in which they were given, times since the run's start.

    duration: from the start until the last one ended, in seconds. setting: how it was measured, as
    JSON types. start: the client's clock at time 0. prefix_cache: what the server's counters rose
    by, None where it shows none; other clients' requests are in it. texts: {request id: answer},
    only where it was asked for. extras: {request id: what kvlab's server adds to its streams}.
    """

    records: tuple[LatencyRecord, ...]
    duration: float
    setting: Mapping[str, object] = field(default_factory=dict, repr=False)
    start: float = 0.0
    prefix_cache: PrefixCacheCount | None = None
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    extras: Mapping[str, Mapping[str, object]] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        failed = sum(r.error is not None for r in self.records) - self.not_sent
        parts = [f"{len(self.records) - failed - self.not_sent} completed", f"{failed} failed"]
        parts += [f"{self.not_sent} not sent"] if self.interrupted else []
        return f"LoadResult({', '.join(parts)})"

    @property
    def interrupted(self) -> bool:
        """Whether somebody stopped the run before its end."""
        return bool(self.setting.get("interrupted", False))

    @property
    def not_sent(self) -> int:
        """Requests that an interrupted run did not get to."""
        return len(self.records) - len(self.sent_records)

    @property
    def sent_records(self) -> tuple[LatencyRecord, ...]:
        """All that left, the failed ones among them."""
        return tuple(r for r in self.records if not (r.error or "").startswith(NOT_SENT))

    def failures(self) -> dict[str, int]:
        """{why: how many requests that left}, the commonest first."""
        found: dict[str, int] = {}
        for record in self.sent_records:
            if record.error is not None:
                found[record.error] = found.get(record.error, 0) + 1
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    @property
    def conditions(self) -> dict[str, object]:
        """What a report has to state of the setting; None is what nobody said."""
        named = ("model", "hardware", "concurrency", "server")
        told = {name: self.setting.get(name) for name in named}
        arrivals = self.setting.get("arrivals")
        if told["concurrency"] is None and "concurrency" in self.setting:
            told["concurrency"] = "no limit"
        return {**told, "arrivals": None if arrivals is None else in_words(arrivals)}

    def summary(self, targets: Targets | None = None) -> LatencySummary:
        """The run in numbers; requests that were never sent are not in them."""
        sent = self.sent_records
        return summarize(sent, duration=self.duration if sent else None, targets=targets)

    def to_bench_serve(self, targets: Targets | None = None) -> dict[str, object]:
        """One JSON object by the names of the result file of `vllm bench serve`.

        What they do not have stands under "kvlab": the setting, our summary in seconds, and the
        prefix cache's counters.
        """
        setting, summary = dict(self.setting), self.summary(targets)
        arrivals = setting.get("arrivals")
        process = arrivals if isinstance(arrivals, dict) else {}
        own_times = isinstance(arrivals, str) and arrivals == OWN_TIMES
        rate = None if own_times else process.get("request_rate", "inf")
        return {
            "date": setting.get("date"),
            "backend": {"chat": "openai-chat", "completions": "openai"}.get(setting.get("api")),
            "label": setting.get("hardware"),
            "model_id": setting.get("model"),
            "num_prompts": len(self.records),
            "request_rate": rate,
            "burstiness": process.get("burstiness", 1.0),
            "max_concurrency": setting.get("concurrency"),
            **summary.to_bench_serve(),
            "kvlab": {
                "setting": setting,
                "start": self.start,
                "duration": self.duration,
                "summary": summary.to_dict(),
                "targets": {} if targets is None else targets.stated(),
                "prefix_cache": _counts(self.prefix_cache),
                "extras": {name: dict(extra) for name, extra in self.extras.items()},
            },
        }

    def stamps(self, request_id: str) -> FirstTokenStamps | None:
        """The way to one request's first token, at the server and at this client.

        None where the server gave no stamps, is on another machine, or the request failed.
        Raises KeyError for an id that the run does not have.
        """
        record = {r.request_id: r for r in self.records}[request_id]
        extra = self.extras.get(request_id, {})
        told = {name: extra[name] for name in STAMPS if extra.get(name) is not None}
        engine = {"submitted", "first_scheduled", "selected"} <= told.keys()
        if not (self.setting.get("same_machine") and engine and record.error is None):
            return None
        told["client_sent"] = record.sent + self.start
        told["client_received"] = record.times.first_token + self.start
        try:
            return FirstTokenStamps(**told)
        except ValueError:  # not in order: the address is a tunnel to another machine's clock
            return None

    def save(self, path: str | Path, targets: Targets | None = None) -> tuple[Path, ...]:
        """Write NAME.jsonl and NAME.json, and NAME.texts.jsonl where texts were kept.

        Returns what was written. Raises ValueError for another ending.
        """
        lines = checked_path(path)
        written = [lines, lines.with_suffix(".json")]
        summary = json.dumps(self.to_bench_serve(targets), indent=1, allow_nan=False)
        write_whole(lines, "".join(_line(record.to_dict()) for record in self.records))
        write_whole(written[1], summary + "\n")
        if self.texts:
            written.append(lines.with_suffix(".texts.jsonl"))
            texts = [{"request_id": name, "text": text} for name, text in self.texts.items()]
            write_whole(written[2], "".join(map(_line, texts)))
        return tuple(written)

    @classmethod
    def read(cls, path: str | Path) -> "LoadResult":
        """A saved run. Without NAME.json beside it, its setting is unknown and its duration is
        what the records span. Raises ValueError, naming the line, for what is no record and for
        a second one of a request; and where NAME.json is the summary of another run.
        """
        lines = checked_path(path)
        records = tuple(_records(lines))
        beside = lines.with_suffix(".json")
        if not beside.is_file():
            return cls(records, summarize(records).duration)
        return _with_summary(records, beside)


def checked_path(path: str | Path) -> Path:
    """A path that ends in .jsonl, in a folder that exists. Raises ValueError for another."""
    found = Path(path)
    if found.suffix != ".jsonl" or found.is_dir() or not found.parent.is_dir():
        raise ValueError(
            f"{str(path)!r} is no file for records; give a name that ends in .jsonl, in a folder "
            "that exists"
        )
    return found


def _records(lines: Path) -> Iterator[LatencyRecord]:
    """The records of a file. Two runs in one file would share a clock that they never had."""
    seen: set[str] = set()
    for where, line in json_lines.objects(json_lines.read_text(lines), lines.name):
        try:
            record = LatencyRecord.from_dict(line)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if record.request_id in seen:
            raise ValueError(
                f"{where}: request {record.request_id!r:.60} is there already; keep each run in a "
                "file of its own"
            )
        seen.add(record.request_id)
        yield record


def _with_summary(records: tuple[LatencyRecord, ...], beside: Path) -> LoadResult:
    """The records with what NAME.json says of their run, if it is theirs."""
    try:
        saved = json.loads(json_lines.read_text(beside))
        kept = saved["kvlab"]
        counts, extras = kept["prefix_cache"], kept["extras"]
        result = LoadResult(
            records,
            number("duration", kept["duration"]),
            dict(kept["setting"]),
            float(kept["start"]),
            None if counts is None else PrefixCacheCount(counts["queries"], counts["hits"]),
            extras={name: dict(extra) for name, extra in extras.items()},
        )
        fits = _same_run(saved, result)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        fits = False
    if not fits:
        raise ValueError(
            f"{beside.name} is no summary that was saved with these records; move it away"
        )
    return result


def _same_run(saved: Mapping[str, object], result: LoadResult) -> bool:
    """Whether a summary counts and averages what the records do."""
    found = result.to_bench_serve()
    mean, now = saved["mean_e2el_ms"], found["mean_e2el_ms"]
    counted = all(
        saved[name] == found[name] for name in ("num_prompts", "completed", "total_output_tokens")
    )
    return counted and (mean == now or math.isclose(mean, now, rel_tol=1e-6))


def _counts(count: PrefixCacheCount | None) -> dict[str, float] | None:
    return None if count is None else {"queries": count.queries, "hits": count.hits}


def _line(value: Mapping[str, object]) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":")) + "\n"
