"""Which layer attends how: read from the many keys by which a config.json says so.

A kind is one word a layer: full (every position), window (the last `sliding_window` positions),
chunk (the positions of one chunk), state (a fixed state instead of keys and values), full+state
and window+state (both side by side), cross (keys and values of a picture), none (no attention).
"""

from collections.abc import Callable
from itertools import cycle, islice

from kvlab.core.spec_families import Family, has_no_windows
from kvlab.core.spec_read import MOST_LAYERS, ConfigKeys, short

WORDS = {
    **dict.fromkeys(("full_attention", "attention", "full", "global", "global_attention"), "full"),
    **dict.fromkeys(("indexed_attention", "deepseek_sparse_attention"), "full"),
    **dict.fromkeys(("sliding_attention", "sliding", "local", "local_attention"), "window"),
    "sliding_window": "window",
    "chunked_attention": "chunk",
    **dict.fromkeys(("linear_attention", "mamba", "mamba2", "recurrent", "conv"), "state"),
    "hybrid": "full+state",
    "hybrid_sliding": "window+state",
    **dict.fromkeys(("mlp", "moe"), "none"),
}
LETTERS = {"M": "state", "*": "full", "-": "none", "E": "none"}  # hybrid_override_pattern
LAYER_COUNT = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "num_transformer_layers",
)
ALL_ALIKE = {
    "mamba": "state",
    "mamba2": "state",
    "falcon_mamba": "state",
    "rwkv": "state",
    "bamba": "state",
    "granitemoehybrid": "state",
    "falcon_h1": "full+state",
    "lfm2": "full",
    "lfm2_moe": "full",
}


def layer_kinds(keys: ConfigKeys, model_type: str, family: Family) -> list[str]:
    """One kind a layer. Raises ValueError naming the key where the keys do not say, or disagree."""
    listed = _listed(keys)
    name = keys.first(*LAYER_COUNT)
    if listed and name is None:
        return listed[1]
    count = keys.required(*LAYER_COUNT)
    if count > MOST_LAYERS:
        raise keys.error(f"{name} is {short(count)}; no more than {MOST_LAYERS} layers are read")
    if model_type == "longcat_flash" and name == "num_layers":
        count *= 2  # each of its layers holds two attentions
    if listed is None:
        kinds = _by_rule(keys, model_type, family, count)
    elif len(listed[1]) != count:
        raise keys.error(
            f"{listed[0]} describes {len(listed[1])} layers and {name} is {count}; make them agree"
        )
    else:
        kinds = listed[1]
    for layer in keys.integers("cross_attention_layers") or _default_cross(keys, model_type):
        _within(keys, "cross_attention_layers", layer, count)
        kinds[layer] = "cross"
    if model_type.startswith("gemma4") and kinds[-1] == "window":
        kinds[-1] = "full"  # as its class does
    return kinds


def _default_cross(keys: ConfigKeys, model_type: str) -> list[int]:
    mllama = model_type.startswith("mllama") and "cross_attention_layers" not in keys
    return [3, 8, 13, 18, 23, 28, 33, 38] if mllama else []


def _listed(keys: ConfigKeys) -> tuple[str, list[str]] | None:
    """The key that lists every layer, and what it says; None where no key does."""
    for name in ("layer_types", "layers_block_type"):
        words = keys.words(name)
        if words:
            unknown = next((word for word in words if word not in WORDS), None)
            if unknown is not None:
                raise keys.error(
                    f"{name} has {short(unknown)}, whose storage is not known here; known are "
                    f"{', '.join(WORDS)}"
                )
            return name, [WORDS[word] for word in words]
    if "hybrid_override_pattern" in keys:
        pattern = keys.text("hybrid_override_pattern")
        if not pattern or set(pattern) - set(LETTERS):
            raise keys.error(
                f"hybrid_override_pattern is {short(pattern)}; it must be a word of the letters "
                f"{' '.join(LETTERS)}, one a layer"
            )
        return "hybrid_override_pattern", [LETTERS[letter] for letter in pattern]
    for name, kinds in (
        ("attn_type_list", ("state", "full")),
        ("hybrid_layer_pattern", ("full", "window")),
    ):
        flags = keys.integers(name)
        if flags:
            if set(flags) - {0, 1}:
                raise keys.error(f"{name} is {short(flags)}; it must hold 0 or 1 for each layer")
            return name, [kinds[flag] for flag in flags]
    return None


def _by_rule(keys: ConfigKeys, model_type: str, family: Family, count: int) -> list[str]:
    """The kinds of `count` layers where a rule, and no list, says them."""
    rules: tuple[Callable, ...] = (_states_between, _chunks, _windows)
    for rule in rules:
        kinds = rule(keys, model_type, family, count)
        if kinds is not None:
            return kinds
    return [ALL_ALIKE.get(model_type, "full")] * count


