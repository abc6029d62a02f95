"""A server around an LLM: in a thread beside a notebook, or in the foreground as `kvlab serve`."""

import asyncio
import atexit
import contextlib
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import uvicorn

import kvlab
from kvlab.core.checked import number, shown, whole
from kvlab.llm import LLM
from kvlab.serve.app import make_app
from kvlab.serve.desk import Desk
from kvlab.serve.engine_loop import EngineLoop
from kvlab.serve.guard import is_loopback
from kvlab.serve.metrics import Metrics
from kvlab.serve.models import Models
from kvlab.serve.times import ServerTimes

T = TypeVar("T")
SERVED: "weakref.WeakSet[LLM]" = weakref.WeakSet()  # an engine has one thread at a time
CLOSING_SECONDS = 3.0  # from the last aborts until connections that do not read are cut


class Server:
    """Serves an LLM over HTTP; the LLM belongs to it until it is closed, and it runs once.

        with Server(llm) as server:
            openai.OpenAI(base_url=server.url + "/v1", api_key="none")

    port 0: a free one. api_key: None leaves the server open to this machine's own programs; any
    other host than a loopback one needs a key. max_queue: sequences that may wait beside those
    that run. max_body: bytes of a request at most. grace: seconds that running requests get when
    the server stops. stream_interval: tokens to a piece of a stream, after a first one that comes
    alone (vLLM's --stream-interval). early_role: a chat's role goes out when the request is taken,
    as some servers have it, not with the first token. lora_modules: adapters to load, name ->
    folder; a request uses one by giving its name as "model", also one that the LLM has loaded by
    itself. Raises ValueError for what does not fit, OSError for a port that is taken.
    """

    def __init__(
        self,
        llm: LLM,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str | None = None,
        model_name: str | None = None,
        max_queue: int = 256,
        max_body: int = 4 * 2**20,
        grace: float = 10.0,
        stream_interval: int = 1,
        early_role: bool = False,
        lora_modules: Mapping[str, str | Path] | None = None,
    ) -> None:
        if not isinstance(llm, LLM):
            raise ValueError(f'llm is {shown(llm)}; give an LLM, such as LLM("tiny")')
        whole("port", port, 0, 65535), whole("max_queue", max_queue), whole("max_body", max_body, 1)
        number("grace", grace), whole("stream_interval", stream_interval, 1)
        self.host, self.llm = checked_host(host, api_key), llm
        name = llm.name if model_name is None else model_name
        models, metrics = Models(llm, name, int(time.time()), lora_modules), Metrics(llm, name)
        self._engine = EngineLoop(llm, models, metrics, stream_interval)
        self._desk = Desk(llm, self._engine, models, max_queue, bool(early_role))
        app = make_app(self._desk, metrics, api_key, max_body)
        self._free = llm.engine.scheduler.manager.pool.num_free_blocks
        self._socket = bind(self.host, port)
        self.port: int = self._socket.getsockname()[1]
        self._http = _Http(_config(app), self._desk, self._engine, grace)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Without the /v1 that OpenAI's clients want after it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def __repr__(self) -> str:
        return f"Server({self.llm.name!r} on {self.host})"

    # ---- in a thread

    def start(self) -> "Server":
        """Serve in threads of its own until `close`, or until the process ends.

        Raises RuntimeError for a server that has run, and for an LLM that is being served.
        """
        self._begin()
        self._thread = threading.Thread(target=self._serve, name="kvlab server", daemon=True)
        self._thread.start()
        atexit.register(self.close)
        self._http.ready.wait()
        if not self._http.started:
            self.close()
            raise RuntimeError("the server did not start; the error above says why")
        return self

    def __enter__(self) -> "Server":
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self, grace: float = 0.0) -> None:
        """Stop accepting, give running requests `grace` seconds, end the rest, end the threads.

        Raises RuntimeError if a block that the server's requests held was not given back, and
        within `call`, whose thread cannot end itself.
        """
        if self._engine.is_here:
            raise RuntimeError("close() within call(): close the server from outside")
        if self._thread is None:
            self._socket.close()
            return
        self._http.stop(grace)
        self._thread.join()
        self._thread = None
        atexit.unregister(self.close)
        self._finish()

    # ---- in the foreground

    def run(self) -> None:
        """Serve until the process is told to stop (`stop`)."""
        self._begin()
        self._serve()
        self._finish()

    def stop(self) -> None:
        """From a signal handler: stop accepting, and end when all is answered, or after the grace
        time. Asked again: end the requests now; and once more: wait for no connection."""
        self._http.stop(None)

    def _begin(self) -> None:
        if self.llm in SERVED:
            raise RuntimeError(f"{self.llm!r} is being served already; close that server first")
        if self._engine.has_run:
            raise RuntimeError("this server has run already; make another one")
        SERVED.add(self.llm)
        self._engine.start()

    def _serve(self) -> None:
        try:
            self._http.run(sockets=[self._socket])
        finally:
            self._http.ready.set()

    def _finish(self) -> None:
        self._engine.close()
        SERVED.discard(self.llm)
        pool = self.llm.engine.scheduler.manager.pool
        if (left := self._free - pool.num_free_blocks) > 0:
            raise RuntimeError(f"{left} blocks were not given back when the server ended")

    # ---- looking

    def times(self, request_id: str) -> ServerTimes | None:
        """The stamps of one of the last 1,000 requests, by its answer's id."""
        return self._desk.times(request_id)

    def call(self, function: Callable[[LLM], T]) -> T:
        """function(llm), between two steps: while the server runs, nobody else may use the LLM.

        Raises RuntimeError where it does not run, and whatever the function raises.
        """
        return self._engine.call(function).result()


