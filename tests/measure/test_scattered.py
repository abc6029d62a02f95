"""One request's keys and values, read out of a rectangle and out of scattered blocks."""

import pytest
import torch

from kvlab.measure.costs import count_flops
from kvlab.measure.scattered import rectangle_read, scattered_read
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.kv_cache import ContiguousCache, contiguous_forward
from kvlab.tensors.model import Decoder

CONFIG = ModelConfig(
    vocab_size=31, hidden_size=16, intermediate_size=24, num_layers=2,
    num_query_heads=4, num_kv_heads=2, head_dim=8,
)  # fmt: skip
MODEL = Decoder.random(CONFIG, seed=1)
QUERY = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


def rectangle(length: int) -> ContiguousCache:
    cache = ContiguousCache(CONFIG)
    contiguous_forward(MODEL, torch.arange(length)[None] % 31, cache)
    return cache


@pytest.mark.parametrize("length", [1, 3, 4, 5, 16, 23])
@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
def test_both_agree_and_read_as_many_keys(length: int, block_size: int) -> None:
    cache = rectangle(length)
    straight = rectangle_read(cache, QUERY)
    table, scattered = scattered_read(cache, QUERY, block_size, num_blocks=30)
    assert len(table) == -(-length // block_size) == len(set(table))
    for layer in range(2):
        assert (straight(layer) - scattered(layer)).abs().max() < 1e-5
        for read in (straight, scattered):
            assert count_flops(lambda read=read, layer=layer: read(layer)) == length * 2 * 2 * 4 * 8


def test_the_blocks_are_scattered_and_the_draw_repeats() -> None:
    cache = rectangle(23)
    first, _ = scattered_read(cache, QUERY, 4, 40, seed=3)
    again, _ = scattered_read(cache, QUERY, 4, 40, seed=3)
    other, _ = scattered_read(cache, QUERY, 4, 40, seed=4)
    assert first == again != other
    assert first != sorted(first)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="23 positions need 6 blocks of 4 and the pool has 5"):
        scattered_read(rectangle(23), QUERY, 4, 5)
    with pytest.raises(ValueError, match="2 requests of 0 positions; give one"):
        scattered_read(ContiguousCache(CONFIG, batch=2), QUERY, 4, 5)
