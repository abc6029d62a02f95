"""Three public memory calculators' mistakes, rebuilt, each with a model that shows it.

An answer of each is given; the reader says which mistake made it. Section 21.1.
"""

from collections.abc import Callable, Mapping

from kvlab.core import presets
from kvlab.core.spec import KVCacheSpec
from kvlab.core.storage import Storage

GUESSED, QUERY_HEADS, WINDOWS, KEYS_ONLY, ONE_LAYER = "a", "b", "c", "d", "e"
MISTAKES = (
    (GUESSED, "the head's width is guessed as hidden_size / heads"),
    (QUERY_HEADS, "query heads are counted in place of KV heads"),
    (WINDOWS, "layers with a window are charged with the whole context"),
    (KEYS_ONLY, "values are forgotten"),
    (ONE_LAYER, "a layer is forgotten"),
)
LENGTH = 131_072


def right(config: Mapping, length: int) -> int:
    """What the layers keep of one request, 2 bytes a number."""
    return Storage(KVCacheSpec.from_config(config)).nbytes(length)


def guessed_width(config: Mapping, length: int) -> int:
    """head_dim is a key of its own; this calculator never looks."""
    width = config["hidden_size"] // config["num_attention_heads"]
    return right({**config, "head_dim": width}, length)


def query_heads(config: Mapping, length: int) -> int:
    return right({**config, "num_key_value_heads": config["num_attention_heads"]}, length)


def whole_windows(config: Mapping, length: int) -> int:
    spec = KVCacheSpec.from_config(config)
    return Storage(spec, policy="reserve_full").nbytes(length)


def keys_only(config: Mapping, length: int) -> int:
    return right(config, length) // 2


def one_layer_less(config: Mapping, length: int) -> int:
    layers = config["num_hidden_layers"] - 1
    return right({**config, "num_hidden_layers": layers}, length)


CALCULATORS: dict[str, Callable[[Mapping, int], int]] = {
    GUESSED: guessed_width,
    QUERY_HEADS: query_heads,
    WINDOWS: whole_windows,
    KEYS_ONLY: keys_only,
    ONE_LAYER: one_layer_less,
}


QWEN3_32B = {
    "model_type": "qwen3",
    "num_hidden_layers": 64,
    "hidden_size": 5120,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
MODELS = {
    "Qwen3 32B": QWEN3_32B,
    "Llama 3.1 70B": presets.preset("llama-3.1-70b").config,
    "Gemma 3 27B": presets.preset("gemma-3-27b").config,
}


def mistake_behind(name: str, said: int, length: int) -> str:
    """The letter of the one mistake that gives this answer. Raises ValueError for none, or two."""
    config = MODELS[name]
    if said == right(config, length):
        raise ValueError(f"{said} is right for {name}")
    (letter,) = (m for m, wrong in CALCULATORS.items() if wrong(config, length) == said)
    return letter
