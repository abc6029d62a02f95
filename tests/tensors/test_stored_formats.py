"""Numbers as codes and back: what may be lost, and what becomes of zeros, giants and NaN."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.formats import FORMATS
from kvlab.tensors.stored import (
    NAMES,
    cache_format,
    calibrated_scale,
    dequantise_fp8,
    dequantise_int8,
    dequantise_q4_0,
    quantise_fp8,
    quantise_int8,
    quantise_q4_0,
)

NAN, INF = float("nan"), float("inf")


def vectors(width, largest=1e4):
    one = st.floats(-largest, largest, width=32)
    row = st.lists(one, min_size=width, max_size=width)
    return st.lists(row, min_size=1, max_size=4).map(torch.tensor)


def through(name, values, scale=1.0):
    kind = cache_format(name)
    codes, scales = kind.encode(values, scale)
    return kind.decode(codes, scale if scales is None else scales).float()


# ---- worked examples


def test_int8_of_one_vector():
    codes, scale = quantise_int8(torch.tensor([[0.0, 1.27, -2.54, 0.02]]))
    assert codes.tolist() == [[0, 64, -127, 1]]  # 63.5 goes to the even neighbour
    assert scale.tolist() == [pytest.approx(0.02)]
    read = dequantise_int8(codes, scale)
    assert torch.allclose(read, torch.tensor([[0.0, 1.28, -2.54, 0.02]]))


def test_q4_0_of_one_block():
    """The extreme is 16, at place 3: the scale is -2, and codes count from there."""
    values = torch.zeros(32)
    values[0], values[3], values[16], values[19] = -16.0, 16.0, 6.0, -1.0
    codes, scale = quantise_q4_0(torch.stack((values, -values)))
    assert scale.tolist() == [[2.0], [-2.0]]  # of two equally far, the first sets the sign
    assert (int(codes[0, 0]), int(codes[0, 3])) == (0 | 11 << 4, 15 | 8 << 4)
    read = dequantise_q4_0(codes, scale)[0]
    assert [float(read[i]) for i in (0, 3, 16, 19, 1)] == [-16.0, 14.0, 6.0, 0.0, 0.0]


def test_fp8_of_some_numbers():
    values = torch.tensor([1.0, 1.0625, 1.07, 448.0, 2.0**-9, 2.0**-11])
    read = dequantise_fp8(quantise_fp8(values))
    assert read.tolist() == [1.0, 1.0, 1.125, 448.0, 2.0**-9, 0.0]


def test_q4_0_is_llama_cpps_to_the_bit():
    quants = pytest.importorskip("gguf.quants")
    types = pytest.importorskip("gguf").GGMLQuantizationType
    values = torch.randn(64, 96, generator=torch.Generator().manual_seed(0)) * 3
    codes, scale = quantise_q4_0(values)
    blocks = torch.cat((scale[..., None].view(torch.uint8), codes.unflatten(1, (3, 16))), dim=-1)
    wanted = quants.quantize(values.numpy(), types.Q4_0)  # [64, 3 * 18] bytes
    assert blocks.shape[-1] == 18 == FORMATS["q4_0"].block_bytes
    assert torch.equal(blocks.flatten(1), torch.from_numpy(wanted))
    assert torch.equal(
        dequantise_q4_0(codes, scale), torch.from_numpy(quants.dequantize(wanted, types.Q4_0))
    )


# ---- what may be lost


@given(vectors(5))
def test_int8_is_within_half_a_scale(values):
    codes, scale = quantise_int8(values)
    error = (dequantise_int8(codes, scale) - values).abs()
    assert bool((error <= scale[:, None] * 0.5001 + 1.5e-36).all())
    assert int(codes.min()) >= -127


@given(vectors(64))
def test_q4_0_is_within_one_scale(values):
    """Half a scale, but one for what is as far out as the extreme on the other side; and the
    scale itself is rounded to fp16."""
    read = dequantise_q4_0(*quantise_q4_0(values))
    extreme = values.unflatten(1, (2, 32)).abs().amax(-1, keepdim=True)
    error = (read - values).unflatten(1, (2, 32)).abs()
    assert bool((error <= extreme / 8 * 1.005 + 3e-7).all())
    near = values.unflatten(1, (2, 32)).abs() <= extreme * 7.4 / 8
    assert bool((error[near] <= (extreme / 16 * 1.01 + 3e-7).expand_as(error)[near]).all())


@given(vectors(5, largest=2000.0), st.sampled_from([0.25, 1.0, 3.0]))
def test_fp8_is_within_a_sixteenth_and_saturates(values, scale):
    read = dequantise_fp8(quantise_fp8(values, scale), scale)
    inside = values.clamp(-448 * scale, 448 * scale)
    bound = (inside.abs() / 16).clamp(min=scale * 2.0**-10) * 1.0001
    assert bool(((read - inside).abs() <= bound).all())


@given(vectors(32))
def test_what_was_read_is_stored_as_it_is(values):
    """Quantised a second time, int8 and fp8 lose nothing more."""
    for name in ("fp8", "int8"):
        once = through(name, values)
        assert torch.allclose(through(name, once), once, rtol=1e-5, atol=1e-42)


# ---- zeros, giants, what is no number


@pytest.mark.parametrize("name", NAMES)
def test_zeros_come_back_as_zeros(name):
    assert torch.equal(through(name, torch.zeros(2, 32)), torch.zeros(2, 32))


@pytest.mark.parametrize("name", ["fp8", "int8", "q4_0"])
@pytest.mark.parametrize("tiny", [1e-45, 1e-41, 1e-39, 1e-12])
def test_values_next_to_nothing_stay_next_to_nothing(name, tiny):
    values = torch.full((1, 32), tiny)
    read = through(name, values)
    assert bool(read.isfinite().all()) and float(read.abs().max()) <= 1.01 * tiny


@pytest.mark.parametrize("units", [1, 63, 100, 190, 10_000, 1 << 23])
def test_an_int8_scale_is_never_subnormal(units):
    """Of values in units of 2 ** -149: 190 / 127 would be rounded to 1, and the code 190."""
    values = torch.tensor([[units, -units, units // 2, 0.0]]) * 2.0**-149
    codes, scale = quantise_int8(values)
    assert codes.tolist() == [[0, 0, 0, 0]] and scale.tolist() == [0.0]
    assert dequantise_int8(codes, scale).tolist() == [[0.0] * 4]


def test_the_smallest_int8_scale_that_is_kept():
    values = torch.tensor([[127 * 2.0**-126, -(2.0**-126)], [126.9 * 2.0**-126, 2.0**-126]])
    codes, scale = quantise_int8(values)
    assert codes.tolist() == [[127, -1], [0, 0]] and scale.tolist() == [2.0**-126, 0.0]


@pytest.mark.parametrize("tiny", [1e-45, 1e-43, 5e-36])
def test_a_calibrated_scale_is_a_number_that_float32_has(tiny):
    """Smaller ones would be 0 or lose their digits there, and 0 / 0 is NaN."""
    assert calibrated_scale(torch.tensor([tiny, 0.0])) == 1.0
    read = through("fp8", torch.tensor([[tiny, -tiny, 0.0]]), calibrated_scale(torch.tensor(tiny)))
    assert read.tolist() == [[0.0, 0.0, 0.0]]
    assert calibrated_scale(torch.tensor(448 * 2.0**-126)) == 2.0**-126
    for scale in (1e-46, 1e-40):  # given, not calibrated
        assert quantise_fp8(torch.tensor([0.0, 1.0]), scale).tolist() == [0.0, 448.0]


def test_q4_0_of_a_block_whose_scale_is_below_fp16_reads_as_zeros():
    """As llama.cpp has it. The smallest scale of fp16 is 2 ** -24: 8 of it are 4.8e-7."""
    for tiny in (1e-45, 1e-43, 1e-38, 1e-8):
        values = torch.tensor([[tiny, -tiny] * 16])
        assert through("q4_0", values).abs().sum() == 0
    read = through("q4_0", torch.tensor([[8 * 2.0**-24] + [-(2.0**-24)] * 31]))
    assert read[0, :2].tolist() == [8 * 2.0**-24, -(2.0**-24)]


def test_giants():
    """int8 has a float32 scale and takes all; q4_0's fp16 scale and fp8 saturate, and say where."""
    values = torch.tensor([[3e38] + [-3e38] * 31])
    assert torch.allclose(through("int8", values), values)
    read = through("q4_0", values)
    assert (float(read[0, 0]), float(read[0, 1])) == (8 * 65504.0, -7 * 65504.0)
    assert through("fp8", values)[0, :2].tolist() == [448.0, -448.0]
    assert through("fp8", values, scale=2.0)[0, :2].tolist() == [896.0, -896.0]


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_nothing_finite_is_made_of_nan_or_infinity(bad):
    """int8: the whole vector reads as NaN; q4_0: the whole block; fp8: saturates, NaN stays."""
    values = torch.ones(2, 64)
    values[1, 5] = bad
    assert through("int8", values).isnan().sum(1).tolist() == [0, 64]
    assert through("q4_0", values).isnan().sum(1).tolist() == [0, 32]
    (read,) = through("fp8", values)[1, 5:6].tolist()
    assert math.isnan(read) if math.isnan(bad) else read == math.copysign(448, bad)
    assert bool((through("fp8", values)[1, :5] == 1).all())


