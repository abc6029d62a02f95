"""How many bytes keys and values take: the chapter's two formulas, in exact arithmetic.

    bytes  = 2 · L · B · H_kv · T · d_h · s        (21.2)
    growth = 2 · L · B · H_kv     · d_h · s        (21.3)

2 for keys and values, L layers, B requests, H_kv heads that store K/V, T processed positions, d_h
numbers a head and position, s bytes a number. It is the payload alone: parameters, unused slots of
blocks and temporaries come on top. Section 21.1.
"""

import math
from fractions import Fraction

GIB = 2**30


def kv_cache_bytes(
    layers: int,
    batch: int,
    kv_heads: int,
    seq_len: int,
    head_dim: int,
    bytes_per_value: int | float | Fraction = 2,
) -> int:
    """Bytes of all keys and values (eq 21.2).

    Nothing processed (seq_len 0) or nobody there (batch 0) takes 0 bytes.
    bytes_per_value may be a part of a byte: 0.5 for four-bit numbers. Nothing is rounded: raises
    ValueError where the product is no whole number of bytes, and for counts that are none.
    """
    counts = {"layers": layers, "batch": batch, "kv_heads": kv_heads}
    counts |= {"seq_len": seq_len, "head_dim": head_dim}
    for name, value in counts.items():
        _check_count(name, value, at_least=0 if name in ("batch", "seq_len") else 1)
    total = 2 * math.prod(counts.values()) * _exact(bytes_per_value)
    if total.denominator != 1:
        raise ValueError(
            f"bytes_per_value is {bytes_per_value!r} and the whole comes to {total} bytes; choose "
            "sizes whose product is a whole number of bytes, or give bytes_per_value as a Fraction"
        )
    return total.numerator


def growth_bytes(
    layers: int,
    batch: int,
    kv_heads: int,
    head_dim: int,
    bytes_per_value: int | float | Fraction = 2,
) -> int:
    """Eq 21.3: one more position for each of `batch` requests; batch=1 where one request grows."""
    return kv_cache_bytes(layers, batch, kv_heads, 1, head_dim, bytes_per_value)


def kv_cache_gib(
    layers: int,
    batch: int,
    kv_heads: int,
    seq_len: int,
    head_dim: int,
    bytes_per_value: int | float | Fraction = 2,
) -> float:
    """The chapter's function: eq 21.2 in GiB of 2^30 bytes (a GB would be 10^9).

    Raises ValueError as `kv_cache_bytes` does, and for more than a float can say.
    """
    counts = {"layers": layers, "batch": batch, "kv_heads": kv_heads}
    counts |= {"seq_len": seq_len, "head_dim": head_dim}
    nbytes = kv_cache_bytes(**counts, bytes_per_value=bytes_per_value)
    try:
        return nbytes / GIB
    except OverflowError:
        largest = max(counts, key=lambda name: counts[name])
        raise ValueError(
            f"{largest} is about 2^{counts[largest].bit_length() - 1} and the whole about "
            f"2^{nbytes.bit_length() - 1} bytes, more than a float can say; kv_cache_bytes gives "
            "the exact number"
        ) from None


def _check_count(name: str, value: object, at_least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise ValueError(f"{name} is {value!r}; give a whole number of at least {at_least}")


def _exact(bytes_per_value: object) -> Fraction:
    """The size as a fraction; a float means the binary number that it is (0.5 is one half)."""
    number = isinstance(bytes_per_value, int | float | Fraction)
    if not number or isinstance(bytes_per_value, bool) or not 0 < bytes_per_value < math.inf:
        raise ValueError(
            f"bytes_per_value is {bytes_per_value!r}; give a number above 0: 4 for fp32, "
            "2 for fp16, 1 for fp8, 0.5 for int4"
        )
    return Fraction(bytes_per_value)
