"""Shapes and bytes of both layouts, read off the real tensors."""

import pytest
import torch
from builders import CONFIG, make_engine, random_model

from kvlab.core.kv_cache_manager import BlockCopy
from kvlab.core.request import SamplingParams
from kvlab.tensors.block_copy import copy_blocks
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.kv_cache import ContiguousCache, PagedCache, contiguous_forward
from kvlab.tensors.model import Decoder


def test_the_chapters_two_layer_example_in_bytes():
    """L 2, H_kv 4, d_h 8, 2 bytes, prompt of 5: 1280, 1536, 1792, 2048 bytes."""
    model = Decoder.random(ModelConfig(31, 32, 48, 2, 4, 4, 8))
    cache = ContiguousCache(model.config, dtype=torch.float16)
    totals = []
    logits = contiguous_forward(model, torch.tensor([[1, 2, 3, 4, 5]]), cache)
    assert cache.keys[0].shape == (1, 4, 5, 8)
    assert (cache.keys[0].numel(), cache.keys[0].nbytes) == (160, 320)
    for _ in range(4):
        totals.append(cache.nbytes)
        logits = contiguous_forward(model, logits[:, -1].argmax(-1, keepdim=True), cache)
    assert totals == [1280, 1536, 1792, 2048]
    assert logits.shape == (1, 1, 31)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_bytes_per_position_are_those_of_the_tensors(dtype):
    cache = PagedCache(CONFIG, 5, 4, dtype)
    assert cache.nbytes == 5 * 4 * cache.bytes_per_position
    assert cache.bytes_per_position == 2 * 2 * 2 * 8 * dtype.itemsize


def test_stored_nbytes_counts_processed_positions_only():
    engine = make_engine(random_model(), block_size=4)
    engine.add_request([1, 2, 3, 4, 5], SamplingParams(max_tokens=3), request_id="A")
    cache, table = engine.runner.cache, engine.scheduler.manager.block_table
    seen = []
    for _ in range(2):
        engine.step()
        seen.append(cache.stored_nbytes(table("A"), engine.requests["A"].num_computed_tokens))
    assert seen == [5 * 256, 6 * 256]


def test_copying_blocks_reads_all_sources_first():
    cache = PagedCache(CONFIG, 4, 2)
    cache.key_cache.copy_(torch.arange(4.0)[None, :, None, None, None].expand_as(cache.key_cache))
    copy_blocks(cache, [BlockCopy(0, 1), BlockCopy(1, 2)])
    assert cache.key_cache[0, :, 0, 0, 0].tolist() == [0, 0, 1, 3]
    copy_blocks(cache, [])


def test_padding_costs_bytes():
    model = random_model()
    cache = ContiguousCache(model.config, batch=2)
    contiguous_forward(model, torch.tensor([[1, 2, 3, 0, 0], [1, 2, 3, 4, 5]]), cache, [3, 5])
    assert cache.nbytes == 2 * 5 * 256  # both rows are charged for five


@pytest.mark.parametrize(("blocks", "size"), [(0, 4), (4, 0), (-1, 4)])
def test_a_pool_of_nothing_is_refused(blocks, size):
    with pytest.raises(ValueError, match=f"{blocks} blocks of {size} slots"):
        PagedCache(CONFIG, blocks, size)
