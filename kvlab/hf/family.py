"""Which models of transformers cannot run on a cache of keys and values, told from their class and
configuration alone, before any weight is read.

What a class does not tell is found out by hf/probe.py.
"""

import json

from transformers import PretrainedConfig, PreTrainedModel

GOOD = "Llama, Mistral, Qwen, Gemma-2 and -3, Phi-3, OLMo2, Granite, GPT-2, gpt-oss, Qwen3-MoE"
LENGTH_CHANGES_ROPE = ("dynamic", "longrope")
_NO_MATTER = ("transformers_version", "_name_or_path", "dtype", "torch_dtype", "architectures")
_KINDS = {"full_attention", "sliding_attention"}
_STATE = "it keeps a running state per request instead of keys and values of every position"


class Unsupported(ValueError):
    """A model that does not run here: who it is, why, and what does."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"{name} does not run on kvlab's paged cache: {why}. Supported: causal language models "
            f"whose layers each keep keys and values, through transformers' attention registry "
            f"({GOOD} and others)"
        )


def refuse_early(
    config: PretrainedConfig, model_class: type[PreTrainedModel] | None, name: str
) -> None:
    """Raises Unsupported for what configuration and class tell. None: there is no class."""
    text = config.get_text_config(decoder=True)
    if config.is_encoder_decoder:
        raise Unsupported(
            name,
            "it is an encoder-decoder; its decoder also reads keys and values of the encoder, "
            "which belong to no position of the output",
        )
    if latent := getattr(text, "kv_lora_rank", None):
        raise Unsupported(
            name,
            f"it attends in latent form (MLA): kv_lora_rank is {latent}, and its cache holds one "
            "compressed vector a position that no block of keys and values has a place for",
        )
    if getattr(model_class, "_is_stateful", False):
        raise Unsupported(name, _STATE)
    if kinds := set(getattr(text, "layer_types", None) or ()) - _KINDS:
        raise Unsupported(name, f"it has layers of the kind {', '.join(sorted(kinds))}")
    if getattr(text, "attn_temperature_tuning", False):  # Llama-4
        raise Unsupported(
            name,
            "layers without rotary positions scale their queries by the place in the row "
            "(attn_temperature_tuning), and here a row holds several requests",
        )
    if getattr(config, "quantization_config", None):
        raise Unsupported(name, "its weights are quantised; give it with plain weights")
    if model_class is None:
        raise Unsupported(name, "transformers has no causal language model for it")
    if not getattr(model_class, "_supports_attention_backend", False):
        raise Unsupported(name, "its layers do not attend through transformers' attention registry")


def longest(config: PretrainedConfig) -> int:
    """Positions that the model allows, with frequencies that do not depend on the length.

    "dynamic" and "longrope" change the rotary frequencies of all positions once a sequence is
    longer than the original context: keys cached before would be wrong, so that is where it ends.
    """
    found = getattr(config, "max_position_embeddings", None) or 2048
    rope = getattr(config, "rope_parameters", None) or {}
    for kind in [rope, *(v for v in rope.values() if isinstance(v, dict))]:
        if kind.get("rope_type") in LENGTH_CHANGES_ROPE:
            own = kind.get("original_max_position_embeddings")
            own = own or getattr(config, "original_max_position_embeddings", None)
            found = min(found, own or found)
    return found


def eos_token_ids(model: PreTrainedModel) -> tuple[int, ...]:
    """Ids that end a text: of the generation configuration, else of the model's."""
    generation = getattr(model, "generation_config", None)
    found = getattr(generation, "eos_token_id", None)
    if found is None:
        found = getattr(model.config.get_text_config(decoder=True), "eos_token_id", None)
    if found is None:
        return ()
    return tuple(found) if isinstance(found, list | tuple) else (int(found),)


def description(config: PretrainedConfig) -> str:
    """The configuration as JSON, without names and versions: part of every block's identity."""
    kept = {key: value for key, value in config.to_dict().items() if key not in _NO_MATTER}
    return json.dumps(kept, sort_keys=True, default=str)