def _states_between(
    keys: ConfigKeys, model_type: str, family: Family, count: int
) -> list[str] | None:
    """Models that mix attention with fixed states."""
    linear = keys.part("linear_attn_config")
    if linear is not None and linear.integers("full_attn_layers"):
        full = {layer - 1 for layer in linear.integers("full_attn_layers", 1)}  # counted from 1
        return _attention_at(linear, "full_attn_layers", full, count)
    for name in ("attn_layer_indices", "full_attn_idxs"):
        layers = keys.integers(name)
        if layers is not None:
            return _attention_at(keys, name, set(layers), count)
    words = keys.words("block_types")
    if words is None and model_type == "recurrent_gemma":
        words = ["recurrent", "recurrent", "attention"]
    if words:
        if set(words) - {"recurrent", "attention"}:
            raise keys.error(f"block_types is {short(words)}; known: 'recurrent', 'attention'")
        kinds = ["window" if word == "attention" else "state" for word in words]
        return list(islice(cycle(kinds), count))
    if "attn_layer_period" in keys or model_type in ("jamba", "zamba"):
        period = keys.integer("attn_layer_period", default=8 if model_type == "jamba" else 6)
        offset = keys.integer("attn_layer_offset", default=4, at_least=0)
        if offset >= period:
            raise keys.error(
                f"attn_layer_offset is {offset} and attn_layer_period is {period}; the offset must "
                "be the smaller"
            )
        if model_type == "zamba":
            rest = ["full+state" if i % period == offset else "state" for i in range(count)]
            return ["state", "state", "full+state", *rest][:count]
        return ["full" if i % period == offset else "state" for i in range(count)]
    if model_type == "kimi_linear":
        return ["full" if i and i % 4 == 0 else "state" for i in range(count)]
    if model_type == "minimax":
        return ["state" if i % 2 else "full" for i in range(count)]
    if model_type in ("nemotron_h", "zamba2"):
        name = "hybrid_override_pattern" if model_type == "nemotron_h" else "layers_block_type"
        raise keys.error(f"{name} is missing; add it, since it says which layers attend")
    interval = keys.integer("full_attention_interval", default=family.state_every or None)
    interval = interval or keys.integer("layer_group_size")
    if interval is None:
        return None
    return ["state" if (i + 1) % interval else "full" for i in range(count)]


def _attention_at(keys: ConfigKeys, name: str, layers: set[int], count: int) -> list[str]:
    for layer in layers:
        _within(keys, name, layer, count)
    return ["full" if i in layers else "state" for i in range(count)]


def _within(keys: ConfigKeys, name: str, layer: int, count: int) -> None:
    if not 0 <= layer < count:
        raise keys.error(f"{name} names layer {layer}; there are only {count} layers")


def _chunks(keys: ConfigKeys, model_type: str, family: Family, count: int) -> list[str] | None:
    """Llama 4: layers with rotary positions attend within a chunk, every fourth to everything."""
    llama4 = model_type.startswith("llama4")
    if not llama4 and "attention_chunk_size" not in keys:
        return None
    if "attention_chunk_size" in keys.nulls:
        return ["full"] * count
    return ["chunk" if rope else "full" for rope in _rope_layers(keys, count)]


def _rope_layers(keys: ConfigKeys, count: int) -> list[bool]:
    flags = keys.integers(
        "no_rope_layers"
    )  # 1 where a layer has rotary positions, despite its name
    if not flags:
        step = keys.integer("no_rope_layer_interval", default=4)
        return [bool((i + 1) % step) for i in range(count)]
    if len(flags) != count or set(flags) - {0, 1}:
        raise keys.error(
            f"no_rope_layers is {short(flags)}; it must hold 0 or 1 for each of {count} layers"
        )
    return [bool(flag) for flag in flags]


def _windows(keys: ConfigKeys, model_type: str, family: Family, count: int) -> list[str] | None:
    """Models that mix full attention with sliding windows, or have windows in every layer."""
    if has_no_windows(model_type) or window_size(keys, family) is None:
        return None
    if model_type == "smollm3":
        return ["full" if rope else "window" for rope in _rope_layers(keys, count)]
    first = keys.integer("max_window_layers", default=family.windows_from, at_least=0)
    if first is not None:
        if model_type == "qwen2_moe":  # its class: every second of the first layers
            return ["window" if i % 2 == 0 and i < first else "full" for i in range(count)]
        return ["window" if i >= first else "full" for i in range(count)]
    name = keys.first("sliding_window_pattern", "_sliding_window_pattern")
    name = name or keys.first("global_attn_every_n_layers")
    if name is not None and isinstance(keys.data[name], str):
        pattern = keys.data[name]
        if not pattern or set(pattern) - {"L", "G"}:
            raise keys.error(f"{name} is {short(pattern)}; it must be a number, or L and G")
        kinds = ["window" if letter == "L" else "full" for letter in pattern]
        return [*islice(cycle(kinds), count - 1), "full"]
    every = keys.integer(name, default=family.every) if name else family.every
    if not every:
        return ["window"] * count
    if model_type.startswith("mimo"):
        return ["full" if i == 0 or (i + 1) % every == 0 else "window" for i in range(count)]
    last = 0 if family.first_full else every - 1
    return ["full" if i % every == last else "window" for i in range(count)]


def window_size(keys: ConfigKeys, family: Family) -> int | None:
    """The window's positions, or None where the configuration switches windows off."""
    if not keys.flag("use_sliding_window", not family.window_off):
        return None
    names = ("sliding_window", "attention_window_size", "sliding_window_size")
    if any(name in keys.nulls for name in names) and keys.first(*names) is None:
        return None
    if "sliding_window_size" in keys and keys.text("model_type").startswith("mimo"):
        return keys.integer("sliding_window_size") + 1  # its class counts the query besides
    return keys.integer(*names, default=family.window)


def stray_window(keys: ConfigKeys, model_type: str, kinds: list[str]) -> list[str]:
    """A notice where sliding_window stands in the configuration of a class without windows."""
    if "sliding_window" not in keys or not has_no_windows(model_type) or "window" in kinds:
        return []
    size = short(keys.data["sliding_window"])
    return [f"sliding_window {size} is ignored: the {model_type} class has no windows"]
