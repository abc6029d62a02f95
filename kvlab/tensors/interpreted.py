"""Numbers that Triton's interpreter converts wrongly: torch does it, before a kernel is launched.

stored      an interpreter's cast truncates; rounding to nearest is meant
float8      it reads e4m3fn's NaN (0x7f, 0xff) as 480, so a kernel would hide that a cache is
            broken; a GPU reads NaN
"""

import torch
from torch import Tensor

from kvlab.tensors.stored import quantise_fp8


def rounded(new: Tensor, dtype: torch.dtype, scale: float) -> Tensor:
    """`new` in the cache's dtype: this leaves the interpreter nothing to cast. Codes of int8 it
    makes itself, rightly."""
    if dtype == torch.int8:
        return new
    return quantise_fp8(new, scale) if dtype == torch.float8_e4m3fn else new.to(dtype)


def readable(pool: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Caches as a kernel can read them: float8 that holds a NaN becomes float32, scales apart."""
    return tuple(cache.float() if _holds_nan(cache) else cache for cache in pool)


def _holds_nan(cache: Tensor) -> bool:
    return cache.dtype == torch.float8_e4m3fn and bool(cache.float().isnan().any())
