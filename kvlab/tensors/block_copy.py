"""Carrying out block copies in the tensors: copy-on-write (section 21.5)."""

from collections.abc import Sequence

import torch

from kvlab.core.transfers import BlockCopy
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.stored import FP8


def copy_blocks(cache: PagedCache, copies: Sequence[BlockCopy]) -> None:
    """Copy K and V of whole blocks, all layers. Sources are read before anything is written."""
    if not copies:
        return
    src = torch.tensor([c.src for c in copies], device=cache.key_cache.device)
    dst = torch.tensor([c.dst for c in copies], device=cache.key_cache.device)
    for tensor in (stored for pair in cache.tensors for stored in pair):  # scales are copied too
        rows = tensor.view(torch.uint8) if tensor.dtype == FP8 else tensor  # torch has no such copy
        rows.index_copy_(1, dst, rows.index_select(1, src))
