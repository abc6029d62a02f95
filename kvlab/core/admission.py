"""Who may begin: what a waiting request must find free beyond the blocks of its first chunk.

    | in use | growth of those that run | growth of the newcomer | watermark |
    |        |<----------------------- free blocks --------------------------->|

"current" looks at the newcomer's first chunk alone. As many as possible run together, until all
of them grow and one has to give its blocks back. "reserved" also counts what the running requests
can still take until their longest end: nobody who was admitted is ever preempted, and fewer run
(section 21.3). Where blocks come free behind a window it adds up what each request holds at once
at most; a block that several hold counts once.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from kvlab.core.block_pool import KVCacheBlock
from kvlab.core.kv_cache_manager import KVCacheManager, cdiv
from kvlab.core.policies import chunk
from kvlab.core.request import Request
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.windows import held

Forks = Mapping[str, Sequence[Request]]  # continuations that wait for the fork, by their leader


def has_room(
    manager: KVCacheManager,
    config: SchedulerConfig,
    request: Request,
    count: int,
    hits: Sequence[KVCacheBlock],
    running: Sequence[Request],
    forks: Forks,
) -> bool:
    """Whether the rules let it begin with `count` positions after its hits.

    With nothing running they do not bind: whoever fits may begin, or nobody ever would. A request
    that could outgrow the whole pool therefore runs alone under "reserved".
    """
    if not running or (config.admission == "current" and not config.watermark):
        return True  # whether its first chunk fits is for `allocate_slots` to say
    spare = manager.pool.num_free_blocks - watermark_blocks(manager, config)
    if config.admission == "current":
        return manager.blocks_needed(request, count, hits) <= spare
    if manager.window is not None:
        in_use = {b.block_id for r in running for b in held(manager.blocks_of(r.request_id))}
        most = most_in_use(manager, config, (*running, request), forks, hits)
        return most <= spare + len(in_use)
    longest = config.max_model_len
    taken = sum(growth(manager, r, longest, forks) for r in running)
    return growth(manager, request, longest, forks, hits) <= spare - taken


def watermark_blocks(manager: KVCacheManager, config: SchedulerConfig) -> int:
    """Blocks that an admission leaves free."""
    return math.ceil(config.watermark * manager.pool.num_blocks)


def most_in_use(
    manager: KVCacheManager,
    config: SchedulerConfig,
    everyone: Sequence[Request],
    forks: Forks,
    hits: Sequence[KVCacheBlock],
) -> int:
    """Blocks that all of them hold at once at most until their ends, behind a window.

    hits: of the last one, which is to begin; the others run. Two bounds, of which the lower counts:
    what each can hold, added up; and the blocks that several hold now, once, with what each holds
    by itself or has still to take. A continuation to come begins behind its prompt, may share
    nothing by then, and computes one position a step.
    """
    tables = [held(manager.blocks_of(r.request_id)) for r in everyone]
    holders = Counter(block.block_id for table in (*tables, held(hits)) for block in table)
    apart, together = 0, sum(count > 1 for count in holders.values())
    for request, table in zip(everyone, tables, strict=True):
        found = hits if request is everyone[-1] else ()
        longest = request.num_prompt_tokens + request.sampling_params.max_tokens
        last = min(longest, config.max_model_len) - 1
        pending = last - request.num_computed_tokens - len(found) * manager.block_size
        alone = sum(holders[block.block_id] == 1 for block in table)
        alone += manager.blocks_needed(request, pending, found)
        most = most_held(manager, config, request, last, len(found))
        to_come = len(forks.get(request.request_id, ())) * manager.window.most_blocks(last)
        apart, together = apart + most + to_come, together + min(most, alone) + to_come
    return min(apart, together)


def most_held(
    manager: KVCacheManager, config: SchedulerConfig, request: Request, last: int, num_hits: int
) -> int:
    """Blocks that a request holds at once at most on its way to `last` positions, by itself."""
    pending = request.num_pending_tokens - num_hits * manager.block_size
    step = chunk(pending, config.max_num_batched_tokens, config)
    return manager.window.most_blocks(last, max(step, 1))


def growth(
    manager: KVCacheManager,
    request: Request,
    max_model_len: int,
    forks: Forks,
    hits: Sequence[KVCacheBlock] = (),
) -> int:
    """Blocks that a request, and its continuations to come, may still take until their end.

    The last output is selected and never processed, so it needs no slot. A continuation shares
    the prompt's full blocks and takes the others for itself.
    """
    size = manager.block_size
    longest = request.num_prompt_tokens + request.sampling_params.max_tokens
    last = min(longest, max_model_len) - 1
    pending = last - request.num_computed_tokens - len(hits) * size
    own = cdiv(last, size) - request.num_prompt_tokens // size
    to_come = len(forks.get(request.request_id, ()))
    return manager.blocks_needed(request, pending, hits) + to_come * own
