"""An OpenAI-compatible server over the engine, on this machine (section 21.2).

    client -> HTTP -> desk (checks, queue limit) -> engine thread: step, step, step ...
           <- events <- one hand-over a step <-----------|

`Server` runs in a thread beside a notebook or a test, or as `kvlab serve` on its own.
"""

import importlib

_HOME = {"Server": "kvlab.serve.server", "ServerTimes": "kvlab.serve.times"}
__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'kvlab.serve' has no attribute {name!r}")
