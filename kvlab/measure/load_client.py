"""One request to an OpenAI-compatible server, timed at the client (section 21.2).

A time is read when bytes arrive, before they are parsed. The clock is this process's own, so a
busy event loop is part of what it sees; compression is declined, so that nothing holds bytes back.
httpx is imported when a client is opened.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvlab.core.counters import PrefixCacheCount, read_prometheus
from kvlab.core.latency_record import LatencyRecord
from kvlab.core.metrics import RequestTimes
from kvlab.measure.load_answer import Answer, loads, message_of, printable
from kvlab.measure.load_asking import PATHS, Asking
from kvlab.measure.load_requests import LoadRequest, form_of
from kvlab.measure.load_server import Server, redirected_to
from kvlab.measure.sse import EventDecoder

if TYPE_CHECKING:
    import httpx

USAGE_WORDS = ("stream_options", "include_usage")
SHORT = 10.0  # seconds for questions beside the measurement
GRACE = 0.5  # seconds in which a stream should end after its [DONE]
LARGEST_ERROR = 65_536  # bytes of an error's body that are read
KEEP_ALIVE = 2.0  # seconds; shorter than servers' own, so that none hangs up on a new request


@dataclass
class Outcome:
    """What came of one request, in readings of the client's clock. sent: when it last left."""

    request: LoadRequest
    answer: Answer
    sent: float

    @classmethod
    def meant_for(cls, request: LoadRequest, arrival: float) -> "Outcome":
        return cls(request, Answer(RequestTimes(arrival)), arrival)

    def record(self, start: float) -> LatencyRecord:
        """At the client's boundary, in seconds after `start`."""
        answer, prompt = self.answer, self.request.prompt
        count = answer.num_prompt_tokens
        if count is None and form_of(prompt) == "ids":
            count = len(prompt)
        cached, first = answer.num_cached_tokens, answer.first_event
        return LatencyRecord(
            self.request.request_id,
            answer.times.since(start),
            "client",
            count,
            None if cached is None or cached > (count or 0) else cached,
            answer.estimated,
            self.sent - start,
            answer.error,
            answer.finish_reason,
            dict(self.request.labels),
            None if first is None else first - start,
        )


