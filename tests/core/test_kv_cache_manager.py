"""The manager with literal block ids: lookup, slots, sharing, copy-on-write, undoing."""

import pytest

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import BlockCopy, KVCacheManager, cdiv
from kvlab.core.request import Request


def make(ids, block_size=4, **options):
    return KVCacheManager(BlockPool(ids), block_size, **options)


def admit(manager, name, tokens, **extras):
    """Look up, allocate and "compute" a whole prompt in one committed step."""
    request = Request(name, tokens, **extras)
    hits, num_hit = manager.get_computed_blocks(request)
    new = manager.allocate_slots(request, request.num_tokens - num_hit, hits)
    assert new is not None
    request.num_computed_tokens = request.num_tokens
    request.num_cached_tokens = num_hit
    manager.commit_step()
    manager.check_invariants([request])
    return request


def append(manager, request, token):
    """One output selected and, in the next step, processed."""
    request.append_output(token)
    assert manager.allocate_slots(request, 1) is not None
    request.num_computed_tokens += 1
    copies = manager.step_copies()
    manager.commit_step()
    return copies


def snapshot(manager):
    pool = manager.pool
    blocks = {i: (b.ref_cnt, b.block_hash) for i, b in pool.blocks.items()}
    return blocks, pool.free_block_ids, {k: manager.block_table(k) for k in manager._tables}


@pytest.mark.parametrize(
    ("length", "hit"), [(64, 48), (65, 64), (63, 48), (17, 16), (16, 0), (1, 0)]
)
def test_p10_at_least_one_position_is_always_computed(length, hit):
    manager = make(16, block_size=16)
    manager.free(admit(manager, "first", range(length)))
    assert manager.get_computed_blocks(Request("again", range(length)))[1] == hit


def test_p11_the_deepest_block_is_evicted_first():
    manager = make([1, 2, 3])
    manager.free(admit(manager, "chain", range(12)))
    assert manager.pool.free_block_ids == [3, 2, 1]
    admit(manager, "other", [100])
    hits, _ = manager.get_computed_blocks(Request("again", range(12)))
    assert [b.block_id for b in hits] == [1, 2]


def test_p12_free_blocks_that_are_my_own_hits_are_no_room():
    manager = make(5)
    manager.free(admit(manager, "first", range(8)))
    request = Request("six blocks", range(24))
    hits, num_hit = manager.get_computed_blocks(request)
    before = snapshot(manager)
    assert (len(hits), manager.pool.num_free_blocks) == (2, 5)
    assert manager.allocate_slots(request, 24 - num_hit, hits) is None
    assert snapshot(manager) == before


def test_p14_a_table_has_as_many_blocks_as_processed_positions_need():
    """The selected token is counted at once and stored a step later."""
    manager = make(8)
    request = admit(manager, "A", range(4))
    assert manager.block_table("A") == [0]
    request.append_output(9)  # 5 tokens known, 4 stored
    assert manager.block_table("A") == [0]
    for token in range(5):
        if token:
            request.append_output(token)
        manager.allocate_slots(request, 1)
        request.num_computed_tokens += 1
        assert len(manager.block_table("A")) == cdiv(request.num_computed_tokens, 4)


def test_p16_equal_prompts_of_whole_blocks_survive_frees_in_any_order():
    for first_out in ("A", "B"):
        manager = make(6)
        requests = {name: admit(manager, name, range(8)) for name in "AB"}
        assert manager.block_table("A") == [0, 1]
        assert manager.block_table("B") == [0, 2]  # the second block exists twice
        manager.free(requests.pop(first_out))
        manager.check_invariants()
        assert manager.get_computed_blocks(Request("C", range(9)))[1] == 8
        manager.free(requests.popitem()[1])
        manager.check_invariants()
        assert manager.get_computed_blocks(Request("C", range(9)))[1] == 8


def test_table_21_1_of_the_chapter():
    """Free order 7, 2, 9, 5: A with six tokens, B with four, then A's positions 6, 7 and 8."""
    manager = make([7, 2, 9, 5])
    a, _ = admit(manager, "A", range(6)), admit(manager, "B", range(50, 54))
    assert (manager.block_table("A"), manager.block_table("B")) == ([7, 2], [9])
    append(manager, a, 60)
    append(manager, a, 61)
    assert manager.block_table("A") == [7, 2]
    append(manager, a, 62)
    assert manager.block_table("A") == [7, 2, 5]
    hits, _ = manager.get_computed_blocks(Request("C", [*range(4), 99]))
    assert [b.block_id for b in hits] == [7]