class _Http(uvicorn.Server):
    """uvicorn's server, with requests that end before their connections are cut."""

    def __init__(
        self, config: uvicorn.Config, desk: Desk, engine: EngineLoop, grace: float
    ) -> None:
        super().__init__(config)
        self._desk, self._engine, self._grace = desk, engine, grace
        self.ready = threading.Event()

    def stop(self, grace: float | None) -> None:
        """From any thread, or a signal handler."""
        if self.should_exit:
            self.force_exit, self._grace = self._grace == 0, 0.0
        elif grace is not None:
            self._grace = grace
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._desk.stopping = True
        self.config.timeout_graceful_shutdown = self._grace + CLOSING_SECONDS
        ending = asyncio.create_task(self._end_requests())
        await super().shutdown(sockets)
        ending.cancel()

    async def _end_requests(self) -> None:
        """After the grace time, which a second wish to stop cuts short."""
        waited = 0.0
        while waited < self._grace:
            await asyncio.sleep(0.05)
            waited += 0.05
        self._engine.abort_all()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the caller's business (kvlab/cli_serve.py)."""
        yield


def _config(app: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=logging.ERROR,
        access_log=False,
        server_header=False,
        timeout_keep_alive=60,
        headers=[("server", f"kvlab/{kvlab.__version__}")],
    )


def checked_host(host: str, api_key: str | None) -> str:
    """Raises ValueError for a key that no header carries as it is, so that nobody could ever send
    it, and for a host that others reach without a key."""
    if api_key is not None and not _fits_header(api_key):
        raise ValueError(
            "api_key is empty, or has a line break, a space at an end, or a letter beyond ASCII; "
            "give a long random text, or None for none"
        )
    if not isinstance(host, str) or not host:
        raise ValueError(f"host is {shown(host)}; give an address such as '127.0.0.1'")
    if not is_loopback(host) and api_key is None:
        raise ValueError(
            f"host {host!r} can be reached from other machines; set an API key, or serve on "
            "127.0.0.1"
        )
    return "127.0.0.1" if host.lower() == "localhost" else host


def _fits_header(key: object) -> bool:
    fits = isinstance(key, str) and key.isascii() and key.isprintable()
    return fits and key != "" and key == key.strip()


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError, naming the port, if it is taken.

    TCP_NODELAY, which accepted connections inherit: without it a chunk would wait until the client
    has acknowledged the one before, some 40 ms (Nagle's algorithm and delayed acknowledgements).
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise OSError(f"cannot serve on {host} port {port}: {error.strerror or error}") from None
    return listening
