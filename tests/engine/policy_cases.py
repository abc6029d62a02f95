"""Engines with any SchedulerConfig, and short ways to ask and to look at the steps."""

from itertools import pairwise

from history_runner import HistoryRunner, StepClock

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.request import SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.engine import LLMEngine

POLICIES = ("static", "continuous", "alternating", "mixed")


def engine_with(
    num_blocks=64, block_size=4, *, caching=True, cache_policy=None, window=None, **config
):
    manager = KVCacheManager(
        BlockPool(num_blocks),
        block_size,
        enable_prefix_caching=caching,
        policy=cache_policy,
        window=window,
    )
    scheduler = Scheduler(manager, SchedulerConfig(**config))
    return LLMEngine(scheduler, HistoryRunner(block_size, window), StepClock())


def ask(engine, tokens, max_tokens, name, *, n=1, priority=0):
    params = SamplingParams(max_tokens=max_tokens, n=n)
    return engine.add_request(tokens, params, request_id=name, priority=priority)


def members(engine, first=0):
    """Who took part in each step: one-letter names in one word a step."""
    return ["".join(sorted(step)) for step in engine.runner.steps[first:]]


def gaps(engine, name):
    """Steps between those that computed something of a request."""
    steps = [i for i, step in enumerate(engine.runner.steps) if name in step]
    return [b - a for a, b in pairwise(steps)]
