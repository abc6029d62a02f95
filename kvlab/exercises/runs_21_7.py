"""Section 21.7's expectations, from the engine's own scheduler, pool and calculator."""

from collections.abc import Sequence

from kvlab.core.block_pool import BlockPool
from kvlab.core.formats import FORMATS
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.presets import preset
from kvlab.core.request import SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.core.sizes import parse_size
from kvlab.core.spec import KVCacheSpec
from kvlab.core.step_cost import CostModel
from kvlab.core.storage import Storage
from kvlab.exercises.allocator import Allocator
from kvlab.exercises.errors_21_7 import RELEASING
from kvlab.exercises.runs_21_5 import fresh
from kvlab.simulated_engine import SimulatedEngine

PROMPTS, OUTPUTS, BLOCK_SIZE = (5, 8, 10), 4, 4


def blocks_and_positions() -> tuple[int, int]:
    """(blocks in use, positions stored) once each request has given its four outputs and goes on.

    The scheduler and the blocks are the real ones; what the model would compute is left out.
    """
    pool = BlockPool(32)
    manager = KVCacheManager(pool, BLOCK_SIZE, enable_prefix_caching=False)
    engine = SimulatedEngine(Scheduler(manager), CostModel(per_step=1))
    requests = []
    for length in PROMPTS:
        requests += engine.add_request(range(length), SamplingParams(max_tokens=2 * OUTPUTS))
    for _step in range(OUTPUTS):
        engine.step()
    assert all(len(request.output_token_ids) == OUTPUTS for request in requests)
    stored = sum(request.num_computed_tokens for request in requests)
    return pool.num_blocks - pool.num_free_blocks, stored


def empty_slots() -> int:
    blocks, positions = blocks_and_positions()
    return blocks * BLOCK_SIZE - positions


def positions_in_a_gigabyte() -> list[int]:
    """Whole positions in 1 GB and in 1 GiB."""
    spec = KVCacheSpec.from_config(preset("llama-3.1-8b").config)
    nbytes = Storage(spec, FORMATS["bf16"]).bytes_per_token
    return [parse_size(size) // nbytes for size in ("1GB", "1GiB")]


def released_by_a_real_pool(tables: list[list[int]], order: list[int]) -> list[list[int]]:
    """The blocks of each end that nobody names any more."""
    pool = BlockPool(sorted({block for table in tables for block in table}))
    pool.get_new_blocks(pool.num_blocks)  # one reference each; the tables' own come on top
    blocks = [[pool.blocks[block] for block in table] for table in tables]
    for table in blocks:
        pool.touch(table)
    pool.free_blocks(pool.blocks.values())
    return [sorted(block.block_id for block in pool.free_blocks(blocks[i][::-1])) for i in order]


def release_cases() -> Sequence[tuple[list[list[int]], list[int]]]:
    """Alone, side by side, shared in part and whole; not all of them end."""
    return (
        ([[7, 2]], [0]),
        ([[7, 2], [9]], [1, 0]),
        ([[7, 2], [7, 5]], [0, 1]),
        ([[7, 2], [7, 5]], [1, 0]),
        ([[7, 2, 5], [7, 2, 9], [7, 4]], [1, 0, 2]),
        ([[6, 1], [6, 1]], [0, 1]),
        ([[3], [3], [3]], [2, 0, 1]),
        ([[0, 8], [0, 8, 4]], [1]),
        ([[5, 3], [5, 3, 9], [5, 3, 1]], [0, 2]),
    )


def releasing() -> Sequence[tuple[type[Allocator]]]:
    return fresh(RELEASING)
