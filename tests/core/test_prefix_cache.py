"""Collisions, retention, counters and reset of the prefix cache, at the manager."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_kv_cache_manager import admit, append, make, snapshot

from kvlab.core.hashing import encode_block, same_content, sha256, truncated_sha256
from kvlab.core.prefix_cache import PrefixCachePolicy, PrefixCacheStats
from kvlab.core.request import Request, RequestStatus

ALL_COLLIDE = truncated_sha256(0)  # one identity for everything


def weak(ids=16, *, exact_match=True, hash_function=ALL_COLLIDE, **options):
    policy = PrefixCachePolicy(hash_function, exact_match)
    return make(ids, policy=policy, **options)


def found(manager, tokens, **extras):
    hits, num_hit = manager.get_computed_blocks(Request("looks", tokens, **extras))
    assert num_hit == len(hits) * manager.block_size
    return [b.block_id for b in hits]


# ---- collisions


def test_a_weak_hash_is_the_beginning_of_sha256():
    assert truncated_sha256(1)(b"abc") == sha256(b"abc")[:1] == bytes.fromhex("ba")
    assert truncated_sha256(32)(b"abc") == sha256(b"abc")
    with pytest.raises(ValueError, match="num_bytes is 33"):
        truncated_sha256(33)


@pytest.mark.parametrize(("exact_match", "hit"), [(True, []), (False, [0, 0])])
def test_unchecked_a_collision_hands_out_anothers_blocks(exact_match, hit):
    manager = weak(exact_match=exact_match)
    admit(manager, "A", range(9))
    assert found(manager, range(50, 59)) == hit
    assert found(manager, range(9))[:1] == [0]


def test_one_byte_collides_once_in_256_blocks():
    manager = weak(hash_function=truncated_sha256(1))
    admit(manager, "A", range(5))
    identity = manager.prefix.block_hashes(Request("A", range(5)), 1)
    others = (Request("B", [n] * 5) for n in range(1000, 3000))
    same = [r for r in others if manager.prefix.block_hashes(r, 1) == identity]
    assert len(same) == 7  # 2,000 / 256 is 7.8
    for request in same:
        assert manager.pool.get_cached_block(identity[0]).block_id == 0
        assert manager.get_computed_blocks(request) == ([], 0)


def test_equal_blocks_after_colliding_parents_are_told_apart():
    """B's second block equals A's in identity, tokens and the parent's identity."""
    manager = weak()
    admit(manager, "A", [1, 1, 1, 1, 7, 7, 7, 7, 0])
    admit(manager, "B", [2, 2, 2, 2, 0])
    assert found(manager, [2, 2, 2, 2, 7, 7, 7, 7, 0]) == [3]
    assert found(manager, [1, 1, 1, 1, 7, 7, 7, 7, 0]) == [0, 1]


@pytest.mark.parametrize(
    "extras", [{"adapter": "x"}, {"cache_salt": "x"}, {"adapter": "y", "cache_salt": "x"}]
)
def test_extras_are_compared_like_tokens(extras):
    manager = weak()
    admit(manager, "A", range(5))
    assert found(manager, range(5), **extras) == []
    admit(manager, "B", range(5), **extras)
    assert found(manager, range(5), **extras) == [2]
    assert found(manager, range(5)) == [0]


def test_colliding_blocks_live_and_go_side_by_side():
    manager = weak(4)
    a, b = admit(manager, "A", range(5)), admit(manager, "B", range(50, 55))
    manager.free(a)
    assert (found(manager, range(5)), found(manager, range(50, 55))) == ([0], [2])
    admit(manager, "C", range(90, 98))  # takes block 1, then evicts block 0
    assert (found(manager, range(5)), found(manager, range(50, 55))) == ([], [2])
    manager.free(b)
    manager.check_invariants()


def test_equal_content_computed_twice_is_found_on_either_block():
    manager = weak(8)
    a, _ = admit(manager, "A", range(8)), admit(manager, "B", range(8))
    assert manager.block_table("B") == [0, 2]
    for request in ("A", "B"):
        assert found(manager, [*range(8), 9]) == [0, 1], request
    c = admit(manager, "C", [*range(8), *range(30, 35)])
    assert manager.block_table("C")[:2] == [0, 1]
    manager.free(a)
    manager.pool.uncache(manager.pool.blocks[1])
    assert found(manager, [*range(8), 9]) == [0, 2]
    assert found(manager, [*range(8), *range(30, 35)]) == [0, 2, 3]  # C's block after B's
    manager.free(c)


