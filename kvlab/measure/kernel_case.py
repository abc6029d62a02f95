"""What a decode kernel is given in one step of a real engine: queries, pool, block tables, lengths.

Two continuations of one prompt, as in measure/kernel_example.py, in a pool of NaN. Section 21.5b.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.request import SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.engine import LLMEngine
from kvlab.tensors.attention import paged_attention_spec
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.model import Decoder
from kvlab.tensors.runner import ModelRunner


@dataclass(frozen=True)
class KernelCase:
    """One layer of one step. by_engine: what the engine's own attention made of it. window: how
    many positions a query of the layer reads, None for all; `paged_decode` takes it by name."""

    query: Tensor  # [R, num_query_heads, head_dim]
    key_cache: Tensor  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache: Tensor
    block_table: Tensor  # [R, W], shorter rows padded with 0
    seq_lens: Tensor  # [R]
    by_engine: Tensor  # [R, num_query_heads, head_dim]
    window: int | None = None

    @property
    def given(self) -> tuple[Tensor, ...]:
        """The arguments of `paged_decode`."""
        return (self.query, self.key_cache, self.value_cache, self.block_table, self.seq_lens)

    def wanted(self) -> Tensor:
        """By the specification, in float64."""
        lens = self.seq_lens.tolist()
        size = self.key_cache.shape[1]
        rows = zip(self.block_table.tolist(), lens, strict=True)
        tables = [row[: -(-length // size)] for row, length in rows]
        caches = (self.key_cache, self.value_cache)
        each = (tables, [1] * len(lens), lens)
        return paged_attention_spec(self.query, *caches, *each, window=self.window)

    def to(self, device: str) -> "KernelCase":
        """The same on another device."""
        tensors = {name: x for name, x in vars(self).items() if isinstance(x, Tensor)}
        return replace(self, **{name: tensor.to(device) for name, tensor in tensors.items()})


def kernel_case(
    model: Decoder,
    prompt: Sequence[int],
    blocks: Sequence[int],
    positions: int,
    layer: int,
    block_size: int = 4,
) -> KernelCase:
    """Serve two continuations of a prompt up to `positions` positions each, and one step more.

    blocks: the pool's, in the order in which it hands them out. What nobody wrote is NaN.
    """
    cache = PagedCache(model.config, num_blocks=max(blocks) + 1, block_size=block_size)
    for tensor in (cache.key_cache, cache.value_cache):
        tensor.fill_(float("nan"))
    manager = KVCacheManager(BlockPool(list(blocks)), block_size=block_size)
    runner = ModelRunner(model, cache)
    engine = LLMEngine(Scheduler(manager), runner)
    both = SamplingParams(max_tokens=99, temperature=1.0, seed=7, n=2, ignore_eos=True)
    requests = engine.add_request(list(prompt), both, request_id="A")
    while min(r.num_computed_tokens for r in requests) < positions:
        engine.step()
    runner.attention = kept = _Kept(runner.attention, layer)
    rows, execute = [], runner.execute
    runner.execute = lambda output: rows.extend(output.requests) or execute(output)
    engine.step()
    width = max(len(row.block_ids) for row in rows)
    table = [[*row.block_ids, *[0] * (width - len(row.block_ids))] for row in rows]
    lens = [row.end for row in rows]
    integers = (torch.tensor(numbers, dtype=torch.int32) for numbers in (table, lens))
    pool = (cache.key_cache[layer].clone(), cache.value_cache[layer].clone())
    return KernelCase(kept.query, *pool, *integers, kept.mixed, kept.window)


class _Kept:
    """Hands every call on to the engine's attention; keeps one layer's query, result and window."""

    def __init__(self, attention: object, layer: int) -> None:
        self.attention, self.layer = attention, layer

    def __getattr__(self, name: str) -> object:
        return getattr(self.attention, name)

    def __call__(
        self, layer: int, query: Tensor, *new: Tensor, window: int | None = None
    ) -> Tensor:
        reach = {} if window is None else {"window": window}
        mixed = self.attention(layer, query, *new, **reach)  # new: key and value
        if layer == self.layer:
            self.query, self.mixed, self.window = query.clone(), mixed.clone(), window
        return mixed
