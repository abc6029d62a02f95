"""The memory calculator: choose a model and sizes, and read what fits on one GPU, and why."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from kvlab.core.formats import FORMATS
from kvlab.core.sizes import parse_size
from kvlab.core.spec_read import load
from kvlab.core.storage import MLA_FORMS, POLICIES
from kvlab.widgets import memory_models as models
from kvlab.widgets.controls import Choice, Control, Steps, TextArea
from kvlab.widgets.editor import LiveEditor
from kvlab.widgets.memory_story import calculate

TITLE = "Memory calculator: what fits on one GPU"
CONTEXTS = sorted({1, 10, 50, *(2**n for n in range(6, 21)), *(m * 10**n for n in (2, 3, 4, 5)
            for m in (1, 2, 5)), 10**6})  # fmt: skip
REQUESTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
RANKS = (1, 2, 4, 8, 16, 32)
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
GPU_GIB = (8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192)
OTHER_GIB = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def memory_calculator(
    model: str | None = None,
    *,
    config: Mapping | str | Path | None = None,
    weights: str | int | None = None,
    context: int = 8192,
    requests: int = 8,
    dtype: str = "bf16",
    ranks: int = 1,
    block_size: int = 16,
    gpu_gib: int = 80,
    other_gib: int = 2,
    window_policy: str = "capped",
    mla: str = "latent",
) -> LiveEditor:
    """A bar of one GPU's memory, the curve over the context, and every figure with its reason.

    model: a preset (`kvlab.core.presets.names()`), "tiny", or None for "llama-3.1-8b". config: in
    its place a configuration of your own, as keys or as a file, put into the text field; weights:
    the bytes of its parameters ("15GiB"), which no config.json holds. Numbers that no slider has
    are added to it. Raises ValueError for an unknown model or choice and for a configuration that
    is wrong, naming the key. Section 21.1.
    """
    if config is not None and model is not None:
        raise ValueError("model and config both say which model; give one of them")
    if weights is not None and config is None:
        raise ValueError("weights belong to a config; the other models' are known")
    text = models.EXAMPLE if config is None else json.dumps(load(config, None)[0])
    chosen = (model or "llama-3.1-8b") if config is None else models.PASTED
    controls: list[Control] = [
        Choice("model", "Model", chosen, models.model_choices()),
        TextArea("config", "Paste a config.json", text, rows=1),
        Choice("dtype", "Format of K/V", dtype, tuple(FORMATS)),
        Choice("window_policy", "Windows", window_policy, tuple(POLICIES)),
        Choice("mla", "MLA", mla, tuple(MLA_FORMS)),
        _steps("context", "Context", context, CONTEXTS),
        _steps("requests", "Requests", requests, REQUESTS),
        _steps("ranks", "GPUs (TP ranks)", ranks, RANKS),
        _steps("block_size", "Block size", block_size, BLOCK_SIZES),
        _steps("gpu", "One GPU, GiB", gpu_gib, GPU_GIB),
        _steps("other", "Other, GiB", other_gib, OTHER_GIB, least=0),
    ]
    pasted_weights = None if weights is None else parse_size(weights)
    return LiveEditor(partial(calculate, pasted_weights), controls, TITLE)


def _steps(name: str, label: str, value: int, values: Sequence[int], least: int = 1) -> Steps:
    """A slider over these numbers and the given one."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not least <= value <= 2**40:
        raise ValueError(f"{name} is {value!r}; give a whole number from {least} to 2^40")
    return Steps(name, label, value, tuple(sorted({*values, value})))
