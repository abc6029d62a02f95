"""The formulas of section 21.1 made real: allocate keys and values, and read their sizes.

Nothing here multiplies sizes. The bytes are the sum of `nbytes` of tensors that exist for a moment.
"""

from dataclasses import dataclass

import torch

from kvlab.core.memory import kv_cache_bytes
from kvlab.core.sizes import in_units
from kvlab.tensors.free_memory import free_nbytes
from kvlab.tensors.kv_cache import ContiguousCache
from kvlab.tensors.out_of_memory import ran_out

MOST_BYTES = 256 * 2**20  # what is allocated without being asked for more
ADDRESSES = 2**63  # no tensor has more bytes
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


@dataclass(frozen=True)
class _Shape:
    """Of a model's configuration what a cache reads. No model is built from it."""

    num_layers: int
    num_kv_heads: int
    head_dim: int


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
    While a tensor grows, its old and its new form exist together for a moment: the limit counts
    that, see `at_once`. Raises ValueError above the limit and for sizes that no cache has, and
    MemoryError where the machine has less than that: both before anything is allocated, or else
    as soon as memory is refused.
    """
    dtype = dtype_of(bytes_per_value)
    sizes = (layers, batch, kv_heads, seq_len, head_dim, bytes_per_value)
    if problem := too_large(*sizes, limit=limit):
        raise ValueError(problem)
    needed, free = at_once(*sizes), free_memory()
    if needed >= ADDRESSES or (free is not None and needed > free):  # promised, but not there
        raise MemoryError(_refusal(sizes))
    shape = _Shape(layers, kv_heads, head_dim)
    try:
        return _measured(shape, batch, seq_len, dtype)
    except (RuntimeError, MemoryError) as error:
        if not ran_out(error):
            raise
        raise MemoryError(_refusal(sizes)) from error


def _measured(sizes: _Shape, batch: int, seq_len: int, dtype: torch.dtype) -> Allocation:
    cache = _filled(sizes, batch, seq_len, dtype)
    shape, nbytes = tuple(cache.keys[0].shape), cache.nbytes
    _append(cache, 1)
    growth_all = cache.nbytes - nbytes
    del cache  # before the next one, so that both never exist at once
    alone = _filled(sizes, 1, seq_len, dtype)
    before = alone.nbytes
    _append(alone, 1)
    return Allocation(shape, 2 * sizes.num_layers, nbytes, growth_all, alone.nbytes - before)


def _refusal(sizes: tuple[int, ...]) -> str:
    """Of what is kept; of the growth where nothing is."""
    layers, batch, kv_heads, seq_len, head_dim, size = sizes
    nbytes = kv_cache_bytes(layers, max(batch, 1), kv_heads, max(seq_len, 1), head_dim, size)
    return (
        f"this machine has no memory for {in_units(nbytes)} of keys and values; choose smaller "
        "sizes or a lower limit"
    )


def dtype_of(bytes_per_value: int) -> torch.dtype:
    """Raises ValueError for a size that no dtype of `DTYPES` has."""
    whole = isinstance(bytes_per_value, int) and not isinstance(bytes_per_value, bool)
    if not whole or bytes_per_value not in DTYPES:
        raise ValueError(
            f"bytes_per_value is {bytes_per_value!r}; give 4, 2 or 1, for which there is a dtype"
        )
    return DTYPES[bytes_per_value]


def checked_limit(limit: int | None) -> int:
    """The limit itself, `default_limit()` for None. Raises ValueError for no number of bytes."""
    if limit is None:
        return default_limit()
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise ValueError(
            f"limit is {limit!r}; give a whole number of bytes of at least 0, or None for the "
            "default"
        )
    return limit


def default_limit() -> int:
    """256 MiB, or a quarter of the free memory where that is less."""
    free = free_memory()
    return MOST_BYTES if free is None else min(MOST_BYTES, free // 4)


def at_once(
    layers: int,
    batch: int,
    kv_heads: int,
    seq_len: int,
    head_dim: int,
    bytes_per_value: int = 2,
) -> int:
    """Bytes that exist at the worst moment: one position more, and one tensor in both its forms.

    A request on its own grows as well, so that batch 0 counts as 1.
    """
    everyone = max(batch, 1)
    grown = kv_cache_bytes(layers, everyone, kv_heads, seq_len + 1, head_dim, bytes_per_value)
    return grown + grown // (2 * layers)


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

    Raises ValueError for sizes that no cache has and for a limit that is no number of bytes.
    """
    limit, sizes = checked_limit(limit), (layers, batch, kv_heads, seq_len, head_dim)
    nbytes = kv_cache_bytes(*sizes, bytes_per_value)
    needed = at_once(*sizes, bytes_per_value)
    if needed <= limit:
        return None
    if nbytes > limit:
        return f"not allocated: {_more(nbytes, 'is', limit)}"
    return f"not allocated: while it grows by a position, {_more(needed, 'at once are', limit)}"


def _more(nbytes: int, are: str, limit: int) -> str:
    """Both in their units, or in bytes where these would look the same."""
    found, most = in_units(nbytes), in_units(limit)
    if found == most:
        found, most = f"{nbytes:,} bytes", f"{limit:,} bytes"
    return f"{found} {are} more than the limit of {most}"


def free_memory() -> int | None:
    """Bytes that can still be taken on the CPU; None if the system is silent."""
    return free_nbytes(torch.device("cpu"))


def _filled(sizes: _Shape, batch: int, seq_len: int, dtype: torch.dtype) -> ContiguousCache:
    cache = ContiguousCache(sizes, batch, dtype)
    _append(cache, seq_len)
    return cache


def _append(cache: ContiguousCache, positions: int) -> None:
    """Keys and values of new positions in every layer; their numbers are zero, sizes count."""
    shape = (cache.batch, cache.config.num_kv_heads, positions, cache.config.head_dim)
    new = torch.zeros(shape, dtype=cache.keys[0].dtype)  # [B, H_kv, t, d_h]
    for layer in range(cache.config.num_layers):
        cache.append(layer, new, new)
