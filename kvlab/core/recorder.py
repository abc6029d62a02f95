"""Writes a trace while an engine runs: after each event it reads the live objects.

Nothing is inferred from the event. The state is read off the scheduler, the manager and the
pool, so a wrong count or table there is a wrong count or table in the trace. Section 21.6.
"""

from collections.abc import Callable, Mapping

from kvlab.core.hashing import short
from kvlab.core.request import Request
from kvlab.core.scheduler import Scheduler
from kvlab.core.trace import Event, State, Trace, patch_of


class Recorder:
    """Listens to one scheduler, its manager and its pool.

    clock: None for a step clock (the number of the step), else a function giving the time.
    probe: what the tensors say about a request (bytes held, attention); asked at each `computed`
    event, its answer is added to the event's data.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        meta: Mapping[str, object] | None = None,
        clock: Callable[[], float] | None = None,
        probe: Callable[[Request], Mapping[str, object]] | None = None,
    ) -> None:
        self.scheduler, self.manager = scheduler, scheduler.manager
        self.meta = {
            "clock": "step" if clock is None else "real",
            "block_size": self.manager.block_size,
            **(meta or {}),
        }
        self.probe = probe
        self._clock = clock
        forks = [r for group in scheduler.forks.values() for r in group]
        aside = scheduler.suspended.values()
        known = (*scheduler.running, *scheduler.waiting, *forks, *aside)  # it may start midway
        self._requests: dict[str, Request] = {r.request_id: r for r in known}
        self._events: list[Event] = []
        self._used: set[int] = set()  # blocks that were in use or cached at some time
        self._used_cpu: set[int] = set()  # the same of the CPU tier
        self._state = self._initial = self.state()
        scheduler.observer = self.manager.observer = self.record
        self.manager.pool.on_evict = self._evicted

    def record(self, kind: str, request: Request | None, **data: object) -> None:
        """Note an event and what changed in the state."""
        if request is not None:
            self._requests[request.request_id] = request
        if kind == "computed" and self.probe is not None and request is not None:
            data.update(self.probe(request))
        state = self.state()
        request_id = None if request is None else request.request_id
        now = self.scheduler.step_index if self._clock is None else self._clock()
        self._events.append(Event(kind, request_id, now, data, patch_of(self._state, state)))
        self._state = state

    def _evicted(self, block: object, block_hash: bytes) -> None:
        self.record("evicted", None, block_id=block.block_id, identity=short(block_hash))

    def trace(self) -> Trace:
        """What has been recorded so far."""
        return Trace(dict(self.meta), self._initial, tuple(self._events))

    def detach(self) -> None:
        """Stop listening; the engine pays nothing from now on."""
        self.scheduler.observer = self.manager.observer = None
        self.manager.pool.on_evict = None

    # ---- reading the live objects

    def state(self) -> State:
        """requests: counts and block table; blocks (those used so far): ref_cnt, identity, filled
        slots, tier, and whether its last position's logits are kept, where an engine keeps any;
        free: the queue, next to be taken first; bytes: payload and reserved,
        if a position's size is known (`bytes_per_position` in meta). A block table has null where
        a block is out of the window. With a CPU tier also:
        cpu_blocks, cpu_free, and each request's cpu_block_table.
        """
        filled = self._filled_slots()
        everyone = self.manager.pool.blocks.values()
        self._used.update(b.block_id for b in everyone if b.ref_cnt or b.block_hash is not None)
        blocks = {
            str(b.block_id): {
                "ref_cnt": b.ref_cnt,
                "identity": short(b.block_hash),
                "filled": filled.get(b.block_id, 0),
                "tier": "device",
            }
            for b in everyone
            if b.block_id in self._used
        }
        if self.manager.kept_logits.capacity:
            for key, shown in blocks.items():
                block = self.manager.pool.blocks[int(key)]
                shown["keeps_logits"] = block.logits_slot is not None
        state = {
            "requests": {key: self._request_state(r) for key, r in self._requests.items()},
            "blocks": blocks,
            "free": self.manager.pool.free_block_ids,
        }
        state.update(self._tier_state())
        if "bytes_per_position" in self.meta:
            size = self.meta["bytes_per_position"]
            used = [b for b in blocks.values() if b["ref_cnt"]]
            payload = sum(b["filled"] for b in used) * size
            state["bytes"] = {
                "payload": payload,
                "reserved": len(used) * self.manager.block_size * size,
            }
        return state

    def _tier_state(self) -> State:
        """The CPU tier's blocks (those used so far) and its queue; nothing without a tier."""
        if self.scheduler.offload is None:
            return {}
        pool = self.scheduler.offload.tier.pool
        everyone = pool.blocks.values()
        self._used_cpu.update(b.block_id for b in everyone if b.ref_cnt or b.block_hash is not None)
        blocks = {
            str(b.block_id): {
                "ref_cnt": b.ref_cnt,
                "identity": short(b.block_hash),
                "tier": "cpu",
            }
            for b in everyone
            if b.block_id in self._used_cpu
        }
        return {"cpu_blocks": blocks, "cpu_free": pool.free_block_ids}

    def _request_state(self, request: Request) -> dict:
        state = {
            "status": request.status.value,
            "finish_reason": request.finish_reason.value if request.finish_reason else None,
            "num_prompt_tokens": request.num_prompt_tokens,
            "token_ids": list(request.all_token_ids),
            "num_computed_tokens": request.num_computed_tokens,
            "num_cached_tokens": request.num_cached_tokens,
            "block_table": self.manager.block_table(request.request_id),
        }
        if self.scheduler.offload is not None:
            record = self.scheduler.offload.record_of(request)
            state["cpu_block_table"] = [b.block_id for b in record.table] if record else []
        return state

    def _filled_slots(self) -> dict[int, int]:
        """Slots of each block whose K/V exist: written by an owner, or kept under an identity."""
        size, filled = self.manager.block_size, {}
        for request in self._requests.values():
            for i, block in enumerate(self.manager.blocks_of(request.request_id)):
                count = min(max(request.num_computed_tokens - i * size, 0), size)
                filled[block.block_id] = max(count, filled.get(block.block_id, 0))
        for block_id in self.manager.written_block_ids():
            filled[block_id] = size
        return filled
