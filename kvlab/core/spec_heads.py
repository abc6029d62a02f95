"""What one position stores in each attending layer: vectors of so many heads and such a width.

Grouped heads, one head, lists a layer, widths that differ between keys and values, and MLA's
latent, which has no heads and no factor 2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvlab.core.spec_families import EVERY_HEAD, FROM_QUERY_HEADS, Family
from kvlab.core.spec_read import ConfigKeys, short

HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model", "model_dim")
QUERY_HEADS = ("num_attention_heads", "n_head", "n_heads", "attention_heads", "num_query_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "num_key_value_heads_per_layer")
HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")  # the first one given counts


@dataclass(frozen=True)
class Vector:
    """What a position stores under one name: `heads` vectors of `width` numbers."""

    name: str
    heads: int
    width: int


@dataclass(frozen=True)
class Stored:
    """A layer's vectors; `expanded` is what they would be without MLA's compression."""

    vectors: tuple[Vector, ...]
    expanded: tuple[Vector, ...] = ()


def stored_by_layer(
    keys: ConfigKeys, model_type: str, family: Family, kinds: list[str], notices: list[str]
) -> list[Stored]:
    """What a position stores in each layer, if that layer attends. Notices are appended."""
    latent = _latent(keys, model_type, family, notices)
    if latent is not None:
        return [latent] * len(kinds)
    names = (*QUERY_HEADS, "num_heads") if model_type in ("gpt_neo", "xglm") else QUERY_HEADS
    heads = _per_layer(keys, names, len(kinds)) or keys.required(*names)
    if "block_configs" in keys:
        groups = _from_blocks(keys, kinds)
    else:
        groups = _kv_heads(keys, model_type, family, heads, len(kinds), notices)
    query = max(heads) if isinstance(heads, list) else heads
    width = _head_dim(keys, model_type, family, query)
    value_width = width
    if ("head_dim" in keys and keys.data.get("v_head_dim")) or model_type.startswith("mimo"):
        value_width = keys.integer("v_head_dim", default=128)
    by_layer = zip(_as_list(heads, kinds), _as_list(groups, kinds), strict=True)
    one = {}  # most layers are alike
    layers = []
    for query_heads, kv in by_layer:
        if kv and query_heads % kv:
            raise keys.error(
                f"{keys.first(*KV_HEADS) or 'num_key_value_heads'} is {kv}, which cannot share "
                f"{query_heads} query heads; num_attention_heads must be a multiple of it"
            )
        if kv not in one:
            one[kv] = Stored((Vector("K", kv, width), Vector("V", kv, value_width)) if kv else ())
        layers.append(one[kv])
    return _exceptions(keys, model_type, kinds, layers)


def _as_list(value: int | list[int], kinds: list[str]) -> list[int]:
    return value if isinstance(value, list) else [value] * len(kinds)


def _per_layer(keys: ConfigKeys, names: tuple[str, ...], count: int) -> int | list[int] | None:
    """A count for all layers, or a list with one for each of them. None where absent."""
    name = keys.first(*names)
    if name is None or not isinstance(keys.data[name], list | tuple):
        return keys.integer(*names)
    values = keys.integers(name, 1)
    if len(values) != count:
        raise keys.error(
            f"{name} lists {len(values)} layers and there are {count}; make them agree"
        )
    return values


def _from_blocks(keys: ConfigKeys, kinds: list[str]) -> list[int]:
    """Nemotron-NAS: block_configs says for each layer how many query heads share a KV head."""
    blocks = keys.data["block_configs"]
    heads = keys.required(*QUERY_HEADS)
    if not isinstance(blocks, list | tuple) or len(blocks) != len(kinds):
        raise keys.error(f"block_configs must be a list of {len(kinds)} layers")
    groups = []
    for number, block in enumerate(blocks):
        entry = ConfigKeys(block, f"{keys.source}, block_configs[{number}]").part("attention")
        if entry is None or entry.flag("no_op", False) or entry.flag("replace_with_linear", False):
            groups.append(0)
            continue
        share = entry.required("n_heads_in_group")
        if heads % share:
            raise entry.error(f"n_heads_in_group is {share}, which does not divide {heads} heads")
        groups.append(heads // share)
    return groups


def _kv_heads(
    keys: ConfigKeys,
    model_type: str,
    family: Family,
    heads: int | list[int],
    count: int,
    notices: list[str],
) -> int | list[int]:
    """Heads that store keys and values: a number, or one a layer."""
    nested = keys.part("attn_config")
    if nested is not None:
        if nested.text("attn_type") == "multiquery_attention":
            return 1
        given = nested.integer("kv_n_heads")
        if given is not None:
            return given
    one_head = keys.flag("multi_query", model_type in ("falcon", "gpt_bigcode"))
    newer = keys.flag("new_decoder_architecture", model_type == "RefinedWeb")
    unread = model_type in EVERY_HEAD or model_type == "falcon"
    if unread and "num_key_value_heads" in keys:
        notices.append(f"num_key_value_heads is given, and the {model_type} class does not read it")
    if one_head and not newer and (unread or "num_key_value_heads" not in keys):
        return 1  # Falcon-7B's num_kv_heads says 71, and its class does not look at it
    if model_type in EVERY_HEAD:
        return heads
    if keys.flag("multi_query_attention", False):  # ChatGLM
        return keys.required("multi_query_group_num", why=", and multi_query_attention is true")
    given = _per_layer(keys, KV_HEADS[1:] if unread else KV_HEADS, count)
    if given is not None:
        return given
    by_null = "num_key_value_heads" in keys.nulls and family.null_heads
    if family.kv_heads == FROM_QUERY_HEADS or by_null:
        return heads
    query = max(heads) if isinstance(heads, list) else heads
    if query % family.kv_heads:
        raise keys.error(
            f"num_key_value_heads is missing, and the {family.kv_heads} that the {model_type} "
            f"class assumes do not divide {query} query heads; add the key"
        )
    if family.kv_heads != query:
        notices.append(
            f"num_key_value_heads is absent: the {model_type} class assumes {family.kv_heads}"
        )
    return family.kv_heads


def _head_dim(keys: ConfigKeys, model_type: str, family: Family, heads: int) -> int:
    name = next((name for name in HEAD_DIM if name in keys), None)
    if name or family.head_dim:
        return keys.integer(name) if name else family.head_dim
    hidden = keys.required(*HIDDEN, why=", and without head_dim it is needed")
    if model_type in ("zamba", "zamba2"):
        hidden *= 2  # attention reads the layer's input beside the embedding
    if hidden % heads:
        raise keys.error(
            f"head_dim is missing, and {keys.first(*HIDDEN)} {hidden} is no multiple of {heads} "
            "query heads; add head_dim"
        )
    return hidden // heads


def _latent(keys: ConfigKeys, model_type: str, family: Family, notices: list[str]) -> Stored | None:
    """MLA: one vector of kv_lora_rank + qk_rope_head_dim numbers for all heads together."""
    if not keys.flag("use_mla", True):
        return None
    usual = family.latent or (None, None, None, None)
    rank = keys.integer("kv_lora_rank", default=usual[0])
    if rank is None:
        return None
    why = ", and kv_lora_rank says MLA"
    rope = keys.required("qk_rope_head_dim", default=usual[1], why=why)
    nope = keys.integer("qk_nope_head_dim", default=usual[2])
    value = keys.integer("v_head_dim", default=usual[3])
    heads = keys.integer(*QUERY_HEADS)
    vectors = [Vector("latent", 1, rank + rope)]
    expanded = ()
    if value == 0 and heads:
        hidden = keys.required(*HIDDEN, why=", and without v_head_dim it is needed")
        value = max(hidden // heads, 1)
    if nope and value and heads:
        expanded = (Vector("K", heads, nope + rope), Vector("V", heads, value))
    else:
        notices.append(
            "what MLA would take expanded is unknown: it needs num_attention_heads, "
            "qk_nope_head_dim and v_head_dim"
        )
    if "index_head_dim" in keys or model_type in ("deepseek_v32", "glm_moe_dsa"):
        index = Vector("index", 1, keys.integer("index_head_dim", default=128))
        vectors.append(index)
        expanded = (*expanded, index) if expanded else ()
        notices.append("sparse attention also keeps one index vector a position; it is counted")
    return Stored(tuple(vectors), expanded)


def _exceptions(
    keys: ConfigKeys, model_type: str, kinds: list[str], layers: list[Stored]
) -> list[Stored]:
    """Layers whose heads or widths differ from the others'."""
    layers = list(layers)
    for i, kind in enumerate(kinds):
        key, value = layers[i].vectors if layers[i].vectors else (None, None)
        if key is None:
            continue
        heads, widths = None, (None, None)
        if kind == "window" and model_type.startswith("mimo"):
            heads = keys.integer("swa_num_key_value_heads", default=2 * key.heads)
            width = keys.integer("swa_head_dim", default=key.width)
            widths = (width, keys.integer("swa_v_head_dim", default=value.width))
        elif kind == "full" and model_type.startswith("gemma4"):
            widths = (keys.integer("global_head_dim", default=512),) * 2
            if keys.flag("attention_k_eq_v", False):
                heads = keys.integer("num_global_key_value_heads")
        heads, widths = _override(keys, i, heads, widths)
        if heads or any(widths):
            layers[i] = Stored(
                tuple(
                    replace(old, heads=heads or old.heads, width=width or old.width)
                    for old, width in zip((key, value), widths, strict=True)
                )
            )
    return layers


def _override(
    keys: ConfigKeys, layer: int, heads: int | None, widths: tuple
) -> tuple[int | None, tuple]:
    """per_layer_config, {"5": {"head_dim": 512}}: what one layer has of its own."""
    every = keys.data.get("per_layer_config")
    if every is None:
        return heads, widths
    if not isinstance(every, Mapping):
        raise keys.error(f"per_layer_config is {short(every)}; it must be a set of layers")
    own = every.get(str(layer), every.get(layer))
    if own is None:
        return heads, widths
    own = ConfigKeys(own, f"{keys.source}, per_layer_config {layer}")
    width = own.integer("head_dim")
    return own.integer("num_key_value_heads", default=heads), (width, width) if width else widths
