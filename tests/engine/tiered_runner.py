"""The history runner with a CPU tier whose copies end some steps later, or fail.

A store takes what the device slots hold when it starts, and writes its CPU block when it ends. A
load reads its CPU block and writes its device block when it ends. Until then the target holds
neither the old nor the new content, so anything that reads or reuses it too early shows.
"""

from history_runner import HistoryRunner, StepClock

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.offload_tier import CPUTier
from kvlab.core.request import SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.transfers import TransferReport
from kvlab.engine import LLMEngine

UNDER_WAY = "a copy is under way"


class TieredRunner(HistoryRunner):
    def __init__(self, block_size, delays=(0,), fails=lambda kind, number: False, window=None):
        """delays: steps until a copy ends, taken in turn. fails(kind, n): the n-th copy at all."""
        super().__init__(block_size, window)
        self.delays, self.fails = delays, fails
        self.cpu: dict[int, list | None] = {}  # None: a store is under way, or failed
        self.messages: list[tuple[list, list]] = []  # stores and loads of each step
        self.fail_early = False  # fail the next step before its copies are started
        self.cut_short = 0  # for tests to count: requests that ended or were put aside loading
        self._under_way: list[dict] = []
        self._count = self._time = 0

    def execute(self, output):
        if self.fail_early:
            self.fail_early = False
            raise RuntimeError("no copy was started")
        self._time += 1
        self.messages.append(
            ([(c.src, c.dst) for c in output.blocks_to_store],
             [(c.src, c.dst) for c in output.blocks_to_load])
        )  # fmt: skip
        for copy in output.blocks_to_store:
            self._start("store", copy, self._device(copy.src))
        for copy in output.blocks_to_load:
            self._start("load", copy, None)
        touched = {block_id for row in output.requests for block_id in row.block_ids}
        touched |= {c.dst for c in output.blocks_to_copy}
        loading = {c["copy"].dst for c in self._under_way if c["kind"] == "load"}
        assert not touched & loading, "the pass touches a block that is being loaded"
        return super().execute(output)

    def finished_transfers(self, wait=False):
        """Some copies end now: in the order in which they started, as on a stream."""
        ended = {"stored": [], "loaded": [], "failed_stores": [], "failed_loads": []}
        while self._under_way and (wait or self._under_way[0]["due"] <= self._time):
            done = self._under_way.pop(0)
            kind, copy = done["kind"], done["copy"]
            if done["fails"]:
                ended["failed_stores" if kind == "store" else "failed_loads"].append(copy)
                continue
            ended["stored" if kind == "store" else "loaded"].append(copy)
            if kind == "store":
                self.cpu[copy.dst] = done["content"]
            else:
                assert self.cpu[copy.src] is not None, "loaded before it was stored"
                self._fill(copy.dst, self.cpu[copy.src])
        sizes = {"bytes_stored": len(ended["stored"]), "bytes_loaded": len(ended["loaded"])}
        return TransferReport(**{k: tuple(v) for k, v in ended.items()}, **sizes)

    def _start(self, kind, copy, content):
        targets = {c["copy"].dst for c in self._under_way if c["kind"] == kind}
        assert copy.dst not in targets, "two copies into one block"
        delay = self.delays[self._count % len(self.delays)]
        self._count += 1
        self._under_way.append(
            {"kind": kind, "copy": copy, "content": content, "due": self._time + delay,
             "fails": self.fails(kind, self._count)}
        )  # fmt: skip
        if kind == "store":
            self.cpu[copy.dst] = None
        else:
            self._fill(copy.dst, [UNDER_WAY] * self.block_size)

    def _device(self, block_id):
        start = block_id * self.block_size
        return [self.slots.get(start + i) for i in range(self.block_size)]

    def _fill(self, block_id, content):
        for i, mark in enumerate(content):
            self.slots[block_id * self.block_size + i] = mark


def make_tiered(
    num_blocks,
    cpu_blocks,
    block_size=4,
    *,
    delays=(0,),
    fails=lambda kind, number: False,
    prefix_caching=True,
    cache_policy=None,
    eos=(),
    window=None,
    **limits,
):
    """An engine with a CPU tier; preemption is to offload unless said otherwise."""
    manager = KVCacheManager(
        BlockPool(num_blocks),
        block_size,
        enable_prefix_caching=prefix_caching,
        policy=cache_policy,
        window=window,
    )
    config = SchedulerConfig(**{"preempt_by": "offload", **limits})
    runner = TieredRunner(block_size, delays, fails, window)
    return LLMEngine(Scheduler(manager, config, CPUTier(cpu_blocks)), runner, StepClock(), eos)


def check_empty(engine):
    """Nothing is left: every block of both tiers is free, no copy under way."""
    offload = engine.scheduler.offload
    for pool in (engine.scheduler.manager.pool, offload.tier.pool):
        assert pool.num_free_blocks == pool.num_blocks, "a block leaked"
    assert not offload.under_way and not engine.requests


def run_tiered(engine, limit=3000):
    """Step to the end; invariants after every step, never two steps in a row without work while
    someone waits. Returns the number of steps."""
    steps = idle = 0
    while engine.has_unfinished_requests():
        before, waited = len(engine.runner.messages), bool(engine.scheduler.waiting)
        told = engine.step()
        engine.scheduler.check_invariants()
        worked = len(engine.runner.messages) > before or told
        idle = 0 if worked or not waited else idle + 1
        assert idle < 2, "nothing runs and someone waits"
        steps += 1
        assert steps < limit, "no progress"
    return steps


def ask(engine, tokens, max_tokens, name, **more):
    return engine.add_request(tokens, SamplingParams(max_tokens, **more), request_id=name)[0]


def two_in_five(**options):
    """Two prompts of 8 in a pool of 5 blocks: at position 8 each needs a third one."""
    engine = make_tiered(5, 8, **options)
    a = ask(engine, range(8), 6, "A")
    b = ask(engine, range(100, 108), 6, "B")
    return engine, a, b
