"""Who may ask: an API key where there is one, and otherwise this machine's own programs alone.

Without a key a web page is the danger: the reader's browser could be made to send requests here,
from a page of anywhere or under a name that somebody points at 127.0.0.1 (DNS rebinding). So the
Host must be a local name, an Origin, if there is one, too, and a body must be declared as JSON,
which a page cannot do without asking first. No header here ever allows another origin to read.
"""

import asyncio
import hmac
import ipaddress
import logging
import traceback
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvlab.serve.errors import ApiError, server_fault
from kvlab.serve.streaming import error_response

OPEN_PATHS = ("/health",)
log = logging.getLogger("kvlab.serve")


class Guard:
    """An ASGI application in front of another."""

    def __init__(self, app: ASGIApp, api_key: str | None) -> None:
        self._app, self._key = app, None if api_key is None else api_key.encode("utf-8")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = {"begun": False, "complete": False}

        async def noted(message: Message) -> None:
            state["begun"] = True
            last = message["type"] == "http.response.body" and not message.get("more_body", False)
            state["complete"] = last
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, receive, noted)
        except ApiError as error:
            await error_response(error)(scope, receive, send)
        except asyncio.CancelledError:  # the server has ended and this client does not read: cut
            return
        except Exception as error:  # a fault of ours; its message may quote a user's text
            log.error("%s in the server\n%s", type(error).__name__, _stack(error))
            if not state["begun"]:
                await error_response(server_fault())(scope, receive, send)
            elif not state["complete"]:  # the connection is cut, so that the client sees it
                raise RuntimeError("an answer could not be completed") from None

    def _check(self, scope: Scope) -> None:
        """Raises ApiError for a request that may not be made."""
        headers = scope["headers"]
        if self._key is not None:
            if scope["path"] not in OPEN_PATHS:
                self._check_key(headers)
            return
        hosts = [value for name, value in headers if name == b"host"]
        origins = [value for name, value in headers if name == b"origin"]
        sites = [value for name, value in headers if name == b"sec-fetch-site"]
        local = len(hosts) == 1 and is_local(f"//{hosts[0].decode('latin-1')}")
        local = local and all(is_local(origin.decode("latin-1")) for origin in origins)
        if not local or b"cross-site" in sites:
            raise ApiError(
                403,
                "without an API key this server answers this machine's own programs: Host and "
                "Origin must be 127.0.0.1, localhost or [::1]",
                code="not_local",
            )

    def _check_key(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Compared in constant time: how long it takes does not tell how much was right."""
        given = [value for name, value in headers if name == b"authorization"]
        scheme, _, key = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(key.strip(), self._key):
            raise ApiError(
                401,
                "the API key is missing or wrong; send Authorization: Bearer KEY",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )


def _stack(error: BaseException) -> str:
    return "".join(traceback.format_tb(error.__traceback__))


def is_local(address: str) -> bool:
    """Whether "//host:port" or "scheme://host:port" names this machine by a loopback name."""
    try:
        host = urlsplit(address).hostname
    except ValueError:
        return False
    return host is not None and is_loopback(host)


def is_loopback(host: str) -> bool:
    """localhost, 127.0.0.0/8 or ::1. Other names could be pointed anywhere."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
