"""The fixed state of layers without keys and values: Mamba, linear attention, short convolutions.

Its size does not depend on how long the text is. The shapes are those that transformers keeps: a
convolution's last `kernel` inputs in the model's own format, and a recurrent matrix in fp32.
"""

from dataclasses import dataclass

from kvlab.core.spec_read import ConfigKeys, short


@dataclass(frozen=True)
class StateTensor:
    """`heads` parts, which tensor parallelism shares out, of `width` numbers each.

    value_bytes: size of a number; None takes the model's own format.
    """

    name: str
    heads: int
    width: int
    value_bytes: int | None = None


def state_of(keys: ConfigKeys, kind: str | None, hidden: int | None) -> tuple[StateTensor, ...]:
    """What one layer keeps a request. An unknown kind gives nothing, and the caller says so."""
    maker = _MAKERS.get(kind)
    if maker is None:
        return ()
    if hidden is None:
        raise keys.error("hidden_size is missing; the fixed state needs it")
    return maker(keys, hidden)


def _inner(keys: ConfigKeys, hidden: int) -> int:
    """Width inside a Mamba layer."""
    given = keys.integer("mamba_d_ssm")
    if given is None and keys.text("model_type") in ("mamba", "falcon_mamba"):
        given = keys.integer("intermediate_size")
    expand = keys.data.get(keys.first("expand", "mamba_expand") or "", 2)
    if isinstance(expand, bool) or not isinstance(expand, int | float) or not 0 < expand <= 1024:
        raise keys.error(f"expand is {short(expand)}; it must be a number above 0, usually 2")
    return given or int(expand * hidden)


def _mamba(keys: ConfigKeys, hidden: int) -> tuple[StateTensor, ...]:
    inner = _inner(keys, hidden)
    kernel = keys.integer("conv_kernel", "mamba_d_conv", default=4)
    size = keys.integer("state_size", "mamba_d_state", default=16)
    return StateTensor("convolution", inner, kernel), StateTensor("recurrent", inner, size, 4)


def _mamba2(keys: ConfigKeys, hidden: int) -> tuple[StateTensor, ...]:
    kind = keys.text("model_type")
    size_default, groups_default, heads_default = {
        "mamba2": (128, 8, 128),
        "nemotron_h": (128, 8, 128),
        "zamba2": (64, 1, 8),
    }.get(kind, (256, 1, 128))
    kernel = keys.integer("conv_kernel", "mamba_d_conv", default=4)
    size = keys.integer("ssm_state_size", "state_size", "mamba_d_state", default=size_default)
    groups = keys.integer("n_groups", "mamba_n_groups", "mamba_ngroups", default=groups_default)
    names = ["mamba_num_heads", "mamba_n_heads", "n_mamba_heads"]
    heads = keys.integer(*names, *(["num_heads"] if kind == "mamba2" else []))
    heads = heads or heads_default
    inner = _inner(keys, hidden)
    if kind == "nemotron_h":
        inner = heads * keys.integer("mamba_head_dim", default=64)
    elif kind == "falcon_h1" and "mamba_d_ssm" not in keys and "mamba_d_ssm" not in keys.nulls:
        inner = 1024
    if inner % heads:
        raise keys.error(
            f"the Mamba layer is {inner} wide, no multiple of its {heads} heads; "
            "correct mamba_n_heads or expand"
        )
    return (
        StateTensor("convolution", heads, inner // heads * kernel),
        StateTensor("convolution of groups", groups, 2 * size * kernel),
        StateTensor("recurrent", heads, inner // heads * size, 4),
    )


def _gated_delta(keys: ConfigKeys, hidden: int) -> tuple[StateTensor, ...]:
    kernel = keys.integer("linear_conv_kernel_dim", default=4)
    if keys.text("model_type") == "olmo_hybrid":
        heads = keys.required("num_attention_heads")
        key_heads = keys.integer("linear_num_key_heads", default=heads)
        value_heads = keys.integer("linear_num_value_heads", default=heads)
        key = keys.integer("linear_key_head_dim", default=max(3 * hidden // (4 * key_heads), 1))
        value = keys.integer("linear_value_head_dim", default=2 * key)
    else:
        key_heads = keys.integer("linear_num_key_heads", default=16)
        value_heads = keys.integer("linear_num_value_heads", default=32)
        key = keys.integer("linear_key_head_dim", default=128)
        value = keys.integer("linear_value_head_dim", default=128)
    return (
        StateTensor("convolution of keys", key_heads, 2 * key * kernel),
        StateTensor("convolution of values", value_heads, value * kernel),
        StateTensor("recurrent", value_heads, key * value, 4),
    )


def _kimi_delta(keys: ConfigKeys, hidden: int) -> tuple[StateTensor, ...]:
    part = keys.part("linear_attn_config") or keys
    nested = part is not keys
    width = part.integer("head_dim" if nested else "linear_head_dim", default=128)
    heads = part.integer("num_heads" if nested else "linear_num_heads", default=32)
    kernel = "short_conv_kernel_size" if nested else "linear_conv_kernel_dim"
    kernel = part.integer(kernel, default=4)
    return (
        StateTensor("convolution", heads, 3 * width * kernel),
        StateTensor("recurrent", heads, width * width, 4),
    )


def _short_conv(keys: ConfigKeys, hidden: int) -> tuple[StateTensor, ...]:
    return (StateTensor("convolution", hidden, keys.integer("conv_L_cache", default=3)),)


def _lightning(keys: ConfigKeys, hidden: int) -> tuple[StateTensor, ...]:
    heads = keys.required("num_attention_heads")
    width = keys.integer("head_dim", default=hidden // heads)
    return (StateTensor("recurrent", heads, width * width, 4),)


def _rglru(keys: ConfigKeys, hidden: int) -> tuple[StateTensor, ...]:
    width = keys.integer("lru_width", default=hidden)
    kernel = keys.integer("conv1d_width", default=4)
    return (
        StateTensor("convolution", width, kernel - 1),
        StateTensor("recurrent", width, 1, 4),
    )


def _rwkv(keys: ConfigKeys, hidden: int) -> tuple[StateTensor, ...]:
    attention = keys.integer("attention_hidden_size", default=hidden)
    return StateTensor("last inputs", hidden, 2), StateTensor("recurrent", attention, 3, 4)


_MAKERS = {
    "mamba": _mamba,
    "mamba2": _mamba2,
    "gated_delta": _gated_delta,
    "kimi_delta": _kimi_delta,
    "short_conv": _short_conv,
    "lightning": _lightning,
    "rglru": _rglru,
    "rwkv": _rwkv,
}
