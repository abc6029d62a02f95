"""How a kernel is cut into programs: tile sizes and splits, from a small table. Pure Python.

A table instead of a search while the engine runs: the same work is always cut in the same way, so
results repeat, and no first request pays for trying. Two things decide.

    tile    as much K/V as the fast memory of a multiprocessor holds, a few tiles in flight
    splits  R * Hkv programs may be fewer than there are multiprocessors; then the positions of a
            request are shared by several programs, and a second kernel merges their parts

The interpreter has other costs: 1 to 2 ms a program, whatever is in it. So its tiles are large and
its programs few. Section 21.5.
"""

from dataclasses import dataclass

SHORTEST_SPLIT = 256  # positions; below, starting a program costs more than it saves
MOST_SPLITS = 64
RESIDENT = 2  # programs that one multiprocessor works on at the same time
GOOD_ENOUGH = 0.85  # of the best share of busy multiprocessors: then fewer splits are better


@dataclass(frozen=True)
class Device:
    """What of a device decides a plan. name: "sm_80", "sm_90", "gfx942" or "interpreter"."""

    name: str
    multiprocessors: int


@dataclass(frozen=True)
class DecodePlan:
    """tile: positions at a time. For the compiler: num_warps, threads / 32 of a program;
    num_stages, tiles in flight."""

    tile: int
    num_splits: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class PrefillPlan:
    """rows: queries * heads of a group that share a program's reading of K/V; the rest as above."""

    rows: int
    tile: int
    num_warps: int
    num_stages: int


INTERPRETER = Device("interpreter", multiprocessors=1)
INTERPRETER_TILE = 256

# By device and bytes of a number, then by padded head_dim: tile, num_warps, num_stages. A block id
# must be there before its K/V can be asked for, so 5 stages keep 2 tiles of K/V in flight.
DECODE = {
    ("sm_80", 2): {64: (128, 4, 5), 128: (64, 4, 5), 256: (32, 4, 5)},
    ("sm_90", 2): {64: (128, 4, 5), 128: (64, 4, 5), 256: (32, 4, 5)},
    ("gfx942", 2): {64: (64, 4, 2), 128: (32, 4, 2), 256: (16, 4, 2)},
    ("sm_80", 4): {64: (64, 4, 3), 128: (32, 8, 3), 256: (16, 8, 3)},
    ("sm_90", 4): {64: (64, 4, 3), 128: (32, 8, 3), 256: (16, 8, 3)},
    ("gfx942", 4): {64: (32, 4, 2), 128: (16, 4, 2), 256: (16, 4, 1)},
}
# The same: rows, tile, num_warps, num_stages. float32 has no tensor cores, hence its small tiles.
PREFILL = {
    ("sm_80", 2): {64: (128, 64, 8, 3), 128: (128, 32, 8, 3), 256: (64, 32, 8, 2)},
    ("sm_90", 2): {64: (128, 64, 4, 3), 128: (128, 64, 8, 3), 256: (64, 64, 8, 2)},
    ("gfx942", 2): {64: (128, 64, 4, 1), 128: (128, 32, 4, 1), 256: (64, 16, 4, 1)},
    ("sm_80", 4): {64: (32, 32, 4, 2), 128: (32, 16, 8, 2), 256: (16, 16, 8, 2)},
    ("sm_90", 4): {64: (32, 32, 4, 2), 128: (32, 16, 8, 2), 256: (16, 16, 8, 2)},
    ("gfx942", 4): {64: (32, 32, 4, 1), 128: (32, 16, 4, 1), 256: (16, 16, 4, 1)},
}


def next_power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number` (at least 1)."""
    return 1 << max(number - 1, 0).bit_length()


def padded_dim(head_dim: int) -> int:
    """head_dim as the kernels compute with it: a power of two, and no less than tl.dot wants."""
    return max(16, next_power_of_two(head_dim))


def padded_group(group: int) -> int:
    """Query heads of a group as rows of a matrix: tensor cores take 16 at least."""
    return max(16, next_power_of_two(group))


def written_rows(device: Device) -> int:
    """Rows of K and V (one head of one position) that one program stores."""
    return 1024 if device.name == "interpreter" else 32


def num_splits(programs: int, longest: int, multiprocessors: int) -> int:
    """Into how many parts each request's positions are cut, for `programs` = R * Hkv.

    The fewest that keep nearly as many multiprocessors busy as the best number would: 64
    programs of 8,192 positions on 132 multiprocessors become 64 * 4. One means no merging.
    """
    places = RESIDENT * multiprocessors
    most = min(MOST_SPLITS, longest // SHORTEST_SPLIT)

    def busy(splits: int) -> float:
        """Share of places with work, over the rounds that the programs take."""
        rounds = -(-programs * splits // places)
        return programs * splits / (rounds * places)

    choices = range(1, max(most, 1) + 1)
    enough = GOOD_ENOUGH * max(busy(splits) for splits in choices)
    return next(splits for splits in choices if busy(splits) >= enough)


def decode_plan(
    requests: int, num_kv_heads: int, longest: int, head_dim: int, itemsize: int, device: Device
) -> DecodePlan:
    """How to cut one step of decode.

    longest: positions that a request may have (with a window: that it reaches); itemsize: bytes
    of a number that is computed with.
    """
    if device.name == "interpreter":
        tile = min(INTERPRETER_TILE, max(16, next_power_of_two(longest)))
        return DecodePlan(tile, num_splits=1, num_warps=4, num_stages=1)
    tile, warps, stages = DECODE[device.name, itemsize][_width(head_dim)]
    splits = num_splits(requests * num_kv_heads, longest, device.multiprocessors)
    return DecodePlan(tile, splits, warps, stages)


def prefill_plan(
    max_query_len: int, group: int, longest: int, head_dim: int, itemsize: int, device: Device
) -> PrefillPlan:
    """How to cut a step with chunks. The longest chunk has max_query_len * group query rows."""
    needed = max(16, next_power_of_two(max_query_len * group))
    if device.name == "interpreter":
        tile = min(INTERPRETER_TILE, max(16, next_power_of_two(longest)))
        return PrefillPlan(min(INTERPRETER_TILE, needed), tile, num_warps=4, num_stages=1)
    rows, tile, warps, stages = PREFILL[device.name, itemsize][_width(head_dim)]
    if needed < rows:  # a short chunk: fewer rows, and no more warps than have work
        rows, warps = needed, 4
    return PrefillPlan(rows, tile, warps, stages)


def _width(head_dim: int) -> int:
    return max(64, padded_dim(head_dim))
