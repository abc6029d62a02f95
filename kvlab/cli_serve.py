"""`kvlab serve`: an OpenAI-compatible server in the foreground, until Ctrl-C or SIGTERM."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvlab.serve.server import Server

EXTRA = ("starlette", "uvicorn", "httpx", "prometheus_client", "jinja2")  # kvlab[serve]


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
    lora_modules: Mapping[str, str] | None = None,
    **engine: object,
) -> int:
    """Serve until told to stop. Returns the exit code.

    lora_modules: name -> folder of adapters. engine: arguments of `LLM`. Raises ValueError for
    what does not fit, OSError for a port that is taken, RuntimeError if a block did not come back,
    KeyboardInterrupt if told before it serves.
    """
    told, servers = [], []

    def stop(number: int, frame: FrameType | None) -> None:
        told.append(number)  # an import that it interrupts may swallow the exception
        if not servers:
            raise KeyboardInterrupt
        servers[0].stop()

    limits = {"max_queue": max_queue, "max_body": max_body, "grace": grace}
    offered = {"stream_interval": stream_interval, "early_role": early_role}
    offered["lora_modules"] = lora_modules
    with _signals_to(stop):
        server = _server(model, host, port, api_key, {**limits, **offered}, engine)
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


def named_folders(asked: Sequence[str], more: Sequence[str]) -> dict[str, str]:
    """`--lora-modules NAME=FOLDER`, given once for each or, as vLLM takes it, several in a row.

    more: the words that belong to no option. Raises ValueError for one that is no such pair, and
    for a name that stands there twice.
    """
    if more and not asked:
        raise ValueError(f"{more[0]!r} belongs to no option; leave it out")
    found: dict[str, str] = {}
    for word in (*asked, *more):
        name, equals, folder = word.partition("=")
        if not (name and equals and folder) or name in found:
            raise ValueError(f"--lora-modules has {word!r:.80}; give NAME=FOLDER, each name once")
        found[name] = folder
    return found


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
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        from kvlab.doctor import install_command

        raise ValueError(f"{error.name} is missing; {install_command('serve')}") from None
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
