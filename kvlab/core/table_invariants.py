"""What must hold of block tables after every operation (core/kv_cache_manager.py)."""

from collections import Counter
from collections.abc import Mapping, Sequence

from kvlab.core.block_pool import BlockPool, KVCacheBlock, cdiv
from kvlab.core.request import Request
from kvlab.core.windows import SlidingWindow, held, is_held

Table = Sequence[KVCacheBlock]


def check_tables(pool: BlockPool, tables: Mapping[str, Table], detached: Sequence[Table]) -> None:
    """Raise AssertionError where a count is not the number of tables that hold the block."""
    pool.check_invariants()
    holders = Counter(b.block_id for t in (*tables.values(), *detached) for b in held(t))
    for block_id, block in pool.blocks.items():
        assert block.ref_cnt == holders[block_id], (
            f"block {block_id}: ref_cnt {block.ref_cnt}, tables {holders[block_id]}"
        )
    for table in tables.values():
        blocks = held(table)
        assert len({b.block_id for b in blocks}) == len(blocks), "a table holds one block twice"


def check_table(
    request: Request, table: Table, block_size: int, window: SlidingWindow | None
) -> None:
    """Raise AssertionError where a table has more or fewer places than the positions need, or
    holds other blocks than a coming query can read."""
    assert len(table) == cdiv(request.num_computed_tokens, block_size)
    out = 0 if window is None else window.first_held(request.num_computed_tokens)
    wrong = [i for i, block in enumerate(table) if is_held(block) != (i >= out)]
    assert not wrong, f"logical blocks {wrong} are held or not held wrongly; {out} are out"
