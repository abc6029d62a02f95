"""The formulas against tensors that exist, and the guard before anything large."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.memory import growth_bytes, kv_cache_bytes
from kvlab.measure import allocation
from kvlab.measure.allocation import MOST_BYTES, Allocation, allocate, default_limit, too_large

SMALL = st.integers(1, 6)


def test_the_chapter_s_smallest_example_is_allocated() -> None:
    found = allocate(layers=1, batch=1, kv_heads=1, seq_len=3, head_dim=2)
    assert found == Allocation((1, 1, 3, 2), tensors=2, nbytes=24, growth_all=8, growth_one=8)


def test_one_request_grows_by_its_share() -> None:
    found = allocate(2, 3, 4, 5, 8)
    assert (found.shape, found.nbytes) == ((3, 4, 5, 8), 3840)
    assert (found.growth_all, found.growth_one) == (768, 256)


@given(SMALL, SMALL, SMALL, st.integers(0, 9), SMALL, st.sampled_from([1, 2, 4]))
def test_tensors_agree_with_the_formulas(
    layers: int, batch: int, heads: int, length: int, half: int, size: int
) -> None:
    found = allocate(layers, batch, heads, length, 2 * half, size)
    assert found.nbytes == kv_cache_bytes(layers, batch, heads, length, 2 * half, size)
    assert found.growth_all == growth_bytes(layers, batch, heads, 2 * half, size)
    assert found.growth_one == growth_bytes(layers, 1, heads, 2 * half, size)


class Counted:
    """Stands in for the cache and counts how often one is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        real = allocation.ContiguousCache

        def cache(*arguments: object) -> object:
            self.made += 1
            return real(*arguments)

        monkeypatch.setattr(allocation, "ContiguousCache", cache)


@pytest.mark.parametrize(
    ("sizes", "limit", "message"),
    [
        ((32, 40, 8, 8192, 128), None, "not allocated: 40 GiB is more than the limit of"),
        ((1, 1, 1, 3, 2), 23, "not allocated: 24 bytes is more than the limit of 23 bytes"),
        ((1, 1, 1, 3, 2), 0, "not allocated: 24 bytes is more than the limit of 0 bytes"),
        ((1, 1, 1, 0, 2), 0, "not allocated: 8 bytes is more than the limit of 0 bytes"),
    ],
)
def test_above_the_limit_nothing_is_allocated(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], limit: int | None, message: str
) -> None:
    counted = Counted(monkeypatch)
    with pytest.raises(ValueError, match=message):
        allocate(*sizes, limit=limit)
    assert counted.made == 0
    assert allocate(1, 1, 1, 3, 2).nbytes == 24 and counted.made == 2  # the counter counts


def test_at_the_limit_it_is_allocated() -> None:
    assert too_large(1, 1, 1, 3, 2, limit=24) is None
    assert allocate(1, 1, 1, 3, 2, limit=24).nbytes == 24


def test_little_free_memory_lowers_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "free_memory", lambda: 4000)
    assert default_limit() == 1000
    problem = too_large(1, 1, 1, 3, 200)
    assert problem == "not allocated: 2.34 KiB is more than the limit of 1,000 bytes"
    monkeypatch.setattr(allocation, "free_memory", lambda: None)
    assert default_limit() == MOST_BYTES == 268_435_456


def test_this_machine_says_how_much_is_free() -> None:
    free = allocation.free_memory()
    assert free is None or free > 2**20


def test_what_the_machine_does_not_have_is_never_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    with pytest.raises(MemoryError, match="no memory for 160 TiB of keys and values; choose"):
        allocate(80, 128, 64, 131_072, 256, 4, limit=2**60)
    assert counted.made == 0


def test_memory_that_is_refused_is_told_in_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """No address space holds 2^58 bytes, whatever the system promises."""
    monkeypatch.setattr(allocation, "free_memory", lambda: None)
    with pytest.raises(MemoryError, match="no memory for 512 PiB of keys and values; choose"):
        allocate(1, 2**20, 2**10, 2**17, 2**10, 2, limit=2**60)


@pytest.mark.parametrize("size", [3, 0.5, 2.0, True, None])
def test_a_size_without_a_dtype_is_named(size: object) -> None:
    with pytest.raises(ValueError, match=f"bytes_per_value is {size!r}; there is a dtype for"):
        allocate(1, 1, 1, 3, 2, size)


def test_every_dtype_has_the_bytes_it_stands_for() -> None:
    assert {size: dtype.itemsize for size, dtype in allocation.DTYPES.items()} == {4: 4, 2: 2, 1: 1}
    assert allocation.DTYPES[1] is torch.float8_e4m3fn
