"""The fit gets known costs back; the comparison with the machine runs. No test asserts a time."""

import re
from dataclasses import replace

import pytest

from kvlab.core.arrivals import Poisson
from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.lengths import Uniform
from kvlab.core.played import Played, PlayedStep, median_error
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.step_cost import CostModel
from kvlab.core.workload import generate
from kvlab.measure import simulator_error
from kvlab.measure.calibrate import calibrate
from kvlab.playing import play
from kvlab.simulated_engine import SimulatedEngine


def played(cost, seed=0, num_requests=30):
    manager = KVCacheManager(BlockPool(256), 16)
    engine = SimulatedEngine(Scheduler(manager, SchedulerConfig(max_num_batched_tokens=64)), cost)
    load = generate(
        num_requests,
        arrivals=Poisson(5),
        prompt_tokens=Uniform(4, 200),
        output_tokens=Uniform(1, 30),
        vocab_size=500,
        seed=seed,
    )
    return play(engine, load)


@pytest.mark.parametrize(
    "cost",
    [
        CostModel(2e-3, 3e-4, 4e-5, 5e-8, 6e-7),
        CostModel(2e-3, per_token=4e-5),  # what costs nothing is found to cost nothing
        CostModel(per_pair=1e-6),
    ],
)
def test_known_costs_are_found_again(cost):
    run = played(cost)
    found = calibrate(run)
    for name, value in cost.to_dict().items():
        assert getattr(found.cost, name) == pytest.approx(value, rel=1e-4, abs=1e-11)
    assert found.num_steps == len(run.steps)
    assert found.step_error < 1e-5 and found.total == pytest.approx(1.0)
    other = played(cost, seed=1)
    again = played(found.cost, seed=1)
    assert median_error(other, again) < 1e-4


def test_what_a_byte_costs_is_found_where_blocks_move():
    """Two steps of three move 16 blocks of 1,000 bytes, a microsecond a byte."""
    run = played(CostModel(2e-3, per_token=4e-5))
    steps = [
        PlayedStep(s.begin, s.end + 16e-3, replace(s.work, transferred_blocks=16)) if i % 3 else s
        for i, s in enumerate(run.steps)
    ]
    found = calibrate(Played(run.requests, tuple(steps)), block_nbytes=1000).cost
    assert found.per_byte == pytest.approx(1e-6, rel=1e-3)
    assert found.per_step == pytest.approx(2e-3, rel=1e-3)
    assert calibrate(run, block_nbytes=1000).cost.per_byte == 0  # nothing moved


def test_no_cost_is_negative_where_a_line_does_not_fit():
    """Steps that get cheaper with more rows: the best line would slope down."""
    manager = KVCacheManager(BlockPool(256), 16)
    engine = SimulatedEngine(Scheduler(manager), lambda work: 1.0 / (1 + work.rows))
    load = generate(
        30, arrivals=Poisson(0.5), prompt_tokens=8, output_tokens=9, vocab_size=50, seed=0
    )
    found = calibrate(play(engine, load))
    assert min(found.cost.to_dict().values()) >= 0 and found.step_error > 0


def test_what_cannot_be_calibrated_on_is_refused():
    few = played(CostModel(per_step=1e-3), num_requests=1)
    with pytest.raises(ValueError, match=r"\d+ steps are too few; give at least 20"):
        calibrate(Played(few.requests, few.steps[:5]))
    with pytest.raises(ValueError, match="a step clock has no durations"):
        calibrate(Played(few.requests, few.steps, unit="steps"))


@pytest.fixture(scope="module")
def quick():
    return simulator_error.measure(quick=True)


def test_a_quick_comparison_with_the_machine(quick):
    assert list(quick["errors"]) == ["calibrated", "held out"]
    for errors in quick["errors"].values():
        assert all(len(e["repetitions"]) == 1 and e["median"] >= 0 for e in errors.values())
    assert quick["cost"]["per_step"] + quick["cost"]["per_row"] + quick["cost"]["per_token"] > 0
    assert quick["medians"]["calibrated"]["real"] > 0


def test_the_table_has_a_line_for_each_workload_and_the_costs(quick):
    lines = simulator_error.table(quick).splitlines()
    assert lines[0].startswith("Simulator against the machine: 12 requests on the tiny model")
    assert re.search(r"calibrated +\d+\.\d% +\[.*%\].* 15% (met|MISSED)$", lines[2])
    assert lines[3].split()[:2] == ["held", "out"]
    assert "fitted costs in microseconds: " in lines[4]


def test_the_workloads_are_the_same_every_time():
    one, other = (simulator_error.workloads(5, 958) for _ in range(2))
    assert one == other and one["calibrated"] != one["held out"]
