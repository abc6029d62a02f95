"""One workload served with blocks of one size: slots taken and left empty, entries followed.

    table entries   |  7  |  2  |  5  |
    block 7         | p0 p1 p2 p3 |      filled
    block 2         | p4 p5 p6 p7 |      filled
    block 5         | p8  .  .  . |      three slots of tail

A region reserved for a request's whole life is the same with one large block each (section 21.5).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.request import Request, SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_output import SampledToken, SchedulerOutput
from kvlab.engine import LLMEngine, Runner
from kvlab.prompts import one_each
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.model import Decoder
from kvlab.tensors.runner import ModelRunner


@dataclass(frozen=True)
class BlockUse:
    """What a run took, counted while the model pass of each step ran.

    steps: until all requests had ended. most_running: requests that held blocks at once.
    Sums over the steps: turns, requests that held blocks; positions that they had processed (the
    step's own included); slots of the blocks in use; entries of the tables that the step's
    queries were led through.
    token_ids: outputs, one tuple a prompt.
    """

    block_size: int
    num_blocks: int
    steps: int
    most_running: int
    turns: int
    positions: int
    slots: int
    entries: int
    num_preemptions: int
    token_ids: tuple[tuple[int, ...], ...]

    @property
    def tail(self) -> float:
        """Empty slots at the end of a request's blocks, the mean over all requests and steps."""
        return (self.slots - self.positions) / self.turns

    @property
    def empty_share(self) -> float:
        """Of the slots taken, over all steps, the part that no position had filled."""
        return 1 - self.positions / self.slots


def serve_in_blocks(
    model: Decoder,
    prompts: Sequence[Sequence[int]],
    sampling_params: SamplingParams | Sequence[SamplingParams],
    *,
    block_size: int,
    num_slots: int,
    dtype: torch.dtype | None = None,
) -> BlockUse:
    """Serve prompts together from a pool of `num_slots` slots, cut into blocks of one size.

    Each request gets blocks as it grows, and no prefix is shared. dtype: of what is stored, None
    for the model's. Raises ValueError, before anything runs, without a prompt, where the slots do
    not make one block, for continuations (n above 1), and for a prompt that can never run.
    """
    if len(prompts) == 0:
        raise ValueError("no prompts; give at least one, as token ids")
    params = one_each(sampling_params, len(prompts))
    if type(block_size) is not int or not 1 <= block_size <= num_slots:
        raise ValueError(
            f"block_size is {block_size!r}; give an integer from 1 to num_slots, {num_slots}"
        )
    if several := [p.n for p in params if p.n > 1]:
        raise ValueError(f"n is {several[0]}; give each prompt as often as it is to be continued")
    num_blocks = num_slots // block_size
    cache = PagedCache(model.config, num_blocks, block_size, dtype or model.dtype, model.device)
    manager = KVCacheManager(BlockPool(num_blocks), block_size, enable_prefix_caching=False)
    scheduler = Scheduler(manager)
    watch = _Watch(ModelRunner(model, cache), scheduler)
    engine = LLMEngine(scheduler, watch, eos_token_ids=model.config.eos_token_ids)
    requests = [
        request
        for prompt, p in zip(prompts, params, strict=True)
        for request in engine.add_request(prompt, p)
    ]
    engine.run()
    return watch.use(requests)


class _Watch:
    """A runner that counts, before each pass, what the step's requests hold."""

    def __init__(self, runner: Runner, scheduler: Scheduler) -> None:
        self.runner, self.scheduler = runner, scheduler
        self.steps = self.most_running = self.turns = 0
        self.positions = self.blocks = self.entries = 0

    def execute(self, output: SchedulerOutput) -> Mapping[str, SampledToken]:
        pool, running = self.scheduler.manager.pool, self.scheduler.running
        ends = {row.request_id: row.end for row in output.requests}
        self.steps += 1
        self.most_running = max(self.most_running, len(running))
        self.turns += len(running)
        self.positions += sum(ends.get(r.request_id, r.num_computed_tokens) for r in running)
        self.blocks += pool.num_blocks - pool.num_free_blocks
        self.entries += sum(len(row.block_ids) for row in output.requests)
        return self.runner.execute(output)

    def use(self, requests: Sequence[Request]) -> BlockUse:
        manager = self.scheduler.manager
        return BlockUse(
            block_size=manager.block_size,
            num_blocks=manager.pool.num_blocks,
            steps=self.steps,
            most_running=self.most_running,
            turns=self.turns,
            positions=self.positions,
            slots=self.blocks * manager.block_size,
            entries=self.entries,
            num_preemptions=sum(r.num_preemptions for r in requests),
            token_ids=tuple(tuple(r.output_token_ids) for r in requests),
        )
