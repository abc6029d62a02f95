"""`kvlab serve`: an OpenAI-compatible server in the foreground, until Ctrl-C or SIGTERM."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvlab.serve.server import Server


def run(
    model: str,
    *,
    host: str,
    port: int,
    api_key: str | None,
    max_queue: int,
    max_body: int,
    grace: float,
    stream_interval: int,
    early_role: bool,
    **engine: object,
) -> int:
    """Serve until told to stop. Returns the exit code.

    engine: arguments of `LLM`. Raises ValueError for what does not fit, OSError for a port that is
    taken, RuntimeError if a block did not come back, KeyboardInterrupt if told before it serves.
    """
    told, servers = [], []

    def stop(number: int, frame: FrameType | None) -> None:
        told.append(number)  # an import that it interrupts may swallow the exception
        if not servers:
            raise KeyboardInterrupt
        servers[0].stop()

    limits = {"max_queue": max_queue, "max_body": max_body, "grace": grace}
    pieces = {"stream_interval": stream_interval, "early_role": early_role}
    with _signals_to(stop):
        server = _server(model, host, port, api_key, {**limits, **pieces}, engine)
        servers.append(server)
        if told:
            server.close()
            raise KeyboardInterrupt
        key = "with an API key" if api_key is not None else "to this machine alone"
        name = server.llm.name
        print(f"Serving {name} at {server.url} {key}, process {os.getpid()}; end with Ctrl-C.")
        print(f'Try: curl {server.url}/v1/models, or base_url="{server.url}/v1"', flush=True)
        server.run()
        print("Stopped; all blocks are free.")
    return 0


def _server(
    model: str,
    host: str,
    port: int,
    api_key: str | None,
    options: dict[str, object],
    engine: dict[str, object],
) -> "Server":
    try:
        from kvlab.serve.server import Server, checked_host
    except ImportError as error:
        raise ValueError(
            f'{error.name} is missing; python -m pip install -c constraints.txt -e ".[serve]"'
        ) from None
    from kvlab.llm import LLM

    checked_host(host, api_key)  # before a model is loaded
    return Server(LLM(model, **engine), host=host, port=port, api_key=api_key, **options)


@contextlib.contextmanager
def _signals_to(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    names = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(name, handler) for name in names]
    try:
        yield
    finally:
        for name, old in zip(names, before, strict=True):
            signal.signal(name, old)
