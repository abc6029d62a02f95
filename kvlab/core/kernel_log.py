"""What one run of the decode kernel did, written down: programs, tiles, look-ups, slots, sums.

A kernel is a function that many **programs** run, each with ids of its own. The decode kernel has
one program for a request, a KV head and a split (a part of the request's positions):

positions of a request   | 0  1  2  3 | 4  5  6  7 | 8  9  .  . |   tile of 4, "." is masked
                         |<-------- split 0 ------>|<- split 1 ->|
turn of a program's loop   turn 0       turn 1       turn 0
block table              |     7      |     2      |     5      |
slots read               | 28 .. 31   |  8 .. 11   | 20, 21     |

After each turn the program holds a **running maximum** of its scores and a **running sum** of
2^(score - maximum), one of each per query head; `reduce` weighs the splits by them. Maxima are in
base 2 (`max2`): scores times log2(e), so that the kernel needs no other power than 2^x.

Written by tensors/watch_kernel.py from the kernel's own source, drawn by the view
"watch a kernel". Section 21.5.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

VERSION = 1
RECORDED = Path(__file__).parent / "recorded" / "kernel_log.json"
CHANGED_COPY = "kernels.py, changed"  # a `KernelLog.file` that is no file


@dataclass(frozen=True)
class KernelSource:
    """A function of the kernel's file: its lines, the first of which has number `first_line`."""

    name: str
    first_line: int
    lines: tuple[str, ...]

    def __contains__(self, line: int) -> bool:
        return self.first_line <= line < self.first_line + len(self.lines)

    def line(self, number: int) -> str:
        """The text of a line, by its number in the file."""
        return self.lines[number - self.first_line]


@dataclass(frozen=True)
class Turn:
    """One turn of a program's loop over its tiles.

    positions: the logical position of each place of the tile. keys, values: the slot from which
    the place was read, None where the mask kept the program from reading. lookups: entries of the
    block table that this turn read, as (logical block, block id). max2, sums: the running maximum
    and the running sum of each query head of the group after the turn; max2_before, sums_before
    the same before it (-inf and 0 at the start). lines: numbers of the source lines that ran, in
    order. at: which line did what: "lookup", "key", "value", "max2" and "sum", and where the kernel
    has variables of these names "new_max2", "correction" and "weight".
    """

    positions: tuple[int, ...]
    keys: tuple[int | None, ...]
    values: tuple[int | None, ...]
    lookups: tuple[tuple[int, int], ...]
    max2_before: tuple[float, ...]
    max2: tuple[float, ...]
    sums_before: tuple[float, ...]
    sums: tuple[float, ...]
    lines: tuple[int, ...]
    at: Mapping[str, int]

    @property
    def slots(self) -> tuple[int, ...]:
        """Slots whose keys were read, in the order of the tile."""
        return tuple(slot for slot in self.keys if slot is not None)

    @property
    def masked(self) -> tuple[int, ...]:
        """Positions of the tile's masked places: no keys were read for them."""
        pairs = zip(self.positions, self.keys, strict=True)
        return tuple(position for position, slot in pairs if slot is None)


@dataclass(frozen=True)
class Program:
    """One program: its ids, the lines before and after its loop, and its turns."""

    request: int
    kv_head: int
    split: int
    before: tuple[int, ...]
    turns: tuple[Turn, ...]
    after: tuple[int, ...]

    @property
    def ids(self) -> tuple[int, int, int]:
        return (self.request, self.kv_head, self.split)


@dataclass(frozen=True)
class Reduce:
    """The splits of one query head put together: each one's share of the result; they sum to 1.

    A split that read nothing has weight 0. lines: source lines that ran; at: the line that
    computed the weights.
    """

    request: int
    query_head: int
    weights: tuple[float, ...]
    lines: tuple[int, ...]
    at: int | None


