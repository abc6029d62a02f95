"""Runs whose block tables are known: section 21.5's pool, forks that copy, and random histories."""

import contextlib
import random
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "engine"))
from history_runner import HistoryRunner, StepClock, make_engine

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.request import SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.core.trace import Trace
from kvlab.engine import LLMEngine

PROMPT_A = [10, 11, 12, 13, 14, 15]


def chapter() -> Trace:
    """Blocks of four in the free order 7, 2, 9, 5. A: six tokens, six outputs; B: four tokens,
    one output; C comes after position 8, with A's first four tokens and one of its own."""
    manager = KVCacheManager(BlockPool([7, 2, 9, 5]), 4)
    engine = LLMEngine(Scheduler(manager), HistoryRunner(4), StepClock())
    engine.start_trace()
    engine.add_request(PROMPT_A, SamplingParams(max_tokens=6), request_id="A")
    engine.add_request([30, 31, 32, 33], SamplingParams(max_tokens=1), request_id="B")
    for _ in range(4):
        engine.step()
    engine.add_request([*PROMPT_A[:4], 40], SamplingParams(max_tokens=2), request_id="C")
    engine.run()
    return named(engine.stop_trace())


def named(trace: Trace) -> Trace:
    """The same trace, with a word for each token that occurs."""
    used = {t for r in trace.last_state()["requests"].values() for t in r["token_ids"]}
    vocab = {str(t): f" w{t}" for t in sorted(used)}
    return Trace({**trace.meta, "vocab": vocab}, trace.initial, trace.events)


def forks() -> Trace:
    """Three continuations of one prompt: they share, and copy before they write."""
    engine = make_engine(8, 4)
    engine.start_trace()
    engine.add_request(PROMPT_A, SamplingParams(max_tokens=3, n=3), request_id="r")
    engine.run()
    return engine.stop_trace()


def random_run(seed: int, blocks: int = 10, block_size: int = 4) -> Trace:
    """A history with shared prompts, forks, aborts, preemption and failing steps."""
    rnd = random.Random(seed)
    engine = make_engine(
        blocks, block_size, max_num_seqs=5, max_num_batched_tokens=rnd.randint(6, 24)
    )
    engine.start_trace()
    for step in range(60):
        if step < 20 and rnd.random() < 0.4:
            shared, own = rnd.randint(0, 9), rnd.randint(1, 9)
            prompt = [*range(shared), *range(100 * step + 100, 100 * step + 100 + own)]
            params = SamplingParams(max_tokens=rnd.randint(1, 8), n=rnd.choice([1, 1, 1, 2, 3]))
            with contextlib.suppress(ValueError):  # it could never run
                engine.add_request(prompt, params)
        if engine.requests and rnd.random() < 0.08:
            engine.abort(rnd.choice(sorted(engine.requests)))
        engine.runner.fail_next = rnd.random() < 0.08
        with contextlib.suppress(RuntimeError):
            engine.step()
        engine.runner.fail_next = False
    engine.run()
    return engine.stop_trace()


def large_run(blocks: int = 200, requests: int = 20, block_size: int = 16) -> Trace:
    """As many blocks and requests as the view has to bear; all blocks are taken at some time."""
    rnd = random.Random(3)
    engine = make_engine(
        blocks, block_size, max_num_seqs=requests, max_num_batched_tokens=16 * block_size
    )
    engine.start_trace()
    for i in range(requests):
        shared = rnd.choice([0, 2, 4]) * block_size
        own = rnd.randint(3 * block_size, 14 * block_size)
        prompt = [*range(shared), *range(1000 * (i + 1), 1000 * (i + 1) + own)]
        engine.add_request(prompt, SamplingParams(max_tokens=rnd.randint(8, 30)))
        if i % 3 == 0:
            engine.step()
    engine.run()
    return engine.stop_trace()
