"""Where a step stands below what the machine can do: two ceilings make a roof (section 21.2).

        FLOP/s
    rate  |          ______________     intensity >= ridge: arithmetic is the limit
          |        /
          |      /                      below: bytes are, FLOP/s = intensity * bandwidth
          |____/___________________
                   ridge              intensity, FLOPs a byte

Pure functions of numbers, standard library only. Source: Williams, Waterman, Patterson (2009).
"""

from dataclasses import dataclass

from kvlab.measure.roofline_records import Ceilings, Point

MEMORY, COMPUTE = "memory", "compute"


def bound_seconds(nbytes: float, bandwidth: float) -> float:
    """The least time in which nbytes pass at bandwidth bytes/s; also FLOPs at FLOP/s.

    7e9 weights of 2 bytes at 1e12 B/s: at least 14 ms. A bound, no measurement.
    """
    if nbytes < 0:
        raise ValueError(f"nbytes is {nbytes!r}; give a number of at least 0")
    return nbytes / _positive("bandwidth", bandwidth)


def attainable(intensity: float, bandwidth: float, rate: float) -> float:
    """FLOP/s that the roof allows at an intensity (FLOPs a byte)."""
    slope = _positive("intensity", intensity) * _positive("bandwidth", bandwidth)
    return min(_positive("rate", rate), slope)


def ridge(bandwidth: float, rate: float) -> float:
    """The intensity from which on arithmetic is the limit: rate / bandwidth, FLOPs a byte."""
    return _positive("rate", rate) / _positive("bandwidth", bandwidth)


@dataclass(frozen=True)
class Placed:
    """A point under the roof.

    memory_seconds = bytes / bandwidth and compute_seconds = FLOPs / rate: the step takes at
    least the longer of the two. share: that bound / the measured time. of_copy and of_matmul:
    reached bytes/s over the copy ceiling, reached FLOP/s over the matmul ceiling.

    fits_cache: the step's bytes are fewer than the last-level cache holds, so that the next step
    may find them there: then a share above 1 is no error, for memory was not what delivered.
    """

    point: Point
    memory_seconds: float
    compute_seconds: float
    attainable: float
    of_copy: float
    of_matmul: float
    fits_cache: bool

    @property
    def bound_seconds(self) -> float:
        return max(self.memory_seconds, self.compute_seconds)

    @property
    def limited_by(self) -> str:
        """Which ceiling is above the point: "memory" or "compute"."""
        return MEMORY if self.memory_seconds > self.compute_seconds else COMPUTE

    @property
    def share(self) -> float:
        return self.bound_seconds / self.point.seconds.median


def place(point: Point, ceilings: Ceilings) -> Placed:
    """The point beside both bounds; the ceilings have to be of the same device and dtype."""
    bandwidth, rate = ceilings.bandwidth, ceilings.matmul.median
    return Placed(
        point,
        bound_seconds(point.nbytes, bandwidth),
        bound_seconds(point.flops, rate),
        attainable(point.intensity, bandwidth, rate),
        point.bytes_per_second / ceilings.copy.median,
        point.flops_per_second / rate,
        point.nbytes <= (ceilings.cache_nbytes or 0),
    )


def _positive(name: str, value: float) -> float:
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} is {value!r}; give a number above 0")
    return value
