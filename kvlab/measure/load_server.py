"""The address of a server and the key to it: checked before anything is sent, and never shown.

The key stands in no result, no message and no representation.
"""

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

KEY_VARIABLE = "KVLAB_API_KEY"
ENDINGS = ("/chat/completions", "/completions", "/models")
SHORTEST_SECRET = 8  # letters of a header's value that are hidden where a server repeats them


@dataclass(frozen=True)
class Server:
    """root: "http://HOST:PORT", with a path in front of /v1 where there is one."""

    root: str
    api_key: str | None = field(default=None, repr=False)
    extra_headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def at(
        cls, url: str, api_key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> "Server":
        """The server of an address, with or without /v1 at its end.

        api_key None: the environment's KVLAB_API_KEY, if it is set. Raises ValueError for an
        address that is none, and for a key or header that HTTP cannot carry.
        """
        key = os.environ.get(KEY_VARIABLE) or None if api_key is None else api_key
        if key is not None and not _fits_header(key):
            raise ValueError(
                "the API key is empty, or has a line break, a space at an end, or a letter beyond "
                f"ASCII; give it as it was handed out, with api_key or in {KEY_VARIABLE}"
            )
        for name, value in (headers or {}).items():
            if not name.replace("-", "").replace("_", "").isalnum() or not _fits_header(value):
                raise ValueError(f"header {name!r:.60} cannot be sent; give a name and plain text")
        return cls(_root(url), key, dict(headers or {}))

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        host = urlsplit(self.root).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def headers(self) -> dict[str, str]:
        found = dict(self.extra_headers)
        if self.api_key is not None:
            found["Authorization"] = f"Bearer {self.api_key}"
        return found

    def without_key(self, text: str) -> str:
        """A text of the server's, which may repeat what it was sent."""
        secrets = [v for v in self.extra_headers.values() if len(v) >= SHORTEST_SECRET]
        for secret in filter(None, [self.api_key, *secrets]):
            text = text.replace(secret, "[hidden]")
        return text


def _fits_header(value: str) -> bool:
    return bool(value) and value.isascii() and value.isprintable() and value == value.strip()


def _root(url: str) -> str:
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.username is not None or parts.password is not None:
        raise ValueError("the URL holds a name or a password; give a key with api_key instead")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f"url is {url!r:.80}; give one such as http://127.0.0.1:8000")
    if parts.query or parts.fragment:
        raise ValueError("the URL has a part behind ? or #; give the address without it")
    path = parts.path.rstrip("/")
    for ending in ENDINGS:
        path = path.removesuffix(f"/v1{ending}")
    return f"{parts.scheme}://{parts.netloc}{path.removesuffix('/v1')}"


def redirected_to(location: str) -> str:
    """What to do about a redirect: a key and a measurement follow none by themselves."""
    try:
        parts = urlsplit(location)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "redirected, to an address that is none"
    shown = f"{parts.scheme}://{host}{parts.path}" if host else parts.path
    return f"redirected to {shown[:120] or 'nowhere'}; give the address of the server itself"