def test_p22_fork_copies_before_the_first_write_into_a_shared_tail():
    manager = make([7, 8, 3, 4])
    parent, child = admit(manager, "A", range(6)), Request("A.1", range(6))
    manager.fork(parent, child)
    assert manager.block_table("A.1") == [7, 8]
    assert [manager.pool.blocks[i].ref_cnt for i in (7, 8)] == [2, 2]
    assert append(manager, parent, 10) == (BlockCopy(src=8, dst=3),)
    assert manager.block_table("A") == [7, 3]
    assert append(manager, child, 11) == ()  # the last owner writes in place
    assert manager.block_table("A.1") == [7, 8]
    assert [manager.pool.blocks[i].ref_cnt for i in (7, 8, 3)] == [2, 1, 1]
    manager.check_invariants([parent, child])
    manager.free(parent)
    manager.free(child)
    assert manager.pool.num_free_blocks == 4


def test_p22_the_copy_needs_one_block_more():
    manager = make(2)
    parent, child = admit(manager, "A", range(6)), Request("A.1", range(6))
    manager.fork(parent, child)
    parent.append_output(10)
    before = snapshot(manager)
    assert manager.blocks_needed(parent, 1) == 1
    assert manager.allocate_slots(parent, 1) is None
    assert snapshot(manager) == before


def test_fork_at_a_block_boundary_copies_nothing():
    manager = make(6)
    parent, child = admit(manager, "A", range(8)), Request("A.1", range(8))
    manager.fork(parent, child)
    assert append(manager, parent, 10) == ()
    assert append(manager, child, 11) == ()
    assert (manager.block_table("A"), manager.block_table("A.1")) == ([0, 1, 2], [0, 1, 3])


def test_three_owners_two_copies():
    manager = make(8)
    parent = admit(manager, "A", range(5))
    children = [Request(f"A.{i}", range(5)) for i in (1, 2)]
    for child in children:
        manager.fork(parent, child)
    assert manager.pool.blocks[1].ref_cnt == 3
    copies = [append(manager, r, 9) for r in (parent, *children)]
    assert [len(c) for c in copies] == [1, 1, 0]


def test_a_failed_step_takes_its_identities_back():
    """Case P19: what was registered for a step that did not run must not be found."""
    manager = make(6)
    a, b = Request("A", range(8)), Request("B", range(9))
    manager.allocate_slots(a, 8)
    hits, num_hit = manager.get_computed_blocks(b)
    assert num_hit == 8  # found within the same step
    manager.allocate_slots(b, 1, hits)
    manager.undo_step(a)
    manager.undo_step(b)
    manager.commit_step()
    manager.check_invariants([a, b])
    assert manager.get_computed_blocks(Request("C", range(9)))[1] == 0
    assert manager.pool.num_free_blocks == 6


def test_a_failed_step_keeps_identities_of_earlier_steps():
    manager = make(6)
    a = admit(manager, "A", range(8))
    a.append_output(8)
    manager.allocate_slots(a, 1)
    manager.undo_step(a)
    assert a.num_computed_tokens == 0
    assert manager.get_computed_blocks(a)[1] == 8


def test_p24_counts_add_up():
    manager = make(7)
    a = admit(manager, "A", range(10))
    admit(manager, "B", [*range(8), 99])
    manager.free(a)
    pool = manager.pool
    free = [pool.blocks[i] for i in pool.free_block_ids]
    plain, cached = (sum((b.block_hash is None) == x for b in free) for x in (True, False))
    in_use = sum(b.ref_cnt > 0 for b in pool.blocks.values())
    assert (plain, cached, in_use) == (4, 0, 3)
    assert plain + cached + in_use == 7


def test_salt_and_adapter_keep_requests_apart():
    manager = make(12)
    admit(manager, "A", range(9), cache_salt="one")
    found = lambda **extras: manager.get_computed_blocks(Request("x", range(9), **extras))[1]  # noqa: E731
    assert found(cache_salt="one") == 8
    assert found(cache_salt="two") == found() == found(adapter="one") == 0


def test_without_prefix_caching_nothing_is_found_or_registered():
    manager = make(6, enable_prefix_caching=False)
    manager.free(admit(manager, "A", range(8)))
    assert manager.get_computed_blocks(Request("B", range(9))) == ([], 0)
    assert all(b.block_hash is None for b in manager.pool.blocks.values())


def test_misuse_is_refused_by_name():
    manager = make(4)
    a = admit(manager, "A", range(4))
    with pytest.raises(ValueError, match="slots for 0 tokens"):
        manager.allocate_slots(a, 0)
    with pytest.raises(ValueError, match="'A' holds blocks already"):
        manager.fork(a, a)
    with pytest.raises(ValueError, match="'X' holds no blocks"):
        manager.fork(Request("X", [1]), Request("Y", [1]))
    for size in (0, True):
        with pytest.raises(ValueError, match=f"block_size is {size}"):
            make(4, block_size=size)
    with pytest.raises(ValueError, match="no tokens"):
        Request("empty", [])
