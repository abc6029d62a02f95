"""Blocks that fell out of every layer's window, with literal block ids (block size 4, window 8)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_kv_cache_manager import append, make

from kvlab.core.block_pool import cdiv
from kvlab.core.hashing import truncated_sha256
from kvlab.core.prefix_cache import PrefixCachePolicy
from kvlab.core.request import Request
from kvlab.core.windows import SlidingWindow

WINDOW = 8


def windowed(ids, **options):
    return make(ids, window=WINDOW, **options)


def process(manager, request, count):
    """One committed step over the next `count` tokens, then what is out is given back."""
    assert manager.allocate_slots(request, count) is not None
    request.num_computed_tokens += count
    manager.commit_step()
    manager.release_unreadable(request)
    manager.check_invariants([request])


def admit(manager, name, tokens, chunk=None):
    request = Request(name, tokens)
    hits, num_hit = manager.get_computed_blocks(request)
    count = min(chunk or request.num_tokens, request.num_tokens - num_hit)
    assert manager.allocate_slots(request, count, hits) is not None
    request.num_computed_tokens = num_hit + count
    manager.commit_step()
    manager.release_unreadable(request)
    manager.check_invariants([request])
    return request


def events_of(manager):
    seen = []
    manager.observer = lambda kind, request, **data: seen.append((kind, data))
    return seen


# ---- what is out


@pytest.mark.parametrize(
    ("window", "next_position", "out"),
    [
        (8, 7, 0), (8, 10, 0), (8, 11, 1), (8, 14, 1), (8, 15, 2), (8, 19, 3),
        (5, 7, 0), (5, 8, 1), (4, 6, 0), (4, 7, 1),
        (2, 4, 0), (2, 5, 1), (1, 4, 0), (1, 5, 1), (99, 98, 0), (99, 102, 1),
    ],
)  # fmt: skip
def test_a_block_is_out_when_its_last_position_is_behind_the_next_querys_window(
    window, next_position, out
):
    """Window 8, next query at 11: it reads 4 to 11, so block 0 (positions 0 to 3) is out."""
    assert SlidingWindow(window, 4).first_held(next_position) == out


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 300), st.integers(1, 30))
def test_every_position_that_a_query_reads_is_held_and_no_block_too_many(size, block, past, new):
    window = SlidingWindow(size, block)
    out = window.first_held(past)
    assert out * block <= max(0, past - size + 1)  # the earliest that the next query reads
    if size > 1:
        assert (out + 1) * block > past - size + 1
    held = cdiv(past + new, block) - out
    assert held <= window.most_blocks(past + new, new)
    assert past == 0 or out <= (past - 1) // block  # the last computed one stays


@given(st.integers(2, 40), st.integers(1, 9), st.integers(1, 30))
def test_the_most_that_is_held_is_reached(size, block, new):
    window, long = SlidingWindow(size, block), 400
    held = [cdiv(past + new, block) - window.first_held(past) for past in range(size, long)]
    assert max(held) == window.most_blocks(long + new, new)


@pytest.mark.parametrize("size", [0, -1, True, 2.0, "8"])
def test_a_window_that_is_none_is_refused(size):
    with pytest.raises(ValueError, match=r"window is .*; give an integer of at least 1, or None"):
        make(4, window=size)


# ---- the table


def test_blocks_come_back_while_the_request_runs():
    manager = windowed([1, 2, 3, 4, 5])
    a = admit(manager, "A", range(14))
    assert manager.block_table("A") == [None, 2, 3, 4]
    assert manager.pool.free_block_ids == [5, 1]  # 1 keeps its identity: taken last
    append(manager, a, 50)
    manager.release_unreadable(a)
    assert manager.block_table("A") == [None, None, 3, 4]  # 15 computed: the next reads 8 to 15
    manager.free(a)
    assert manager.block_table("A") == [] and manager.pool.num_free_blocks == 5


def test_without_an_identity_they_are_the_next_to_be_taken():
    manager = windowed([1, 2, 3, 4, 5], enable_prefix_caching=False)
    a = admit(manager, "A", range(14))
    assert manager.pool.free_block_ids == [1, 5]
    for token in (50, 51, 52):
        append(manager, a, token)
    assert manager.block_table("A") == [None, 2, 3, 4, 1]
    manager.release_unreadable(a)
    assert manager.block_table("A") == [None, None, 3, 4, 1]


def test_three_blocks_are_enough_for_any_length():
    manager = windowed(3)
    a = admit(manager, "A", range(3))
    for token in range(100):
        append(manager, a, token)
        manager.release_unreadable(a)
        manager.check_invariants([a])
    assert len(manager.block_table("A")) == 26 and a.num_computed_tokens == 103
    assert manager.block_table("A").count(None) == 24
    refused = make(3)
    b = admit(refused, "B", range(12))
    b.append_output(1)
    assert refused.allocate_slots(b, 1) is None  # with one layer that attends to everything


def test_where_a_layer_attends_to_everything_nothing_comes_back():
    manager = make([1, 2, 3, 4, 5])
    admit(manager, "A", range(14))
    assert manager.block_table("A") == [1, 2, 3, 4]


def test_the_event_names_what_the_request_lets_go():
    manager = windowed([1, 2, 3, 4, 5, 6])
    seen = events_of(manager)
    a = admit(manager, "A", range(23))
    assert seen[-1] == ("out_of_window", {"block_ids": [1, 2, 3, 4]})
    manager.free(a)
    assert seen[-1] == ("freed", {"block_ids": [6, 5]})


def test_immediate_release_takes_identities_away_here_too():
    manager = windowed([1, 2, 3, 4, 5], policy=PrefixCachePolicy(retain_freed=False))
    seen = events_of(manager)
    admit(manager, "A", range(14))
    assert ("unregistered", {"block_ids": [1]}) in seen
    assert manager.pool.blocks[1].block_hash is None and manager.pool.free_block_ids == [1, 5]


# ---- prefix hits


def test_a_hit_needs_the_blocks_that_the_next_query_reads_and_no_others():
    manager = windowed([1, 2, 3, 4, 5, 6])
    manager.free(admit(manager, "A", range(24)))
    again = Request("B", range(25))
    hits, num_hit = manager.get_computed_blocks(again)
    assert num_hit == 24 and [b.block_id for b in hits] == [None, None, None, None, 5, 6]
    assert manager.blocks_needed(again, 1, hits) == 3  # two hits that are free, one new block
    manager.allocate_slots(again, 1, hits)
    again.num_computed_tokens = 25
    manager.commit_step()
    manager.release_unreadable(again)
    manager.check_invariants([again])
    assert manager.block_table("B")[4:6] == [5, 6]


def test_a_prefix_is_found_though_its_first_blocks_are_evicted():
    manager = windowed([1, 2, 3, 4, 5, 6])
    manager.free(admit(manager, "A", range(24)))  # free again: 1 to 4 first, then 6, 5
    assert manager.pool.free_block_ids == [4, 3, 2, 1, 6, 5]
    manager.free(admit(manager, "other", range(100, 116)))  # evicts those four
    hits, num_hit = manager.get_computed_blocks(Request("B", range(25)))
    assert num_hit == 24 and [b.block_id for b in hits] == [None] * 4 + [5, 6]
    full = make([1, 2, 3, 4, 5, 6])
    full.free(admit(full, "A", range(24)))
    full.free(admit(full, "other", range(100, 116)))
    assert full.get_computed_blocks(Request("B", range(25)))[1] == 8  # the first ones alone


def test_a_run_that_does_not_cover_the_window_is_no_hit():
    manager = windowed([1, 2, 3, 4, 5, 6])
    manager.free(admit(manager, "A", range(24)))
    manager.pool.uncache(manager.pool.blocks[5])
    hits, num_hit = manager.get_computed_blocks(Request("B", range(25)))
    assert num_hit == 16 and [b.block_id for b in hits] == [None, None, 3, 4]
    for block_id in (1, 3):
        manager.pool.uncache(manager.pool.blocks[block_id])
    assert manager.get_computed_blocks(Request("B", range(25))) == ([], 0)


def test_a_later_run_is_checked_against_the_tokens_and_not_the_hash_alone():
    """All identities collide; B's blocks 4 and 5 are found only where all before them agree."""
    policy = PrefixCachePolicy(hash_function=truncated_sha256(0))
    manager = windowed([1, 2, 3, 4, 5, 6], policy=policy)
    manager.free(admit(manager, "A", range(24)))
    manager.pool.uncache(manager.pool.blocks[1])
    assert manager.get_computed_blocks(Request("B", range(25)))[1] == 24
    other = [99, *range(1, 25)]  # differs in the block that is gone
    assert manager.get_computed_blocks(Request("C", other))[1] == 0
    trusting = windowed(6, policy=PrefixCachePolicy(truncated_sha256(0), exact_match=False))
    trusting.free(admit(trusting, "A", range(24)))
    trusting.pool.uncache(trusting.pool.blocks[0])
    assert trusting.get_computed_blocks(Request("C", other))[1] == 24  # what trust costs


