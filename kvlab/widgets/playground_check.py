"""What must hold after every action of the allocator playground, read off the live objects.

blocks in use + evictable (free, with an identity) + free = usable blocks
a block's ref_cnt = the number of tables that hold it
K/V read through a request's table = K/V of its tokens, recomputed
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kvlab.core.request import Request
from kvlab.core.scheduler import Scheduler
from kvlab.tensors.kv_cache import ContiguousCache, PagedCache, contiguous_forward
from kvlab.tensors.model import Decoder

TOLERANCE = 1e-5  # float32, sums in another order; keys and values here are of the order of 1
Stored = Mapping[str, tuple[Tensor, Tensor]]  # K and V of a request, [layers, heads, length, d]


@dataclass(frozen=True)
class Audit:
    """Counts after an action, and what is wrong, if anything is.

    in_use, kept, free: blocks with a reference; in the free queue with an identity; without.
    references: (block id, ref_cnt, tables that hold it) of the blocks in use.
    positions: stored positions that were compared; difference: the largest |cached - recomputed|.
    broken: a sentence for each rule that does not hold.
    """

    in_use: int
    kept: int
    free: int
    usable: int
    references: tuple[tuple[int, int, int], ...]
    positions: int
    difference: float
    broken: tuple[str, ...]

    @property
    def balanced(self) -> bool:
        """Every usable block is in exactly one of the three states."""
        return self.in_use + self.kept + self.free == self.usable

    @property
    def referenced(self) -> bool:
        """No block is held by more or fewer tables than it counts."""
        return all(count == tables for _, count, tables in self.references)

    @property
    def recomputed(self) -> bool:
        """What is read is what a fresh pass gives. A NaN is no agreement."""
        return self.difference < TOLERANCE

    @property
    def ok(self) -> bool:
        return self.balanced and self.referenced and self.recomputed and not self.broken


def stored(cache: PagedCache, scheduler: Scheduler) -> Stored:
    """Copies of what stands in the cache for each running request, read through its block table."""
    table = scheduler.manager.block_table
    return {
        r.request_id: cache.read(table(r.request_id), r.num_computed_tokens)
        for r in scheduler.running
    }


def fresh(model: Decoder, requests: Sequence[Request]) -> Stored:
    """K and V of all tokens of each request, by one pass over a padded rectangle, uncached."""
    if not requests:
        return {}
    lengths = [r.num_tokens for r in requests]
    ids = torch.zeros(len(requests), max(lengths), dtype=torch.long)
    for row, r in zip(ids, requests, strict=True):
        row[: r.num_tokens] = torch.tensor(r.all_token_ids)
    cache = ContiguousCache(model.config, len(requests))
    contiguous_forward(model, ids, cache, lengths)
    keys, values = torch.stack(cache.keys), torch.stack(cache.values)  # [L, B, H, T, d]
    return {r.request_id: (keys[:, i], values[:, i]) for i, r in enumerate(requests)}


def largest_difference(found: Stored, wanted: Stored) -> float:
    """Over all requests, layers and positions. NaN where anything that is read is NaN."""
    largest = 0.0
    for name, pair in found.items():
        for one, other in zip(pair, wanted[name], strict=True):
            apart = float((one - other[:, :, : one.shape[2]]).abs().max())
            largest = apart if not apart <= largest else largest
            if largest != largest:
                return largest
    return largest


def counted(scheduler: Scheduler) -> Audit:
    """The counts as they are now; nothing is compared yet."""
    manager = scheduler.manager
    pool, broken = manager.pool, []
    try:
        scheduler.check_invariants()
    except AssertionError as error:
        broken.append(str(error) or "an invariant of the allocator does not hold")
    held = Counter(b for r in scheduler.running for b in manager.block_table(r.request_id))
    used = [b for b in pool.blocks.values() if b.ref_cnt or held[b.block_id]]
    free = [pool.blocks[block_id] for block_id in pool.free_block_ids]
    kept = sum(block.block_hash is not None for block in free)
    return Audit(
        in_use=sum(b.ref_cnt > 0 for b in pool.blocks.values()),
        kept=kept,
        free=len(free) - kept,
        usable=pool.num_blocks,
        references=tuple((b.block_id, b.ref_cnt, held[b.block_id]) for b in used),
        positions=0,
        difference=0.0,
        broken=tuple(broken),
    )


def compared(counts: Audit, found: Stored, wanted: Stored) -> Audit:
    """The same with the tensors' difference. A row that a fresh pass computed further serves too:
    no later token changes what stands before it."""
    positions = sum(keys.shape[2] for keys, _ in found.values())
    return replace(counts, positions=positions, difference=largest_difference(found, wanted))