@dataclass(frozen=True)
class KernelLog:
    """A run of the decode kernel. programs: in the order in which they ran.

    block_table: the entries of each request that its length needs, -1 for a block that was freed
    behind the window. file: the kernel's. recorded: it comes from a file, not from a run on this
    machine. about: what was watched, in words; names: what the engine calls each request.
    """

    file: str
    block_size: int
    num_blocks: int
    seq_lens: tuple[int, ...]
    block_table: tuple[tuple[int, ...], ...]
    num_query_heads: int
    num_kv_heads: int
    head_dim: int
    tile: int
    num_splits: int
    window: int | None
    sources: tuple[KernelSource, ...]
    programs: tuple[Program, ...]
    reduces: tuple[Reduce, ...]
    about: str = ""
    names: tuple[str, ...] = ()
    triton: str = ""
    recorded: bool = False
    version: int = field(default=VERSION)

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.num_query_heads // self.num_kv_heads

    def table_slots(self, request: int) -> list[int]:
        """Slots of a request's positions by its block table, in logical order.

        With a window, those of the last `window` positions.
        """
        size, table, length = self.block_size, self.block_table[request], self.seq_lens[request]
        first = 0 if self.window is None else max(0, length - self.window)
        return [table[t // size] * size + t % size for t in range(first, length)]

    def slots_read(self, request: int, kv_head: int, what: str = "keys") -> list[int]:
        """Slots whose "keys" or "values" the programs of a request and KV head read, split after
        split.
        """
        mine = [p for p in self.programs if (p.request, p.kv_head) == (request, kv_head)]
        mine.sort(key=lambda p: p.split)
        found = [getattr(turn, what) for program in mine for turn in program.turns]
        return [slot for slots in found for slot in slots if slot is not None]

    def turns(self) -> Iterator[tuple[Program, Turn]]:
        """All turns, in the order in which they ran."""
        for program in self.programs:
            for turn in program.turns:
                yield program, turn

    def source_of(self, line: int) -> KernelSource | None:
        """The function that a line of the kernel's file belongs to."""
        return next((source for source in self.sources if line in source), None)

    def as_recorded(self) -> "KernelLog":
        """The same log, marked as one that comes from a file."""
        return replace(self, recorded=True)

    def __repr__(self) -> str:
        turns = sum(len(program.turns) for program in self.programs)
        recorded = ", recorded" if self.recorded else ""
        return f"KernelLog({len(self.programs)} programs, {turns} turns{recorded})"

    def to_dict(self) -> dict:
        """Plain data for JSON; the numbers that JSON has not are the texts "-inf" and "nan"."""
        return _plain(asdict(self))

    @classmethod
    def from_dict(cls, document: Mapping) -> "KernelLog":
        """The inverse of `to_dict`. Raises ValueError for anything else."""
        version = document.get("version") if isinstance(document, Mapping) else None
        if version != VERSION:
            raise ValueError(f"no kernel log of version {VERSION}: its version is {version!r:.40}")
        try:
            lists = {name: _tuples(value) for name, value in document.items()}
            lists["sources"] = tuple(KernelSource(**_fields(s)) for s in document["sources"])
            lists["programs"] = tuple(_program(p) for p in document["programs"])
            lists["reduces"] = tuple(_reduce(r) for r in document["reduces"])
            return cls(**lists)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"no kernel log: {type(error).__name__} {error}") from None


def recorded_log() -> KernelLog:
    """The log that ships with the package, for machines on which Triton cannot interpret a kernel.

    It was recorded by `python -m kvlab.measure.kernel_example` and is marked as recorded.
    """
    return KernelLog.from_dict(json.loads(RECORDED.read_text(encoding="utf-8"))).as_recorded()


def _plain(value: object) -> object:
    """Lists and dicts, and no float that JSON cannot hold."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _fields(document: Mapping) -> dict:
    return {name: _tuples(value) for name, value in document.items()}


def _floats(values: list) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _turn(document: Mapping) -> Turn:
    numbers = ("max2_before", "max2", "sums_before", "sums")
    return Turn(**{**_fields(document), **{name: _floats(document[name]) for name in numbers}})


def _program(document: Mapping) -> Program:
    turns = tuple(_turn(turn) for turn in document["turns"])
    return Program(**{**_fields(document), "turns": turns})


def _reduce(document: Mapping) -> Reduce:
    return Reduce(**{**_fields(document), "weights": _floats(document["weights"])})
