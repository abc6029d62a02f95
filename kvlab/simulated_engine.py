"""An engine whose steps take the time that a cost model says, on a virtual clock.

    engine = SimulatedEngine(scheduler, CostModel(per_step=0.002, per_token=3e-5))
    played = play(engine, workload)

For what does not fit on the reader's machine, and for trying many policies quickly. The scheduler
is the real one; whatever comes out is labelled as simulated. Section 21.3.
"""

from collections.abc import Callable

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.offload_tier import CPUTier
from kvlab.core.scheduler import Scheduler
from kvlab.core.simulator import SimulatedRunner, VirtualClock
from kvlab.core.step_cost import CostModel, StepWork, Windows, layer_windows
from kvlab.engine import LLMEngine


class SimulatedEngine(LLMEngine):
    """A scheduler, a `SimulatedRunner` and a `VirtualClock` of its own."""

    def __init__(
        self,
        scheduler: Scheduler,
        cost: CostModel | Callable[[StepWork], float],
        *,
        vocab_size: int = 1000,
        seed: int = 0,
        windows: Windows | None = None,
    ) -> None:
        """Made-up outputs never end a request: lengths are those of `max_tokens`.

        windows: one a layer, None in it where a layer reads everything. None: as the manager has
        it, whose blocks come free behind a window of all layers.
        """
        clock = VirtualClock()
        windows = layer_windows(None, scheduler.manager.window) if windows is None else windows
        runner = SimulatedRunner(cost, clock, vocab_size, windows)
        super().__init__(scheduler, runner, clock, seed=seed)

    def __repr__(self) -> str:
        return f"SimulatedEngine({self.runner.cost!r}, {self.clock!r})"

    def start_trace(self, *, real_clock: bool = True, **options: object) -> None:
        """As of any engine, but on the virtual clock unless steps are asked for; the trace's meta
        says `simulated`, and calls the clock so where it gives the times."""
        clock = {"clock": "simulated"} if real_clock else {}
        meta = {**(options.pop("meta", None) or {}), "simulated": True, **clock}
        super().start_trace(real_clock=real_clock, meta=meta, **options)

    @classmethod
    def like(
        cls, engine: LLMEngine, cost: CostModel | Callable[[StepWork], float]
    ) -> "SimulatedEngine":
        """With the limits, policies, windows and pool sizes of `engine`; no block is cached yet."""
        if not isinstance(engine, LLMEngine):
            raise ValueError(f"SimulatedEngine.like: {engine!r:.60} is no engine; give llm.engine")
        scheduler, manager = engine.scheduler, engine.scheduler.manager
        twin = KVCacheManager(
            BlockPool(manager.pool.num_blocks),
            manager.block_size,
            enable_prefix_caching=manager.enable_prefix_caching,
            policy=manager.policy,
            window=manager.window and manager.window.size,
        )
        tier = None
        if scheduler.offload is not None:
            tier = CPUTier(scheduler.offload.tier.pool.num_blocks)
        windows = layer_windows(engine.runner, manager.window)
        return cls(Scheduler(twin, scheduler.config, tier), cost, windows=windows)