def test_identities_go_on_behind_a_block_that_is_out():
    """Window 3: block 0 is out before block 1 is full, and block 1 stands for both."""
    manager = make([1, 2, 3, 4], window=3)
    a = admit(manager, "A", range(3))
    for token in (3, 4, 5, 6):
        append(manager, a, token)
        manager.release_unreadable(a)
    assert manager.block_table("A") == [None, 2]
    append(manager, a, 7)
    manager.release_unreadable(a)
    assert manager.get_computed_blocks(Request("B", [*range(8), 9]))[1] == 8
    assert manager.get_computed_blocks(Request("C", [7, *range(1, 8), 9]))[1] == 0


def test_kept_logits_need_the_window_before_the_last_block_too():
    policy = PrefixCachePolicy(kept_logits=1)
    manager = windowed([1, 2, 3, 4, 5, 6], policy=policy)
    request = Request("A", range(16))
    manager.allocate_slots(request, 16)
    manager.step_logits([request])
    request.num_computed_tokens = 16
    manager.commit_step()
    manager.release_unreadable(request)
    hits, num_hit = manager.get_computed_blocks(Request("B", range(16)))
    assert num_hit == 16 and [b.block_id for b in hits] == [None, None, 3, 4]
    manager.pool.blocks[4].logits_slot = None  # then the last block is computed again, which
    hits, num_hit = manager.get_computed_blocks(Request("B", range(16)))  # reads block 1 as well
    assert num_hit == 12 and [b.block_id for b in hits] == [None, 2, 3]


