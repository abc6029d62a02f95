"""One request's keys and values, read out of a rectangle and out of scattered blocks."""

import re
from collections.abc import Callable

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


RECTANGLE = rectangle(5)


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


@pytest.mark.parametrize("value", [0, -4, 4.0, "4", None, True, [4]])
@pytest.mark.parametrize("name", ["block_size", "num_blocks"])
def test_what_is_no_count_is_refused(name: str, value: object) -> None:
    counts = {"block_size": 4, "num_blocks": 9, name: value}
    with pytest.raises(ValueError, match=re.escape(f"{name} is {value!r}; give an integer of at")):
        scattered_read(RECTANGLE, QUERY, **counts)


@pytest.mark.parametrize("seed", [-1, 1.5, "a", None, True, [1]])
def test_a_seed_that_does_not_repeat_the_same_draw_is_refused(seed: object) -> None:
    with pytest.raises(ValueError, match=re.escape(f"seed is {seed!r}; give an integer of at")):
        scattered_read(RECTANGLE, QUERY, 4, 9, seed)


BOTH = pytest.mark.parametrize(
    "read", [rectangle_read, lambda r, q: scattered_read(r, q, 4, 9)[1]], ids=["rect", "blocks"]
)


@BOTH
@pytest.mark.parametrize(
    ("query", "said"),
    [
        (torch.ones(8, 8), "query has shape [8, 8]; give [num_query_heads, head_dim], [4, 8]"),
        (torch.ones(2, 8), "query has shape [2, 8]; give"),
        (torch.ones(4, 7), "query has shape [4, 7]; give"),
        (torch.ones(1, 4, 8), "query has shape [1, 4, 8]; give"),
        (torch.ones(4, 8).half(), "query is torch.float16 on cpu; give it as torch.float32 on cpu"),
        (torch.ones(4, 8).long(), "query is torch.int64 on cpu; give it as torch.float32"),
        (torch.ones(4, 8, device="meta"), "query is torch.float32 on meta; give it as"),
        ([1, 2], "query is [1, 2]; give a tensor of shape [4, 8]"),
        (None, "query is None; give a tensor"),
    ],
)
def test_a_query_of_another_model_is_refused(read: Callable, query: object, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        read(RECTANGLE, query)


@BOTH
@pytest.mark.parametrize("layer", [2, -1, 1.0, "0", None, True])
def test_a_layer_that_is_not_there_is_refused(read: Callable, layer: object) -> None:
    with pytest.raises(ValueError, match=re.escape(f"layer is {layer!r}; give an integer")):
        read(RECTANGLE, QUERY)(layer)


@BOTH
def test_what_is_no_rectangle_of_one_request_is_refused(read: Callable) -> None:
    with pytest.raises(ValueError, match="rectangle is None; give a ContiguousCache"):
        read(None, QUERY)
    with pytest.raises(ValueError, match="has 2 requests of 0 positions; give one request"):
        read(ContiguousCache(CONFIG, batch=2), QUERY)
    padded = ContiguousCache(CONFIG)
    contiguous_forward(MODEL, torch.arange(5)[None], padded, lengths=[3])
    with pytest.raises(ValueError, match="of the rectangle's 5 positions 3 are no padding; give"):
        read(padded, QUERY)
