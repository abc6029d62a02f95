"""What must hold for every model: growing, adding up, inverting, and never above the reserve."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from kvlab.core.budget import (
    block_layout,
    blocks_from_budget,
    capacity,
    context_that_fits,
    curve,
    whole_budget,
)
from kvlab.core.formats import FORMATS, stored_format
from kvlab.core.spec import KVCacheSpec
from kvlab.core.storage import POLICIES, Storage

KINDS = ("full_attention", "sliding_attention", "chunked_attention", "linear_attention")
SETTINGS = settings(max_examples=150, deadline=None)


@st.composite
def storages(draw, **fixed):
    """A random mixture of layers, in a random format, under a random policy, on a few ranks."""
    kv_heads, groups = draw(st.sampled_from([1, 2, 3, 4, 8])), draw(st.integers(1, 3))
    layers = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=9))
    config = {
        "model_type": draw(st.sampled_from(["qwen3_next", "jamba", "lfm2"])),
        "hidden_size": 64,
        "num_attention_heads": kv_heads * groups,
        "num_key_value_heads": kv_heads,
        "head_dim": draw(st.sampled_from([32, 64])),
        "num_hidden_layers": len(layers),
        "layer_types": layers,
        "sliding_window": draw(st.integers(2, 70)),
        "attention_chunk_size": draw(st.integers(2, 70)),
    }
    choices = {
        "stored": stored_format(draw(st.sampled_from(sorted(FORMATS)))),
        "policy": draw(st.sampled_from(sorted(POLICIES))),
        "ranks": draw(st.sampled_from([1, kv_heads])) if kv_heads in (1, 2, 4, 8) else 1,
    } | fixed
    return Storage(KVCacheSpec.from_config(config), **choices)


lengths = st.integers(0, 300)


@SETTINGS
@given(storages(), lengths, st.integers(0, 5))
def test_bytes_grow_with_the_length_and_add_up_over_requests(stored, length, requests):
    one, next_one = stored.nbytes(length), stored.nbytes(length + 1)
    assert one <= next_one <= one + stored.bytes_per_token
    assert stored.nbytes(length, requests) == requests * one
    assert stored.growth(length) == next_one - one
    assert sum(term.nbytes for term in stored.terms(length, requests)) == requests * one


@SETTINGS
@given(storages(policy="capped"), lengths)
def test_policies_are_ordered(stored, length):
    capped = stored.nbytes(length)
    by = {p: Storage(stored.spec, stored.stored, p).nbytes(length) for p in POLICIES}
    assert by["dynamic"] <= by["capped"] == capped <= by["reserve_full"]
    if all(window > length for window in stored.spec.windows):
        assert len(set(by.values())) == 1
    state = stored.state_bytes_per_request
    assert by["reserve_full"] == length * stored.bytes_per_token + state


@SETTINGS
@given(storages(), st.integers(0, 2**22), st.integers(1, 4))
def test_the_longest_context_is_the_inverse(stored, budget, requests):
    longest = context_that_fits(stored, budget, requests)
    if longest is None:
        assert stored.nbytes_per_rank(10**9, requests) <= budget
        return
    assert stored.nbytes_per_rank(longest, requests) <= budget or longest == 0
    assert stored.nbytes_per_rank(longest + 1, requests) > budget


@SETTINGS
@given(storages(), lengths)
def test_ranks_together_hold_at_least_everything(stored, length):
    together = stored.ranks * stored.nbytes_per_rank(length)
    assert together >= stored.nbytes(length)
    assert stored.group_total >= stored.bytes_per_token
    if stored.ranks == 1:
        assert stored.nbytes_per_rank(length) == stored.nbytes(length)


@SETTINGS
@given(storages(), lengths, st.integers(1, 3), st.sampled_from([1, 4, 16]))
def test_a_whole_budget_adds_up_and_blocks_hold_the_payload(stored, length, requests, block_size):
    parts = whole_budget(
        stored, 10**9, weights=10**6, other=10**5, seq_len=length, requests=requests,
        block_size=block_size,
    )  # fmt: skip
    assert parts.payload + parts.state == stored.nbytes_per_rank(length, requests)
    assert parts.used + parts.free - parts.missing == parts.total
    assert min(parts.payload, parts.state, parts.tails, parts.free, parts.missing) >= 0
    layout = block_layout(stored, block_size)
    taken = requests * layout.blocks_at(length) * layout.block_bytes
    assert taken >= parts.payload + (parts.state if length else 0)


@SETTINGS
@given(storages(), st.integers(1, 300), st.sampled_from([1, 4, 16]), st.integers(1, 64))
def test_a_request_never_needs_more_blocks_than_are_counted(stored, length, block_size, step):
    layout = block_layout(stored, block_size)
    assert layout.blocks_at(length) <= layout.blocks(length, step)
    assert layout.blocks(length, step) <= layout.blocks(length + 1, step)
    pool = layout.blocks(length, step)
    room = capacity(layout, pool, length, step)
    assert room.concurrency == 1 and room.requests == 1
    assert blocks_from_budget(layout, room.pool_bytes) == pool
    assert blocks_from_budget(layout, room.pool_bytes - 1) == pool - 1


@SETTINGS
@given(storages(), st.integers(1, 300), st.integers(1, 20))
def test_the_curve_is_straight_between_its_points(stored, longest, points):
    drawn = curve(stored, longest, points=points)
    assert drawn[0][0] == 0 and drawn[-1][0] == longest
    for (a, low), (b, high) in pairwise(drawn):
        middle = (a + b) // 2
        assert (stored.nbytes_per_rank(middle) - low) * (b - a) == (high - low) * (middle - a)
