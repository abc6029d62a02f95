"""JSONL, one JSON object a line: read strictly, so that no line is lost or half understood."""

import json
from collections.abc import Iterator
from pathlib import Path

from kvlab.core.checked import shown


def objects(text: str, name: str) -> Iterator[tuple[str, dict]]:
    """Each line's place in words ("NAME, line 3") and its object. Empty lines hold nothing.

    Raises ValueError, naming the line and what stands there, for a line that is no JSON object,
    names a key twice, or holds a number that JSON does not have (NaN, Infinity); where there is no
    line at all, and for what is no text.
    """
    if not isinstance(text, str):
        raise ValueError(f"{name} is {shown(text)}; give its text, or the file's path to load it")
    found = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            found, where = True, f"{name}, line {number}"
            yield where, _object(line, where)
    if not found:
        raise ValueError(f"{name} has no line; give one JSON object a line, one for each request")


def read_text(path: str | Path) -> str:
    """A file's text. Raises ValueError where it is not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{Path(path).name} is no UTF-8 text ({error.reason} at byte {error.start}); "
            "unpack or convert it"
        ) from None


def _object(line: str, where: str) -> dict:
    try:
        found = json.loads(line, parse_constant=_refuse, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{where}: {line.strip()[:60]!r} is no JSON object ({error}); mend or remove the line"
        ) from None
    if not isinstance(found, dict):
        raise ValueError(
            f"{where}: {line.strip()[:60]!r} is no JSON object; write one in braces, "
            "with a name for each value"
        )
    return found


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number of JSON")


def _once(pairs: list[tuple[str, object]]) -> dict:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} stands there twice")
    return found