# ---- scales of a whole tensor


def test_a_calibrated_scale_uses_the_whole_range():
    values = torch.tensor([[0.5, -1792.0], [3.0, 7.0]])
    scale = calibrated_scale(values)
    assert scale == 4.0
    assert dequantise_fp8(quantise_fp8(values, scale), scale)[0].tolist() == [0.5, -1792.0]
    assert float(dequantise_fp8(quantise_fp8(values))[0, 1]) == -448.0  # without one
    assert calibrated_scale(torch.zeros(3)) == calibrated_scale(torch.zeros(0)) == 1.0
    with pytest.raises(ValueError, match="the largest value is nan; calibrate with finite"):
        calibrated_scale(torch.tensor([1.0, NAN]))


# ---- names and bytes


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [32, 64, 80, 96, 128])
def test_bytes_are_those_that_the_calculator_counts(name, width):
    kind = cache_format(name)
    if name == "q4_0" and width == 80:
        with pytest.raises(ValueError, match="q4_0 packs 32 values into a block, and a vector"):
            kind.shapes(width)
        return
    codes, scales = kind.encode(torch.ones(1, width), 1.0)
    stored = codes.nbytes + (0 if scales is None else scales.nbytes)
    assert stored == kind.vector_bytes(width) == FORMATS[name].vector_bytes(width)


