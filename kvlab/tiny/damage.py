"""Answers over a cache that something was done to, between the notes and the question.

    1. the context is computed: rules and notes, up to the question
    2. its keys and values are damaged
    3. the question is processed and the answer selected, as if nothing had happened

`over_paged` does this in the real engine, whose pool and block table can be changed.
`over_contiguous` does it over a `ContiguousCache`, whose mask and positions can be changed.
Both leave the engine as it was, also where they are interrupted (section 21.5).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kvlab.core.block_pool import BlockPool, KVCacheBlock
from kvlab.core.kv_cache_manager import cdiv
from kvlab.core.request import FinishReason, Request, SamplingParams
from kvlab.llm import LLM
from kvlab.tensors.kv_cache import ContiguousAttention, ContiguousCache
from kvlab.tiny.corpus import Case
from kvlab.tiny.places import context_length

MAX_TOKENS = 24  # the longest right answer has 8
PADDING = 0  # <|endoftext|>, the token that fills up a batch

Table = list[KVCacheBlock]  # a request's own, in logical order; changing it changes what it reads


@dataclass(frozen=True)
class Said:
    """What the model selected: one row of logits for each output, the end mark's included."""

    text: str
    token_ids: tuple[int, ...]  # with the end mark, if it came to one
    logits: Tensor  # [len(token_ids), V]


# ---- over the engine's paged cache


def over_paged(llm: LLM, case: Case, change: Callable[[Table], None] | None = None) -> Said:
    """The engine's greedy answer, with `change(table)` between the notes and the question.

    Raises RuntimeError while the engine has other requests, whose steps would differ, and
    ValueError where the pool is too small for the answer.
    """
    rows: list[Tensor] = []
    runner, before = llm.runner, llm.runner.on_logits
    with computed_context(llm, case) as request:
        try:
            if change is not None:
                change(llm.engine.scheduler.manager.blocks_of(request.request_id))
            runner.on_logits = lambda found: rows.append(found[request.request_id].clone())
            llm.engine.run()
        finally:
            runner.on_logits = before
    if request.finish_reason not in (FinishReason.STOP, FinishReason.LENGTH):
        raise ValueError(f"the answer ended early: {request.stop_reason}; give more blocks")
    ids = request.output_token_ids
    return Said(llm.tokenizer.decode(ids).strip(), tuple(ids), torch.stack(rows))


@contextmanager
def computed_context(llm: LLM, case: Case) -> Iterator[Request]:
    """A request whose positions up to the question are computed; what is left of it is aborted.

    The first step's budget is exactly the context, so the prompt is computed in two chunks. The
    request has a salt of its own: no later request can find changed blocks in the prefix cache.
    """
    engine, scheduler = llm.engine, llm.engine.scheduler
    if engine.has_unfinished_requests():
        raise RuntimeError("the engine has unfinished requests; let them end or abort them first")
    length, config = context_length(llm, case), scheduler.config
    params, salt = SamplingParams(max_tokens=MAX_TOKENS), f"changed at step {scheduler.step_index}"
    first = replace(config, max_num_batched_tokens=length, enable_chunked_prefill=True)
    (request,) = engine.add_request(llm.encode(case.prompt), params, cache_salt=salt)
    try:
        scheduler.config = first
        engine.step()
        scheduler.config = config
        if request.num_computed_tokens != length:
            need, free = cdiv(length, llm.cache.block_size), scheduler.manager.pool.num_free_blocks
            raise ValueError(f"the notes need {need} blocks, {free} are free; give more blocks")
        yield request
    finally:
        scheduler.config = config
        engine.abort(request.request_id)


@contextmanager
def blocks_of_another(llm: LLM, other: Case) -> Iterator[Sequence[KVCacheBlock]]:
    """The blocks in which another request's context lies, kept from the free queue for a while."""
    manager, held = llm.engine.scheduler.manager, []
    try:
        with computed_context(llm, other) as request:
            for block in manager.blocks_of(request.request_id):
                manager.pool.touch([block])
                held.append(block)
        yield held
    finally:
        manager.pool.free_blocks(reversed(held))


def point_at(pool: BlockPool, table: Table, logical: int, block: KVCacheBlock) -> None:
    """Write another block into a table. Reference counts follow, so that all can be freed."""
    pool.touch([block])
    own, table[logical] = table[logical], block
    pool.free_blocks([own])


def zero(llm: LLM, table: Table, blocks: Collection[int]) -> None:
    """Overwrite the keys and values of some logical blocks with zeros."""
    ids = [table[block].block_id for block in blocks]
    for stored in (tensor for pair in llm.cache.tensors for tensor in pair):
        stored[:, ids] = 0


def turn_slots(llm: LLM, table: Table, length: int, *, keys: bool, values: bool) -> None:
    """Position p gets what p - 1 held, and position 0 what the last of `length` held."""
    size = llm.cache.block_size
    slots = [table[p // size].block_id * size + p % size for p in range(length)]
    at = torch.tensor(slots, device=llm.device)
    for pair in llm.cache.slots:
        for rows, wanted in zip(pair, (keys, values), strict=True):
            if wanted:
                rows.index_copy_(0, at, rows.index_select(0, at.roll(1)))


# ---- over a contiguous cache


@torch.inference_mode()
def over_contiguous(
    llm: LLM, case: Case, *, hidden: Collection[int] = (), shift: int = 0, padding: int = 0
) -> Said:
    """The greedy answer of the engine's model over a `ContiguousCache`.

    hidden: positions of the context that the question cannot read; their weight is zero and all
    others keep their places. shift: added to the position of every token after the context.
    padding: tokens that fill up the batch after the context, and that the mask fails to exclude.
    """
    ids, length = llm.encode(case.prompt), context_length(llm, case)
    stored = llm.cache.format.dtype if llm.cache.format.is_plain else llm.model.dtype
    cache = ContiguousCache(llm.model.config, 1, stored, llm.device)
    _process(llm, cache, ids[:length], 0)
    if padding:
        _process(llm, cache, [PADDING] * padding, length)
    cache.valid[:, list(hidden)] = False
    output: list[int] = []
    rows: list[Tensor] = []
    pending, at = ids[length:], length + shift
    while len(output) < MAX_TOKENS:
        rows.append(_process(llm, cache, pending, at))
        at += len(pending)
        output.append(int(rows[-1].argmax()))
        if output[-1] in llm.model.config.eos_token_ids:
            break
        pending = output[-1:]
    return Said(llm.tokenizer.decode(output).strip(), tuple(output), torch.stack(rows))


def _process(llm: LLM, cache: ContiguousCache, token_ids: Sequence[int], start: int) -> Tensor:
    """Append these tokens' K/V, as of positions from `start` on. Returns the last logits, [V]."""
    count = len(token_ids)
    cache.valid = torch.cat((cache.valid, cache.valid.new_ones(1, count)), dim=1)
    positions = torch.arange(start, start + count, device=llm.device)
    input_ids = torch.tensor(token_ids, device=llm.device)
    hidden = llm.model(input_ids, positions, ContiguousAttention(cache, count))
    return llm.model.compute_logits(hidden[-1])
