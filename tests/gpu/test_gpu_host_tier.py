"""The CPU tier on a CUDA device: pinned memory, a stream of its own, loads that take a while."""

import pytest
import torch
from builders import greedy, make_engine, random_model, run

from kvlab.core.offload_tier import CPUTier
from kvlab.core.request import RequestStatus
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.transfers import BlockCopy, TransferReport
from kvlab.tensors.host_tier import HostTier
from kvlab.tensors.kv_cache import PagedCache


@pytest.fixture(scope="module")
def model():
    return random_model(3).to("cuda")


def tiered(model, num_blocks, cpu_blocks):
    engine = make_engine(model, num_blocks, 4, device="cuda", caching=False)
    engine.runner.host_tier = HostTier(engine.runner.cache, cpu_blocks)
    engine.runner.host_tier.blocks.fill_(float("nan"))
    limits = SchedulerConfig(preempt_by="offload")
    engine.scheduler = Scheduler(engine.scheduler.manager, limits, CPUTier(cpu_blocks))
    return engine


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_the_pass_overwrites_at_once_was_stored_before(model, dtype):
    cache = PagedCache(model.config, 64, 16, dtype, "cuda")
    cache.key_cache.normal_()
    cache.value_cache.normal_()
    before = [t.clone() for t in (cache.key_cache, cache.value_cache)]
    host = HostTier(cache, 64)
    assert host.blocks.is_pinned()
    everything = tuple(BlockCopy(i, 63 - i) for i in range(64))
    host.start(everything, ())
    cache.key_cache.fill_(float("nan"))  # on the compute stream, without waiting
    cache.value_cache.fill_(float("nan"))
    stored = host.finished(wait=True)
    assert stored.stored == everything
    host.start((), tuple(BlockCopy(63 - i, i) for i in range(64)))
    loaded = host.finished(wait=True)
    assert torch.equal(cache.key_cache, before[0]) and torch.equal(cache.value_cache, before[1])
    assert stored.bytes_stored == loaded.bytes_loaded == cache.nbytes
    assert stored.seconds_storing > 0 and loaded.seconds_loading > 0
    assert host.finished(wait=True) == TransferReport()


def test_a_report_without_waiting_comes_once_the_copies_ended(model):
    cache = PagedCache(model.config, 8, 4, torch.float32, "cuda")
    host = HostTier(cache, 8)
    host.start((BlockCopy(0, 1),), ())
    told = TransferReport()
    for _ in range(1_000_000):
        told = host.finished()
        if told:
            break
    assert told.stored == (BlockCopy(0, 1),)


def test_preempted_and_suspended_requests_give_the_same_outputs(model):
    prompts = [list(range(i, i + 9)) for i in (1, 20, 40)]
    apart = make_engine(model, device="cuda", caching=False)
    wanted = [apart.add_request(p, greedy(9))[0] for p in prompts]
    run(apart)
    engine = tiered(model, 9, 40)
    requests = [engine.add_request(p, greedy(9))[0] for p in prompts]
    for _ in range(3):
        engine.step()
    first = requests[0]
    engine.suspend(first.request_id)
    engine.step()
    engine.resume(first.request_id)
    run(engine)
    assert [r.output_token_ids for r in requests] == [r.output_token_ids for r in wanted]
    assert engine.scheduler.offload.stats.requests_loaded > 0
    assert not engine.scheduler.offload.under_way


def test_abort_while_loading(model):
    engine = tiered(model, 16, 16)
    (a,) = engine.add_request(range(1, 20), greedy(9), request_id="A")
    engine.step()
    engine.suspend("A")
    while engine.has_unfinished_requests():
        engine.step()
    engine.resume("A")
    output = engine.scheduler.schedule()
    engine.runner.execute(output)
    engine.scheduler.update_from_output(output, {})
    assert a.status is RequestStatus.LOADING
    engine.abort("A")
    run(engine)
    tier = engine.scheduler.offload.tier.pool
    assert tier.num_free_blocks == tier.num_blocks
