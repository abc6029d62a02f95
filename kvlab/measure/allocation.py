"""The formulas of section 21.1 made real: allocate keys and values, and read their sizes.

Nothing here multiplies sizes. The bytes are the sum of `nbytes` of tensors that exist for a moment.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from kvlab.core.memory import in_units, kv_cache_bytes
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.kv_cache import ContiguousCache

MOST_BYTES = 256 * 2**20  # what is allocated without being asked for more
DTYPES = {4: torch.float32, 2: torch.float16, 1: torch.float8_e4m3fn}  # by bytes a value


@dataclass(frozen=True)
class Allocation:
    """What the tensors of one cache said about themselves. Nothing of it is still allocated.

    shape: of each of the `tensors` tensors, [B, H_kv, T, d_h]. nbytes: of all together. growth_all:
    bytes that one more position for every request added; growth_one: for a request on its own.
    """

    shape: tuple[int, int, int, int]
    tensors: int
    nbytes: int
    growth_all: int
    growth_one: int


def allocate(
    layers: int,
    batch: int,
    kv_heads: int,
    seq_len: int,
    head_dim: int,
    bytes_per_value: int = 2,
    *,
    limit: int | None = None,
) -> Allocation:
    """Fill a `ContiguousCache` of these sizes, append one position, read both, free it.

    bytes_per_value: 4 (fp32), 2 (fp16) or 1 (fp8). limit: bytes; None takes `default_limit()`.
    While a tensor grows, its old and its new form exist together for a moment. Raises ValueError
    above the limit and for sizes that no cache has, and MemoryError where the machine has less
    than that: both before anything is allocated, or else as soon as memory is refused.
    """
    if bytes_per_value not in DTYPES or isinstance(bytes_per_value, bool | float):
        raise ValueError(
            f"bytes_per_value is {bytes_per_value!r}; there is a dtype for 4, 2 and 1 bytes"
        )
    one_layer = (batch, kv_heads, seq_len, head_dim, bytes_per_value)
    if problem := too_large(layers, *one_layer, limit=limit):
        raise ValueError(problem)
    nbytes, free = kv_cache_bytes(layers, *one_layer), free_memory()
    if free is not None and 3 * nbytes > 2 * free:  # a system may promise more than it has
        raise MemoryError(_refusal(nbytes))
    config, dtype = _shape_only(layers, kv_heads, head_dim), DTYPES[bytes_per_value]
    try:
        return _measured(config, batch, seq_len, dtype)
    except RuntimeError as error:
        if "allocate" not in str(error):
            raise
        raise MemoryError(_refusal(nbytes)) from error


def _measured(config: ModelConfig, batch: int, seq_len: int, dtype: torch.dtype) -> Allocation:
    cache = _filled(config, batch, seq_len, dtype)
    shape, nbytes = tuple(cache.keys[0].shape), cache.nbytes
    _append(cache, 1)
    growth_all = cache.nbytes - nbytes
    del cache  # before the next one, so that both never exist at once
    alone = _filled(config, 1, seq_len, dtype)
    before = alone.nbytes
    _append(alone, 1)
    return Allocation(shape, 2 * config.num_layers, nbytes, growth_all, alone.nbytes - before)


def _refusal(nbytes: int) -> str:
    return (
        f"this machine has no memory for {in_units(nbytes)} of keys and values; choose smaller "
        "sizes or a lower limit"
    )


def default_limit() -> int:
    """256 MiB, or a quarter of the free memory where that is less."""
    free = free_memory()
    return MOST_BYTES if free is None else min(MOST_BYTES, free // 4)


def too_large(
    layers: int,
    batch: int,
    kv_heads: int,
    seq_len: int,
    head_dim: int,
    bytes_per_value: int = 2,
    *,
    limit: int | None = None,
) -> str | None:
    """Why a cache of these sizes is not allocated, in words; None where it may be.

    The position that is appended counts too where it is the larger part.
    """
    limit = default_limit() if limit is None else limit
    sizes = (kv_heads, max(seq_len, 1), head_dim, bytes_per_value)
    nbytes = kv_cache_bytes(layers, batch, *sizes)
    if nbytes <= limit:
        return None
    return f"not allocated: {in_units(nbytes)} is more than the limit of {in_units(limit)}"


def free_memory() -> int | None:
    """Bytes that a process could take without others giving way; None if the system is silent."""
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _shape_only(layers: int, kv_heads: int, head_dim: int) -> ModelConfig:
    """A configuration that says what a cache needs to know; no model is built from it."""
    sizes = {"vocab_size": 1, "hidden_size": head_dim, "intermediate_size": 1}
    heads = {"num_query_heads": kv_heads, "num_kv_heads": kv_heads, "head_dim": head_dim}
    return ModelConfig(num_layers=layers, **sizes, **heads)


def _filled(config: ModelConfig, batch: int, seq_len: int, dtype: torch.dtype) -> ContiguousCache:
    cache = ContiguousCache(config, batch, dtype)
    _append(cache, seq_len)
    return cache


def _append(cache: ContiguousCache, positions: int) -> None:
    """Keys and values of new positions in every layer; their numbers are zero, sizes count."""
    shape = (cache.batch, cache.config.num_kv_heads, positions, cache.config.head_dim)
    new = torch.zeros(shape, dtype=cache.keys[0].dtype)  # [B, H_kv, t, d_h]
    for layer in range(cache.config.num_layers):
        cache.append(layer, new, new)