# ---- fork


def test_a_fork_shares_what_is_held_and_each_side_lets_go_for_itself():
    manager = windowed([1, 2, 3, 4, 5, 6, 7, 8])
    a = admit(manager, "A", range(14))
    b, seen = Request("B", range(14)), events_of(manager)
    manager.fork(a, b)
    assert seen == [("forked", {"parent": "A", "block_ids": [2, 3, 4]})]
    assert manager.block_table("B") == manager.block_table("A") == [None, 2, 3, 4]
    assert [manager.pool.blocks[i].ref_cnt for i in (1, 2, 3, 4)] == [0, 2, 2, 2]
    (copy,) = append(manager, a, 50)
    assert (copy.src, copy.dst) == (4, 5)
    manager.release_unreadable(a)
    assert manager.block_table("A") == [None, None, 3, 5]
    assert manager.block_table("B") == [None, 2, 3, 4]
    assert manager.pool.blocks[2].ref_cnt == 1  # B reads it still
    append(manager, b, 60)
    manager.release_unreadable(b)
    assert manager.block_table("B") == [None, None, 3, 4] and manager.pool.blocks[2].ref_cnt == 0
    manager.check_invariants([a, b])
    for request in (a, b):
        manager.free(request)
    assert manager.pool.num_free_blocks == 8


def test_a_failed_step_gives_back_what_is_held_and_no_more():
    manager = windowed([1, 2, 3, 4, 5])
    a = admit(manager, "A", range(14))
    a.append_output(7)
    assert manager.allocate_slots(a, 1) == []
    manager.undo_step(a)
    assert a.num_computed_tokens == 0 and manager.pool.num_free_blocks == 5
    hits, num_hit = manager.get_computed_blocks(a)
    assert num_hit == 12 and [b.block_id for b in hits] == [None, 2, 3]
