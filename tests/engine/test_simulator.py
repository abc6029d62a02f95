"""The simulator: a cost model and a virtual clock under the real scheduler."""

import statistics

import pytest

from kvlab.core.arrivals import Regular
from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.offload_tier import CPUTier
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.simulator import SimulatedRunner, VirtualClock
from kvlab.core.step_cost import CostModel, StepWork
from kvlab.core.trace import Trace
from kvlab.core.workload import Arrival, Workload, generate
from kvlab.playing import play
from kvlab.simulated_engine import SimulatedEngine


def make(cost, num_blocks=64, tier=None, **limits):
    manager = KVCacheManager(BlockPool(num_blocks), 4)
    return SimulatedEngine(Scheduler(manager, SchedulerConfig(**limits), tier), cost)


@pytest.mark.parametrize("output_tokens, per_step", [(1, 0.5), (5, 0.1)])
def test_eight_requests_wait_for_one_seat(output_tokens, per_step):
    """T11: they come every 0.1 s and are served for 0.5 s each, one at a time.

    Request k comes at 0.1 k and begins at 0.5 k: it waits 0.4 k, from 0 to 2.8 s, 1.4 s on
    average. From its intended start to its end it takes 0.5 s more.
    """
    eight = generate(
        8, arrivals=Regular(10), prompt_tokens=4, output_tokens=output_tokens, vocab_size=50
    )
    played = play(make(CostModel(per_step=per_step), max_num_seqs=1), eight)
    waits, whole = played.latencies("queue_time"), played.latencies("e2el")
    assert list(waits.values()) == pytest.approx([0.4 * k for k in range(8)])
    assert statistics.mean(waits.values()) == pytest.approx(1.4)
    assert statistics.mean(whole.values()) == pytest.approx(1.9)
    assert [whole[k] - waits[k] for k in whole] == pytest.approx([0.5] * 8)


def test_a_step_costs_the_sum_of_its_parts():
    cost = CostModel(1.0, 0.1, 0.01, 0.001, 0.0001, per_byte=1e-6, block_nbytes=1000)
    work = StepWork(rows=2, tokens=5, pairs=30, keys=40, copied_blocks=1, transferred_blocks=3)
    assert cost.parts(work) == pytest.approx(
        {"step": 1.0, "rows": 0.2, "tokens": 0.05, "pairs": 0.03, "keys": 0.004, "bytes": 0.004}
    )
    assert cost.seconds(work) == pytest.approx(1.288)
    assert CostModel(**cost.to_dict()) == cost


def test_the_clock_moves_with_the_work_and_skips_what_is_idle():
    """Prompt of 4 at 0: 1 s a token. Decodes 1 s each. The next request comes at 100 s."""
    load = Workload((Arrival("a", 0, (1, 2, 3, 4), 3), Arrival("b", 100, (1, 2), 1)))
    engine = make(CostModel(per_token=1.0))
    played = play(engine, load)
    assert played["a"].times.token_times == [4, 5, 6]
    assert played["b"].times.token_times == [102]
    assert engine.clock() == 102 and played.duration == 102
    assert [(s.begin, s.end) for s in played.steps] == [(0, 4), (4, 5), (5, 6), (100, 102)]


def test_everything_says_that_it_is_simulated():
    engine = make(CostModel(per_step=0.5))
    engine.start_trace()
    played = play(engine, Workload((Arrival("a", 0, (1, 2), 2),)))
    trace = engine.stop_trace()
    assert repr(played) == "Played(1 requests, 2 steps, simulated)"
    assert played["a"].simulated and played["a"].to_dict()["simulated"]
    assert repr(engine).startswith("SimulatedEngine(CostModel(per_step=0.5,")
    assert repr(engine.runner).startswith("SimulatedRunner(")
    assert trace.meta["clock"] == "simulated" and trace.meta["simulated"] is True
    assert repr(trace).endswith("simulated clock)")
    assert [e.clock for e in trace.events if e.kind == "selected"] == [0.5, 1.0]
    assert Trace.from_json(trace.to_json()).meta == trace.meta


