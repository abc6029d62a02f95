"""How long a step takes, as a sum over what it does.

    seconds = per_step
            + per_row        * rows                requests that take part
            + per_token      * computed positions  weights are applied to each
            + per_pair       * (query, key) pairs  attention's arithmetic
            + per_key        * keys                K/V read, once a row, whatever its queries
            + per_byte       * bytes               blocks that move between tiers

A straight line knows nothing of caches, of kernels that change with the shape, or of a machine
that is busy otherwise; measure/calibrate.py fits it to a real run and says how far it is off.
Section 21.3.
"""

from dataclasses import asdict, dataclass, fields

from kvlab.core.checked import number, whole
from kvlab.core.scheduler_output import SchedulerOutput


@dataclass(frozen=True)
class StepWork:
    """What one step has to do, counted off the scheduler's message.

    A row that computes n positions after `start` others reads n * start + n (n + 1) / 2 pairs and
    start + n keys. copied_blocks stay on the device (copy-on-write), transferred_blocks move
    between tiers.
    """

    rows: int = 0
    tokens: int = 0
    pairs: int = 0
    keys: int = 0
    copied_blocks: int = 0
    transferred_blocks: int = 0

    @classmethod
    def of(cls, output: SchedulerOutput) -> "StepWork":
        rows = tokens = pairs = keys = 0
        for row in output.requests:
            n = len(row.token_ids)
            if n == 0:  # selects from kept logits
                continue
            rows, tokens, keys = rows + 1, tokens + n, keys + row.start + n
            pairs += n * row.start + n * (n + 1) // 2
        moved = len(output.blocks_to_load) + len(output.blocks_to_store)
        return cls(rows, tokens, pairs, keys, len(output.blocks_to_copy), moved)


@dataclass(frozen=True)
class CostModel:
    """Seconds for each unit of work; see the sum above. Raises ValueError for a negative one.

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
