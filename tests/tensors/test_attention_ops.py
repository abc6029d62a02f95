"""The fast paged attention beside its specification in float64; pools full of NaN."""

import pytest
import torch
from builders import CONFIG

from kvlab.core.scheduler_output import ScheduledRequest
from kvlab.tensors import ops
from kvlab.tensors.attention import attention_weights, causal_mask, paged_attention_spec
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.input_batch import build_input_batch
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.ops import PagedAttention


def check_against_spec(
    config,
    block_size,
    work,
    *,
    dtype=torch.float32,
    together=None,
    tolerance=1e-6,
    monkeypatch=None,
):
    """work: (computed before, new now) of each request. Writes both parts, checks the second."""
    if together is not None:
        monkeypatch.setattr(ops, "GATHER_TOGETHER", 1 << 40 if together else 0)
    generator = torch.Generator().manual_seed(0)
    tables, next_block = [], 1
    for past, new in work:
        count = -(-(past + new) // block_size)
        tables.append([next_block + i * 2 for i in range(count)][::-1])  # scattered, backwards
        next_block += 2 * count
    cache = PagedCache(config, next_block + 1, block_size, dtype)
    cache.key_cache.fill_(float("nan"))
    cache.value_cache.fill_(float("nan"))
    attention = PagedAttention(cache, torch.float32)
    spans = [[(0, p) for p, _ in work], [(p, p + n) for p, n in work]]
    for part in spans:
        rows = tuple(
            ScheduledRequest(str(i), a, [0] * (b - a), tables[i], ())
            for i, (a, b) in enumerate(part)
            if b > a
        )
        if not rows:
            continue
        batch = build_input_batch(rows, block_size, torch.device("cpu"))
        attention.begin(batch)
        n = len(batch.input_ids)
        q = torch.randn(n, config.num_query_heads, config.head_dim, generator=generator)
        k, v = torch.randn(2, n, config.num_kv_heads, config.head_dim, generator=generator)
        out = attention(1, q, k, v)
    names = [int(r.request_id) for r in rows]
    want = paged_attention_spec(
        q, cache.key_cache[1], cache.value_cache[1], [tables[i] for i in names],
        batch.query_lens, batch.seq_lens,
    )  # fmt: skip
    assert torch.isfinite(out).all()
    assert (out.double() - want).abs().max() < tolerance
    return batch


HEADS = [(4, 4), (4, 2), (6, 2), (8, 1)]


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("together", [True, False])
def test_decode(heads, block_size, together, monkeypatch):
    """Lengths 1, 3, block_size, block_size + 1 in one batch."""
    config = ModelConfig(
        **{**CONFIG.__dict__, "num_query_heads": heads[0], "num_kv_heads": heads[1], "head_dim": 10}
    )
    work = [(length - 1, 1) for length in (1, 3, block_size, block_size + 1, 40)]
    batch = check_against_spec(config, block_size, work, together=together, monkeypatch=monkeypatch)
    assert batch.is_pure_decode


@pytest.mark.parametrize("together", [True, False])
def test_decode_of_equal_lengths_needs_no_mask(together, monkeypatch):
    check_against_spec(CONFIG, 4, [(8, 1)] * 3, together=together, monkeypatch=monkeypatch)


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("work", [[(0, 5), (0, 5)], [(3, 4), (9, 4), (0, 4)], [(17, 16)]])
def test_chunks_of_equal_length(heads, together, work, monkeypatch):
    """Past 3, 9 and none, four queries each: one mask hides the future and the padding."""
    sizes = {"num_query_heads": heads[0], "num_kv_heads": heads[1], "head_dim": 10}
    config = ModelConfig(**{**CONFIG.__dict__, **sizes})
    check_against_spec(config, 4, work, together=together, monkeypatch=monkeypatch)


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_prefill_chunks_and_decode_in_one_step(heads, block_size):
    config = ModelConfig(
        **{**CONFIG.__dict__, "num_query_heads": heads[0], "num_kv_heads": heads[1], "head_dim": 10}
    )
    check_against_spec(config, block_size, [(0, 5), (7, 3), (16, 1), (3, 14), (0, 1)])


def test_a_long_prompt_in_query_tiles(monkeypatch):
    monkeypatch.setattr(ops, "QUERY_TILE", 5)
    check_against_spec(CONFIG, 4, [(0, 23), (9, 13)])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 1e-3), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("together", [True, False])
def test_a_narrower_store_is_read_as_it_was_rounded(dtype, tolerance, together, monkeypatch):
    check_against_spec(
        CONFIG,
        4,
        [(7, 1), (3, 1)],
        dtype=dtype,
        tolerance=1e-6,
        together=together,
        monkeypatch=monkeypatch,
    )


def test_buffers_are_kept_and_grow():
    cache = PagedCache(CONFIG, 8, 4)
    attention = PagedAttention(cache, torch.float32)
    first = attention._buffer("key", (4, 2, 8), torch.float32)
    assert attention._buffer("key", (6, 2, 8), torch.float32).data_ptr() == first.data_ptr()
    assert attention._buffer("key", (60, 2, 8), torch.float32).shape == (60, 2, 8)


def test_the_specification_is_softmax_attention():
    q, k = torch.randn(2, 1, 2, 3, 8, dtype=torch.float64)
    weights = attention_weights(q, k, causal_mask(3, 3))
    assert torch.allclose(weights.sum(-1), torch.ones(1, 2, 3, dtype=torch.float64))
    assert weights[0, 0, 0].tolist() == [1.0, 0.0, 0.0]


def test_n09_the_causal_mask_is_aligned_at_the_bottom_right():
    assert causal_mask(2, 5).int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


def test_each_query_head_keeps_its_own_weights_over_shared_keys():
    q, k = torch.randn(1, 4, 1, 8), torch.randn(1, 1, 5, 8)
    weights = attention_weights(q, k, causal_mask(1, 5))
    assert weights.shape == (1, 4, 1, 5)
    assert len({tuple(w.tolist()) for w in weights[0, :, 0]}) == 4


def test_a_nan_that_a_query_may_not_read_stays_in_its_request():
    """Two prompts of 5 and 3 positions; the third key of the first is NaN. Its later queries read
    that key. Its first two may not, and in torch a mask does not keep it from them."""
    cache = PagedCache(CONFIG, 8, 4)
    cache.key_cache.fill_(float("nan"))
    cache.value_cache.fill_(float("nan"))
    attention = PagedAttention(cache, torch.float32)
    rows = tuple(
        ScheduledRequest(name, 0, [0] * n, table, ())
        for name, n, table in (("a", 5, [3, 1]), ("b", 3, [5]))
    )
    attention.begin(build_input_batch(rows, 4, torch.device("cpu")))
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(8, CONFIG.num_query_heads, CONFIG.head_dim, generator=generator)
    key, value = torch.randn(2, 8, CONFIG.num_kv_heads, CONFIG.head_dim, generator=generator)
    key[2] = torch.nan
    out = attention(0, query, key, value)
    assert out[2:5].isnan().all()
    assert out[5:].isfinite().all()