def test_comparing_chains_goes_back_without_recursion():
    one = other = third = None
    for i in range(50_000):
        data = encode_block(b"", [i])
        one, other, third = (data, one), (data, other), (data if i else b"", third)
    assert same_content(one, other)
    assert not same_content(one, third)
    assert not same_content(one, one[1])


def test_without_comparison_nothing_is_kept_to_compare():
    manager = make(4, policy=PrefixCachePolicy(exact_match=False))
    request = admit(manager, "A", range(5))
    assert (request.block_contents, manager.pool.blocks[0].content) == ([], None)
    assert found(manager, range(5)) == [0]


blocks = st.lists(st.integers(0, 1), min_size=1, max_size=12)


@given(st.lists(blocks, min_size=2, max_size=6), st.sampled_from([0, 1]))
def test_under_any_hash_a_hit_is_the_longest_equal_beginning(prompts, num_bytes):
    manager = make(200, block_size=2, policy=PrefixCachePolicy(truncated_sha256(num_bytes)))
    for i, prompt in enumerate(prompts):
        common = [len(shared(prompt, earlier)) // 2 for earlier in prompts[:i]]
        wanted = min(max(common, default=0), (len(prompt) - 1) // 2)
        assert len(found(manager, prompt)) == wanted
        admit(manager, str(i), prompt)


def shared(one, other):
    n = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    return one[: min(len(one), len(other)) if n is None else n]


# ---- retention


@pytest.mark.parametrize(("retain", "hits"), [(True, [0, 1]), (False, [])])
def test_a_freed_prefix_is_kept_or_released_at_once(retain, hits):
    manager = make(6, policy=PrefixCachePolicy(retain_freed=retain))
    manager.free(admit(manager, "A", range(9)))
    assert found(manager, range(9)) == hits
    assert manager.pool.num_free_blocks == 6
    manager.check_invariants()


def test_released_at_once_means_with_the_last_reference():
    manager = make(6, policy=PrefixCachePolicy(retain_freed=False))
    a, b = admit(manager, "A", range(9)), admit(manager, "B", [*range(4), 9])
    manager.free(a)
    assert found(manager, range(9)) == [0]
    manager.free(b)
    assert found(manager, range(9)) == []


def test_release_at_once_with_a_fork():
    manager = make(6, policy=PrefixCachePolicy(retain_freed=False))
    parent, child = admit(manager, "A", range(6)), Request("A.1", range(6))
    manager.fork(parent, child)
    assert len(append(manager, parent, 9)) == 1
    manager.free(parent)
    assert found(manager, range(6)) == [0]
    manager.free(child)
    assert (found(manager, range(6)), manager.pool.num_free_blocks) == ([], 6)


# ---- kept logits


def step_logits(manager, name, tokens):
    """Admit a prompt that computes all of its positions; which logits are to be kept, and where."""
    request = Request(name, tokens)
    manager.allocate_slots(request, request.num_tokens)
    kept = manager.step_logits([request])
    request.num_computed_tokens = request.num_tokens
    manager.commit_step()
    manager.check_invariants([request])
    return request, [(k.position, k.slot) for k in kept]


def test_slots_go_to_the_deepest_prompt_blocks():
    manager = make(9, policy=PrefixCachePolicy(kept_logits=2))
    _, kept = step_logits(manager, "A", range(14))
    assert kept == [(7, 0), (11, 1)]
    assert len(manager.kept_logits) == 2


def test_the_least_recently_used_logits_make_room():
    manager = make(9, policy=PrefixCachePolicy(kept_logits=2))
    a, kept_a = step_logits(manager, "A", range(4))
    _, kept_b = step_logits(manager, "B", range(10, 14))
    assert (kept_a, kept_b) == ([(3, 0)], [(3, 1)])
    again = admit(manager, "again", range(4))
    assert manager.use_kept_logits(again) == 0
    _, kept_c = step_logits(manager, "C", range(20, 24))
    assert kept_c == [(3, 1)]
    assert [found(manager, range(n, n + 4)) for n in (0, 10, 20)] == [[0], [], [2]]
    manager.free(a)


def test_kept_logits_go_with_the_identity_of_their_block():
    manager = make(2, policy=PrefixCachePolicy(kept_logits=1))
    a, _ = step_logits(manager, "A", range(4))
    manager.free(a)
    assert (found(manager, range(4)), len(manager.kept_logits)) == ([0], 1)
    step_logits(manager, "B", range(50, 58))  # evicts it; its slot serves block 0's new content
    assert (found(manager, range(4)), found(manager, range(50, 58))) == ([], [1, 0])


def test_a_failed_step_keeps_no_logits():
    manager = make(4, policy=PrefixCachePolicy(kept_logits=1))
    a = Request("A", range(4))
    manager.allocate_slots(a, 4)
    assert len(manager.step_logits([a])) == 1
    manager.undo_step(a)
    manager.commit_step()
    assert (len(manager.kept_logits), found(manager, range(4))) == (0, [])


def test_zero_new_positions_need_hits():
    manager = make(4, policy=PrefixCachePolicy(kept_logits=1))
    with pytest.raises(ValueError, match="slots for 0 tokens"):
        manager.allocate_slots(Request("A", range(4)), 0)


# ---- counters and reset


def test_queries_and_hits_are_counted_in_tokens_where_a_request_is_admitted():
    manager = make(8)
    admit(manager, "A", range(9))
    for _ in range(3):
        manager.get_computed_blocks(Request("B", range(9)))  # a lookup is no admission
    admit(manager, "B", range(9))
    assert manager.stats == PrefixCacheStats(requests=2, queries=18, hits=8)
    assert manager.stats.hit_rate == 8 / 18
    assert PrefixCacheStats().hit_rate is None


def test_a_refused_admission_is_not_counted():
    manager = make(2)
    assert manager.allocate_slots(Request("A", range(12)), 12) is None
    assert manager.stats == PrefixCacheStats()


def test_a_preempted_request_is_counted_apart():
    manager = make(8)
    request = admit(manager, "A", range(9))
    manager.undo_step(request)
    request.status = RequestStatus.PREEMPTED
    hits, num_hit = manager.get_computed_blocks(request)
    manager.allocate_slots(request, request.num_tokens - num_hit, hits)
    assert manager.stats == PrefixCacheStats(1, 9, 0, 1, 9, 8)


def test_chunks_outputs_and_forks_are_no_admissions():
    manager = make(8)
    a = Request("A", range(9))
    for count in (4, 5):
        manager.allocate_slots(a, count)
        a.num_computed_tokens += count
    append(manager, a, 1)
    manager.fork(a, Request("A.1", range(9)))
    assert manager.stats == PrefixCacheStats(requests=1, queries=9, hits=0)


def test_without_prefix_caching_nothing_is_counted():
    manager = make(8, enable_prefix_caching=False)
    admit(manager, "A", range(9))
    assert manager.stats == PrefixCacheStats()


def test_two_tenants_find_only_their_own():
    """A lookup that hits would be faster: with a salt, only one's own prompts show."""
    manager = make(32)
    admit(manager, "secret", range(17), cache_salt="one")
    for guess in (range(17), [*range(16), 99]):
        before = snapshot(manager)
        assert found(manager, guess, cache_salt="two") == []
        assert found(manager, guess) == []
        assert snapshot(manager) == before
    assert found(manager, range(17), cache_salt="one") == [0, 1, 2, 3]
    admit(manager, "theirs", range(17), cache_salt="two")
    assert manager.stats.hits == 0
    admit(manager, "mine", range(17), cache_salt="one")
    assert manager.stats.hits == 16
    assert set(manager.block_table("secret")).isdisjoint(manager.block_table("theirs"))


def test_reset_is_refused_while_blocks_are_in_use():
    manager = make(8)
    a = admit(manager, "A", range(9))
    before = snapshot(manager)
    assert manager.reset_prefix_cache() is False
    assert snapshot(manager) == before and manager.stats.requests == 1
    manager.free(a)
    assert manager.reset_prefix_cache() is True
    assert (found(manager, range(9)), manager.stats) == ([], PrefixCacheStats())
    manager.check_invariants()


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("exact_match", 1),
        ("retain_freed", None),
        ("kept_logits", -1),
        ("kept_logits", True),
        ("hash_function", hash),
        ("hash_function", "sha256"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused_by_name(name, bad):
    with pytest.raises(ValueError, match=name):
        PrefixCachePolicy(**{name: bad})


def test_something_else_than_a_policy_and_blocks_beyond_the_tokens_are_refused():
    with pytest.raises(ValueError, match="policy is 'evict'; give a PrefixCachePolicy"):
        make(4, policy="evict")
    with pytest.raises(ValueError, match="'A' has 9 tokens, not 3 full blocks of 4"):
        make(4).prefix.block_hashes(Request("A", range(9)), 3)
