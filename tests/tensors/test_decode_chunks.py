"""A long past read chunk by chunk: the same as at once, and nothing else is read."""

import pytest
import torch
from builders import CONFIG
from test_attention_ops import HEADS, check_against_spec

from kvlab.core.scheduler_output import ScheduledRequest
from kvlab.tensors import decode_chunks
from kvlab.tensors.attention import attend_masked, causal_mask
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.decode_chunks import attend_in_chunks, in_chunks
from kvlab.tensors.input_batch import build_input_batch
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.ops import PagedAttention


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("chunk", [1, 100, 700])
def test_unequal_lengths_in_a_pool_of_nan(heads, block_size, chunk, monkeypatch):
    """Chunks of one block, of several, and lengths that one chunk holds."""
    monkeypatch.setattr(decode_chunks, "CHUNK", chunk)
    sizes = {"num_query_heads": heads[0], "num_kv_heads": heads[1], "head_dim": 10}
    config = ModelConfig(**{**CONFIG.__dict__, **sizes})
    work = [(length - 1, 1) for length in (1, 3, block_size, block_size + 1, 40)]
    batch = check_against_spec(config, block_size, work, together=False, monkeypatch=monkeypatch)
    assert batch.is_pure_decode


def test_beside_a_prompts_chunk(monkeypatch):
    monkeypatch.setattr(decode_chunks, "CHUNK", 1)
    batch = check_against_spec(CONFIG, 4, [(0, 5), (16, 1), (7, 3), (30, 1)])
    assert not batch.is_pure_decode


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_narrower_store_in_chunks(dtype, monkeypatch):
    monkeypatch.setattr(decode_chunks, "CHUNK", 1)
    work = [(17, 1), (9, 1)]
    batch = check_against_spec(
        CONFIG, 4, work, dtype=dtype, together=False, monkeypatch=monkeypatch
    )
    assert batch.is_pure_decode


def test_chunks_where_a_window_begins_and_the_sequence_ends(monkeypatch):
    """Blocks of 4, 2 a chunk, slots 3 to 12 of the four blocks are seen: the drawing in _chunks."""
    monkeypatch.setattr(decode_chunks, "CHUNK", 2 * 4 * 8)
    found = list(decode_chunks._chunks(torch.tensor([9, 2, 5, 7]), 4, range(3, 13), 8))
    assert [(w.start, w.stop) for w, _, _ in found] == [(0, 5), (5, 10)]
    assert [part.tolist() for _, part, _ in found] == [[9, 2], [5, 7]]
    assert [(s.start, s.stop) for _, _, s in found] == [(3, 8), (0, 5)]


def test_slots_that_are_not_seen_are_not_read(monkeypatch):
    monkeypatch.setattr(decode_chunks, "CHUNK", 2 * 4 * 2 * 8)
    generator = torch.Generator().manual_seed(0)
    pool = {name: torch.randn(10, 4, 2, 8, generator=generator) for name in ("key", "value")}
    table = torch.tensor([9, 2, 5, 7])
    query = torch.randn(6, 8, generator=generator)
    k, v = (pool[n][table].flatten(0, 1)[3:13].transpose(0, 1) for n in ("key", "value"))
    want = attend_masked(query[:, None].double(), k.double(), v.double(), causal_mask(1, 10))
    for tensor in pool.values():
        tensor[9, :3] = tensor[7, 1:] = float("nan")
    found = attend_in_chunks(
        query, 2, table, 4, range(3, 13), lambda name, part: pool[name][part].flatten(0, 1)
    )
    assert (found - want[:, 0]).abs().max() < 1e-6


def test_half_precision_is_attended_at_once():
    """Its scores would be rounded to 8 bits between the two passes."""
    blocks = torch.zeros(1 << 12, dtype=torch.long)
    assert in_chunks(torch.zeros(1, 4, 8), blocks, 128)
    assert not in_chunks(torch.zeros(1, 4, 8, dtype=torch.bfloat16), blocks, 128)
    assert not in_chunks(torch.zeros(1, 4, 8), blocks[:2048], 128)  # one chunk


@pytest.mark.parametrize("kind", ["int8", "fp8", "q4_0"])
def test_codes_are_read_in_chunks_as_at_once(kind, monkeypatch):
    config = ModelConfig(**{**CONFIG.__dict__, "head_dim": 32})
    cache = PagedCache(config, 12, 4, kind)
    cache.fill_with_nan()
    generator = torch.Generator().manual_seed(0)
    heads, table = (config.num_kv_heads, 32), list(range(11, 0, -1))
    k, v = torch.randn(2, 40, *heads, generator=generator)
    cache.write(1, k, v, torch.tensor([table[t // 4] * 4 + t % 4 for t in range(40)]))
    rows = (ScheduledRequest("A", 40, [0], table, ()), ScheduledRequest("B", 0, [0], [0], ()))
    query = torch.randn(2, config.num_query_heads, 32, generator=generator)
    new = torch.randn(2, *heads, generator=generator)
    outputs = []
    monkeypatch.setattr("kvlab.tensors.ops.GATHER_TOGETHER", 0)
    for chunk in (1, 1 << 40):
        monkeypatch.setattr(decode_chunks, "CHUNK", chunk)
        attention = PagedAttention(cache, torch.float32)
        attention.begin(build_input_batch(rows, 4, torch.device("cpu")))
        outputs.append(attention(1, query, new, new))
    assert outputs[0].isfinite().all() and (outputs[0] - outputs[1]).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("scores", "wanted"),
    [
        ([-torch.inf] * 8 + [0.0] * 2, 9.5),  # a chunk of -inf; the mean of 9 and 10
        ([0.0] * 2 + [-torch.inf] * 8, 1.5),
        ([-torch.inf] * 10, torch.nan),
        ([0.0] * 9 + [torch.inf], torch.nan),
        ([torch.nan] + [0.0] * 9, torch.nan),
    ],
)
def test_scores_that_are_not_finite(scores, wanted, monkeypatch) -> None:
    """Chunks of two blocks of 4. Key p is (score p, 0, ...), value p is p + 1."""
    monkeypatch.setattr(decode_chunks, "CHUNK", 2 * 4 * 16)
    pool = {"key": torch.full((5, 4, 1, 16), torch.nan), "value": torch.full((5, 4, 1, 16), 77.0)}
    slots = [12, 13, 14, 15, 4, 5, 6, 7, 16, 17]  # blocks 3, 1, 4
    pool["key"].flatten(0, 1)[slots] = 0.0
    pool["key"].flatten(0, 1)[slots, 0, 0] = torch.tensor(scores)
    pool["value"].flatten(0, 1)[slots] = torch.arange(1.0, 11)[:, None, None].expand(-1, 1, 16)
    query, blocks = torch.eye(1, 16) * 4, torch.tensor([3, 1, 4])

    def copy(name, part):
        return pool[name][part].flatten(0, 1)

    out = attend_in_chunks(query, 1, blocks, 4, range(10), copy)
    assert torch.allclose(out, torch.full((1, 16), wanted), equal_nan=True)
