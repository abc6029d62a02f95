"""What the playground's tensors should hold: each request's keys and values, computed anew.

Passes over a rectangle of the request's own, from its token ids alone: no block, no table, no
number of the scheduler's has a part in it.
"""

import copy
from collections.abc import Iterable

import torch
from torch import Tensor

from kvlab.core.request import Request
from kvlab.tensors.kv_cache import ContiguousCache, contiguous_forward
from kvlab.tensors.model import Decoder


class Recomputed:
    """A `ContiguousCache` for each running request, which grows as its tokens do.

    A fork goes on from its parent's; a request whose earlier tokens changed begins again.
    """

    def __init__(self, model: Decoder) -> None:
        self.model = model
        self._kept: dict[str, tuple[list[int], ContiguousCache]] = {}

    def of(self, request: Request, length: int) -> ContiguousCache:
        """K and V of the first `length` tokens, each [1, num_kv_heads, length, head_dim] a layer.

        Two requests with the same object have the same tokens.
        """
        wanted = request.all_token_ids[:length]
        kept = self._kept.get(request.request_id) or self._kept.get(request.parent_id)
        tokens, cache = kept or ([], ContiguousCache(self.model.config))
        if tokens != wanted[: len(tokens)]:
            tokens, cache = [], ContiguousCache(self.model.config)
        if len(tokens) < len(wanted):
            cache = _twin(cache)
            contiguous_forward(self.model, torch.tensor([wanted[len(tokens) :]]), cache)
        self._kept[request.request_id] = wanted, cache
        return cache

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget all other requests."""
        self._kept = {name: self._kept[name] for name in names if name in self._kept}


def _twin(cache: ContiguousCache) -> ContiguousCache:
    """One that grows apart from the first; no tensor is copied."""
    twin = copy.copy(cache)
    twin.keys, twin.values = [*cache.keys], [*cache.values]
    return twin


def stacked(cache: ContiguousCache) -> tuple[Tensor, Tensor]:
    """K and V of a single request, each [num_layers, num_kv_heads, length, head_dim]."""
    return torch.stack(cache.keys)[:, 0], torch.stack(cache.values)[:, 0]
