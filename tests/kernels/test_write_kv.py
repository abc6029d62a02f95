"""K and V into slots, bit for bit what torch stores."""

import pytest
import torch
from paged_cases import nan_pool, on_device

from kvlab.tensors import launch
from kvlab.tensors.stored import quantise_fp8, quantise_int8

pytestmark = pytest.mark.usefixtures("triton_runs")
SLOTS = torch.tensor([9, 2, -1, 30, 11])
AWKWARD = [0.0, -0.0, 1e-3, 300.7, -1e5, 6e-8, 3.0, 448.5]


def new_rows(dtype, heads=3, width=80):
    """Numbers of all sizes: ties of rounding, subnormal ones, some beyond float8."""
    rows = torch.randn(5, heads, width, generator=torch.Generator().manual_seed(0))
    rows[0, 0, : len(AWKWARD)] = torch.tensor(AWKWARD)
    rows[1, 1] = 0.0
    return rows.to(dtype)


def bits(numbers):
    return numbers.contiguous().view(torch.uint8)


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("computed", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_k_and_v_land_in_their_slots(computed, stored, block_size):
    key, value = new_rows(computed), -new_rows(computed)
    key_cache = nan_pool((32 // block_size, block_size, 3, 80), stored)
    value_cache = key_cache.clone()
    wanted_key, wanted_value = key_cache.clone(), value_cache.clone()
    on_device(launch.write_kv, key, value, key_cache, value_cache, SLOTS)
    kept = SLOTS >= 0
    wanted_key.flatten(0, 1)[SLOTS[kept]] = key[kept].to(stored)
    wanted_value.flatten(0, 1)[SLOTS[kept]] = value[kept].to(stored)
    assert torch.equal(bits(key_cache), bits(wanted_key))  # the NaN around them too
    assert torch.equal(bits(value_cache), bits(wanted_value))


def test_rows_may_be_slices_of_a_fused_projection():
    fused = torch.randn(5, 4 + 2 + 2, 16)  # query, key and value heads
    key, value = fused[:, 4:6], fused[:, 6:]
    assert key.stride() == (128, 16, 1)
    key_cache, value_cache = nan_pool((8, 4, 2, 16)), nan_pool((8, 4, 2, 16))
    on_device(launch.write_kv, key, value, key_cache, value_cache, SLOTS)
    assert torch.equal(key_cache.flatten(0, 1)[9], fused[0, 4:6])
    assert torch.equal(value_cache.flatten(0, 1)[30], fused[3, 6:])


def test_more_rows_than_a_program_takes():
    key = torch.arange(400.0)[:, None, None].expand(400, 4, 8).contiguous()
    key_cache, value_cache = nan_pool((100, 4, 4, 8)), nan_pool((100, 4, 4, 8))
    on_device(launch.write_kv, key, key + 0.5, key_cache, value_cache, torch.arange(399, -1, -1))
    assert torch.equal(key_cache.flatten(0, 1), key.flip(0))
    assert torch.equal(value_cache.flatten(0, 1), key.flip(0) + 0.5)


@pytest.mark.filterwarnings("ignore:invalid value encountered in multiply")  # numpy: infinity * 0
@pytest.mark.parametrize("computed", [torch.float32, torch.bfloat16])
def test_int8_has_a_scale_a_position_and_head(computed):
    key, value = new_rows(computed), new_rows(computed) * 7
    key[3, 2, 5], value[4, 0, 0] = torch.nan, torch.inf  # read as NaN, not as a number
    key_cache = torch.full((8, 4, 3, 80), 77, dtype=torch.int8)
    value_cache = key_cache.clone()
    key_scale, value_scale = nan_pool((8, 4, 3)), nan_pool((8, 4, 3))
    on_device(launch.write_kv, key, value, key_cache, value_cache, SLOTS, key_scale, value_scale)
    for new, cache, scale in ((key, key_cache, key_scale), (value, value_cache, value_scale)):
        codes, scales = quantise_int8(new)
        wanted, wanted_scale = torch.full((32, 3, 80), 77, dtype=torch.int8), nan_pool((32, 3))
        kept = SLOTS >= 0
        wanted[SLOTS[kept]], wanted_scale[SLOTS[kept]] = codes[kept], scales[kept]
        assert torch.equal(cache.flatten(0, 1), wanted)
        assert torch.equal(scale.flatten(0, 1).nan_to_num(-1), wanted_scale.nan_to_num(-1))


@pytest.mark.parametrize("units", [1, 63, 100, 190, 10_000])
def test_int8_rows_next_to_nothing_are_zeros(units):
    """190 units of 2 ** -149 over 127 is 1 unit: a code of 190 would wrap around to -66."""
    rows = torch.full((1, 1, 16), units * 2.0**-149)
    key_cache = torch.full((2, 4, 1, 16), 77, dtype=torch.int8)
    scale = nan_pool((2, 4, 1))
    slots = torch.tensor([5])
    on_device(
        launch.write_kv, rows, -rows, key_cache, key_cache.clone(), slots, scale, scale.clone()
    )
    codes, wanted = quantise_int8(rows)
    assert key_cache.flatten(0, 1)[5].tolist() == codes[0].tolist() == [[0] * 16]
    assert scale.flatten(0, 1)[5].tolist() == wanted[0].tolist() == [0.0]


@pytest.mark.parametrize("computed", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [None, 0.5, 0.037])
def test_fp8_has_one_scale_a_tensor_and_saturates(computed, scale):
    key, value = new_rows(computed), new_rows(computed) * 7
    key[3, 2, 5], value[4, 0, 0] = torch.nan, torch.inf  # one stays, the other saturates
    key_cache = torch.zeros(8, 4, 3, 80).to(torch.float8_e4m3fn)
    value_cache = key_cache.clone()
    on_device(launch.write_kv, key, value, key_cache, value_cache, SLOTS, scale, scale)
    kept = SLOTS >= 0
    for new, cache in ((key, key_cache), (value, value_cache)):
        codes = quantise_fp8(new[kept], scale or 1.0)
        assert torch.equal(bits(cache).flatten(0, 1)[SLOTS[kept]], bits(codes))
    written = bits(key_cache).flatten(0, 1).any(-1).any(-1)
    assert written.nonzero().flatten().tolist() == [2, 9, 11, 30]


def test_nothing_to_write():
    key_cache = nan_pool((8, 4, 3, 80))
    none = torch.empty(0, 3, 80)
    on_device(
        launch.write_kv, none, none, key_cache, key_cache.clone(), torch.empty(0, dtype=torch.long)
    )
    assert key_cache.isnan().all()
