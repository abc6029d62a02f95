"""What K/V depend on enters the identity: each in turn is changed, and the match ends."""

import dataclasses

import pytest
import torch
from builders import CONFIG, random_model

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.request import Request
from kvlab.tensors.config import RopeScaling
from kvlab.tensors.identity import configuration_of
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.model import Decoder

PROMPT = list(range(9))
MODEL = random_model(0)


def configuration(model=MODEL, dtype=torch.float32):
    return configuration_of(model, PagedCache(model.config, 4, 4, dtype))


def hit_across(one, other, block_size=4):
    """One pool, filled under the first configuration, looked up under the second."""
    pool = BlockPool(8)
    first = KVCacheManager(pool, 4, configuration=one)
    request = Request("A", PROMPT)
    assert first.allocate_slots(request, len(PROMPT)) is not None
    second = KVCacheManager(pool, block_size, configuration=other)
    return second.get_computed_blocks(Request("B", PROMPT))[1]


def with_settings(**changes):
    """The very same weights under other settings."""
    model = random_model(0)
    model.config = dataclasses.replace(model.config, **changes)
    return model


def with_one_weight_changed():
    model = random_model(0)
    with torch.no_grad():
        model.layers[1].mlp.down_proj.weight[0, 0] += 1e-6
    return model


def test_equal_configurations_match():
    assert configuration() == configuration(random_model(0))
    assert hit_across(configuration(), configuration(random_model(0))) == 8


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        (with_one_weight_changed, {"weights"}),
        (lambda: random_model(1), {"weights"}),
        (lambda: with_settings(rope_theta=5e5), {"model"}),
        (lambda: with_settings(rope_scaling=RopeScaling(factor=8.0)), {"model"}),
        (lambda: with_settings(num_query_heads=2), {"model"}),
        (lambda: with_settings(num_kv_heads=1), {"model"}),
        (lambda: with_settings(head_dim=16), {"model"}),
        (lambda: with_settings(qk_norm=True), {"model"}),
        (lambda: with_settings(rms_norm_eps=1e-5), {"model"}),
        (lambda: with_settings(max_model_len=64), {"model"}),
    ],
    ids=["weight", "weights", "theta", "scaling", "q", "kv", "width", "norm", "eps", "length"],
)
def test_weights_position_scheme_and_attention_settings(changed, parts):
    one, other = configuration(), configuration(changed())
    assert {key for key in one if one[key] != other[key]} == parts
    assert hit_across(one, other) == 0


def test_the_computing_dtype_enters_by_itself():
    """Not only through the weights' digest: the same weights computed in another dtype."""
    half = Decoder.random(CONFIG, 0).to(torch.float16)
    one, other = configuration(), configuration(half)
    assert (one["compute_dtype"], other["compute_dtype"]) == ("torch.float32", "torch.float16")
    assert hit_across(one, {**one, "compute_dtype": other["compute_dtype"]}) == 0


def test_cache_format_and_stored_dtype():
    one, other = configuration(), configuration(dtype=torch.float16)
    assert {key for key in one if one[key] != other[key]} == {"cache"}
    assert hit_across(one, other) == 0
    assert one["cache"] == {"layout": "paged", "dtype": "torch.float32"}
    assert hit_across(one, {**one, "cache": {**one["cache"], "layout": "contiguous"}}) == 0


def test_block_size_and_adapter():
    one = configuration()
    assert hit_across(one, one) == 8
    assert hit_across(one, one, block_size=2) == 0
    roots = {KVCacheManager(BlockPool(8), n, configuration=one).prefix.root for n in (2, 4)}
    assert len(roots) == 2
    manager = KVCacheManager(BlockPool(8), 4, configuration=one)
    assert manager.allocate_slots(Request("A", PROMPT, adapter="poet"), 9) is not None
    found = [
        manager.get_computed_blocks(Request("B", PROMPT, adapter=adapter))[1]
        for adapter in ("poet", "clerk", None)
    ]
    assert found == [8, 0, 0]


def test_what_ends_a_request_does_not_end_the_match():
    assert configuration() == configuration(with_settings(eos_token_ids=(4,)))
