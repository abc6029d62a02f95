"""The CPU tier's tensors: what comes back is what left, to the bit; outputs never change.

Pools of both tiers are full of NaN beforehand, so a block read before it arrived shows.
"""

import random

import pytest
import torch
from builders import greedy, make_engine, random_model, run

from kvlab.core.offload_tier import CPUTier
from kvlab.core.request import RequestStatus, SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.transfers import BlockCopy, TransferReport
from kvlab.tensors.host_tier import HostTier
from kvlab.tensors.kv_cache import PagedCache

MODEL = random_model(3)
BLOCK_BYTES = 2 * 2 * 4 * 2 * 8 * 4  # K and V, layers, slots, heads, width, float32


def filled(dtype=torch.float32, blocks=6):
    cache = PagedCache(MODEL.config, blocks, 4, dtype)
    for tensor in (cache.key_cache, cache.value_cache):
        tensor.copy_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(1)))
    return cache


def tiered(model, num_blocks, cpu_blocks, block_size=4, *, host=HostTier, **config):
    """As `make_engine`, with a tier of NaN; preemption is to offload."""
    engine = make_engine(model, num_blocks, block_size, caching=config.pop("caching", True))
    runner, manager = engine.runner, engine.scheduler.manager
    runner.host_tier = host(runner.cache, cpu_blocks)
    runner.host_tier.blocks.fill_(float("nan"))
    limits = SchedulerConfig(**{"preempt_by": "offload", **config})
    engine.scheduler = Scheduler(manager, limits, CPUTier(cpu_blocks))
    return engine


def cpu_is_free(engine):
    pool = engine.scheduler.offload.tier.pool
    return pool.num_free_blocks == pool.num_blocks and not engine.scheduler.offload.under_way


def alone(prompt, params, model=MODEL):
    engine = make_engine(model, caching=False)
    (r,) = engine.add_request(prompt, params)
    run(engine)
    return r.output_token_ids


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_blocks_come_back_equal_to_the_bit(dtype):
    cache = filled(dtype)
    cache.key_cache[0, 2, 0, 0, 0] = float("nan")  # whatever the bits mean, they are moved
    before = [t.clone() for t in (cache.key_cache, cache.value_cache)]
    host = HostTier(cache, 3)
    host.blocks.fill_(float("nan"))
    host.start([BlockCopy(2, 0), BlockCopy(5, 1)], [])
    for tensor in (cache.key_cache, cache.value_cache):
        tensor[:, [2, 5]] = float("nan")
    host.start([], [BlockCopy(0, 4), BlockCopy(1, 2)])
    for tensor, old in zip((cache.key_cache, cache.value_cache), before, strict=True):
        bits = torch.int32 if dtype == torch.float32 else torch.int16
        assert torch.equal(tensor[:, [4, 2]].view(bits), old[:, [2, 5]].view(bits))
        assert torch.equal(tensor[:, [0, 1, 3]], old[:, [0, 1, 3]])


def test_stores_are_carried_out_before_loads():
    """Block 1 leaves for the tier and is filled from it in one step."""
    cache = filled()
    before = cache.key_cache.clone()
    host = HostTier(cache, 3)
    host.start([BlockCopy(0, 2)], [])
    host.start([BlockCopy(1, 0)], [BlockCopy(2, 1)])
    assert torch.equal(cache.key_cache[:, 1], before[:, 0])
    assert torch.equal(host.blocks[0, 0], before[:, 1])


def test_bytes_are_those_of_the_tensors_and_times_are_measured():
    cache = filled()
    host = HostTier(cache, 4)
    assert (host.nbytes, host.block_nbytes) == (4 * BLOCK_BYTES, BLOCK_BYTES)
    assert cache.bytes_per_position * 4 == BLOCK_BYTES
    stores = (BlockCopy(0, 0), BlockCopy(1, 1), BlockCopy(2, 2))
    host.start(stores, (BlockCopy(0, 5),))
    report = host.finished()
    assert (report.stored, report.loaded) == (stores, (BlockCopy(0, 5),))
    assert (report.bytes_stored, report.bytes_loaded) == (3 * BLOCK_BYTES, BLOCK_BYTES)
    assert report.seconds_storing > 0 and report.seconds_loading > 0
    assert host.finished() == TransferReport()  # each copy is reported once


