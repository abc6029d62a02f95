"""Which layers attend to everything and which to a window, read from a config.json.

A window w: a query reads w keys, that of its own position among them; w = 1 sees only itself.

    sliding_window 3     t0 t1 t2 t3 t4
    query t4              0  0  1  1  1

Mistral has one window for all layers (its class's default is 4,096; null: none). Qwen2 and Qwen3
have one where use_sliding_window is true, in the layers that layer_types calls
"sliding_attention" or, without that list, in those from number max_window_layers on.
"""

from collections.abc import Mapping, Sequence

FULL, SLIDING = "full_attention", "sliding_attention"
_WINDOW = 4096  # what the classes with windows assume where sliding_window is absent
_FIRST_LAYER = 28  # likewise, max_window_layers


def settled_windows(
    window: int | None, layer_types: Sequence[str], num_layers: int
) -> dict[str, object]:
    """The fields sliding_window and layer_types in their one form (see `ModelConfig`).

    Raises ValueError for a window below 1, and for words that do not fit the layers.
    """
    kinds = tuple(layer_types)
    if window is not None and (type(window) is not int or window < 1):
        raise ValueError(
            f"model configuration: sliding_window is {window!r}; it must be an integer of at "
            "least 1, or None"
        )
    if kinds and (len(kinds) != num_layers or set(kinds) - {FULL, SLIDING}):
        raise ValueError(
            f"model configuration: layer_types is {kinds!r}; it must hold {FULL!r} or "
            f"{SLIDING!r} for each of {num_layers} layers"
        )
    if window is None and SLIDING in kinds:
        raise ValueError(
            f"model configuration: layer_types has {SLIDING!r}; give sliding_window too"
        )
    if kinds and SLIDING not in kinds:
        window = None
    if window is None or FULL not in kinds:
        kinds = ()
    return {"sliding_window": window, "layer_types": kinds}


def layer_windows(
    hf: Mapping, nulls: set[str], kind: str, num_layers: int, source: str
) -> tuple[int | None, tuple[str, ...]]:
    """The window and one word a layer, as `ModelConfig` has them.

    hf: keys without nulls; nulls: the keys that are null. kind: how the architecture decides,
    "never", "always" (Mistral) or "flagged" (Qwen). Raises ValueError where keys contradict each
    other or ask for windows that the architecture does not have.
    """
    listed = _listed(hf, num_layers, source)
    flag = hf.get("use_sliding_window", kind == "always")
    if not isinstance(flag, bool):
        raise ValueError(f"{source}: use_sliding_window is {flag!r}; it must be true or false")
    if kind == "never":
        if flag or SLIDING in listed:
            found = "use_sliding_window is True" if flag else f"layer_types is {sorted(listed)}"
            raise ValueError(
                f"{source}: {found}, but this architecture has no windows; supported: "
                f"{FULL!r} in every layer"
            )
        return None, ()
    window = _window(hf, nulls, flag, kind, source)
    if window is None:
        if SLIDING in listed:
            raise ValueError(
                f"{source}: layer_types has {SLIDING!r} although no window is in use; give "
                "sliding_window (and, for Qwen, use_sliding_window true)"
            )
        return None, ()
    if kind == "always" and FULL in listed:
        raise ValueError(
            f"{source}: layer_types has {FULL!r} although sliding_window is {window}, which this "
            "architecture uses in every layer; supported: null, or the window in every layer"
        )
    if kind == "always" or listed:
        return window, tuple(listed)
    first = _count(hf, "max_window_layers", _FIRST_LAYER, 0, source)
    return window, tuple(SLIDING if i >= first else FULL for i in range(num_layers))


def _window(hf: Mapping, nulls: set[str], flag: bool, kind: str, source: str) -> int | None:
    given = _count(hf, "sliding_window", _WINDOW, 1, source)
    if "sliding_window" in nulls:
        return None
    if flag:
        return given
    if kind == "always" and "sliding_window" in hf:
        raise ValueError(
            f"{source}: sliding_window is {given} and use_sliding_window is False; keep one"
        )
    return None


def _listed(hf: Mapping, num_layers: int, source: str) -> list[str]:
    words = hf.get("layer_types", [])
    if not isinstance(words, list | tuple):
        raise ValueError(f"{source}: layer_types is {words!r}; it must be a list of words")
    if unknown := [word for word in words if word not in (FULL, SLIDING)]:
        raise ValueError(
            f"{source}: layer_types has {unknown[0]!r}, which is not supported here; supported: "
            f"{FULL!r}, {SLIDING!r}"
        )
    if words and len(words) != num_layers:
        raise ValueError(
            f"{source}: layer_types describes {len(words)} layers and num_hidden_layers is "
            f"{num_layers}; make them agree"
        )
    return list(words)


def _count(hf: Mapping, key: str, default: int, at_least: int, source: str) -> int:
    value = hf.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise ValueError(
            f"{source}: {key} is {value!r}; it must be an integer of at least {at_least}"
        )
    return value
