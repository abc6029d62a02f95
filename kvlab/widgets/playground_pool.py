"""The allocator playground's pool: block ids in their free order, from an argument or a text."""

import re
from collections.abc import Iterable
from itertools import islice
from numbers import Integral

MOST_BLOCKS, LARGEST_ID = 200, 999
FORMS = (
    f"give block ids from 0 to {LARGEST_ID} in their free order, such as 7 2 9 5, "
    "or a range, such as 0-15"
)


def pool_text(pool: Iterable[int] | int | str) -> str:
    """The argument `pool` as the text field has it: ids, or their number, or a text as it is.

    Nothing longer than a pool may be is counted out. Raises ValueError for what is no pool; a
    text, and which ids there are, is checked by `parse_pool`.
    """
    if isinstance(pool, str):
        return pool
    if isinstance(pool, Integral) and not isinstance(pool, bool):
        if not 1 <= pool <= MOST_BLOCKS:
            raise ValueError(f"pool is {pool}; give 1 to {MOST_BLOCKS} blocks, or their ids")
        return " ".join(map(str, range(pool)))
    unordered = isinstance(pool, bool | bytes | bytearray | set | frozenset | dict)
    if unordered or not isinstance(pool, Iterable):
        raise ValueError(
            f"pool is {pool!r}; give block ids in their free order, such as [7, 2, 9, 5], or the "
            "number of blocks"
        )
    ids = list(islice(pool, MOST_BLOCKS + 1))
    for block_id in ids:
        if not isinstance(block_id, Integral) or isinstance(block_id, bool):
            raise ValueError(
                f"the pool has {block_id!r}; give whole numbers from 0 to {LARGEST_ID}"
            )
    if len(ids) > MOST_BLOCKS:
        what = repr(pool) if isinstance(pool, range) else "the pool"
        raise ValueError(f"{what} has more than {MOST_BLOCKS} blocks; give 1 to {MOST_BLOCKS} ids")
    return " ".join(map(str, ids))


def parse_pool(text: str) -> list[int]:
    """Block ids in their free order, next to be taken first: `7 2 9 5`, or `0-15`.

    Raises ValueError for what is no id, for one that stands twice, and for too many.
    """
    ids: dict[int, None] = {}
    for word in re.split(r"[\s,]+", text.strip()) if text.strip() else []:
        found = re.fullmatch("([0-9]{1,6})(?:-([0-9]{1,6}))?", word)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
        if not first <= last <= LARGEST_ID:
            raise ValueError(f"the pool has {word!r}; {FORMS}")
        for block_id in range(first, last + 1):
            if block_id in ids:
                raise ValueError(f"the pool has block {block_id} twice; give each block id once")
            ids[block_id] = None
    if not 1 <= len(ids) <= MOST_BLOCKS:
        raise ValueError(f"the pool has {len(ids)} blocks; give 1 to {MOST_BLOCKS} block ids")
    return list(ids)
