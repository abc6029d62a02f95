"""A decoder as a Hugging Face folder: config.json and model.safetensors, as `load_model` reads.

The parts that the decoder keeps stacked (q, k, v; gate, up) are written under their own names,
so transformers and other engines load the folder too.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from kvlab.tensors.checkpoint import _fused, _wanted
from kvlab.tensors.config import ModelConfig, config_from_hf
from kvlab.tensors.model import Decoder

MODEL_TYPES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}


def save_model(
    model: Decoder,
    folder: str | Path,
    *,
    dtype: torch.dtype = torch.float16,
    more: Mapping[str, object] | None = None,
) -> None:
    """Write config.json and model.safetensors into a folder, made if it is missing.

    dtype: how weights are stored; float16 rounds each to 11 bits (a relative 2^-11). more: keys
    of config.json that the decoder does not know, such as bos_token_id. Files of these two names
    are replaced, each at once.

    Raises ValueError, before anything is written, for a decoder without weights, weights that
    dtype cannot hold, a folder whose index names other weight files, or a shape that the
    architecture's config.json cannot express.
    """
    folder, config = Path(folder), model.config
    if not model.has_weights:
        raise ValueError("this Decoder has no weights to save; load or train them first")
    keys = config_to_hf(config, dtype) | dict(more or {})
    if (folder / "model.safetensors.index.json").exists():
        raise ValueError(f"{folder} holds the index of another checkpoint; give an empty folder")
    tensors = _named_tensors(model, dtype)
    folder.mkdir(parents=True, exist_ok=True)
    weights, settings = folder / "model.safetensors", folder / "config.json"
    save_file(tensors, f"{weights}.part", metadata={"format": "pt"})
    Path(f"{settings}.part").write_text(json.dumps(keys, indent=1) + "\n", encoding="utf-8")
    for path in (weights, settings):
        os.replace(f"{path}.part", path)


def config_to_hf(config: ModelConfig, dtype: torch.dtype) -> dict[str, object]:
    """The keys of a Hugging Face config.json, checked by reading them back (`config_from_hf`).

    dtype: that of the weights. Raises ValueError for a shape that the architecture cannot express.
    """
    c = config
    keys: dict[str, object] = {
        "architectures": [c.architecture],
        "model_type": MODEL_TYPES[c.architecture],
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_query_heads,
        "num_key_value_heads": c.num_kv_heads,
        "head_dim": c.head_dim,
        "max_position_embeddings": c.max_model_len,
        "rms_norm_eps": c.rms_norm_eps,
        "tie_word_embeddings": c.tie_word_embeddings,
        "hidden_act": "silu",
        "eos_token_id": c.eos_token_ids[0] if len(c.eos_token_ids) == 1 else list(c.eos_token_ids),
        "dtype": str(dtype).removeprefix("torch."),
        "rope_theta": c.rope_theta,
        "rope_parameters": _rope(c),
    }
    if c.architecture in ("LlamaForCausalLM", "Qwen3ForCausalLM"):
        keys["attention_bias"] = c.o_bias
    if c.architecture == "LlamaForCausalLM":
        keys["mlp_bias"] = c.mlp_bias
    if c.architecture == "MistralForCausalLM":
        keys["sliding_window"] = c.sliding_window
    elif c.architecture != "LlamaForCausalLM" and c.sliding_window is not None:
        keys |= {"use_sliding_window": True, "sliding_window": c.sliding_window}
        keys["layer_types"] = list(c.layer_types) or ["sliding_attention"] * c.num_layers
    _check_same(config, config_from_hf(keys))
    return keys


def _rope(config: ModelConfig) -> dict[str, object]:
    scaling = config.rope_scaling
    keys: dict[str, object] = {"rope_theta": config.rope_theta, "rope_type": scaling.kind}
    if scaling.kind != "default":
        keys["factor"] = scaling.factor
    if scaling.kind == "llama3":
        keys |= {
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_max_position,
        }
    return keys


def _check_same(config: ModelConfig, read: ModelConfig) -> None:
    for name, value in vars(config).items():
        found = getattr(read, name)
        if name == "rope_scaling" and value.kind == found.kind != "llama3":
            value, found = value.factor, found.factor  # the other fields mean nothing there
        if value != found:
            raise ValueError(
                f"{name} is {value!r}, which the config.json of a {config.architecture} cannot "
                f"express (it would be read as {found!r})"
            )


def _named_tensors(model: Decoder, dtype: torch.dtype) -> dict[str, Tensor]:
    """The checkpoint's tensors, each in memory of its own and row after row."""
    shapes, state = _wanted(model.config), model.state_dict()
    tensors = {}
    for ours, names in _fused(model.config).items():
        parts = state[ours].split([shapes[name][0] for name in names])
        tensors |= dict(zip(names, parts, strict=True))
    if not model.config.tie_word_embeddings:
        tensors["lm_head.weight"] = state["lm_head.weight"]
    for name, tensor in tensors.items():
        stored = tensor.to("cpu", dtype, copy=True).contiguous()
        if not stored.isfinite().all():
            raise ValueError(
                f"{name} holds values that {dtype} cannot store (or that are not finite); "
                "give dtype=torch.float32, or look at the training"
            )
        tensors[name] = stored
    return tensors
