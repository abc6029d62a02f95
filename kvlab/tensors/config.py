"""The shape of a decoder, read from a Hugging Face config.json.

Null means absent. A missing key takes the default of the model's own class in transformers;
keys without a sensible default (sizes) are required. What would change the computation and is
not implemented here is refused by name, never ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvlab.tensors.config_values import eos_ids, flag, integer, number
from kvlab.tensors.config_windows import FULL, layer_windows, settled_windows


class NotOurs(ValueError):
    """A family, or a variant of one, that the decoder does not have; transformers may."""


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched. kind: "default", "linear" or "llama3"."""

    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a Llama-family decoder; names as in the chapter and in vLLM.

    sliding_window: the keys that a query of a "sliding_attention" layer reads at most, its own
    position's among them; layer_types: one word a layer, () where all are alike. What amounts to
    the same computation is kept in one form: no window where no layer uses it, () where every
    layer does.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_query_heads: int
    num_kv_heads: int
    head_dim: int
    max_model_len: int = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling = field(default_factory=RopeScaling)
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    eos_token_ids: tuple[int, ...] = ()
    architecture: str = "LlamaForCausalLM"
    sliding_window: int | None = None
    layer_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_layers",
            "num_query_heads",
            "num_kv_heads",
            "head_dim",
            "max_model_len",
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(
                    f"model configuration: {name} is {value!r}; it must be an integer of at least 1"
                )
        if self.num_query_heads % self.num_kv_heads:
            raise ValueError(
                f"model configuration: {self.num_query_heads} query heads cannot be shared out "
                f"over {self.num_kv_heads} KV heads; num_attention_heads must be a multiple of "
                "num_key_value_heads"
            )
        if self.head_dim % 2:
            raise ValueError(
                f"model configuration: head_dim is {self.head_dim}; rotary positions "
                "need an even one"
            )
        for name, value in settled_windows(
            self.sliding_window, self.layer_types, self.num_layers
        ).items():
            object.__setattr__(self, name, value)

    def window_of(self, layer: int) -> int | None:
        """How many keys a query of this layer reads at most; None: all of its past."""
        if self.layer_types and self.layer_types[layer] == FULL:
            return None
        return self.sliding_window

    @property
    def widest_window(self) -> int | None:
        """How far the layer that reaches furthest reads; None: one reads all of its past."""
        return None if FULL in self.layer_types else self.sliding_window

    def bytes_per_position(self, bytes_per_value: int) -> int:
        """K and V of one position of one request over all layers (eq 21.3 with B = 1)."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * bytes_per_value


@dataclass(frozen=True)
class _Family:
    qkv_bias: bool = False
    qk_norm: bool = False
    num_kv_heads: int | None = None  # default where the key is absent; None: as many as query heads
    head_dim: int | None = None
    max_model_len: int = 32768
    has_attention_bias_key: bool = False
    windows: str = "never"  # see config_windows.py


FAMILIES = {
    "LlamaForCausalLM": _Family(max_model_len=2048, has_attention_bias_key=True),
    "MistralForCausalLM": _Family(num_kv_heads=8, max_model_len=131072, windows="always"),
    "Qwen2ForCausalLM": _Family(qkv_bias=True, num_kv_heads=32, windows="flagged"),
    "Qwen3ForCausalLM": _Family(
        qk_norm=True,
        num_kv_heads=32,
        head_dim=128,
        has_attention_bias_key=True,
        windows="flagged",
    ),
}
_BY_MODEL_TYPE = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def config_from_hf(hf: Mapping[str, object], source: str = "config.json") -> ModelConfig:
    """Read a Hugging Face configuration.

    Raises ValueError naming `source`, the key, what was found and what is supported.
    """
    if not isinstance(hf, Mapping):
        raise ValueError(f"{source} holds {type(hf).__name__} {hf!r} instead of keys and values")
    nulls = {key for key, value in hf.items() if value is None}
    hf = {key: value for key, value in hf.items() if value is not None}
    name, family = _family(hf, source)
    _refuse_unsupported(hf, source)

    def need(key: str) -> int:
        if key not in hf:
            raise ValueError(f"{source}: {key} is missing; it has no default")
        return integer(hf, key, source)

    heads, hidden = need("num_attention_heads"), need("hidden_size")
    default = heads if "num_key_value_heads" in nulls else family.num_kv_heads or heads
    attention_bias = family.has_attention_bias_key and flag(hf, "attention_bias", source)
    num_layers = need("num_hidden_layers")
    window, layer_types = layer_windows(hf, nulls, family.windows, num_layers, source)
    config = ModelConfig(
        vocab_size=need("vocab_size"),
        hidden_size=hidden,
        intermediate_size=need("intermediate_size"),
        num_layers=num_layers,
        num_query_heads=heads,
        num_kv_heads=integer(hf, "num_key_value_heads", source, default),
        head_dim=_head_dim(hf, heads, hidden, family, source),
        max_model_len=integer(hf, "max_position_embeddings", source, family.max_model_len),
        rms_norm_eps=number(hf, "rms_norm_eps", source, 1e-6),
        tie_word_embeddings=flag(hf, "tie_word_embeddings", source),
        qkv_bias=family.qkv_bias or attention_bias,
        o_bias=attention_bias,
        mlp_bias=name == "LlamaForCausalLM" and flag(hf, "mlp_bias", source),
        qk_norm=family.qk_norm,
        eos_token_ids=eos_ids(hf.get("eos_token_id", ())),
        architecture=name,
        sliding_window=window,
        layer_types=layer_types,
    )
    theta, scaling = _rope(hf, config.max_model_len, source)
    return replace(config, rope_theta=theta, rope_scaling=scaling)


def _head_dim(hf: Mapping, heads: int, hidden: int, family: _Family, source: str) -> int:
    """The key, the family's own default, or the hidden size shared out over the heads."""
    if heads < 1:
        raise ValueError(f"{source}: num_attention_heads is {heads}; it must be at least 1")
    if "head_dim" not in hf and family.head_dim is None and hidden % heads:
        raise ValueError(
            f"{source}: head_dim is missing and hidden_size {hidden} is no multiple of "
            f"num_attention_heads {heads}"
        )
    return integer(hf, "head_dim", source, family.head_dim or hidden // heads)


def _family(hf: Mapping, source: str) -> tuple[str, _Family]:
    named = hf.get("architectures") or [
        _BY_MODEL_TYPE.get(hf.get("model_type"), hf.get("model_type"))
    ]
    name = named[0] if isinstance(named, list) and named else named
    if name not in FAMILIES:
        raise NotOurs(
            f"{source}: architecture {name!r} is not supported; supported are {', '.join(FAMILIES)}"
        )
    if _BY_MODEL_TYPE.get(str(hf.get("model_type")), name) != name:
        raise ValueError(
            f"{source}: architectures names {name} and model_type is {hf['model_type']!r}; make "
            "them agree"
        )
    return name, FAMILIES[name]


def _refuse_unsupported(hf: Mapping, source: str) -> None:
    def refuse(key: str, found: object, wanted: str) -> None:
        raise NotOurs(
            f"{source}: {key} is {found!r}, which is not supported here; supported: {wanted}"
        )

    if hf.get("hidden_act", "silu") not in ("silu", "swish"):
        refuse("hidden_act", hf["hidden_act"], "'silu'")
    if hf.get("is_causal", True) is False or hf.get("use_bidirectional_attention", False):
        refuse("is_causal", False, "causal attention")
    if hf.get("quantization_config"):
        refuse("quantization_config", hf["quantization_config"], "unquantised weights")
    if hf.get("pretraining_tp", 1) != 1:
        refuse("pretraining_tp", hf["pretraining_tp"], "1")


def _rope(hf: Mapping, max_model_len: int, source: str) -> tuple[float, RopeScaling]:
    """Both spellings: rope_theta with rope_scaling, or rope_parameters holding all of it."""
    given, other = hf.get("rope_parameters") or {}, hf.get("rope_scaling") or {}
    if given and other and dict(given) != dict(other):
        raise ValueError(
            f"{source}: rope_parameters and rope_scaling say different things; keep one"
        )
    given = given or other
    if not isinstance(given, Mapping):
        raise ValueError(f"{source}: rope_parameters is {given!r}; it must be a set of keys")
    if any(isinstance(value, Mapping) for value in given.values()):
        raise ValueError(
            f"{source}: rope_parameters differ between layers ({sorted(given)}); "
            "supported: one set for all layers"
        )
    values = {key: value for key, value in given.items() if value is not None}
    kind = values.get("rope_type", values.get("type", "default"))
    if kind not in ("default", "linear", "llama3"):
        raise NotOurs(
            f"{source}: rope_type {kind!r} is not supported; supported are 'default', "
            "'linear', 'llama3'"
        )
    partial = values.get("partial_rotary_factor", hf.get("partial_rotary_factor", 1.0))
    if partial != 1.0:
        raise NotOurs(f"{source}: partial_rotary_factor is {partial!r}; supported: 1.0")
    theta = number({**hf, **values}, "rope_theta", source, 10000.0)
    if kind != "default" and "factor" not in values:
        raise ValueError(f"{source}: rope_type {kind!r} needs the key factor")
    if kind == "llama3" and not {"low_freq_factor", "high_freq_factor"} <= values.keys():
        raise ValueError(
            f"{source}: rope_type 'llama3' needs the keys low_freq_factor and high_freq_factor"
        )
    return theta, RopeScaling(
        kind,
        number(values, "factor", source, 1.0),
        number(values, "low_freq_factor", source, 1.0),
        number(values, "high_freq_factor", source, 4.0),
        _original_length(hf, values, max_model_len, source),
    )


def _original_length(hf: Mapping, rope: Mapping, default: int, source: str) -> int:
    """Where the model was first trained; the key may stand beside the others or at the top."""
    key = "original_max_position_embeddings"
    found = {integer(place, key, source) for place in (hf, rope) if key in place}
    if len(found) > 1:
        raise ValueError(f"{source}: {key} is given twice, as {sorted(found)}; keep one")
    return found.pop() if found else default
