"""Single values of a config.json, each checked: the error names the file, the key and the value.

hf: keys and values without nulls; source: what the error calls the file.
"""

from collections.abc import Mapping


def integer(hf: Mapping, key: str, source: str, default: int | None = None) -> int:
    """The key, or the default where it is absent. Raises ValueError for anything else."""
    value = hf.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{source}: {key} is {value!r}; it must be an integer")
    return value


def number(hf: Mapping, key: str, source: str, default: float) -> float:
    """As `integer`, for a number above 0."""
    value = hf.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{source}: {key} is {value!r}; it must be a number")
    if not 0 < value < float("inf"):
        raise ValueError(f"{source}: {key} is {value!r}; it must be above 0 and finite")
    return float(value)


def flag(hf: Mapping, key: str, source: str) -> bool:
    """As `integer`, for true or false; false where it is absent."""
    value = hf.get(key, False)
    if not isinstance(value, bool):  # a text such as "false" would count as true
        raise ValueError(f"{source}: {key} is {value!r}; it must be true or false")
    return value


def eos_ids(value: object) -> tuple[int, ...]:
    """The key eos_token_id: one id or a list of them. Raises ValueError for anything else."""
    ids = tuple(value) if isinstance(value, list | tuple) else (value,)
    if bad := [i for i in ids if not isinstance(i, int) or isinstance(i, bool)]:
        raise ValueError(f"eos_token_id holds {bad[0]!r}; it must be a token id or a list of them")
    return ids
