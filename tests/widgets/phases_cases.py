"""Records with round numbers: 10 GB/s and 100 GFLOP/s, so that the ridge is at 10 FLOPs a byte."""

from kvlab.measure.roofline_records import (
    Case,
    Ceilings,
    Phases,
    Point,
    Rate,
    RateAt,
    Spread,
)

HOSTILE = "<img src=x onerror=alert(1)>"


def rate(unit: str, value: float, size: str, how: str) -> Rate:
    spread = Spread.of([0.9 * value, value, 1.1 * value])
    return Rate(unit, "made up", (RateAt(size, how, spread),))


def ceilings(**changes: object) -> Ceilings:
    known = {
        "device": "cpu",
        "name": "a machine",
        "dtype": "float32",
        "threads": 1,
        "cache_nbytes": 2**20,
        "copy": rate("B/s", 8e9, "64 MiB", "copy"),
        "read": rate("B/s", 10e9, "64 MiB", "sum"),
        "matmul": rate("FLOP/s", 100e9, "1024 x 1024", "product"),
    }
    return Ceilings(**{**known, **changes})


def point(phase: str, batch: int, length: int, ms: float, mflop: int, kb: int) -> Point:
    """Took ms milliseconds; worked through mflop million FLOPs and kb thousand bytes."""
    spread = Spread.of([0.8e-3 * ms, 1e-3 * ms, 1.5e-3 * ms])
    work = {"weights": mflop * 10**6}, {"weights": kb * 1000}
    return Point(Case(phase, batch, length), spread, *work)


POINTS = (
    point("decode", 4, 512, 25.0, 200, 200_000),  # its bytes need 20 ms: 80 %
    point("prefill", 1, 512, 80.0, 4000, 200_000),  # 20 FLOPs a byte; its FLOPs need 40 ms: 50 %
    point("prefill", 1, 64, 10.0, 400, 20_000),
    point("decode", 1, 512, 40.0, 100, 200_000),
    point("decode", 1, 8, 0.05, 1, 1000),  # 1 MB fits into a cache of 1 MiB; 100 µs: 200 %
)


def phases(points: tuple[Point, ...] = POINTS, **changes: object) -> Phases:
    known = {
        "model": "some decoder",
        "num_parameters": 50_000_000,
        "device": "cpu",
        "name": "a machine",
        "dtype": "float32",
        "cache_dtype": "float32",
        "threads": 1,
        "points": points,
        "left_out": (),
        "why_left_out": "",
        "elapsed": 1.5,
        "budget": 20.0,
    }
    return Phases(**{**known, **changes})
