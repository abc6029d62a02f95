"""One sentence or two for each stop of the view "watch a kernel".

Numbers are shown with two digits, factors with three, and what follows from them (a factor, what a
tile added) is worked out from the shown ones, so that a reader can check it.
"""

import math
from collections.abc import Sequence
from itertools import groupby

from kvlab.core.kernel_log import KernelLog, Program, Reduce, Turn
from kvlab.widgets.growth_words import count

MOST_HEADS = 2  # of a group, told in full
LOWEST = -3.4028234663852886e38  # what the kernel holds as the maximum of scores of -inf alone


def hundredths(value: float) -> float | None:
    """Two digits, never -0.0; None for what is no finite number: -inf, the maximum of nothing, for
    which LOWEST counts too.
    """
    return round(value, 2) + 0.0 if LOWEST < value < math.inf else None


def number(value: float) -> str:
    """number(3.2) == "3.20"; the sign of a negative one is a minus sign."""
    shown = hundredths(value)
    if shown is None:
        return "NaN" if math.isnan(value) else "−∞" if value < 0 else "∞"
    return f"{shown:.2f}".replace("-", "−")


def factor(before: float, after: float) -> float:
    """2^(before - after) of two finite numbers as they are shown, with three digits."""
    return round(2.0 ** (hundredths(before) - hundredths(after)), 3)


def growth(sums: tuple[float, float], scale: float) -> str:
    """growth((2.19, 1.72), 0.047) == "sum 2.19 × 0.047 + 1.62 = 1.72": kept, added, what came out.

    With a scale of 1 the product is left out. Of sums that are no numbers only the two are shown.
    """
    before, after = map(hundredths, sums)
    if before is None or after is None:
        return f"sum {number(sums[0])} → {number(sums[1])}"
    added = max(after - round(before * scale, 2), 0.0)
    kept = number(before) if scale == 1 else f"{number(before)} × {scale:.3f}"
    return f"sum {kept} + {number(added)} = {number(after)}"


def ranges(numbers: Sequence[int]) -> str:
    """ranges([28, 29, 30, 31, 8, 9, 5]) == "28 to 31, 8 to 9, 5": runs, in the order given."""
    runs = (
        [n for _, n in run] for _, run in groupby(enumerate(numbers), key=lambda at: at[1] - at[0])
    )
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]} to {r[-1]}" for r in runs)


def blocks_of(table: Sequence[int]) -> str:
    """blocks_of([-1, -1, 7, 2]) == "7, 2 (2 before them were freed)": a window has passed them."""
    freed = sum(block < 0 for block in table)
    verb = "was" if freed == 1 else "were"
    before = f" ({freed} before them {verb} freed)" if freed else ""
    return ", ".join(str(block) for block in table if block >= 0) + before


def listed(words: Sequence[object]) -> str:
    """1; 1 and 2; 1, 2 and 3."""
    texts = [str(word) for word in words]
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


