"""What a model stores for each layer, read from its Hugging Face config.json.

A layer keeps keys and values of every position, or of the last few (a sliding window), or one
compressed latent (MLA), or a fixed state (linear attention, Mamba), or nothing, because it reads
another layer's. The sizes of all of them follow from the configuration alone. Section 21.1.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kvlab.core.spec_families import ENCODER_DECODERS, ENCODERS, Family, family_of
from kvlab.core.spec_heads import (
    HEAD_DIM,
    HIDDEN,
    KV_HEADS,
    QUERY_HEADS,
    Stored,
    Vector,
    stored_by_layer,
)
from kvlab.core.spec_layers import LAYER_COUNT, layer_kinds, stray_window, window_size
from kvlab.core.spec_read import ConfigKeys, load, text_part
from kvlab.core.spec_state import StateTensor, state_of

MOST_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")


@dataclass(frozen=True)
class LayerSpec:
    """What one layer keeps of a request.

    reach: "full" (every position), "window", "chunk", or None where no position is kept.
    vectors: stored at each kept position; expanded: the same without MLA. window: positions that a
    window or chunk keeps at most. state: tensors of a fixed size. shared: reads another layer's.
    """

    reach: str | None
    vectors: tuple[Vector, ...] = ()
    expanded: tuple[Vector, ...] = ()
    window: int | None = None
    state: tuple[StateTensor, ...] = ()
    shared: bool = False


@dataclass(frozen=True)
class KVCacheSpec:
    """The layers of one model, and what a reader of the figures should know (`notices`).

    num_query_heads is None where no layer has any; max_model_len where the configuration is silent.
    """

    model_type: str
    layers: tuple[LayerSpec, ...]
    num_query_heads: int | None = None
    max_model_len: int | None = None
    state_is_known: bool = True
    notices: tuple[str, ...] = ()

    @classmethod
    def from_config(cls, config: Mapping | str | Path, source: str | None = None) -> "KVCacheSpec":
        """Read a configuration: its keys, the path of a config.json, or of a folder with one.

        source names it in messages. Raises ValueError naming the key for what is missing, of the
        wrong kind or contradictory, and for models without a KV cache of this form.
        """
        data, source = load(config, source)
        top = ConfigKeys(data, source)
        _refuse(top, top.text("model_type"))
        keys, model_type, nested = text_part(top)
        _refuse(keys, model_type)
        notices: list[str] = []
        if nested:
            keys = _with_outer(keys, top, notices)
        family, known = family_of(model_type)
        keys = _with_sizes(keys, model_type, family, nested, notices)
        if not known:
            notices.append(
                f"model_type {model_type!r} is unknown here: computed from its standard keys"
                if model_type
                else "model_type is missing: computed from the standard keys"
            )
        kinds = layer_kinds(keys, model_type, family)
        notices += stray_window(keys, model_type, kinds)
        layers, state_is_known = _layers(keys, model_type, family, kinds, notices)
        if not any(layer.vectors or layer.state for layer in layers) and state_is_known:
            raise keys.error("no layer keeps anything of a request; correct the list of layers")
        heads = keys.first(*QUERY_HEADS)
        heads = keys.data[heads] if heads else None
        return cls(
            model_type,
            layers,
            heads if isinstance(heads, int) and any(x.vectors for x in layers) else None,
            _longest(keys),
            state_is_known,
            tuple(notices),
        )

    @cached_property
    def groups(self) -> tuple[tuple[LayerSpec, int], ...]:
        """Equal layers counted together: (layer, how many), in order of first appearance."""
        return tuple(Counter(self.layers).items())

    def count(self, reach: str) -> int:
        """Layers that keep positions with this reach."""
        return sum(n for layer, n in self.groups if layer.reach == reach and layer.vectors)

    @property
    def full_layers(self) -> int:
        return self.count("full")

    @property
    def sliding_layers(self) -> int:
        """Layers that keep no more than a window's or a chunk's positions."""
        return self.count("window") + self.count("chunk")

    @property
    def state_layers(self) -> int:
        return sum(n for layer, n in self.groups if layer.state)

    @property
    def shared_layers(self) -> int:
        return sum(n for layer, n in self.groups if layer.shared)

    @property
    def attending_layers(self) -> int:
        """Layers that keep keys and values of their own."""
        return sum(n for layer, n in self.groups if layer.vectors)

    @property
    def is_latent(self) -> bool:
        """Whether MLA's latent is stored instead of keys and values."""
        return any(v.name == "latent" for layer, _ in self.groups for v in layer.vectors)

    @property
    def windows(self) -> tuple[int, ...]:
        """The lengths at which some layer stops growing, in order."""
        return tuple(sorted({layer.window for layer, _ in self.groups if layer.window}))

    def __repr__(self) -> str:
        return (
            f"KVCacheSpec({self.model_type!r}, {len(self.layers)} layers: {self.full_layers} full, "
            f"{self.sliding_layers} sliding, {self.state_layers} with a state, "
            f"{self.shared_layers} shared)"
        )


