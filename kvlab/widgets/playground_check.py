"""What must hold after every action of the allocator playground, read off the live objects.

blocks in use + evictable (free, with an identity) + free = usable blocks
a block's ref_cnt = the number of tables that hold it
a request's num_computed_tokens = the positions that the script had processed
K/V read through a request's table = K/V of its tokens, recomputed
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from kvlab.core.request import Request
from kvlab.core.scheduler import Scheduler
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.model import Decoder
from kvlab.widgets.growth_words import count
from kvlab.widgets.playground_fresh import Recomputed, stacked

Found = TypeVar("Found")
TOLERANCE = 1e-5  # float32, sums in another order; keys and values here are of the order of 1


@dataclass(frozen=True)
class Audit:
    """Counts after an action, and what is wrong, if anything is.

    in_use, kept, free: blocks with a reference; in the free queue with an identity; without.
    references: (block id, ref_cnt, tables that hold it) of the blocks in use.
    positions: stored positions that were compared; difference: the largest |cached - recomputed|,
    NaN where one could not be read.
    broken: a sentence for each rule that does not hold or could not be checked.
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
        return all(counted == tables for _, counted, tables in self.references)

    @property
    def recomputed(self) -> bool:
        """What is read is what a fresh pass gives. A NaN is no agreement."""
        return self.difference < TOLERANCE

    @property
    def ok(self) -> bool:
        return self.balanced and self.referenced and self.recomputed and not self.broken


class Auditor:
    """Checks the live objects. Of the tensors that it reads it keeps nothing."""

    def __init__(self, model: Decoder, cache: PagedCache, scheduler: Scheduler) -> None:
        self.cache, self.scheduler = cache, scheduler
        self._recomputed = Recomputed(model)

    def audit(self, lengths: Mapping[str, int]) -> Audit:
        """The state now. lengths: positions of each running request, counted from the script.

        Raises nothing: a check that fails, in whatever way, is told.
        """
        broken: list[str] = []
        counts = Audit(0, 0, 0, self.scheduler.manager.pool.num_blocks, (), 0, 0.0, ())
        counts = _tried(lambda: counted(self.scheduler), "the blocks", broken) or counts
        _tried(self.scheduler.check_invariants, "the invariants of the allocator", broken)
        broken += miscounted(self.scheduler, lengths)
        return replace(
            counts,
            positions=sum(lengths.values()),
            difference=self._difference(lengths, broken),
            broken=tuple(broken),
        )

    def _difference(self, lengths: Mapping[str, int], broken: list[str]) -> float:
        """The largest over all running requests; NaN where one is NaN or cannot be read."""
        found, seen = [0.0], set()
        for request in self.scheduler.running:
            name = request.request_id
            if name in lengths:
                check = partial(self._apart, request, lengths[name], seen)
                apart = _tried(check, f"K/V of {name!r}", broken)
                found.append(math.nan if apart is None else apart)
        self._recomputed.keep_only(lengths)
        return _largest(found)

    def _apart(self, request: Request, length: int, seen: set) -> float:
        """The largest difference of a request. One table of one content is read once."""
        table = self.scheduler.manager.block_table(request.request_id)
        wanted = self._recomputed.of(request, length)
        same = (tuple(table), length, id(wanted))
        if same in seen:
            return 0.0
        seen.add(same)
        pairs = list(zip(self.cache.read(table, length), stacked(wanted), strict=True))
        for one, other in pairs:
            there = (one.shape[2], other.shape[2])
            assert there == (length, length), (
                f"request {request.request_id!r}: {count(length, 'position')} were processed; its "
                f"table has room for {there[0]} of them, and it has {count(there[1], 'token')}"
            )
        return _largest([float((one - other).abs().max()) for one, other in pairs])


def _largest(numbers: list[float]) -> float:
    """NaN where one of them is NaN."""
    return math.nan if any(map(math.isnan, numbers)) else max(numbers)


def _tried(check: Callable[[], Found], what: str, broken: list[str]) -> Found | None:
    """What a check gives. Where it fails, None, and a sentence for `broken`."""
    try:
        return check()
    except AssertionError as error:
        broken.append(str(error) or f"one of {what} does not hold")
    except Exception as error:  # damaged data may fail in any way, and the reader is to see it
        broken.append(f"{what} could not be checked: {type(error).__name__}: {error}")
    return None


def miscounted(scheduler: Scheduler, lengths: Mapping[str, int]) -> list[str]:
    """A sentence for each request that runs, or counts its positions, as the script has it not."""
    found = {r.request_id: r.num_computed_tokens for r in scheduler.running}
    names = dict.fromkeys((*lengths, *found))
    wrong = [name for name in names if found.get(name) != lengths.get(name)]
    return [f"request {n!r}: {_told_count(found.get(n), lengths.get(n))}" for n in wrong]


def _told_count(found: int | None, processed: int | None) -> str:
    if found is None:
        return "it should be running, and the scheduler does not have it"
    if processed is None:
        return "it runs, and the script does not have it running"
    return f"num_computed_tokens is {found}, and {count(processed, 'position')} were processed"


def counted(scheduler: Scheduler) -> Audit:
    """The counts as they are now; nothing is compared yet."""
    manager = scheduler.manager
    pool = manager.pool
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
        broken=(),
    )
