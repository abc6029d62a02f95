"""The models that the memory calculator offers, and a configuration that a reader pastes."""

import json
from dataclasses import dataclass
from functools import cache, lru_cache

from kvlab.core import presets
from kvlab.core.spec import KVCacheSpec

PASTED = "pasted config"
TINY = "tiny"
SOURCE = "config.json"  # what messages call the pasted text
EXAMPLE = """{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
 "num_attention_heads": 32, "num_key_value_heads": 8}"""


@dataclass(frozen=True)
class Model:
    """weights: bytes of all parameters as published, or None where nothing says so."""

    title: str
    spec: KVCacheSpec
    weights: int | None


def model_choices() -> tuple[str, ...]:
    """The twelve presets, the embedded model, and the pasted configuration."""
    return (*presets.names(), TINY, PASTED)


@cache
def model_named(name: str) -> Model:
    """A preset or the embedded model. Raises ValueError for another name."""
    if name == TINY:
        return Model("The tiny model", KVCacheSpec.from_config(presets.TINY), _tiny_weights())
    found = presets.preset(name)
    return Model(found.title, KVCacheSpec.from_config(found.config, name), found.weights)


@lru_cache(maxsize=4)
def pasted_spec(text: str) -> KVCacheSpec:
    """What a pasted config.json says. Raises ValueError naming the key that is wrong."""
    if not text.strip():
        raise ValueError(f"no {SOURCE} is pasted; paste one, or choose another model")
    try:
        config = json.loads(text)
    except RecursionError:
        raise ValueError(f"{SOURCE} is nested too deeply to be a model's") from None
    except ValueError as error:
        raise ValueError(f"{SOURCE} is no JSON text: {error}; paste the whole file") from None
    if not isinstance(config, dict):
        raise ValueError(f"{SOURCE} holds no keys and values; paste the whole file, from {{ to }}")
    return KVCacheSpec.from_config(config, SOURCE)


def _tiny_weights() -> int:
    """Bytes of the tensors in the embedded file: all but its length field and its table."""
    path = presets.TINY.parent / "model.safetensors"
    with path.open("rb") as file:
        table = int.from_bytes(file.read(8), "little")
    return path.stat().st_size - 8 - table
