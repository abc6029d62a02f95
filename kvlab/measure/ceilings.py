"""What this device can do at most, measured: bytes a second and FLOPs a second (section 21.2).

    copy    dst[i] = src[i]       bytes read + bytes written: THE copy ceiling
    read    sum(src); src @ v     bytes read alone; the better of the two ways
    matmul  A @ B, n x n          2 n^3 FLOPs

Copies and reads pass through two pools several times the last-level cache, piece after piece,
so that no piece is still in a cache when its turn comes again; products rotate over pairs of
matrices. Every size is warmed up once and then timed several times. A ceiling is the best size's
median; what the other sizes reached is kept beside it.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from kvlab.measure import devices
from kvlab.measure.roofline_records import Ceilings, Rate, RateAt, Spread

MIB = 2**20
CACHES = 4  # a pool is at least this many times the last-level cache
LEAST_POOL = {"cpu": 256 * MIB, "mps": 512 * MIB, "cuda": 1024 * MIB}
MOST_POOL = 2048 * MIB
QUICK_POOL = 8 * MIB
PIECES = (16, 4, 1)  # a pool is passed through in so many pieces
SIDES = {"cpu": (512, 1024, 2048), "mps": (1024, 2048, 4096), "cuda": (2048, 4096, 8192)}
QUICK_SIDES = (64, 128)
LEAST_SAMPLE = 0.01  # seconds; shorter work is repeated within a sample
REPETITIONS = (3, 25)  # least and most samples of a size
ROW = 8192  # columns of the matrix that a piece is read as

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Trial:
    """One size of one kind of work. amount: bytes or FLOPs that one call of `work` counts."""

    kind: str
    size: str
    how: str
    amount: int
    work: Callable[[], object]


def measure_ceilings(
    device: str | torch.device | None = "cpu",
    dtype: str | torch.dtype | None = None,
    *,
    seconds: float = 8.0,
    quick: bool = False,
    progress: Progress | None = None,
) -> Ceilings:
    """Measure a device for about `seconds`.

    dtype: of products and of what is read; None takes float32 on a CPU, half precision on a GPU.
    progress: called with (trials done, of, the next one's name). quick: small buffers that fit
    into caches, to see that all of it runs. Raises ValueError for a device or dtype that is not
    here, and where the buffers do not fit into memory.
    """
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 0 < seconds < float("inf"):
        raise ValueError(f"seconds is {seconds!r}; give a number above 0")
    place = devices.checked_device(device)
    kind = devices.checked_dtype(dtype, place)
    tried: dict[str, list[RateAt]] = {"copy": [], "read": [], "matmul": []}
    count, done = _count(place, quick), 0
    for trial in trials(place, kind, quick):
        if progress is not None:
            progress(done, count, f"{trial.kind}, {trial.how}, {trial.size}")
        tried[trial.kind].append(_rate(trial, place, seconds / count))
        done += 1
    if progress is not None:
        progress(done, count, "")
    return Ceilings(
        devices.label(place),
        devices.device_name(place),
        devices.name_of(kind),
        devices.threads(place),
        devices.cache_nbytes(place),
        Rate("B/s", "bytes read + bytes written", tuple(tried["copy"])),
        Rate("B/s", "bytes read", tuple(tried["read"])),
        Rate("FLOP/s", "2 n^3 a product of n x n", tuple(tried["matmul"])),
    )


def trials(device: torch.device, dtype: torch.dtype, quick: bool = False) -> Iterable[Trial]:
    """Every kind and size in turn; buffers live as long as their trials are looked at."""
    yield from memory_trials(device, dtype, quick)
    yield from matmul_trials(device, dtype, quick)


def memory_trials(device: torch.device, dtype: torch.dtype, quick: bool = False) -> Iterable[Trial]:
    """Copies from one pool into another, then reads of the first."""
    nbytes = pool_nbytes(device, quick)
    what = f"measuring copies of {nbytes // MIB:,} MiB"
    devices.refuse_too_large(2 * nbytes, device, what, "close what else runs")
    source, target = (_filled(nbytes // dtype.itemsize, dtype, device) for _ in range(2))
    for pieces in PIECES:
        pairs = list(zip(source.chunk(pieces), target.chunk(pieces), strict=True))
        yield Trial("copy", _size(nbytes // pieces), "copy", 2 * nbytes, lambda p=pairs: _copy(p))
    del target, pairs
    vector = torch.ones(ROW, dtype=dtype, device=device)
    for pieces in PIECES:
        size, parts = _size(nbytes // pieces), source.chunk(pieces)
        yield Trial("read", size, "sum", nbytes, lambda p=parts: [x.sum() for x in p])
        parts = [x.view(-1, ROW) for x in parts]
        work = lambda p=parts: [x.mv(vector) for x in p]  # noqa: E731
        yield Trial("read", size, "matrix-vector", nbytes, work)


def matmul_trials(device: torch.device, dtype: torch.dtype, quick: bool = False) -> Iterable[Trial]:
    """Square products; pairs of matrices together exceed the cache, up to 8 pairs."""
    for side in QUICK_SIDES if quick else SIDES[device.type]:
        pair = 2 * side * side * dtype.itemsize
        count = max(2, min(8, math.ceil(2 * (devices.cache_nbytes(device) or 0) / pair)))
        devices.refuse_too_large(count * pair, device, "measuring products", "close what else runs")
        pairs = [
            tuple(_filled(side * side, dtype, device).view(side, side) for _ in range(2))
            for _ in range(count)
        ]
        out = torch.empty(side, side, dtype=dtype, device=device)
        flops = count * 2 * side**3
        yield Trial(
            "matmul", f"{side} x {side}", "product", flops, lambda p=pairs, o=out: _multiply(p, o)
        )


def pool_nbytes(device: torch.device, quick: bool = False) -> int:
    """Bytes of one pool: a power of two, `CACHES` times the last-level cache or more."""
    if quick:
        return QUICK_POOL
    cache = devices.cache_nbytes(device) or 0
    wanted = max(LEAST_POOL[device.type], CACHES * cache)
    return min(MOST_POOL, 2 ** math.ceil(math.log2(wanted)))


def sample(work: Callable[[], object], device: torch.device, inner: int = 1) -> float:
    """Seconds of one call, as the mean over `inner` calls in a row."""
    return devices.elapsed(device, lambda: [work() for _ in range(inner)]) / inner


def _rate(trial: Trial, device: torch.device, share: float) -> RateAt:
    """Amounts a second: samples until the share of the time is spent."""
    began = time.perf_counter()
    with torch.inference_mode():
        sample(trial.work, device)  # warms up: pages, clocks, the choice of a kernel
        inner = max(1, math.ceil(LEAST_SAMPLE / max(sample(trial.work, device), 1e-9)))
        rates: list[float] = []
        least, most = REPETITIONS
        while len(rates) < least or (len(rates) < most and time.perf_counter() - began < share):
            rates.append(trial.amount / sample(trial.work, device, inner))
    return RateAt(trial.size, trial.how, Spread.of(rates))


def _count(device: torch.device, quick: bool) -> int:
    return 3 * len(PIECES) + len(QUICK_SIDES if quick else SIDES[device.type])


def _size(nbytes: int) -> str:
    return f"{nbytes / MIB:g} MiB"


def _filled(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[count] values that differ: one random piece again and again, so that filling is fast."""
    generator = torch.Generator().manual_seed(0)
    piece = torch.randn(min(count, MIB), generator=generator).to(device, dtype)
    return piece.repeat(-(-count // len(piece)))[:count]


def _copy(pairs: list[tuple[Tensor, Tensor]]) -> None:
    for source, target in pairs:
        target.copy_(source)


def _multiply(pairs: list[tuple[Tensor, Tensor]], out: Tensor) -> None:
    for a, b in pairs:
        torch.mm(a, b, out=out)
