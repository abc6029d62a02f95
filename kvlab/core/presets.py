"""Twelve models' public figures, for a calculator that needs no download, and the embedded one.

A preset is a small JSON file: the keys of the published config.json that decide the cache's size,
and the bytes of the weights as published. Section 21.1.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "presets"
TINY = Path(__file__).parents[1] / "tiny" / "config.json"


@dataclass(frozen=True)
class Preset:
    """config: keys of config.json. weights: bytes of all parameters. source: whose figures."""

    name: str
    title: str
    config: dict
    parameters: int
    weights: int
    source: str
    about: str


@cache
def names() -> tuple[str, ...]:
    """The presets' names, in the order of the files."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


@cache
def preset(name: str) -> Preset:
    """One preset by its name. Raises ValueError for another name."""
    if name not in names():
        raise ValueError(f"preset {name!r} does not exist; there are {', '.join(names())}")
    return Preset(name, **json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))