class KernelTeller:
    """Puts the moments of a log into words."""

    def __init__(self, log: KernelLog) -> None:
        self.log = log

    def overview(self) -> str:
        log = self.log
        grid = " × ".join(
            [
                count(len(log.seq_lens), "request"),
                count(log.num_kv_heads, "KV head"),
                count(log.num_splits, "split"),
            ]
        )
        where = "Recorded elsewhere, since no kernel was interpreted here. " if log.recorded else ""
        return (
            f"{where}The decode kernel ran as {count(len(log.programs), 'program')}: {grid}. "
            "All run the same lines; only their three ids differ. Each walks over its share of its "
            f"request's positions in tiles of {log.tile}, and finds keys and values through the "
            f"block table, in a pool of {count(log.num_blocks, 'block')} of "
            f"{count(log.block_size, 'slot')}."
        )

    def start(self, program: Program) -> str:
        log, length = self.log, self.log.seq_lens[program.request]
        table = blocks_of(log.block_table[program.request])
        if not program.turns:
            share = "Its share is empty: it makes no turn, and its sum stays 0"
        else:
            mine = [p for t in program.turns for p, s in _places(t) if s is not None]
            share = f"Its share is {count(len(program.turns), 'tile')}, positions {ranges(mine)}"
        return (
            f"{self._who(program)} starts. Its request has {count(length, 'position')} in blocks "
            f"{table}. {share}. Running max −∞, running sum 0."
        )

    def lookup(self, program: Program, index: int) -> str:
        turn = program.turns[index]
        entries = [logical for logical, _ in turn.lookups]
        blocks = [block for _, block in turn.lookups]
        entry = "entry" if len(entries) == 1 else "entries"
        block = "block" if len(blocks) == 1 else "blocks"
        said = "says" if len(entries) == 1 else "say"
        return (
            f"{self._where(program, index)}: positions {ranges(turn.positions)}"
            f"{self._masked(turn)}. {entry.capitalize()} {ranges(entries)} of the block table "
            f"{said} {block} {', '.join(map(str, blocks))}."
        )

    def read(self, program: Program, index: int) -> str:
        turn = program.turns[index]
        slots = ranges(turn.slots)
        told = f"keys and values of KV head {program.kv_head} are read from slots {slots}, that is "
        told += f"{count(len(turn.slots), 'slot')} in this order"
        if turn.values != turn.keys:
            values = ranges([s for s in turn.values if s is not None])
            told = f"keys are read from slots {slots}, values from slots {values or 'nowhere'}"
        return f"{self._where(program, index)}: {told}.{_at_masked_places(turn)}"

    def sums(self, program: Program, index: int) -> str:
        turn, first = program.turns[index], program.kv_head * self.log.group
        blocks = ", ".join(str(block) for _, block in turn.lookups)
        positions = [p for p, s in _places(turn) if s is not None]
        heads = [self._head(turn, 0, first)]
        heads += [self._next(turn, i, first + i) for i in range(1, min(self.log.group, MOST_HEADS))]
        more = self.log.group - len(heads)
        rest = [f"So also for {count(more, 'more head')}."] if more else []
        block = "block" if len(turn.lookups) == 1 else "blocks"
        way = f"positions {ranges(positions)} → {block} {blocks} → slots {ranges(turn.slots)}"
        return " ".join([f"{self._where(program, index)}: {way}.", *heads, *rest])

    def _head(self, turn: Turn, i: int, head: int) -> str:
        """What the tile did to the state of one query head."""
        before, after = turn.max2_before[i], turn.max2[i]
        old, new, sums = number(before), number(after), (turn.sums_before[i], turn.sums[i])
        name = f"Query head {head}: running max "
        if hundredths(before) is None or hundredths(after) is None:
            return f"{name}{old} → {new}, sum {number(turn.sums[i])}."
        if hundredths(before) == hundredths(after):
            return f"{name}stays {new}, so nothing is rescaled; {growth(sums, 1.0)}."
        scale = factor(before, after)
        return (
            f"{name}{old} → {new}, so the earlier sum is scaled by 2^({old} − {_minus(after)}) = "
            f"{scale:.3f}; {growth(sums, scale)}."
        )

    def _next(self, turn: Turn, i: int, head: int) -> str:
        """The same of a further head, in fewer words."""
        before, after = turn.max2_before[i], turn.max2[i]
        change, sums = f"max {number(before)} → {number(after)}", f"sum {number(turn.sums[i])}"
        if hundredths(before) is not None and hundredths(after) is not None:
            sums = growth((turn.sums_before[i], turn.sums[i]), factor(before, after))
            if hundredths(before) == hundredths(after):
                change = f"max stays {number(after)}"
        return f"Query head {head}: {change}; {sums}."

    def store(self, program: Program) -> str:
        if not program.turns:
            return (
                f"{self._who(program)} ends without having read anything: it stores zeros, and −∞ "
                "as its weight."
            )
        last, first = program.turns[-1], program.kv_head * self.log.group
        ends = [
            f"query head {first + i} with max {number(last.max2[i])} and sum {number(last.sums[i])}"
            for i in range(min(self.log.group, MOST_HEADS))
        ]
        then = "the result: there is one split"
        if self.log.num_splits > 1:
            then = "its part, and max + log2(sum): 2 to that is its weight among the splits"
        return (
            f"{self._who(program)} ends, {listed(ends)}. It divides what it has mixed by the sum "
            f"and stores {then}."
        )

    def reduce(self, request: int, heads: Sequence[Reduce]) -> str:
        each = "; ".join(
            f"{listed([number(weight) for weight in one.weights])} for query head {one.query_head}"
            for one in heads[: 2 * MOST_HEADS]
        )
        more, splits = (
            len(heads) - 2 * MOST_HEADS,
            listed([f"split {i}" for i in range(self.log.num_splits)]),
        )
        each += f"; so also {count(more, 'more head')}" if more > 0 else ""
        return (
            f"The second kernel puts the splits of {self._request(request)} together, one program "
            f"a query head. Shares of {splits}: {each}."
        )

    def end(self) -> str:
        """Whether what was read is what the tables say."""
        log = self.log
        for request in range(len(log.seq_lens)):
            by_table = log.table_slots(request)
            for head in range(log.num_kv_heads):
                for what in ("keys", "values"):
                    read = log.slots_read(request, head, what)
                    if read != by_table:
                        return (
                            f"WRONG: of {self._request(request)} and KV head {head}, the {what} of "
                            f"slots {ranges(read)} were read; the block table says "
                            f"{ranges(by_table)}."
                        )
        used = {slot for r in range(len(log.seq_lens)) for slot in log.table_slots(r)}
        others = log.num_blocks * log.block_size - len(used)
        window = "" if log.window is None else " within the window"
        return (
            f"For each request and KV head, every position{window} was read once, in logical "
            f"order, from the slot that the block table names: {count(len(used), 'slot')} of the "
            f"pool in all. The other {others:,} were not touched, whatever lies in them."
        )

    def _request(self, request: int) -> str:
        name = self.log.names[request] if request < len(self.log.names) else ""
        return f"request {request}{f' ({name})' if name else ''}"

    def _who(self, program: Program) -> str:
        who = self._request(program.request)
        return f"Program ({who}, KV head {program.kv_head}, split {program.split})"

    def _where(self, program: Program, index: int) -> str:
        return f"{self._who(program)}, turn {index + 1} of {len(program.turns)}"

    def _masked(self, turn: Turn) -> str:
        masked = turn.masked
        if not masked:
            return ""
        verb = "is" if len(masked) == 1 else "are"
        return f", of which {ranges(masked)} {verb} masked"


def _places(turn: Turn) -> zip:
    return zip(turn.positions, turn.keys, strict=True)


def _at_masked_places(turn: Turn) -> str:
    """What was read for the places whose keys are masked: nothing, unless V's load has no mask."""
    masked = len(turn.masked)
    values = sum(k is None and v is not None for k, v in zip(turn.keys, turn.values, strict=True))
    if not masked:
        return ""
    places, one = count(masked, "masked place"), masked == 1
    if not values:
        return f" The {places} read{'s' if one else ''} nothing."
    if values == masked:
        return f" The {places} read{'s' if one else ''} no keys, but values all the same."
    return f" The {places} read no keys; {values} of them read values all the same."


def _minus(value: float) -> str:
    """A number after a minus sign."""
    text = number(value)
    return f"({text})" if text.startswith("−") else text