class Failing(HostTier):
    """Copies of the n-th message and of those after it fail, in one direction or both."""

    def __init__(self, cache, num_blocks, direction="both", first=1):
        super().__init__(cache, num_blocks)
        self.direction, self.first, self.count = direction, first, 0

    def _begin_store(self, copies):
        self._fail_if("stores")
        super()._begin_store(copies)

    def _begin_load(self, copies):
        self._fail_if("loads")
        super()._begin_load(copies)

    def _fail_if(self, direction):
        self.count += 1
        if self.direction in (direction, "both") and self.count >= self.first:
            raise RuntimeError("no page-locked memory is left")


@pytest.mark.parametrize("direction", ["stores", "loads", "both"])
@pytest.mark.parametrize("first", [1, 2, 3, 4, 5])
def test_a_copy_that_fails_at_any_point_changes_no_output(direction, first):
    def host(cache, blocks):
        return Failing(cache, blocks, direction, first)

    engine = tiered(MODEL, 9, 40, host=host)
    prompts = [list(range(i, i + 9)) for i in (1, 20, 40)]
    requests = [engine.add_request(p, greedy(9))[0] for p in prompts]
    run(engine)
    assert [r.output_token_ids for r in requests] == [alone(p, greedy(9)) for p in prompts]
    stats = engine.scheduler.offload.stats
    assert stats.requests_offloaded > 0
    assert stats.failed_stores + stats.failed_loads > 0 or first > 3
    assert cpu_is_free(engine)


@pytest.mark.parametrize("caching", [True, False])
def test_preemption_by_offload_computes_nothing_twice(caching):
    engine = tiered(MODEL, 9, 40, caching=caching)
    prompts = [list(range(i, i + 9)) for i in (1, 20, 40)]
    requests = [engine.add_request(p, greedy(9))[0] for p in prompts]
    computed = []
    execute = engine.runner.execute
    engine.runner.execute = lambda o: computed.append(o.num_scheduled_tokens) or execute(o)
    run(engine)
    assert sum(r.num_preemptions for r in requests) > 0
    assert sum(computed) == 3 * (9 + 8)  # every position once; the last outputs never
    assert [r.output_token_ids for r in requests] == [alone(p, greedy(9)) for p in prompts]
    stats = engine.scheduler.offload.stats
    assert 0 < stats.requests_loaded <= stats.requests_offloaded  # some find all on the device
    assert caching or stats.requests_loaded == stats.requests_offloaded
    assert stats.bytes_stored == stats.blocks_stored * BLOCK_BYTES
    assert stats.bytes_loaded == stats.blocks_loaded * BLOCK_BYTES
    assert cpu_is_free(engine)


def test_a_request_put_aside_comes_back_equal_to_the_bit():
    engine = tiered(MODEL, 12, 12)
    (a,) = engine.add_request(range(1, 11), greedy(12), request_id="A")
    for _ in range(4):
        engine.step()
    table, count = engine.scheduler.manager.block_table("A"), a.num_computed_tokens
    before = engine.runner.cache.read(table, count)
    assert engine.suspend("A")
    assert (a.status, engine.scheduler.manager.block_table("A")) == (RequestStatus.SUSPENDED, [])
    for i in range(4):  # others use every block meanwhile
        engine.add_request(range(20 + i, 44 + i), greedy(4))
    while engine.has_unfinished_requests():
        engine.step()
    for tensor in (engine.runner.cache.key_cache, engine.runner.cache.value_cache):
        tensor.fill_(float("nan"))
    engine.scheduler.manager.reset_prefix_cache()
    assert engine.resume("A")
    while a.status is not RequestStatus.RUNNING:
        engine.step()
    after = engine.runner.cache.read(engine.scheduler.manager.block_table("A"), count)
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))
    run(engine)
    assert a.output_token_ids == alone(range(1, 11), greedy(12))
    assert cpu_is_free(engine)


