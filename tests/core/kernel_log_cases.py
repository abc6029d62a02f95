"""A log written by hand: one request of 10 positions, table [7, 2, 5], block size 4, two splits."""

from math import inf

from kvlab.core.kernel_log import KernelLog, KernelSource, Program, Reduce, Turn

SOURCE = KernelSource(
    "decode",
    10,
    (
        "def decode(table_ptr, key_ptr, value_ptr):",  # 10
        "    request = tl.program_id(0)",
        "    for start in range(0, end, TILE):",
        "        block_id = tl.load(table_ptr + start)",
        "        key = tl.load(key_ptr + slot)",
        "        value = tl.load(value_ptr + slot)",
        "        new_max2 = tl.maximum(running_max2, score2)",
        "        running_sum = running_sum * correction + weight",
        "        running_max2 = new_max2",
        "    tl.store(out_ptr, acc / running_sum)",  # 19
    ),
)
AT = {"lookup": 13, "key": 14, "value": 15, "new_max2": 16, "sum": 17, "max2": 18}


def turn(start, slots, lookups, before, after, keys=None):
    """A tile of four from `start`; before, after: (max2, sums) of two query heads."""
    return Turn(
        positions=tuple(range(start, start + 4)),
        keys=slots if keys is None else keys,
        values=slots,
        lookups=lookups,
        max2_before=before[0],
        max2=after[0],
        sums_before=before[1],
        sums=after[1],
        lines=(12, 13, 14, 15, 16, 17, 18),
        at=AT,
    )


NOTHING = ((-inf, -inf), (0.0, 0.0))
FIRST = ((3.2, 5.0), (1.75, 2.0))
SECOND = ((4.1, 5.0), (2.94, 2.4))
LAST = ((-1.5, 0.25), (1.25, 2.0))
TURNS = (
    turn(0, (28, 29, 30, 31), ((0, 7),), NOTHING, FIRST),
    turn(4, (8, 9, 10, 11), ((1, 2),), FIRST, SECOND),
    turn(8, (20, 21, None, None), ((2, 5),), NOTHING, LAST),
)


def small_log(turns=TURNS, **changes) -> KernelLog:
    """The first two turns are split 0, the third is split 1."""
    fields = {
        "file": "kernels.py",
        "block_size": 4,
        "num_blocks": 10,
        "seq_lens": (10,),
        "block_table": ((7, 2, 5),),
        "num_query_heads": 2,
        "num_kv_heads": 1,
        "head_dim": 16,
        "tile": 4,
        "num_splits": 2,
        "window": None,
        "sources": (SOURCE,),
        "programs": (
            Program(0, 0, 0, (11,), turns[:2], (12, 19)),
            Program(0, 0, 1, (11,), turns[2:], (12, 19)),
        ),
        "reduces": (
            Reduce(0, 0, (0.9, 0.1), (10,), None),
            Reduce(0, 1, (1.0, 0.0), (10,), None),
        ),
        "about": "a request",
        "names": ("A",),
    }
    return KernelLog(**{**fields, **changes})
