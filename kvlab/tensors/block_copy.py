"""Carrying out block copies in the tensors (copy-on-write)."""

from collections.abc import Sequence

import torch

from kvlab.core.transfers import BlockCopy
from kvlab.tensors.kv_cache import PagedCache


def copy_blocks(cache: PagedCache, copies: Sequence[BlockCopy]) -> None:
    """Copy K and V of whole blocks, all layers. Sources are read before anything is written."""
    if not copies:
        return
    src = torch.tensor([c.src for c in copies], device=cache.key_cache.device)
    dst = torch.tensor([c.dst for c in copies], device=cache.key_cache.device)
    for tensor in (cache.key_cache, cache.value_cache):
        tensor.index_copy_(1, dst, tensor.index_select(1, src))
