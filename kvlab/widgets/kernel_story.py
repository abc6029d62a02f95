"""The payload of the view "watch a kernel": the stops of a log, and what the picture shows at each.

A turn of a program is three stops: it looks blocks up, reads slots, and updates its running maximum
and sum. The lines that ran are divided among them, in the order in which they ran.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from kvlab.core.kernel_log import KernelLog, Program, Turn
from kvlab.widgets.blocks_story import stop_number
from kvlab.widgets.growth_words import count
from kvlab.widgets.kernel_words import KernelTeller, hundredths, number

TITLE = "Watch a kernel"
MOST_BLOCKS = 64  # drawn; of more, those that the tables name


@dataclass(frozen=True)
class Stop:
    """kind: "all", "start", "lookup", "read", "sum", "store", "reduce" or "end"; program, turn:
    their indices; lines: what ran since the stop before; at: those that this stop is about."""

    kind: str
    sentence: str
    program: int | None = None
    turn: int | None = None
    request: int | None = None
    lines: Sequence[int] = ()
    at: Sequence[int] = ()


def kernel_payload(
    log: KernelLog, *, title: str | None = None, at: int | str | None = None
) -> dict:
    """What the view draws: plain data, the same for the same log. See `kernel_view`."""
    if not isinstance(log, KernelLog):
        raise ValueError(f"log has type {type(log).__name__}; give what watch_decode returns: .log")
    blocks, stops = drawn_blocks(log), kernel_stops(log)
    return {
        "view": "kernel_watch",
        "title": TITLE if title is None else str(title),
        "about": about(log),
        "recorded": log.recorded,
        "file": log.file,
        "block_size": log.block_size,
        "blocks": blocks,
        "left_out": log.num_blocks - len(blocks),
        "tables": [list(table) for table in log.block_table],
        "lengths": list(log.seq_lens),
        "names": [_name(log, r) for r in range(len(log.seq_lens))],
        "group": log.group,
        "splits": log.num_splits,
        "kv_heads": log.num_kv_heads,
        "sources": [[s.name, s.first_line, list(s.lines)] for s in log.sources],
        "programs": [_program(program) for program in log.programs],
        "reduces": [
            [r.request, r.query_head, [hundredths(w) for w in r.weights]] for r in log.reduces
        ],
        "scale": _scale(log),
        "stops": [_plain(stop) for stop in stops],
        **({} if at is None else {"at": stop_number(stops, at)}),
    }


def about(log: KernelLog) -> str:
    """What was watched, in a few words; a recorded log says so first."""
    shape = f"{count(log.num_query_heads, 'query head')} on {count(log.num_kv_heads, 'KV head')}"
    where = ["RECORDED, not run here"] if log.recorded else []
    return ", ".join([*where, *filter(None, [log.about]), shape])


def drawn_blocks(log: KernelLog) -> list[int]:
    """Ids in the order of memory: all of a small pool, else those of the tables and those read."""
    if log.num_blocks <= MOST_BLOCKS:
        return list(range(log.num_blocks))
    used = {block for table in log.block_table for block in table if block >= 0}
    slots = (slot for _, turn in log.turns() for slot in (*turn.keys, *turn.values))
    used |= {slot // log.block_size for slot in slots if slot is not None}
    return sorted(used)


def kernel_stops(log: KernelLog) -> list[Stop]:
    """All stops, in the order in which things happened."""
    tell = KernelTeller(log)
    stops = [Stop("all", tell.overview())]
    for i, program in enumerate(log.programs):
        stops += _program_stops(tell, program, i)
    for request, programs in groupby(log.reduces, key=lambda one: one.request):
        heads = list(programs)
        at = [one.at for one in heads[:1] if one.at is not None]
        told = tell.reduce(request, heads)
        stops.append(Stop("reduce", told, request=request, lines=heads[0].lines, at=at))
    return [*stops, Stop("end", tell.end())]


def _program_stops(tell: KernelTeller, program: Program, i: int) -> list[Stop]:
    ids = program.before[:3]
    stops = [Stop("start", tell.start(program), i, lines=program.before, at=ids)]
    for t, turn in enumerate(program.turns):
        found = lines_of_parts(turn)
        for kind, told in (("lookup", tell.lookup), ("read", tell.read), ("sum", tell.sums)):
            lines, at = found[kind]
            stops.append(Stop(kind, told(program, t), i, t, lines=lines, at=at))
    return [
        *stops,
        Stop("store", tell.store(program), i, lines=program.after, at=program.after[1:]),
    ]


def lines_of_parts(turn: Turn) -> dict[str, tuple[tuple[int, ...], list[int]]]:
    """For "lookup", "read" and "sum": the lines that ran for it, and which of them did it."""
    at, lines = turn.at, turn.lines
    reads = [at[name] for name in ("key", "value") if name in at]
    largest = "new_max2" if "new_max2" in at else "max2"
    sums = [at[name] for name in (largest, "correction", "sum") if name in at]
    first = next((i for i, line in enumerate(lines) if line in reads), len(lines))
    scored = next((i for i, line in enumerate(lines) if line in sums), len(lines))
    last = max((i for i, line in enumerate(lines[:scored]) if line in reads), default=first - 1)
    parts = {
        "lookup": (lines[:first], [at["lookup"]] if "lookup" in at else []),
        "read": (lines[first : last + 1], reads),
        "sum": (lines[last + 1 :], [*sums, *reads]),
    }
    return {
        name: (ran, [line for line in dict.fromkeys(here) if line in ran])
        for name, (ran, here) in parts.items()
    }


def _program(program: Program) -> dict:
    return {
        "ids": list(program.ids),
        "turns": [
            {
                "positions": list(turn.positions),
                "keys": list(turn.keys),
                "values": None if turn.values == turn.keys else list(turn.values),
                "lookups": [list(pair) for pair in turn.lookups],
                "max2": [_numbers(turn.max2_before), _numbers(turn.max2)],
                "sums": [_numbers(turn.sums_before), _numbers(turn.sums)],
            }
            for turn in program.turns
        ],
    }


def _numbers(values: Sequence[float]) -> list[list]:
    """Each as [number for a bar or None, text]."""
    return [[hundredths(value), number(value)] for value in values]


def _scale(log: KernelLog) -> dict:
    """The ends of the two kinds of bars."""
    finite = {}
    for name in ("max2", "sums"):
        held = [hundredths(value) for _, turn in log.turns() for value in getattr(turn, name)]
        finite[name] = [value for value in held if value is not None] or [0.0, 1.0]
    return {"max2": [min(finite["max2"]), max(finite["max2"])], "sum": max(finite["sums"])}


def _name(log: KernelLog, request: int) -> str:
    return log.names[request] if request < len(log.names) else ""


def _plain(stop: Stop) -> dict:
    return {
        "kind": stop.kind,
        "sentence": stop.sentence,
        "program": stop.program,
        "turn": stop.turn,
        "request": stop.request,
        "lines": sorted(set(stop.lines)),
        "at": sorted(set(stop.at)),
    }
