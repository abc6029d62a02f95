"""The byte ledger of a live engine: every row is the size of a real tensor (section 21.6)."""

from dataclasses import dataclass

from kvlab.core.windows import is_held
from kvlab.llm import LLM


@dataclass(frozen=True)
class Ledger:
    """Bytes of one engine between two steps.

    payload: K/V of positions that live requests have processed, a shared block counted once.
    block_tails: slots of their blocks that are not filled. retained: blocks that nobody holds
    and that keep an identity, so that a later prompt may find them. free: blocks without either.
    The four make up `pool`, the cache's tensors. gather_buffers: copies that attention reads from.
    """

    parameters: int
    payload: int
    block_tails: int
    retained: int
    free: int
    pool: int
    gather_buffers: int

    def rows(self) -> list[tuple[str, int]]:
        return [(name.replace("_", " "), value) for name, value in self.__dict__.items()]


def byte_ledger(llm: LLM) -> Ledger:
    """Measure an engine as it stands. Sizes come from `nbytes` of the tensors themselves."""
    cache, manager = llm.cache, llm.engine.scheduler.manager
    one_block = sum(tensor[:, 0].nbytes for pair in cache.tensors for tensor in pair)
    filled: dict[int, int] = {}
    for request in llm.engine.requests.values():
        for i, block in enumerate(manager.blocks_of(request.request_id)):
            count = min(request.num_computed_tokens - i * cache.block_size, cache.block_size)
            if is_held(block):
                filled[block.block_id] = max(filled.get(block.block_id, 0), count)
    payload = sum(llm.cache.stored_nbytes([block], count) for block, count in filled.items())
    blocks = manager.pool.blocks.values()
    retained = sum(b.ref_cnt == 0 and b.block_hash is not None for b in blocks)
    free = sum(b.ref_cnt == 0 and b.block_hash is None for b in blocks)
    return Ledger(
        parameters=sum(p.nbytes for p in llm.model.parameters()),
        payload=payload,
        block_tails=len(filled) * one_block - payload,
        retained=retained * one_block,
        free=free * one_block,
        pool=cache.nbytes,
        gather_buffers=llm.runner.attention.buffer_nbytes,
    )