def _longest(keys: ConfigKeys) -> int | None:
    """The context the model was made for; nothing is computed from it, so nothing is refused."""
    given = (keys.data[name] for name in MOST_POSITIONS if name in keys)
    return next(
        (v for v in given if isinstance(v, int) and not isinstance(v, bool) and v > 0), None
    )


def _refuse(keys: ConfigKeys, model_type: str) -> None:
    """Models whose memory follows another rule."""
    if keys.data.get("is_encoder_decoder") is True or model_type in ENCODER_DECODERS:
        raise keys.error(
            f"model_type {model_type!r} is an encoder with a decoder, which also keeps keys and "
            "values of the encoder's text; give the config.json of a decoder-only model"
        )
    if model_type in ENCODERS and keys.data.get("is_decoder") is not True:
        raise keys.error(
            f"model_type {model_type!r} is an encoder and keeps no KV cache; give the config.json "
            "of a model that generates text"
        )
    compressed = next((k for k in ("compress_ratios", "compress_rates") if k in keys), None)
    if compressed or model_type == "deepseek_v4":
        raise keys.error(
            f"{compressed or 'model_type ' + repr(model_type)} says that positions are compressed "
            "together, whose storage is not known here; give the config.json of another model"
        )


def _with_outer(keys: ConfigKeys, top: ConfigKeys, notices: list[str]) -> ConfigKeys:
    """The nested keys, and the sizes that stand beside them instead of among them."""
    windows = (("sliding_window",), ("layer_types",))
    told = []
    for names in (LAYER_COUNT, HIDDEN, QUERY_HEADS, KV_HEADS, HEAD_DIM, *windows):
        outer = next((name for name in names if name in top), None)
        if outer and not any(name in keys for name in names):
            keys, _ = keys.filled({(outer,): top.data[outer]})
            told.append(outer)
    if told:
        notices.append(f"read from beside the nested keys, which lack them: {', '.join(told)}")
    return keys


def _with_sizes(
    keys: ConfigKeys, model_type: str, family: Family, nested: bool, notices: list[str]
) -> ConfigKeys:
    """Published nested configurations list only what differs from the class: fill in the rest."""
    if family.sizes is None or not (nested or family.always_sizes):
        return keys
    layers, hidden, heads = family.sizes
    sizes = {HIDDEN: hidden, QUERY_HEADS: heads}
    if nested and not {"layer_types", "layers_block_type"} & keys.data.keys():
        sizes = {LAYER_COUNT: layers, **sizes}
    keys, told = keys.filled(sizes)
    if told:
        notices.append(f"absent, so the {model_type} class decides: {', '.join(told)}")
    return keys


