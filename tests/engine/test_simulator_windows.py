"""What a step reads behind a window, in the simulator and in a play (block size 4, window 8)."""

import pytest
from history_runner import make_engine

from kvlab import LLM
from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.scheduler import Scheduler
from kvlab.core.step_cost import CostModel, StepWork, keys_read, pairs_read
from kvlab.core.workload import Arrival, Workload
from kvlab.playing import play
from kvlab.simulated_engine import SimulatedEngine
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.model import Decoder

ONE = Workload((Arrival("a", 0, tuple(range(12)), 3),))  # 12 positions, then two decodes
SIZES = {
    "vocab_size": 50, "hidden_size": 16, "intermediate_size": 24, "num_layers": 2,
    "num_query_heads": 2, "num_kv_heads": 1, "head_dim": 8, "max_model_len": 64,
}  # fmt: skip


def engine(window=None, **options):
    manager = KVCacheManager(BlockPool(64), 4, window=window)
    return SimulatedEngine(Scheduler(manager), CostModel(per_key=1.0), **options)


@pytest.mark.parametrize(
    ("start", "count", "window", "pairs", "keys"),
    [
        (0, 12, 8, 68, 12),  # 1 + 2 + ... + 8, then four queries of 8 keys
        (12, 1, 8, 8, 8),
        (12, 1, None, 13, 13),
        (6, 4, 8, 7 + 8 + 8 + 8, 10),
        (10, 3, 8, 24, 10),  # they read 3 to 10, 4 to 11 and 5 to 12
        (3, 2, 8, 9, 5),
        (5, 3, 1, 3, 3),
    ],
)
def test_a_query_reads_its_window_at_most(start, count, window, pairs, keys):
    read = [range(max(0, q - (window or 99) + 1), q + 1) for q in range(start, start + count)]
    assert sum(map(len, read)) == pairs == pairs_read(start, count, window)
    assert len(set().union(*read)) == keys == keys_read(start, count, window)


@pytest.mark.parametrize(
    ("window", "more", "ends"),
    [
        (None, {}, [12, 12 + 13, 12 + 13 + 14]),
        (8, {}, [12, 12 + 8, 12 + 8 + 8]),
        (None, {"windows": (8, None)}, [12, 12 + 10.5, 12 + 10.5 + 11]),  # the layers' mean
    ],
)
def test_a_second_for_each_key(window, more, ends):
    assert play(engine(window, **more), ONE)["a"].times.token_times == ends


def test_a_play_counts_what_the_layers_read():
    """Layer 1 has a window of 8: of 13 and 14 positions it reads 8."""
    kinds = ("full_attention", "sliding_attention")
    mixed = ModelConfig(**SIZES, sliding_window=8, layer_types=kinds)
    for config, keys in ((ModelConfig(**SIZES), [12, 13, 14]), (mixed, [12, 10.5, 11])):
        llm = LLM(Decoder.random(config, seed=0), block_size=4, num_blocks=16)
        twin = SimulatedEngine.like(llm.engine, CostModel(per_key=1.0))
        for played in (play(llm.engine, ONE), play(twin, ONE)):
            assert [step.work.keys for step in played.steps] == keys
        assert SimulatedEngine.like(twin, twin.runner.cost).runner.windows == twin.runner.windows


def test_an_engine_whose_runner_says_nothing_has_the_managers_window():
    played = play(make_engine(window=8), ONE, mode="step")
    assert [step.work for step in played.steps] == [
        StepWork(rows=1, tokens=12, pairs=68, keys=12),
        *[StepWork(rows=1, tokens=1, pairs=8, keys=8)] * 2,
    ]


@pytest.mark.parametrize("windows", [(), (0,), (True,), 8, "8", (None, 2.5)])
def test_windows_that_are_none_are_refused(windows):
    with pytest.raises(
        ValueError, match=r"windows is .*; give one a layer, an integer of at least"
    ):
        engine(windows=windows)