class Client:
    """A connection pool to one server. Used as `async with Client(...) as client`.

    asks_usage turns False when the server refuses `stream_options`; a refused request is sent
    again without it, and its time counts from then, with the first try as wait before sending.
    """

    def __init__(
        self, server: Server, asking: Asking, *, timeout: float, clock: Callable[[], float]
    ) -> None:
        self.server, self.asking, self.timeout, self.clock = server, asking, timeout, clock
        self.asks_usage = True

    async def __aenter__(self) -> "Client":
        try:
            import httpx
        except ImportError:
            raise ValueError(
                "httpx is missing, which sends the requests; install it, or kvlab with its part "
                'for servers: pip install "kvlab[serve]"'
            ) from None
        try:
            self._http: httpx.AsyncClient = httpx.AsyncClient(
                base_url=self.server.root,
                headers={"Accept-Encoding": "identity", **self.server.headers()},
                timeout=httpx.Timeout(None),
                limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE),
                follow_redirects=False,
                trust_env=not self.server.is_local,  # a proxy has no business before this machine
            )
        except httpx.InvalidURL as error:
            raise ValueError(f"url is {self.server.root!r:.80} ({_why(error)}); mend it") from None
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()

    # ---- questions beside the measurement

    async def models(self) -> list[dict]:
        """What /v1/models lists. Raises ConnectionError where nothing answers, ValueError where the
        answer names no model.
        """
        import httpx

        try:
            response = await self._question("/v1/models")
        except (httpx.HTTPError, OSError) as error:
            raise ConnectionError(
                f"no server answers at {self.server.root} ({_why(error)}); start one, or mend the "
                "address"
            ) from None
        try:
            listed = response.json()["data"] if response.status_code == 200 else []
            found = [m for m in listed if isinstance(m, dict) and isinstance(m.get("id"), str)]
        except (ValueError, KeyError, TypeError, RecursionError):
            found = []
        if not found:
            raise ValueError(
                f"{self.server.root}/v1/models names no model (HTTP {response.status_code}); "
                "name the model yourself, and check the address and the API key"
            )
        return found

    async def prefix_cache(self) -> PrefixCacheCount | None:
        """The counters of the server's /metrics page; None where it has none."""
        import httpx

        try:
            response = await self._question("/metrics")
            return read_prometheus(response.text) if response.status_code == 200 else None
        except (httpx.HTTPError, OSError, ValueError):
            return None

    async def _question(self, path: str) -> "httpx.Response":
        """A GET. Raises TimeoutError, an OSError, for an answer that has no end in time."""
        async with asyncio.timeout(SHORT):
            return await self._http.get(path)

    # ---- the measurement

    async def send(self, outcome: Outcome) -> None:
        """Send its request and read the answer to its end. What goes wrong stands in the answer.

        A cancelled one counts as failed, since it had left; the cancellation is passed on.
        """
        import httpx

        answer = outcome.answer
        outcome.sent = max(self.clock(), outcome.sent)
        try:
            async with asyncio.timeout(self.timeout) as deadline:
                await self._exchange(outcome, deadline)
        except TimeoutError:
            if not answer.done and answer.error is None:
                answer.error = f"timeout: no end within {self.timeout:g} s, {_so_far(answer)}"
        except asyncio.CancelledError:
            if not answer.done:
                answer.error = answer.error or f"interrupted {_so_far(answer)}"
            raise
        except (httpx.HTTPError, OSError, ValueError) as error:
            if answer.finish_reason is None and not answer.done and answer.error is None:
                kind = "truncated" if answer.times.events else "connection"
                answer.error = f"{kind}: {_why(error)} {_so_far(answer)}"
        finally:
            answer.close()
            if answer.error is not None:
                answer.error = self.server.without_key(answer.error)
                answer.times.finished = max(self.clock(), answer.times.finished or outcome.sent)

    async def _exchange(self, outcome: Outcome, deadline: asyncio.Timeout) -> None:
        answer, asked_usage = outcome.answer, self.asks_usage
        body = self.asking.body(outcome.request, asked_usage)
        outcome.sent = max(self.clock(), outcome.sent)
        async with self._http.stream("POST", PATHS[self.asking.api], **_json(body)) as response:
            if 200 <= response.status_code < 300:
                await self._read(response, answer, deadline)
                return
            text = await _error_body(response)
        names_it = any(word in text for word in USAGE_WORDS)
        if asked_usage and response.status_code in (400, 422) and names_it:
            self.asks_usage = False
            await self._exchange(outcome, deadline)
            return
        answer.error = _refusal(response, text)

    async def _read(
        self, response: "httpx.Response", answer: Answer, deadline: asyncio.Timeout
    ) -> None:
        """The body, as events, or as one JSON object where the server did not stream."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        decoder, whole, now = EventDecoder(), bytearray(), self.clock()
        async for chunk in response.aiter_bytes():
            now = self.clock()
            if kind == "application/json":
                whole += chunk
                continue
            for event in decoder.feed(chunk):
                answer.read(event, now)
            if answer.error is not None:
                return
            if answer.done:
                soon = asyncio.get_running_loop().time() + GRACE
                deadline.reschedule(min(deadline.when(), soon))
        if kind == "application/json":
            _read_whole(bytes(whole), answer, now)
            return
        for event in decoder.close():
            answer.read(event, now)
        if not (answer.saw_event or answer.error):
            answer.error = f"the answer is {kind or 'of no stated type'} and holds no event"


def _read_whole(body: bytes, answer: Answer, now: float) -> None:
    """An answer that was not streamed: its text is there when the last byte is."""
    try:
        found = loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        shown = body[:60].decode(errors="replace")
        answer.error = f"the answer is no JSON object: {shown!r}"
        return
    answer.read_chunk(found, now)
    answer.done = answer.whole = True
    if answer.times.finished is None:
        answer.times.finished = now


def _json(body: bytes) -> dict[str, object]:
    return {"content": body, "headers": {"Content-Type": "application/json"}}


async def _error_body(response: "httpx.Response") -> str:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > LARGEST_ERROR:
            break
    return body[:LARGEST_ERROR].decode(errors="replace")


def _refusal(response: "httpx.Response", text: str) -> str:
    """Why there is no answer: the status, what the server says, and when to come again."""
    status = f"HTTP {response.status_code}"
    if 300 <= response.status_code < 400:
        return f"{status}: {redirected_to(response.headers.get('location', ''))}"
    if (wait := response.headers.get("retry-after")) is not None:
        status += f" (Retry-After {printable(wait[:40])})"
    try:
        said = message_of(loads(text))
    except ValueError:
        said = message_of(text)
    return f"{status}: {said or response.reason_phrase}"


def _so_far(answer: Answer) -> str:
    return f"after {len(answer.times.events)} pieces of text"


def _why(error: Exception) -> str:
    """An error in words: its own, or its name where it has none."""
    return printable(str(error)) or type(error).__name__
