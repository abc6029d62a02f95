"""A state machine over the manager: any order of operations keeps every invariant (P24).

Beside the manager it keeps a model of what each slot of each block holds: (token, position,
whole prefix). A request must always read its own history, and a hit must never lead to a slot
that is unwritten or holds another history. That is what identities are for.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvlab.core.block_pool import BlockPool
from kvlab.core.hashing import sha256, truncated_sha256
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.prefix_cache import PrefixCachePolicy
from kvlab.core.request import Request

token = st.integers(0, 2)


class ManagerMachine(RuleBasedStateMachine):
    @initialize(
        blocks=st.integers(2, 12),
        size=st.integers(1, 4),
        caching=st.booleans(),
        hash_function=st.sampled_from([sha256, truncated_sha256(0), truncated_sha256(1)]),
        retain=st.booleans(),
        kept=st.integers(0, 3),
        window=st.sampled_from([None, None, 1, 2, 3, 5, 8]),
    )
    def start(self, blocks, size, caching, hash_function, retain, kept, window):
        self.size, self.window = size, window
        self.manager = KVCacheManager(
            BlockPool(blocks),
            size,
            enable_prefix_caching=caching,
            policy=PrefixCachePolicy(hash_function, True, retain, kept),
            window=window,
        )
        self.live: dict[str, Request] = {}
        self.logits: dict[int, tuple] = {}  # slot -> the history whose logits are kept there
        self.slots: dict[tuple[int, int], tuple] = {}  # (block, offset) -> the history stored there
        self.count = 0

    # ---- operations

    @rule(
        tokens=st.lists(token, min_size=1, max_size=16),
        salt=st.sampled_from([None, "s"]),
        chunk=st.integers(1, 16),
    )
    def admit(self, tokens, salt, chunk):
        request = self.new(tokens, salt)
        hits, num_hit = self.manager.get_computed_blocks(request)
        assert num_hit <= request.num_tokens
        count = min(chunk, request.num_tokens - num_hit)
        if self.manager.allocate_slots(request, count, hits) is None:
            return
        request.num_computed_tokens = num_hit
        self.live[request.request_id] = request
        if count == 0:
            slot = self.manager.use_kept_logits(request)
            assert self.logits[slot] == self.history(request, num_hit - 1), "another's logits"
        self.run(request, count)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), chunk=st.integers(1, 16))
    def prefill(self, data, chunk):
        request = self.pick(data)
        if request.num_pending_tokens == 0:
            return
        count = min(chunk, request.num_pending_tokens)
        if self.manager.allocate_slots(request, count) is not None:
            self.run(request, count)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), new=token)
    def decode(self, data, new):
        request = self.pick(data)
        if request.num_pending_tokens == 0:
            request.append_output(new)
            if self.manager.allocate_slots(request, 1) is not None:
                self.run(request, 1)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def fork(self, data):
        parent = self.pick(data)
        child = self.new(parent.all_token_ids, parent.cache_salt)
        self.manager.fork(parent, child)
        self.live[child.request_id] = child

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def free(self, data):
        request = self.pick(data)
        del self.live[request.request_id]
        self.manager.free(request)

    @rule()
    def reset(self):
        assert self.manager.reset_prefix_cache() == (not self.live)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), tokens=st.lists(token, min_size=1, max_size=8))
    def failed_step(self, data, tokens):
        """Two requests are scheduled, one of them new, and the model pass fails."""
        old, fresh = self.pick(data), self.new(tokens, None)
        scheduled = []
        if (
            old.num_pending_tokens
            and self.manager.allocate_slots(old, old.num_pending_tokens) is not None
        ):
            scheduled.append(old)
        hits, num_hit = self.manager.get_computed_blocks(fresh)
        if self.manager.allocate_slots(fresh, fresh.num_tokens - num_hit, hits) is not None:
            scheduled.append(fresh)
        self.manager.step_logits(scheduled)
        for request in scheduled:
            self.manager.undo_step(request)
            assert request.num_computed_tokens == 0
            self.live.pop(request.request_id, None)
        self.manager.commit_step()

    # ---- the model of the tensors

    def run(self, request, count):
        """What the runner does: copies first, then the writes of the new positions."""
        for copy in self.manager.step_copies():
            for offset in range(self.size):
                self.slots[copy.dst, offset] = self.slots.get((copy.src, offset), ())
        table, start = self.manager.block_table(request.request_id), request.num_computed_tokens
        for t in range(start, start + count):
            block = self.manager.pool.blocks[table[t // self.size]]
            assert block.ref_cnt == 1, "a write into a shared block"
            self.slots[block.block_id, t % self.size] = self.history(request, t)
        for keep in self.manager.step_logits([request]):
            assert start <= keep.position < start + count
            self.logits[keep.slot] = self.history(request, keep.position)
        request.num_computed_tokens += count
        self.manager.commit_step()
        self.manager.release_unreadable(request)

    def history(self, request, position):
        return (request.cache_salt, *request.all_token_ids[: position + 1])

    def new(self, tokens, salt):
        self.count += 1
        return Request(f"r{self.count}", tokens, cache_salt=salt)

    def pick(self, data):
        return self.live[data.draw(st.sampled_from(sorted(self.live)))]

    # ---- what must always hold

    @invariant()
    def counts_and_tables_agree(self):
        if hasattr(self, "manager"):
            self.manager.check_invariants(list(self.live.values()))

    @invariant()
    def what_nobody_holds_keeps_an_identity_or_not(self):
        if hasattr(self, "manager") and not self.manager.policy.retain_freed:
            free = self.manager.pool.free_block_ids
            assert all(self.manager.pool.blocks[i].block_hash is None for i in free)

    @invariant()
    def kept_logits_stay_within_their_bound(self):
        if hasattr(self, "manager"):
            kept = [b for b in self.manager.pool.blocks.values() if b.logits_slot is not None]
            assert len(kept) == len({b.logits_slot for b in kept}) == len(self.manager.kept_logits)
            assert len(kept) <= self.manager.policy.kept_logits

    @invariant()
    def every_request_reads_its_own_history(self):
        for request in getattr(self, "live", {}).values():
            table = self.manager.block_table(request.request_id)
            computed = request.num_computed_tokens
            first = 0 if self.window is None else max(0, computed - self.window + 1)
            for t in range(first, computed):
                stored = self.slots[table[t // self.size], t % self.size]
                assert stored == self.history(request, t), f"{request.request_id} position {t}"

    def teardown(self):
        if hasattr(self, "manager"):
            for request in self.live.values():
                self.manager.free(request)
            assert self.manager.pool.num_free_blocks == self.manager.pool.num_blocks


ManagerMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestManagerMachine = ManagerMachine.TestCase


@pytest.mark.soak
class TestManagerMachineLong(ManagerMachine.TestCase):
    settings = settings(
        max_examples=100,
        stateful_step_count=2000,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