def test_evicted_prefix_blocks_come_back_from_the_tier():
    engine = tiered(MODEL, 8, 16)
    prompt = list(range(1, 22))  # five full blocks and one position
    (first,) = engine.add_request(prompt, greedy(6))
    run(engine)
    engine.add_request(range(30, 55), greedy(6))  # takes seven of the eight blocks
    run(engine)
    computed = []
    execute = engine.runner.execute
    engine.runner.execute = lambda o: computed.append(o.num_scheduled_tokens) or execute(o)
    (again,) = engine.add_request(prompt, greedy(6))
    run(engine)
    assert again.num_cached_tokens == 20
    assert computed == [0, 1, 1, 1, 1, 1, 1]  # a step that only loads, then one position each
    assert again.output_token_ids == first.output_token_ids
    assert engine.scheduler.offload.stats.tokens_found > 0


def workload(seed):
    """Prompts that begin alike, an engine small enough to preempt, a tier of any size."""
    r = random.Random(seed)
    size = r.choice([1, 2, 4])
    stem = [r.randrange(61) for _ in range(16)]
    asked = []
    for _ in range(r.randint(4, 8)):
        prompt = stem[: r.choice([0, size, 16])] + [r.randrange(61) for _ in range(r.randint(1, 8))]
        sampling = SamplingParams(
            r.randint(4, 12), r.choice([0.0, 0.9]), seed=r.getrandbits(30), n=r.choice([1, 1, 2])
        )
        asked.append((r.randint(0, 10), prompt, sampling))
    blocks = -(-40 // size) + r.choice([0, 3])
    cpu = r.choice([2, 40 // size, 160 // size])
    return size, blocks, cpu, r.choice([8, 32]), sorted(asked, key=lambda a: a[0])


def served(engine, asked):
    requests, todo, step = [], list(asked), 0
    while todo or engine.has_unfinished_requests():
        while todo and todo[0][0] <= step:
            _, prompt, sampling = todo.pop(0)
            requests += engine.add_request(prompt, sampling)
        engine.step()
        engine.scheduler.check_invariants()
        step += 1
        assert step < 2000
    return [r.output_token_ids for r in requests]


def test_a_hundred_workloads_give_the_outputs_of_undisturbed_runs():
    offloaded = loaded = found = refused = 0
    for seed in range(100):
        size, blocks, cpu, budget, asked = workload(seed)
        limits = {"max_num_batched_tokens": budget, "max_num_seqs": 16}
        engine = tiered(MODEL, blocks, cpu, size, **limits)
        apart = make_engine(MODEL, 40 * len(asked), size, caching=False, **limits)
        assert served(engine, asked) == served(apart, asked), seed
        assert cpu_is_free(engine)
        stats = engine.scheduler.offload.stats
        offloaded += stats.requests_offloaded
        loaded += stats.requests_loaded
        found += stats.tokens_found
        refused += stats.refused
    assert min(offloaded, loaded, found, refused) > 10


def test_a_runner_without_a_tier_says_so():
    engine = tiered(MODEL, 9, 40)
    engine.runner.host_tier = None
    engine.add_request(range(1, 11), greedy(12), request_id="A")
    engine.step()
    engine.suspend("A")
    with pytest.raises(RuntimeError, match="no second tier"):
        engine.step()


def test_a_tier_has_at_least_one_block():
    with pytest.raises(ValueError, match="0 blocks; give at least 1"):
        HostTier(filled(), 0)