def test_a_width_that_blocks_do_not_fill_is_refused():
    with pytest.raises(ValueError, match="a vector here has 8; choose bf16, fp16, fp8 or int8"):
        quantise_q4_0(torch.ones(3, 8))


@pytest.mark.parametrize(
    ("asked", "name", "again"),
    [
        (torch.float32, "fp32", torch.float32),
        ("bf16", "bf16", torch.bfloat16),
        (torch.float64, "float64", torch.float64),
        (torch.float8_e4m3fn, "fp8", torch.float8_e4m3fn),
        ("fp8", "fp8", torch.float8_e4m3fn),
        ("int8", "int8", "int8"),
        ("int4", "q4_0", "q4_0"),
    ],
)
def test_names_and_dtypes(asked, name, again):
    kind = cache_format(asked)
    assert (kind.name, kind.asked) == (name, again)
    assert cache_format(kind.asked) == kind


@pytest.mark.parametrize(
    "asked", ["int3", "q8_0", "", 8, torch.int8, torch.float8_e5m2, torch.bool]
)
def test_other_formats_are_refused_with_the_choices(asked):
    with pytest.raises(ValueError, match="give one of fp32, fp16, bf16, fp8, int8, q4_0, int4, or"):
        cache_format(asked)


def test_a_q4_0_scale_below_fp16_s_normal_numbers_costs_more_than_half_a_scale():
    """1.5 x 2^-24 is stored as 2 x 2^-24: 12 x 2^-24 comes back as 16 x 2^-24, 2.7 scales off."""
    unit = 2.0**-24
    values = torch.full((1, 32), -12 * unit)
    codes, scale = quantise_q4_0(values)
    assert float(scale) == 2 * unit
    assert torch.equal(dequantise_q4_0(codes, scale), torch.full((1, 32), -16 * unit))


@given(st.integers(-27, -10), st.integers(0, 2**31))
def test_a_q4_0_value_comes_back_as_closely_as_its_docstring_says(power, seed):
    values = torch.randn(8, 32, generator=torch.Generator().manual_seed(seed)) * 2.0**power
    codes, scale = quantise_q4_0(values)
    exact = values.abs().amax(-1, keepdim=True) / 8
    rounding = torch.where(exact < 2.0**-14, 2.0**-25, exact * 2.0**-11)
    error = (dequantise_q4_0(codes, scale) - values).abs()
    assert (error <= (exact + 8 * rounding) * 1.0001).all()
