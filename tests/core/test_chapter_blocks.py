"""Table 21.1 and the five steps after it, by the real allocator: blocks 7, 2, 9, 5 in free order,
blocks of four positions, immediate release."""

import pytest

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.prefix_cache import PrefixCachePolicy
from kvlab.core.request import Request


class Example:
    """The manager, and what a step does around it."""

    def __init__(self, **policy):
        policy = PrefixCachePolicy(**{"retain_freed": False, "kept_logits": 2, **policy})
        self.pool = BlockPool([7, 2, 9, 5])
        self.manager = KVCacheManager(self.pool, 4, policy=policy)
        self.events = []
        self.manager.observer = lambda kind, request, **data: self.events.append((kind, data))

    def admit(self, name, tokens):
        request = Request(name, tokens)
        hits, num_hit = self.manager.get_computed_blocks(request)
        new = self.manager.allocate_slots(request, request.num_tokens - num_hit, hits)
        assert new is not None
        self.manager.step_logits([request])
        request.num_computed_tokens, request.num_cached_tokens = request.num_tokens, num_hit
        self.end_step(request)
        return request

    def process(self, request, token):
        """One output selected, then processed. Returns (block, slot) of its position."""
        request.append_output(token)
        assert self.manager.allocate_slots(request, 1) is not None
        position = request.num_computed_tokens
        request.num_computed_tokens += 1
        self.end_step(request)
        return self.table(request)[position // 4], position % 4

    def end_step(self, request):
        self.manager.commit_step()
        self.manager.check_invariants([request])

    def table(self, request):
        return self.manager.block_table(request.request_id)

    def free(self):
        return set(self.pool.free_block_ids)

    def counts(self):
        return {i: b.ref_cnt for i, b in self.pool.blocks.items() if b.ref_cnt}

    def filled(self, request):
        n = request.num_computed_tokens
        return [min(n - 4 * i, 4) for i in range(len(self.table(request)))]


def test_table_21_1():
    e = Example()
    a, b = e.admit("A", range(6)), e.admit("B", range(50, 54))
    assert (e.table(a), e.filled(a)) == ([7, 2], [4, 2])
    assert (e.table(b), e.filled(b)) == ([9], [4])
    assert (e.table(a)[5 // 4], 5 % 4) == (2, 1)  # token 5
    assert e.free() == {5}


def test_the_five_steps():
    e = Example()
    a, b = e.admit("A", range(6)), e.admit("B", range(50, 54))
    # 1: positions 6 and 7; selecting a token takes no slot
    a.append_output(60)
    assert (e.filled(a), e.free()) == ([4, 2], {5})
    a.output_token_ids.pop(), a.all_token_ids.pop()
    assert e.process(a, 60) == (2, 2)
    assert e.process(a, 61) == (2, 3)
    assert (e.table(a), e.free()) == ([7, 2], {5})
    # 2: position 8 needs logical block 2
    assert e.process(a, 62) == (5, 0)
    assert (e.table(a), e.filled(a), e.free()) == ([7, 2, 5], [4, 4, 1], set())
    # 3: C is A's first four tokens; it is cached whole and takes no block
    c = e.admit("C", range(4))
    assert (e.table(c), c.num_cached_tokens) == ([7], 4)
    assert e.counts() == {7: 2, 2: 1, 5: 1, 9: 1}
    # 4: A finishes
    e.manager.free(a)
    assert e.free() == {2, 5}
    assert e.counts() == {7: 1, 9: 1}
    # 5: C finishes, then B
    e.manager.free(c)
    assert (e.free(), e.counts()) == ({2, 5, 7}, {9: 1})
    assert all(e.pool.blocks[i].block_hash is None for i in (2, 5, 7))
    e.manager.free(b)
    assert (e.free(), e.counts()) == ({2, 5, 7, 9}, {})
    e.manager.check_invariants()


def test_events_say_that_an_identity_went_with_the_last_reference():
    e = Example()
    a = e.admit("A", range(6))
    c = e.admit("C", range(4))
    e.manager.free(a)
    e.manager.free(c)
    assert [x for x in e.events if x[0] in ("unregistered", "freed")] == [
        ("freed", {"block_ids": [2]}),  # 7 is held by C, and block 2 never was full
        ("unregistered", {"block_ids": [7]}),
        ("freed", {"block_ids": [7]}),
    ]


def test_step_5_with_retention_keeps_block_7_as_an_evictable_prefix():
    e = Example(retain_freed=True)
    a = e.admit("A", range(6))
    e.manager.free(a)
    assert e.free() == {2, 5, 7, 9}
    assert e.pool.free_block_ids[-1] == 7  # the last to be taken
    assert "unregistered" not in [kind for kind, _ in e.events]
    c = e.admit("C", range(4))
    assert (e.table(c), c.num_cached_tokens) == ([7], 4)


@pytest.mark.parametrize("kept_logits", [0, 2])
def test_only_kept_logits_let_a_hit_cover_the_whole_prompt(kept_logits):
    e = Example(kept_logits=kept_logits)
    e.admit("A", range(6))
    c = e.admit("C", range(4))
    assert (c.num_cached_tokens, e.table(c)) == ((4, [7]) if kept_logits else (0, [9]))
