"""The formulas against tensors that exist, and the guard before anything large."""

import re
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from kvlab.core.memory import growth_bytes, kv_cache_bytes
from kvlab.measure import allocation
from kvlab.measure.allocation import (
    MOST_BYTES,
    Allocation,
    allocate,
    at_once,
    default_limit,
    too_large,
)

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
    layers: int, batch: int, heads: int, length: int, width: int, size: int
) -> None:
    """Odd head widths as well: no model is built."""
    found = allocate(layers, batch, heads, length, width, size)
    assert found.nbytes == kv_cache_bytes(layers, batch, heads, length, width, size)
    assert found.growth_all == growth_bytes(layers, batch, heads, width, size)
    assert found.growth_one == growth_bytes(layers, 1, heads, width, size)


class Living(TorchDispatchMode):
    """Counts the bytes of all tensors that were made under it and still exist; keeps the most."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(
        self, func: object, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and id(made) not in self.known:
            self.known.add(id(made))
            self.now += made.nbytes
            self.most = max(self.most, self.now)
            weakref.finalize(made, self._gone, id(made), made.nbytes)
        return made

    def _gone(self, which: int, nbytes: int) -> None:
        self.known.discard(which)
        self.now -= nbytes


@pytest.mark.parametrize("sizes", [(1, 1, 1, 64, 2), (3, 4, 2, 100, 7, 4), (2, 0, 3, 50, 8)])
def test_what_exists_at_once_is_what_the_limit_counts(sizes: tuple[int, ...]) -> None:
    with Living() as living:
        allocate(*sizes)
    assert living.most == at_once(*sizes) and living.now == 0


def test_a_request_that_grows_alone_counts_where_nobody_is_there() -> None:
    """Batch 0 keeps nothing, yet 6 million positions of one request would grow by one."""
    with pytest.raises(ValueError, match=r"while it grows by a position, 2\.15 GiB at once"):
        allocate(1, 0, 1, 6_000_000, 64, 2, limit=MOST_BYTES)
    assert too_large(1, 0, 1, 3, 2, limit=47) is not None
    assert allocate(1, 0, 1, 3, 2, limit=48) == Allocation((0, 1, 3, 2), 2, 0, 0, 8)


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
        ((1, 1, 1, 0, 2), 0, "while it grows by a position, 12 bytes at once are more than"),
        ((1, 1, 1, 3, 2), 47, "not allocated: while it grows by a position, 48 bytes at once"),
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
    """Twice 4 positions of 4 bytes, and once more while the last of the tensors is replaced."""
    assert at_once(1, 1, 1, 3, 2) == 2 * 16 + 16 == 48
    assert too_large(1, 1, 1, 3, 2, limit=48) is None
    assert allocate(1, 1, 1, 3, 2, limit=48).nbytes == 24


def test_sizes_that_look_alike_in_units_are_told_in_bytes() -> None:
    problem = too_large(1, 1, 1, 2**26 + 1, 1, limit=2**28)
    assert problem == (
        "not allocated: 268,435,460 bytes is more than the limit of 268,435,456 bytes"
    )


@pytest.mark.parametrize("limit", [-1, float("nan"), "5", True, 2.5, [1]])
def test_a_limit_that_is_no_number_of_bytes_is_named(limit: object) -> None:
    with pytest.raises(ValueError, match=re.escape(f"limit is {limit!r}; give a whole number")):
        allocate(1, 1, 1, 3, 2, limit=limit)


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
    with pytest.raises(MemoryError, match=r"no memory for 7\.28 TiB of keys and values"):
        allocate(1, 0, 1, 10**12, 2, limit=2**60)
    with pytest.raises(MemoryError, match=r"PiB of keys and values; choose"):
        allocate(1, 0, 10**15, 10**15, 10**15, limit=10**99)
    assert counted.made == 0


def test_memory_that_is_refused_is_told_in_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """No address space holds 2^58 bytes, whatever the system promises."""
    monkeypatch.setattr(allocation, "free_memory", lambda: None)
    with pytest.raises(MemoryError, match="no memory for 512 PiB of keys and values; choose"):
        allocate(1, 2**20, 2**10, 2**17, 2**10, 2, limit=2**60)


@pytest.mark.parametrize("size", [3, 0.5, 2.0, True, None, [2], "2"])
def test_a_size_without_a_dtype_is_named(size: object) -> None:
    with pytest.raises(ValueError, match=re.escape(f"bytes_per_value is {size!r}; give 4, 2 or 1")):
        allocate(1, 1, 1, 3, 2, size)


def test_every_dtype_has_the_bytes_it_stands_for() -> None:
    assert {size: dtype.itemsize for size, dtype in allocation.DTYPES.items()} == {4: 4, 2: 2, 1: 1}
    assert allocation.DTYPES[1] is torch.float8_e4m3fn