def _layers(
    keys: ConfigKeys, model_type: str, family: Family, kinds: list[str], notices: list[str]
) -> tuple[tuple[LayerSpec, ...], bool]:
    """Each layer's own, and whether the size of every fixed state is known."""
    attends = [kind not in ("state", "none", "cross") for kind in kinds]
    stored = [Stored(())] * len(kinds)
    if any(attends):
        stored = stored_by_layer(keys, model_type, family, kinds, notices)
    has_state = [kind.endswith("state") for kind in kinds]
    state: tuple[StateTensor, ...] = ()
    if any(has_state):
        state = state_of(keys, family.state, keys.integer(*HIDDEN))
    unknown = any(has_state) and not state
    if unknown:
        notices.append(
            f"{sum(has_state)} layers keep a fixed state whose size is not known for model_type "
            f"{model_type!r}: it is left out"
        )
        if not any(attends):
            raise keys.error(
                f"model_type {model_type!r} keeps only a fixed state, whose size is not known here"
            )
    window = _window(keys, family, kinds, notices)
    shared = _shared(keys, family, kinds)
    layers = []
    for kind, reads_other, own in zip(kinds, shared, stored, strict=True):
        reach = kind.split("+")[0]
        extra = state if kind.endswith("state") else ()
        if reads_other:
            layers.append(LayerSpec(None, shared=True))
        elif reach in ("full", "window", "chunk") and own.vectors:
            bound = window.get(reach)
            layers.append(LayerSpec(reach, own.vectors, own.expanded, bound, extra))
        else:
            layers.append(LayerSpec(None, state=extra))
    if "cross" in kinds:
        notices.append(
            f"{kinds.count('cross')} cross-attention layers keep keys and values of pictures: they "
            "are left out, text alone is counted"
        )
    if keys.first("attention_types") and model_type == "gpt_neo":
        notices.append("local layers attend to a window, and keep every position all the same")
    return tuple(layers), not unknown


def _window(keys: ConfigKeys, family: Family, kinds: list[str], notices: list[str]) -> dict:
    """{"window": positions, "chunk": positions}, as far as layers need them."""
    reaches = {kind.split("+")[0] for kind in kinds}
    sizes = {}
    if "window" in reaches:
        size = window_size(keys, family)
        if size is None and keys.data.get("use_sliding_window") is not False:
            size = keys.integer("sliding_window")  # the layers' own list says that windows are on
        if size is None:
            off = "use_sliding_window is false" if "use_sliding_window" in keys else ""
            raise keys.error(
                f"{sum(kind.startswith('window') for kind in kinds)} layers are said to have a "
                f"sliding window, and {off or 'sliding_window is missing'}; make them agree"
            )
        sizes["window"] = size
        said = {"layer_types", "sliding_window_pattern", "use_sliding_window"} & keys.data.keys()
        if family == Family() and not said:
            notices.append(
                f"sliding_window {size} is taken to hold for every layer, since no key says "
                "otherwise; null would switch it off"
            )
    if "chunk" in reaches:
        sizes["chunk"] = keys.integer("attention_chunk_size", default=8192)
    return sizes


def _shared(keys: ConfigKeys, family: Family, kinds: list[str]) -> list[bool]:
    """Layers that read the keys and values of an earlier one."""
    last = keys.integer("num_kv_shared_layers", default=family.shared_layers, at_least=0)
    first = len(kinds) - last
    if last and first < 1:
        raise keys.error(
            f"num_kv_shared_layers is {last} and there are {len(kinds)} layers; at least one must "
            "keep keys and values of its own"
        )
    if last and set(kinds[first:]) - set(kinds[:first]):
        raise keys.error(
            f"num_kv_shared_layers is {last}, and no earlier layer is of the same kind as the last "
            f"{last}; make it agree with layer_types"
        )
    every = keys.integer("cla_share_factor", default=1) if keys.flag("use_cla", False) else 1
    return [i >= first or i % every > 0 for i in range(len(kinds))]
