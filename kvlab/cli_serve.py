"""`kvlab serve`: an OpenAI-compatible server in the foreground, until Ctrl-C or SIGTERM."""

import os
import signal
from types import FrameType


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
    taken, RuntimeError if a block did not come back.
    """
    try:
        from kvlab.serve.server import Server, checked_host
    except ImportError as error:
        raise ValueError(
            f'{error.name} is missing; python -m pip install -c constraints.txt -e ".[serve]"'
        ) from None
    from kvlab.llm import LLM

    checked_host(host, api_key)  # before a model is loaded
    llm = LLM(model, **engine)
    limits = {"max_queue": max_queue, "max_body": max_body, "grace": grace}
    pieces = {"stream_interval": stream_interval, "early_role": early_role}
    server = Server(llm, host=host, port=port, api_key=api_key, **limits, **pieces)

    def stop(number: int, frame: FrameType | None) -> None:
        server.stop()

    for name in ("SIGINT", "SIGTERM"):
        signal.signal(getattr(signal, name), stop)
    key = "with an API key" if api_key is not None else "to this machine alone"
    print(f"Serving {llm.name} at {server.url} {key}, process {os.getpid()}; end with Ctrl-C.")
    print(f'Try: curl {server.url}/v1/models, or base_url="{server.url}/v1"', flush=True)
    server.run()
    print("Stopped; all blocks are free.")
    return 0
