"""Reading a config.json without trusting it: keys under many names, nulls, nested parts.

Every fault is a ValueError that names the file, the key, the value found and the remedy.
"""

import json
import os
import reprlib
from collections.abc import Mapping
from pathlib import Path

LARGEST = 2**53  # more than any size of a model, and an integer in every JSON reader
MOST_LAYERS = 10_000
SIZES = (  # what a nested part and the keys beside it must not say differently
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
)
NESTED = ("text_config", "llm_config", "language_config", "decoder")


class ConfigKeys:
    """The keys of one configuration; null counts as absent, and `nulls` remembers which were."""

    def __init__(self, data: Mapping, source: str) -> None:
        if not isinstance(data, Mapping):
            raise ValueError(f"{source} holds {short(data)} instead of keys and values")
        self.source = source
        self.data = {key: value for key, value in data.items() if value is not None}
        self.nulls = {key for key, value in data.items() if value is None}

    def __contains__(self, key: object) -> bool:
        return key in self.data

    def filled(self, defaults: Mapping[tuple[str, ...], int]) -> tuple["ConfigKeys", list[str]]:
        """With a value for each thing that is given under none of its names; and which those are.

        defaults: {(name, other names, ...): value}.
        """
        missing = {names[0]: v for names, v in defaults.items() if self.first(*names) is None}
        told = [f"{name} {value}" for name, value in missing.items()]
        nulls = dict.fromkeys(self.nulls)  # they go on meaning something: a window switched off
        return ConfigKeys({**nulls, **self.data, **missing}, self.source), told

    def error(self, text: str) -> ValueError:
        return ValueError(f"{self.source}: {text}")

    def first(self, *names: str) -> str | None:
        """Which of several names for one thing is given. Two that disagree are an error."""
        given = [name for name in names if name in self.data]
        for other in given[1:]:
            if self.data[other] != self.data[given[0]]:
                raise self.error(
                    f"{given[0]} is {short(self.data[given[0]])} and {other} is "
                    f"{short(self.data[other])}; both name the same thing, keep one"
                )
        return given[0] if given else None

    def integer(self, *names: str, default: int | None = None, at_least: int = 1) -> int | None:
        """A whole number under the first of these names that is given, or the default."""
        name = self.first(*names)
        return default if name is None else self.checked(name, self.data[name], at_least)

    def required(self, *names: str, default: int | None = None, why: str = "") -> int:
        """The same, where absence is an error."""
        value = self.integer(*names, default=default)
        if value is None:
            state = "null" if names[0] in self.nulls else "missing"
            raise self.error(f"{names[0]} is {state}{why}; add it as a whole number")
        return value

    def checked(self, name: str, value: object, at_least: int = 1) -> int:
        """`value` of key `name` as an integer in range."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(f"{name} is {short(value)}; it must be a whole number")
        if not at_least <= value <= LARGEST:
            bound = f"at least {at_least}" if value < at_least else f"at most {LARGEST} (2^53)"
            raise self.error(f"{name} is {short(value)}; it must be {bound}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.data.get(name, default)
        if not isinstance(value, bool):
            raise self.error(f"{name} is {short(value)}; it must be true or false")
        return value

    def words(self, name: str) -> list[str] | None:
        """A list of words, such as layer_types."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise self.error(f"{name} is {short(value)}; it must be a list of words, one a layer")
        return list(value)

    def integers(self, name: str, at_least: int = 0) -> list[int] | None:
        """A list of whole numbers, such as attn_layer_indices."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise self.error(f"{name} is {short(value)}; it must be a list of whole numbers")
        return [self.checked(f"{name}[{i}]", v, at_least) for i, v in enumerate(value)]

    def part(self, name: str) -> "ConfigKeys | None":
        """A nested set of keys, or None where it is absent."""
        return ConfigKeys(self.data[name], f"{self.source}, {name}") if name in self.data else None

    def text(self, name: str) -> str:
        value = self.data.get(name, "")
        if not isinstance(value, str):
            raise self.error(f"{name} is {short(value)}; it must be a word")
        if len(value) > MOST_LAYERS or (name == "model_type" and len(value) > 60):
            raise self.error(f"{name} is {short(value)}; that is too long a word")
        return value


def short(value: object) -> str:
    """A value for an error message, cut to a readable length whatever it is."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**30:
        return "a number of more than 30 digits"
    shortener = reprlib.Repr()
    shortener.maxstring = shortener.maxother = 60
    return shortener.repr(value)


def load(config: Mapping | str | Path, source: str | None) -> tuple[Mapping, str]:
    """The configuration's keys, and a name for it in messages.

    config: the keys themselves, the path of a config.json, or of a folder that holds one.
    """
    if isinstance(config, Mapping):
        return config, source or "config"
    if not isinstance(config, str | Path) or not str(config):
        raise ValueError(f"config is {short(config)}; give a dict, or the path of a config.json")
    path = Path(config)
    if os.path.isdir(path):  # unlike Path.is_dir, no error for a name that cannot be
        path = path / "config.json"
    if not os.path.isfile(path):
        raise ValueError(f"{short(str(path))} is not a file; give the path of a config.json")
    try:
        keys = json.loads(path.read_text(encoding="utf-8-sig"))  # with or without a byte order mark
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply to be a model's config.json") from None
    except ValueError as error:
        raise ValueError(f"{path} is no JSON text: {error}") from None
    return keys, source or path.name


def text_part(top: ConfigKeys) -> tuple[ConfigKeys, str, bool]:
    """The part that describes the language model, its model_type, and whether it was nested."""
    own_type = top.text("model_type")
    if own_type.endswith("omni") and "thinker_config" in top:
        return text_part(top.part("thinker_config"))
    for name in NESTED:
        if isinstance(top.data.get(name), Mapping):
            part = top.part(name)
            for key in SIZES:
                if key in top and key in part and top.data[key] != part.data[key]:
                    raise top.error(
                        f"{key} is {short(top.data[key])} and {name}.{key} is "
                        f"{short(part.data[key])}; keep one"
                    )
            return part, part.text("model_type") or own_type, True
        if name in top and name != "decoder":
            raise top.error(f"{name} is {short(top.data[name])}; it must be a set of keys")
    return top, own_type, False
