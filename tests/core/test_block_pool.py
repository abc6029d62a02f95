"""The pool: order of the free queue, identities, reference counts."""

import pytest

from kvlab.core.block_pool import BlockPool

H = [bytes([i]) * 32 for i in range(8)]


def ids(blocks):
    return [b.block_id for b in blocks]


def test_blocks_are_taken_from_the_head_in_the_order_given():
    pool = BlockPool([7, 2, 9, 5])
    assert ids(pool.get_new_blocks(3)) == [7, 2, 9]
    assert pool.free_block_ids == [5]
    pool.check_invariants()


def test_freed_without_identity_go_to_the_head_with_identity_to_the_tail():
    pool = BlockPool([7, 2, 9, 5])
    seven, two, nine = pool.get_new_blocks(3)
    pool.cache_full_blocks([seven, two], H[:2])
    assert ids(pool.free_blocks([nine, two, seven])) == [9, 2, 7]
    assert pool.free_block_ids == [9, 5, 2, 7]
    pool.check_invariants()


def test_taking_a_cached_block_evicts_its_identity():
    pool = BlockPool(2)
    evicted = []
    pool.on_evict = lambda block, block_hash: evicted.append((block.block_id, block_hash))
    a, b = pool.get_new_blocks(2)
    pool.cache_full_blocks([a, b], H[:2])
    pool.free_blocks([b, a])
    assert pool.get_cached_block(H[0]) is a
    pool.get_new_blocks(1)
    assert evicted == [(1, H[1])]
    assert pool.get_cached_block(H[1]) is None
    assert pool.get_cached_block(H[0]) is a


def test_one_identity_on_two_blocks_the_first_registered_is_found():
    """Case P16: evicting one leaves the other findable."""
    pool = BlockPool(3)
    a, b = pool.get_new_blocks(2)
    pool.cache_full_blocks([a], H[:1])
    pool.cache_full_blocks([b], H[:1])
    assert pool.get_cached_block(H[0]) is a
    pool.uncache(a)
    assert pool.get_cached_block(H[0]) is b
    pool.check_invariants()


def test_touching_a_free_block_takes_it_out_of_the_queue():
    pool = BlockPool(3)
    a, _ = pool.get_new_blocks(2)
    pool.cache_full_blocks([a], H[:1])
    pool.free_blocks([a])
    assert pool.free_block_ids == [2, 0]
    pool.touch([a])
    assert (a.ref_cnt, pool.free_block_ids) == (1, [2])
    pool.touch([a])
    assert a.ref_cnt == 2


def test_more_than_is_free_is_refused_and_changes_nothing():
    pool = BlockPool(3)
    pool.get_new_blocks(2)
    with pytest.raises(ValueError, match="2 blocks asked for, 1 free"):
        pool.get_new_blocks(2)
    assert pool.free_block_ids == [2]


def test_freeing_twice_is_refused():
    pool = BlockPool(1)
    (a,) = pool.get_new_blocks(1)
    pool.free_blocks([a])
    with pytest.raises(ValueError, match="block 0 is freed twice"):
        pool.free_blocks([a])


@pytest.mark.parametrize("bad", [0, [], [1, 1], [-1, 2]])
def test_a_pool_of_nothing_or_of_doubles_is_refused(bad):
    with pytest.raises(ValueError, match="pool needs"):
        BlockPool(bad)


def test_reset_forgets_identities_only_while_nothing_is_in_use():
    pool = BlockPool(2)
    (a,) = pool.get_new_blocks(1)
    pool.cache_full_blocks([a], H[:1])
    assert not pool.reset_prefix_cache()
    assert pool.get_cached_block(H[0]) is a
    pool.free_blocks([a])
    assert pool.reset_prefix_cache()
    assert pool.get_cached_block(H[0]) is None
    pool.check_invariants()


def test_an_identity_that_cannot_be_found_is_told():
    pool = BlockPool(2)
    pool.blocks[1].block_hash = b"nowhere"
    with pytest.raises(AssertionError, match="block 1: identity not indexed"):
        pool.check_invariants()