def test_a_trace_in_steps_says_so_too():
    engine = make(CostModel(per_step=0.5))
    engine.start_trace(real_clock=False, meta={"note": "x"})
    engine.add_request([1, 2])
    engine.step()
    meta = engine.stop_trace().meta
    assert (meta["clock"], meta["simulated"], meta["note"]) == ("step", True, "x")


def test_outputs_do_not_depend_on_the_company():
    prompts = [tuple(range(i, i + 9)) for i in range(6)]
    load = Workload(tuple(Arrival(f"r{i}", 0, p, 12) for i, p in enumerate(prompts)))
    roomy = play(make(CostModel(per_step=1)), load)
    tight = play(make(CostModel(per_step=1), num_blocks=12, max_num_batched_tokens=5), load)
    assert sum(r.num_preemptions for r in tight.requests) > 0
    assert [r.output_token_ids for r in roomy.requests] == [
        r.output_token_ids for r in tight.requests
    ]


def test_blocks_that_move_to_the_cpu_tier_and_back_take_their_time():
    prompts = [tuple(range(i, i + 9)) for i in range(6)]
    load = Workload(tuple(Arrival(f"r{i}", 0, p, 12) for i, p in enumerate(prompts)))
    engines = [
        make(
            CostModel(per_step=1, per_byte=per_byte, block_nbytes=100),
            num_blocks=12,
            tier=CPUTier(64),
            preempt_by="offload",
        )
        for per_byte in (0.0, 0.01)
    ]
    engines.append(SimulatedEngine.like(engines[1], engines[1].runner.cost))
    free, paid, twin = (play(engine, load) for engine in engines)
    roomy = play(make(CostModel(per_step=1)), load)
    stats = engines[1].scheduler.offload.stats
    assert stats.requests_offloaded > 0 and stats.requests_loaded > 0
    assert stats.bytes_stored == 100 * stats.blocks_stored
    assert stats.seconds_loading == pytest.approx(stats.blocks_loaded)
    moved = stats.blocks_stored + stats.blocks_loaded
    copied = sum(s.work.copied_blocks for s in paid.steps)
    assert paid.duration - free.duration == pytest.approx(moved + copied)
    assert twin.requests == paid.requests
    assert [r.output_token_ids for r in paid.requests] == [
        r.output_token_ids for r in roomy.requests
    ]


def test_a_function_may_stand_for_the_cost_model():
    """A machine that is bound by memory up to 8 tokens a step, by arithmetic above."""
    engine = make(lambda work: max(1.0, work.tokens / 8))
    played = play(engine, Workload((Arrival("a", 0, tuple(range(16)), 2),)))
    assert played["a"].times.token_times == [2, 3]


def test_a_twin_has_the_limits_of_the_engine_and_an_empty_cache():
    first = make(CostModel(per_step=1), num_blocks=9, max_num_seqs=3)
    play(first, Workload((Arrival("a", 0, tuple(range(16)), 2),)))
    twin = SimulatedEngine.like(first, CostModel(per_step=2))
    assert twin.scheduler.config == first.scheduler.config
    manager = twin.scheduler.manager
    assert (manager.pool.num_blocks, manager.block_size) == (9, 4)
    assert manager.written_block_ids() == [] and twin.clock() == 0


def test_values_outside_their_range_are_refused():
    for make_it, said in (
        (lambda: CostModel(per_step=-1), "CostModel: per_step is -1; give a finite number"),
        (lambda: CostModel(block_nbytes=0.5), "block_nbytes is 0.5; give an integer"),
        (lambda: VirtualClock(-1), "now is -1"),
        (lambda: VirtualClock().advance(-1), "duration is -1"),
        (lambda: SimulatedRunner(CostModel(), VirtualClock(), 0), "vocab_size is 0"),
    ):
        with pytest.raises(ValueError, match=said):
            make_it()


def test_a_virtual_clock_is_not_waited_for():
    with pytest.raises(ValueError, match=r"mode is 'real' and .* never moves by itself"):
        play(make(CostModel()), Workload((Arrival("a", 0, (1,), 1),)), mode="real")
