"""The paths of the server: /v1/completions, /v1/chat/completions, /v1/models, /health, /metrics."""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from kvlab.serve.desk import Desk
from kvlab.serve.errors import ApiError, server_fault
from kvlab.serve.fields import parse
from kvlab.serve.guard import Guard
from kvlab.serve.metrics import Metrics
from kvlab.serve.models import known
from kvlab.serve.streaming import JobResponse, as_json, error_response

BODY_SECONDS = 60.0


def make_app(desk: Desk, metrics: Metrics, api_key: str | None, max_body: int) -> ASGIApp:
    """max_body: bytes of a request's body at most."""
    routes = [
        Route("/v1/completions", _generation(desk, max_body, chat=False), methods=["POST"]),
        Route("/v1/chat/completions", _generation(desk, max_body, chat=True), methods=["POST"]),
        Route("/v1/models", _models(desk), methods=["GET"]),
        Route("/v1/models/{name:path}", _models(desk), methods=["GET"]),
        Route("/health", _health(desk), methods=["GET"]),
        Route("/metrics", _metrics(metrics), methods=["GET"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refuse, Exception: _fault})
    return Guard(app, api_key)


def _generation(
    desk: Desk, max_body: int, chat: bool
) -> Callable[[Request], Awaitable[Response | JobResponse]]:
    async def generate(request: Request) -> Response | JobResponse:
        try:
            body = await read_body(request, max_body)
            arrival = desk.llm.engine.clock()
            job = await desk.take_in(parse(body), chat, arrival)
        except ApiError as error:
            return error_response(error)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        return JobResponse(desk, job)

    return generate


async def read_body(request: Request, most: int) -> bytes:
    """The body, once it is all there. Raises ApiError: not JSON 415, too large 413, too slow 408.

    It is counted as it comes, since a body in chunks declares no length.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "send Content-Type: application/json", code="unsupported_media_type")
    declared = request.headers.get("content-length", "")
    too_large = ApiError(413, f"the body is larger than {most:,} bytes", code="body_too_large")
    if declared.isdigit() and int(declared) > most:
        raise too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise too_large
                parts.append(part)
    except TimeoutError:
        raise ApiError(408, f"the body took more than {BODY_SECONDS:g} s", code="slow") from None
    return b"".join(parts)


def _models(desk: Desk) -> Callable[[Request], Awaitable[Response]]:
    async def models(request: Request) -> Response:
        name, names = request.path_params.get("name"), desk.models.names
        if name is None:
            cards = [desk.models.card(one) for one in names]
            found: dict[str, object] = {"object": "list", "data": cards}
        elif name in names:
            found = desk.models.card(name)
        else:
            error = ApiError(404, known(names), param="model", code="model_not_found")
            return error_response(error)
        return Response(as_json(found), media_type="application/json")

    return models


def _health(desk: Desk) -> Callable[[Request], Awaitable[Response]]:
    """200 with an empty body, as vLLM answers; 503 where the engine's thread has ended."""

    async def health(request: Request) -> Response:
        well = desk.engine.is_alive and not desk.stopping
        return Response(status_code=200 if well else 503)

    return health


def _metrics(metrics: Metrics) -> Callable[[Request], Awaitable[Response]]:
    async def page(request: Request) -> Response:
        body, content_type = metrics.page(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    return page


async def _refuse(request: Request, error: HTTPException) -> Response:
    """A path or a method that is not there."""
    told = {
        404: "there is no such path; see /v1/completions, /v1/chat/completions, /v1/models",
        405: f"{request.method} is not for this path",
    }
    message = told.get(error.status_code, "the request cannot be served")
    return error_response(ApiError(error.status_code, message, headers=error.headers))


async def _fault(request: Request, error: Exception) -> Response:
    """A fault of ours; the guard logs it."""
    return error_response(server_fault())
