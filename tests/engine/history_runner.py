"""A runner without tensors that checks the bookkeeping as a model would feel it.

Each slot stores a fingerprint of the history (all tokens up to its position) that was "computed"
there. A pass reads every earlier position (with a window, those that its first query reaches)
through the block table and fails if one holds anything else. The next token is a function of the
history alone, so outputs must not depend on batching, chunks, preemption or prefix hits.
"""

import hashlib

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.scheduler_output import SampledToken
from kvlab.core.windows import SlidingWindow
from kvlab.engine import LLMEngine

VOCAB = 50


def fingerprints(tokens, before=0):
    """One a position, each of all tokens up to it; `before` is that of the position before."""
    out = []
    for token in tokens:
        before = hash((before, token))
        out.append(before)
    return out


def next_token(history, sample_index=0):
    """Continuations of one prompt differ by their index, as if they drew differently."""
    digest = hashlib.sha256(repr((list(history), sample_index)).encode()).digest()
    return digest[0] % VOCAB


class HistoryRunner:
    def __init__(self, block_size, window=None):
        self.block_size, self.window = block_size, window
        self.slots: dict[int, int] = {}
        self.kept: dict[int, int] = {}  # in place of kept logits: the history they belong to
        self.steps: list[dict[str, int]] = []  # positions computed in each step, by request
        self.fail_next = False

    def execute(self, output):
        if self.fail_next:
            self.fail_next = False
            raise RuntimeError("the model pass failed")
        self.steps.append({row.request_id: len(row.token_ids) for row in output.requests})
        copied = [
            (c.dst * self.block_size + i, self.slots.get(c.src * self.block_size + i))
            for c in output.blocks_to_copy
            for i in range(self.block_size)
        ]
        self.slots.update(copied)
        for row in output.requests:
            if row.logits_slot is not None:
                history = fingerprints(row.samplers[0].all_token_ids)[-1]
                assert self.kept[row.logits_slot] == history, f"{row.request_id}: foreign logits"
        for row in output.requests:  # all rows write before any row reads, as each layer does
            self._write(row)
        rows = {row.request_id: row for row in output.requests}
        for keep in output.logits_to_keep:
            row = rows[keep.request_id]
            assert row.start <= keep.position < row.end, "logits of a position not computed here"
            self.kept[keep.slot] = self.slots[self._slot(row, keep.position)]
        return {
            r.request_id: SampledToken(next_token(self._read(row, r), r.sample_index))
            for row in output.requests
            for r in row.samplers
        }

    def _slot(self, row, t):
        return row.block_ids[t // self.block_size] * self.block_size + t % self.block_size

    def _write(self, row):
        before = self.slots[self._slot(row, row.start - 1)] if row.start else 0
        for t, mark in enumerate(fingerprints(row.token_ids, before), row.start):
            self.slots[self._slot(row, t)] = mark

    def _read(self, row, request):
        first = 0 if self.window is None else max(0, row.start - self.window + 1)
        for t, mark in enumerate(fingerprints(request.all_token_ids[: row.end])):
            if t >= first:
                stored = self.slots[self._slot(row, t)]
                assert stored == mark, f"{row.request_id} reads a foreign position {t}"
        return request.all_token_ids


class StepClock:
    """One unit a reading: enough to order events, the same on every machine."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def make_engine(
    num_blocks=64,
    block_size=4,
    *,
    eos=(),
    prefix_caching=True,
    policy=None,
    window=None,
    **limits,
):
    manager = KVCacheManager(
        BlockPool(num_blocks),
        block_size,
        enable_prefix_caching=prefix_caching,
        policy=policy,
        window=window,
    )
    scheduler = Scheduler(manager, SchedulerConfig(**limits))
    return LLMEngine(scheduler, HistoryRunner(block_size, window), StepClock(), eos)


def make_reserved(window, block_size, spare, chunk):
    """Reserved admission behind a window: room for three requests and `spare` blocks more."""
    most = SlidingWindow(window, block_size).most_blocks(1000, chunk)
    return make_engine(
        *(3 * most + spare, block_size),
        window=window,
        admission="reserved",
        prefill_chunk=chunk,
        max_num_batched_tokens=64,
        max_num_seqs=5,
    )


def alone(prompt, max_tokens, sample_index=0):
    """The outputs of an undisturbed run."""
    tokens = list(prompt)
    for _ in range(max_tokens):
        tokens.append(next_token(tokens, sample_index))
    return tokens[len(prompt) :]


def run_checked(engine, limit=10_000):
    """Step to the end; invariants after every step, and never two steps in a row without work
    while someone waits. Returns the steps' outputs."""
    outputs, idle = [], 0
    while engine.has_unfinished_requests():
        before = len(engine.runner.steps)
        outputs.append(engine.step())
        engine.scheduler.check_invariants()
        idle = 0 if len(engine.runner.steps) > before or outputs[-1] else idle + 1
        assert idle < 2, "nothing runs and someone waits"
        assert len(outputs) < limit
    pool = engine.scheduler.manager.pool
    assert pool.num_free_blocks == pool.num_blocks, "a block leaked"
    return outputs
