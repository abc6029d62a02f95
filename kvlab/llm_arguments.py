"""What `LLM` may be given: checks that name the bad value, and what stands for None."""

from collections.abc import Iterable, Mapping
from dataclasses import fields

import torch

from kvlab.core.kv_cache_manager import cdiv
from kvlab.core.scheduler_config import SchedulerConfig

DEFAULT_CACHE_BYTES = 512 * 2**20


def checked_layers(asked: Iterable[int] | None, count: int) -> frozenset[int]:
    """The layers to watch; none if none were asked for."""
    layers = [] if asked is None else list(asked) if isinstance(asked, Iterable) else [None]
    if any(type(n) is not int or not 0 <= n < count for n in layers):
        raise ValueError(
            f"attention_layers is {asked!r}; give layers from 0 to {count - 1}, "
            "such as [0], or None"
        )
    return frozenset(layers)


def checked_length(asked: int | None, longest: int) -> int:
    """The longest sequence; the model's own limit if none was asked for."""
    if asked is None:
        return longest
    if not isinstance(asked, int) or isinstance(asked, bool) or not 1 <= asked <= longest:
        raise ValueError(f"max_model_len is {asked!r}; this model's positions allow 1 to {longest}")
    return asked


def scheduler_config(
    limits: tuple[int, int, bool, int], scheduling: Mapping[str, object]
) -> SchedulerConfig:
    """Limits (requests, positions a step, chunked or not, longest sequence) and the rest by name.

    Raises TypeError for a name that `LLM` and SchedulerConfig do not have.
    """
    known = [f.name for f in fields(SchedulerConfig)][len(limits) :]
    if unknown := [name for name in scheduling if name not in known]:
        raise TypeError(
            f"LLM has no argument {unknown[0]!r}; besides its own it takes {', '.join(known)}"
        )
    return SchedulerConfig(*limits, **scheduling)


def checked_dtype(asked: torch.dtype | None, computes: torch.dtype) -> torch.dtype:
    """What keys and values are stored as; what the model computes in if nothing was asked for."""
    stored = computes if asked is None else asked
    if not isinstance(stored, torch.dtype) or not stored.is_floating_point:
        raise ValueError(f"cache_dtype is {stored!r}; give a floating-point torch.dtype")
    return stored


def default_blocks(block_bytes: int, block_size: int, length: int) -> int:
    """Four full contexts, `DEFAULT_CACHE_BYTES` at most."""
    if block_size < 1:
        raise ValueError(f"block_size is {block_size!r}; give an integer of at least 1")
    return max(1, min(4 * cdiv(length, block_size), DEFAULT_CACHE_BYTES // block_bytes))
