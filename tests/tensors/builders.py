"""Small random models and engines over them, for tests."""

import torch

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.request import SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.engine import LLMEngine
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.kv_cache import ContiguousCache, PagedCache, contiguous_forward
from kvlab.tensors.model import Decoder
from kvlab.tensors.runner import ModelRunner

CONFIG = ModelConfig(
    vocab_size=61, hidden_size=32, intermediate_size=48, num_layers=2,
    num_query_heads=4, num_kv_heads=2, head_dim=8,
)  # fmt: skip


def random_model(seed=0, **changes):
    return Decoder.random(ModelConfig(**{**CONFIG.__dict__, **changes}), seed)


def make_engine(
    model,
    num_blocks=64,
    block_size=4,
    *,
    nan=True,
    dtype=torch.float32,
    caching=True,
    device="cpu",
    **limits,
):
    """An engine whose pool is full of NaN: whatever is read before it is written shows."""
    cache = PagedCache(model.config, num_blocks, block_size, dtype, device)
    if nan:
        cache.fill_with_nan()
    manager = KVCacheManager(
        BlockPool(num_blocks),
        block_size,
        enable_prefix_caching=caching,
        window=model.config.widest_window,
    )
    return LLMEngine(Scheduler(manager, SchedulerConfig(**limits)), ModelRunner(model, cache))


def record_logits(engine):
    """{request_id: [logits of each selection, ...]}, filled as the engine runs."""
    logits = {}

    def keep(step):
        for request_id, row in step.items():
            logits.setdefault(request_id, []).append(row.clone())

    engine.runner.on_logits = keep
    return logits


def run(engine, limit=3000):
    steps = 0
    while engine.has_unfinished_requests():
        engine.step()
        engine.scheduler.check_invariants()
        steps += 1
        assert steps < limit
    pool = engine.scheduler.manager.pool
    assert pool.num_free_blocks == pool.num_blocks


@torch.inference_mode()
def recomputed(model, prompt, max_tokens):
    """Greedy by recomputing the whole sequence for every output. Returns (tokens, logits)."""
    tokens, logits = list(prompt), []
    for _ in range(max_tokens):
        ids = torch.tensor([tokens], device=model.device)
        cache = ContiguousCache(model.config, device=model.device)
        row = contiguous_forward(model, ids, cache)[0, -1]
        logits.append(row)
        tokens.append(int(row.argmax()))
    return tokens[len(prompt) :], logits


def near_tie(logits, margin=1e-3):
    """Whether any selection was decided by less than float32's noise can be trusted with."""
    return any(float(row.topk(2).values.diff().abs()) < margin for row in logits)


def assert_same_run(model, prompt, tokens, logits, tolerance=1e-4):
    """Tokens and logits of a run equal those of recomputing, unless a near tie decides."""
    wanted, wanted_logits = recomputed(model, prompt, len(tokens))
    if near_tie(wanted_logits):
        return
    assert tokens == wanted
    for got, want in zip(logits, wanted_logits, strict=True):
        assert (got - want).abs().max() < tolerance


def greedy(max_tokens, **more):
    return SamplingParams(max_tokens=max_tokens, **more)
