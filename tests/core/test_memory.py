"""Eq 21.2 and 21.3 in exact arithmetic, by the chapter's own numbers."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.memory import growth_bytes, kv_cache_bytes, kv_cache_gib
from kvlab.core.sizes import both_units, in_units

COUNTS = st.integers(1, 10**6)
GOOD = {"layers": 2, "batch": 1, "kv_heads": 4, "seq_len": 5, "head_dim": 8}


def test_the_chapter_s_smallest_example_is_24_bytes_and_grows_by_8() -> None:
    assert kv_cache_bytes(1, 1, 1, 3, 2) == 24
    assert kv_cache_bytes(1, 1, 1, 4, 2) == 32
    assert growth_bytes(1, 1, 1, 2) == 8


def test_section_21_6_in_numbers() -> None:
    assert [kv_cache_bytes(2, 1, 4, t, 8) for t in (5, 6, 7, 8)] == [1280, 1536, 1792, 2048]
    assert growth_bytes(2, 1, 4, 8) == 256


@pytest.mark.parametrize(("kv_heads", "gib"), [(8, 1.0), (2, 0.25), (1, 0.125)])
def test_kv_cache_gib_takes_the_chapter_s_arguments(kv_heads: int, gib: float) -> None:
    assert kv_cache_gib(32, 1, kv_heads, 8192, 128) == gib
    named = {"layers": 32, "batch": 1, "kv_heads": kv_heads, "seq_len": 8192, "head_dim": 128}
    assert kv_cache_gib(**named, bytes_per_value=2) == gib
    assert kv_cache_gib(**named, bytes_per_value=4) == 2 * gib


def test_an_8b_model_takes_128_kib_a_position() -> None:
    assert growth_bytes(32, 1, 8, 128) == 131_072 == kv_cache_bytes(32, 1, 8, 1, 128)


def test_nothing_processed_is_0_bytes() -> None:
    assert kv_cache_bytes(32, 1, 8, 0, 128) == 0 and kv_cache_bytes(32, 0, 8, 9, 128) == 0
    assert kv_cache_gib(32, 1, 8, 0, 128) == 0.0


def test_parts_of_a_byte_are_exact() -> None:
    assert kv_cache_bytes(32, 1, 8, 8192, 128, 0.5) == 2**28
    assert kv_cache_bytes(1, 1, 1, 1, 1, 0.5) == 1
    assert kv_cache_bytes(1, 1, 1, 1, 32, 1.0625) == 68  # 34 bytes for 32 numbers, twice
    assert kv_cache_bytes(3, 1, 1, 1, 1, Fraction(1, 3)) == 2
    assert kv_cache_bytes(1, 1, 1, 10**18 + 1, 1, 0.5) == 10**18 + 1  # beyond a float's digits


def test_what_is_no_whole_number_of_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"bytes_per_value is 0\.25 and the whole comes to 1/2"):
        kv_cache_bytes(1, 1, 1, 1, 1, 0.25)
    with pytest.raises(ValueError, match="give bytes_per_value as a Fraction"):
        kv_cache_bytes(1, 1, 1, 10, 1, 0.1)  # not a tenth in binary


@pytest.mark.parametrize("name", list(GOOD))
@pytest.mark.parametrize("value", [-1, True, 2.0, "4", None])
def test_a_count_that_is_none_is_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value!r}; give a whole number of at least"):
        kv_cache_bytes(**{**GOOD, name: value})


@pytest.mark.parametrize("name", ["layers", "kv_heads", "head_dim"])
def test_a_cache_has_at_least_one_of(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0; give a whole number of at least 1"):
        kv_cache_bytes(**{**GOOD, name: 0})


@pytest.mark.parametrize("value", [0, -2, True, "2", None, float("nan"), float("inf")])
def test_a_size_that_is_none_is_named(value: object) -> None:
    with pytest.raises(ValueError, match=f"bytes_per_value is {value!r}; give a number above 0"):
        kv_cache_bytes(**GOOD, bytes_per_value=value)


@given(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, st.sampled_from([0.5, 1, 2, 4]))
def test_one_position_more_adds_the_growth(
    layers: int, batch: int, heads: int, length: int, width: int, size: float
) -> None:
    before = kv_cache_bytes(layers, batch, heads, length, width, size)
    after = kv_cache_bytes(layers, batch, heads, length + 1, width, size)
    assert after - before == growth_bytes(layers, batch, heads, width, size)
    assert before == length * batch * growth_bytes(layers, 1, heads, width, size)


def test_what_no_float_can_say_is_refused_in_gib_and_exact_in_bytes() -> None:
    assert kv_cache_bytes(10**200, 10**200, 1, 1, 1) == 4 * 10**400
    with pytest.raises(ValueError, match=r"layers is about 2\^664 and the whole about 2\^1330 byt"):
        kv_cache_gib(10**200, 10**200, 1, 1, 1)
    assert kv_cache_gib(10**100, 10**100, 1, 1, 2**28) == 1e200


def test_units_are_binary_and_short() -> None:
    found = [in_units(n) for n in (0, 1, 1023, 1024, 1280, 2**28, 2**30, 3 * 2**39)]
    expected = ["0 bytes", "1 byte", "1,023 bytes", "1 KiB", "1.25 KiB", "256 MiB", "1 GiB"]
    assert found == [*expected, "1.5 TiB"]
    for wrong in (-1, True, 2.0, float("nan"), "5", None):
        with pytest.raises(ValueError, match=f"nbytes is {wrong!r}; give a whole number"):
            in_units(wrong)


def test_1024_of_a_unit_are_one_of_the_next() -> None:
    assert [in_units(2**n - 1) for n in (20, 30, 40, 50)] == ["1 MiB", "1 GiB", "1 TiB", "1 PiB"]
    assert [in_units(1024 * 1023), in_units(2**20 - 6)] == ["1,023 KiB", "1,023.99 KiB"]
    assert both_units(2**20 - 1) == "1.00 MiB (1.05 MB)"
    assert in_units(2**60) == "1,024 PiB"  # the last unit
    assert in_units(2**50 * 10**402).startswith("1,000,000,")  # beyond a float


@given(st.integers(0, 2**60 - 2**44))
def test_units_read_back_within_half_a_hundredth(nbytes: int) -> None:
    number, unit = in_units(nbytes).replace(",", "").split()
    size = {"byte": 1, "bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    size |= {"TiB": 2**40, "PiB": 2**50}
    assert abs(Fraction(number) * size[unit] - nbytes) <= Fraction(size[unit], 200)
    assert Fraction(number) < 1024
