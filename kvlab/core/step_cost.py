"""How long a step takes, as a sum over what it does.

    seconds = per_step
            + per_row        * rows                requests that take part
            + per_token      * computed positions  weights are applied to each
            + per_pair       * (query, key) pairs  attention's arithmetic
            + per_key        * keys                K/V read, once a row, whatever its queries
            + per_byte       * bytes               blocks that move between tiers

A layer with a window reads less, and a model may have layers of both kinds: pairs and keys are then
the mean over its layers.

A straight line knows nothing of caches, of kernels that change with the shape, or of a machine
that is busy otherwise; measure/calibrate.py fits it to a real run and says how far it is off.
Section 21.3.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields

from kvlab.core.checked import number, shown, whole
from kvlab.core.scheduler_output import ScheduledRequest, SchedulerOutput
from kvlab.core.windows import SlidingWindow

Windows = Sequence[int | None]  # one a layer: positions that a query reads at most; None: all


@dataclass(frozen=True)
class StepWork:
    """What one step has to do, counted off the scheduler's message.

    A row that computes n positions after `start` others reads n * start + n (n + 1) / 2 pairs and
    start + n keys, or what a window leaves of them. copied_blocks stay on the device
    (copy-on-write), transferred_blocks move between tiers.
    """

    rows: int = 0
    tokens: int = 0
    pairs: float = 0
    keys: float = 0
    copied_blocks: int = 0
    transferred_blocks: int = 0

    @classmethod
    def of(cls, output: SchedulerOutput, windows: Windows = (None,)) -> "StepWork":
        rows = [row for row in output.requests if row.token_ids]  # others: from kept logits
        tokens = sum(len(row.token_ids) for row in rows)
        pairs, keys = (_mean(read, rows, windows) for read in (pairs_read, keys_read))
        moved = len(output.blocks_to_load) + len(output.blocks_to_store)
        return cls(len(rows), tokens, pairs, keys, len(output.blocks_to_copy), moved)


def _mean(
    read: Callable[[int, int, int | None], int],
    rows: Sequence[ScheduledRequest],
    windows: Windows,
) -> float:
    """Of the layers' sums over the rows; an integer where all layers are alike."""
    sums = {w: sum(read(row.start, len(row.token_ids), w) for row in rows) for w in set(windows)}
    if len(sums) == 1:
        return next(iter(sums.values()))
    return sum(sums[w] for w in windows) / len(windows)


def pairs_read(start: int, count: int, window: int | None) -> int:
    """(query, key) pairs of `count` queries from position `start` on, in one layer.

    Window 8, queries at 6 to 9: they read 7, 8, 8 and 8 keys, together 31.
    """
    pairs = count * start + count * (count + 1) // 2
    beyond = 0 if window is None else start + count - window  # what the last query does not read
    cut = max(0, min(count, beyond))
    return pairs - (cut * beyond - cut * (cut - 1) // 2)


def keys_read(start: int, count: int, window: int | None) -> int:
    """Keys that some of these queries read: the first one's window, and those after it."""
    length = start + count
    return length if window is None else min(length, window + count - 1)


def layer_windows(runner: object, window: SlidingWindow | None) -> Windows:
    """As the runner says; else as the manager knows, which has one where every layer has one."""
    return getattr(runner, "windows", (None if window is None else window.size,))


def checked_windows(windows: object) -> Windows:
    """Raises ValueError for what is no list of windows."""
    fits = isinstance(windows, list | tuple) and len(windows) > 0
    if not fits or not all(w is None or (type(w) is int and w > 0) for w in windows):
        raise ValueError(
            f"windows is {shown(windows)}; give one a layer, an integer of at least 1 or None"
        )
    return tuple(windows)


@dataclass(frozen=True)
class CostModel:
    """Seconds for each unit of a step's work, which the module's sum multiplies and adds up.

    Raises ValueError for a negative one.
    block_nbytes: keys and values of one block, all layers; copies within the device count too.
    """

    per_step: float = 0.0
    per_row: float = 0.0
    per_token: float = 0.0
    per_pair: float = 0.0
    per_key: float = 0.0
    per_byte: float = 0.0
    block_nbytes: int = 0

    def __post_init__(self) -> None:
        for field in fields(self)[:-1]:
            number(f"CostModel: {field.name}", getattr(self, field.name))
        whole("CostModel: block_nbytes", self.block_nbytes)

    def seconds(self, work: StepWork) -> float:
        """How long a step with this work takes."""
        return sum(self.parts(work).values())

    def parts(self, work: StepWork) -> dict[str, float]:
        """The same, by what the time is spent on."""
        moved = (work.copied_blocks + work.transferred_blocks) * self.block_nbytes
        return {
            "step": self.per_step,
            "rows": self.per_row * work.rows,
            "tokens": self.per_token * work.tokens,
            "pairs": self.per_pair * work.pairs,
            "keys": self.per_key * work.keys,
            "bytes": self.per_byte * moved,
        }

    def to_dict(self) -> dict[str, float]:
        return asdict(self)
