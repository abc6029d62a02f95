"""Any causal language model of transformers on kvlab's paged cache and engine.

    llm = load_llm("folder-or-hub-id", num_blocks=64)
    llm.generate("...")

The layers stay transformers' own; only the attention between them is ours, entered through
transformers' attention registry. Needs the extra `models`. Names load when they are first used.
"""

import importlib

_HOME = {
    "load_llm": "kvlab.hf.load",
    "open_decoder": "kvlab.hf.load",
    "TransformersDecoder": "kvlab.hf.decoder",
    "LayerAttention": "kvlab.hf.layers",
    "LayeredPagedAttention": "kvlab.hf.paged",
}
__all__ = [*_HOME]


def __getattr__(name: str) -> object:
    if name in _HOME:
        try:
            return getattr(importlib.import_module(_HOME[name]), name)
        except ModuleNotFoundError as error:
            if error.name != "transformers":
                raise
            raise ImportError(
                'kvlab.hf needs transformers: pip install "kvlab[models]"', name="transformers"
            ) from None
    raise AttributeError(f"module 'kvlab.hf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
