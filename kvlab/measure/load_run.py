"""One run against a server: the questions before, warm-ups, the measurement, what came of it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import kvlab
from kvlab.core.counters import PrefixCacheCount
from kvlab.core.latency_record import LatencyRecord
from kvlab.core.metrics import RequestTimes
from kvlab.measure.load_client import Client, Outcome
from kvlab.measure.load_drive import closed_loop, open_loop
from kvlab.measure.load_requests import LoadRequest
from kvlab.measure.load_result import NOT_SENT, LoadResult


@dataclass
class Run:
    """What is to be sent and when, and what came back so far.

    times: intended starts in seconds, None for a closed loop. start, end: the clock at time 0 and
    when the last one ended, None before that.
    """

    requests: Sequence[LoadRequest]
    times: Sequence[float] | None
    concurrency: int | None
    client: Client
    warmups: int = 0
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    failed: int = 0
    start: float | None = None
    end: float | None = None
    interrupted: bool = False
    served_by: str | None = None
    prefix_cache: PrefixCacheCount | None = None

    def progress(self) -> tuple[int, int, int]:
        """(ended, failed, of)."""
        return len(self.outcomes), self.failed, len(self.requests)

    async def play(self) -> None:
        """From the first question to the last answer. A cancellation after the start ends it, and
        what was measured stays; before the start it is raised.
        """
        try:
            async with self.client as client:
                await self._prepare(client)
                before = await client.prefix_cache()
                await self._measure(client)
                if before is not None:
                    self.prefix_cache = _risen(before, await client.prefix_cache())
        except asyncio.CancelledError:
            if self.end is None:
                raise

    async def _prepare(self, client: Client) -> None:
        """The model's name, where nobody gave one, and the warm-ups."""
        if not client.asking.model:
            first = (await client.models())[0]
            client.asking = replace(client.asking, model=first["id"])
            owner = first.get("owned_by")
            self.served_by = owner if isinstance(owner, str) else None
        for _ in range(self.warmups):
            await client.send(Outcome.meant_for(self.requests[0], client.clock()))

    async def _measure(self, client: Client) -> None:
        self.start = client.clock()
        try:
            await self._drive()
        except asyncio.CancelledError:
            self.interrupted = True
        self.end = client.clock()

    async def _drive(self) -> None:
        clock = self.client.clock
        if self.times is None:
            await closed_loop(self.requests, self._send, concurrency=self.concurrency, clock=clock)
            return
        await open_loop(
            self.requests,
            self.times,
            self._send,
            concurrency=self.concurrency,
            clock=clock,
            start=self.start,
        )

    async def _send(self, request: LoadRequest, arrival: float) -> None:
        outcome = Outcome.meant_for(request, arrival)
        try:
            await self.client.send(outcome)
        finally:
            self.outcomes[request.request_id] = outcome
            self.failed += outcome.answer.error is not None

    # ---- what came of it

    def result(self, setting: Mapping[str, object], keep_text: bool) -> LoadResult:
        """In the order in which the requests were given."""
        answers = {name: outcome.answer for name, outcome in self.outcomes.items()}
        order = [r.request_id for r in self.requests if r.request_id in answers]
        return LoadResult(
            tuple(self._record(i) for i in range(len(self.requests))),
            self.end - self.start,
            {**self._setting(), **setting},
            self.start,
            self.prefix_cache,
            {name: "".join(answers[name].text) for name in order} if keep_text else {},
            {name: answers[name].extras for name in order if answers[name].extras},
        )

    def _record(self, index: int) -> LatencyRecord:
        """One that never left begins at the latest when the run ended."""
        request = self.requests[index]
        if (outcome := self.outcomes.get(request.request_id)) is not None:
            return outcome.record(self.start)
        end = self.end - self.start
        meant = end if self.times is None else min(self.times[index], end)
        error = f"{NOT_SENT}the run was interrupted"
        labels = dict(request.labels)
        return LatencyRecord(
            request.request_id, RequestTimes(meant), "client", error=error, labels=labels
        )

    def _setting(self) -> dict[str, object]:
        client, answers = self.client, [o.answer for o in self.outcomes.values()]
        usage = "given" if any(a.has_usage for a in answers) else "absent"
        return {
            "url": client.server.root,
            "api": client.asking.api,
            "model": client.asking.model,
            "server": self.served_by,
            "same_machine": client.server.is_local,
            "concurrency": self.concurrency,
            "requests": len(self.requests),
            "max_tokens": _span([r.max_tokens for r in self.requests]),
            "temperature": client.asking.temperature,
            "ignore_eos": client.asking.ignore_eos,
            "extra_body": dict(client.asking.extra_body),
            "timeout": client.timeout,
            "warmups": self.warmups,
            "usage": usage if client.asks_usage else "refused",
            "streamed": not any(a.whole for a in answers),
            "interrupted": self.interrupted,
            "client": f"kvlab {kvlab.__version__}",
        }


def _span(counts: Sequence[int]) -> int | list[int]:
    """The one value, or [smallest, largest]."""
    low, high = min(counts), max(counts)
    return low if low == high else [low, high]


def _risen(before: PrefixCacheCount, after: PrefixCacheCount | None) -> PrefixCacheCount | None:
    """None where the counters went away or began anew in between."""
    try:
        return None if after is None else after - before
    except ValueError:
        return None
