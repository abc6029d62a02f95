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
from kvlab.core.checked import whole
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.request import Request, SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_output import SampledToken, SchedulerOutput
from kvlab.engine import LLMEngine, Runner
from kvlab.prompts import one_each, token_ids
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.model import Decoder
from kvlab.tensors.runner import ModelRunner

STORED = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


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
    for the model's. Raises ValueError, before anything runs, without a prompt, for tokens that the
    model does not know, where the slots do not make one block, for continuations (n above 1), stop
    strings, a type that cannot be stored, and for a prompt that can never run.
    """
    _check_model(model)
    prompts = _checked_prompts(prompts, model.config.vocab_size)
    params = _checked_params(sampling_params, len(prompts))
    _check_slots(block_size, num_slots)
    stored = _checked_dtype(model.dtype if dtype is None else dtype)
    num_blocks = num_slots // block_size
    cache = PagedCache(model.config, num_blocks, block_size, stored, model.device)
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


def _check_model(model: Decoder) -> None:
    if not isinstance(model, Decoder):
        raise ValueError(f'model is {model!r:.60}; give a Decoder, such as LLM("tiny").model')
    if not model.has_weights:
        raise ValueError("model has no weights; give Decoder.random(config), or a loaded one")


def _check_slots(block_size: int, num_slots: int) -> None:
    whole("num_slots", num_slots, 1)
    if type(block_size) is not int or not 1 <= block_size <= num_slots:
        raise ValueError(
            f"block_size is {block_size!r:.60}; give an integer from 1 to num_slots, {num_slots}"
        )


def _checked_dtype(dtype: torch.dtype) -> torch.dtype:
    if not isinstance(dtype, torch.dtype) or dtype not in STORED:
        raise ValueError(f"dtype is {dtype!r:.60}; give one of {', '.join(map(str, STORED))}")
    return dtype


def _checked_prompts(prompts: Sequence[Sequence[int]], vocab_size: int) -> list[list[int]]:
    if not isinstance(prompts, list | tuple):
        raise ValueError(f"prompts is {prompts!r:.60}; give a list of prompts, each as token ids")
    if not prompts:
        raise ValueError("no prompts; give at least one, as token ids")
    for prompt in prompts:
        if not isinstance(prompt, list | tuple | range):
            raise ValueError(f"a prompt is {prompt!r:.60}; give each as a list of token ids")
    return [token_ids(prompt, None, vocab_size) for prompt in prompts]


def _checked_params(
    sampling_params: SamplingParams | Sequence[SamplingParams], count: int
) -> list[SamplingParams]:
    """One each, of those that make sense here."""
    params = one_each(sampling_params, count)
    for p in params:
        if not isinstance(p, SamplingParams):
            raise ValueError(f"one of sampling_params is {p!r:.60}; give a SamplingParams each")
        if p.n > 1:
            raise ValueError(f"n is {p.n}; give each prompt as often as it is to be continued")
        if p.stop:
            raise ValueError(f"stop is {p.stop!r:.60}; prompts are ids here, give stop_token_ids")
    return params


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
