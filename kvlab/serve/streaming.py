"""How a job's answer goes out: whole, or piece by piece as server-sent events.

    data: {chunk}\\n\\n   data: {chunk}\\n\\n   ...   data: {usage}\\n\\n   data: [DONE]\\n\\n

Source: the HTML standard, section "Server-sent events"; OpenAI's API reference, "Streaming".
"""

import asyncio
import json
from collections.abc import AsyncIterator

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from kvlab.serve.desk import Desk
from kvlab.serve.errors import ApiError
from kvlab.serve.job import Job, Piece

SEND_SECONDS = 60.0  # until a client that does not read is given up


def as_json(value: object) -> bytes:
    """Compact UTF-8. A half of a surrogate pair, which UTF-8 has no bytes for, stays an escape."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "backslashreplace")


def error_response(error: ApiError, request_id: str | None = None) -> Response:
    headers = error.headers | ({"x-request-id": request_id} if request_id else {})
    return Response(as_json(error.body()), error.status, headers, "application/json")


class JobResponse:
    """An ASGI application that answers one job. Whatever way it ends, the job has left after it:
    a client that hangs up frees its blocks.

    One that shuts its sending side alone (nc -N, shutdown(SHUT_WR)) counts as gone: the bytes on
    the wire are the same, and uvicorn closes the connection. Keep it open until the answer is read.
    """

    def __init__(self, desk: Desk, job: Job) -> None:
        self._desk, self._job = desk, job
        self._answer = desk.answer(job)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = asyncio.create_task(self._watch(receive))

        async def patient(message: Message) -> None:
            async with asyncio.timeout(SEND_SECONDS):
                await send(message)

        try:
            if self._job.asked.stream:
                await self._stream(patient)
            else:
                response = await self._whole()
                if response is not None:
                    await response(scope, receive, send)
        except ApiError as error:
            await error_response(error, self._job.request_id)(scope, receive, send)
        except TimeoutError:  # a client that stays and does not read keeps no place
            return
        finally:
            watch.cancel()
            self._desk.leave(self._job)

    async def _watch(self, receive: Receive) -> None:
        """Tell the handler when the client hangs up."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._job.put(None)

    async def _pieces(self) -> AsyncIterator[list[Piece]]:
        """All pieces as they come. Ends with the last one, or when the client is gone."""
        ended = 0
        while (pieces := await self._job.next()) is not None:
            ended += sum(piece.finish_reason is not None for piece in pieces)
            yield pieces
            if ended == len(self._job.requests):
                return

    # ---- whole

    async def _whole(self) -> Response | None:
        """None: the client is gone."""
        found = [piece async for pieces in self._pieces() for piece in pieces]
        if sum(piece.finish_reason is not None for piece in found) < len(self._job.requests):
            return None
        body = as_json(self._answer.whole(found))
        self._job.note_sent()
        self._desk.note_times(self._job)
        return Response(body, 200, self._headers(), "application/json")

    # ---- piece by piece

    async def _stream(self, send: Send) -> None:
        """The status goes out with the first piece: an engine that fails before is a 500. Later it
        is an event, after which the stream ends without [DONE]. An early role is a first piece."""
        begun = False
        try:
            if self._desk.early_role and self._job.asked.chat:
                begun = True
                await send(self._start())
                roles = map(self._answer.opening, range(self._job.asked.num_sequences))
                data = b"".join(map(event, roles))
                await send({"type": "http.response.body", "body": data, "more_body": True})
            async for data in self._events():
                if not begun:
                    begun = True
                    await send(self._start())
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except ApiError as error:
            if not begun:
                raise
            data = event(error.body())
            await send({"type": "http.response.body", "body": data, "more_body": True})
        if begun:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncIterator[bytes]:
        """The stream's bytes; pieces of one step go out together."""
        usage, ended = self._job.asked.include_usage, 0
        async for pieces in self._pieces():
            ended += sum(piece.finish_reason is not None for piece in pieces)
            if any(piece.text for piece in pieces):
                self._job.note_sent()
            found = [chunk for piece in pieces for chunk in self._chunks(piece)]
            if ended == len(self._job.requests):
                found += [self._answer.usage_chunk()] if usage else []
                found[-1]["kvlab"] = self._answer.stamps()
                self._desk.note_times(self._job)
                yield b"".join(map(event, found)) + b"data: [DONE]\n\n"
            elif found:
                yield b"".join(map(event, found))

    def _chunks(self, piece: Piece) -> list[dict[str, object]]:
        chunk = self._answer.chunk(piece)
        opening = self._answer.opening(piece.index) if chunk is not None else None
        return [found for found in (opening, chunk) if found is not None]

    def _start(self) -> dict[str, object]:
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",  # a proxy that gathers would delay tokens
            **self._headers(),
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        return {"type": "http.response.start", "status": 200, "headers": raw}

    def _headers(self) -> dict[str, str]:
        return {"x-request-id": self._job.request_id}


def event(value: object) -> bytes:
    """One server-sent event. JSON has no line break outside its strings, and none inside them."""
    return b"data: " + as_json(value) + b"\n\n"
