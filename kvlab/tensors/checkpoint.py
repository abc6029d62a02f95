"""A decoder from a Hugging Face folder: config.json and one or several safetensors files.

Everything is checked before a model is built: either the whole checkpoint is there and fits, or
an error names the file, the key, what was found and what was expected. Nothing in a checkpoint is
ever executed: pickle files are refused.
"""

import json
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from kvlab.tensors.checkpoint_files import (
    CheckpointError,
    check_finite,
    opened,
    slices,
    weight_files,
)
from kvlab.tensors.config import ModelConfig, config_from_hf
from kvlab.tensors.config_values import eos_ids
from kvlab.tensors.memory_budget import refuse_weights
from kvlab.tensors.model import Decoder
from kvlab.tensors.weight_counts import num_parameters

FLOATS = ("F16", "BF16", "F32", "F64")


def load_config(folder: str | Path) -> ModelConfig:
    """Read config.json, and from generation_config.json, where there is one, what ends a text.

    Raises CheckpointError if the first is missing or not supported, or either is damaged.
    """
    path = Path(folder) / "config.json"
    try:
        config = config_from_hf(json.loads(path.read_text(encoding="utf-8")), str(path))
        path = path.with_name("generation_config.json")
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        ends = found.get("eos_token_id")
        return config if ends is None else replace(config, eos_token_ids=eos_ids(ends))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing; give a folder in Hugging Face layout") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, OSError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from None
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise CheckpointError(f"{path} is not a model configuration: {error}") from error


def load_model(
    folder: str | Path, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
) -> Decoder:
    """Load a decoder ready for inference. Raises CheckpointError; nothing is half-loaded.

    Each parameter is read once, slice by slice, into the memory where it stays: there is never a
    second copy of the weights. Raises NotEnoughMemory, before it reads, where they do not fit.
    """
    config = load_config(folder)
    found = _find_tensors(weight_files(Path(folder)), _wanted(config), config)
    _check_head(config, found)
    refuse_weights(num_parameters(config), dtype, torch.device(device))
    fused = _fused(config)
    if not config.tie_word_embeddings:
        fused["lm_head.weight"] = ["lm_head.weight"]
    model = Decoder(config)  # its own memory is never touched: `assign` puts these in its place
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    on_cpu = torch.device(device).type == "cpu"
    state = {}
    for name, sources in fused.items():
        by_rows = name == "embed_tokens.weight" and not config.tie_word_embeddings
        state[name] = _empty(shapes[name], on_cpu and not by_rows, dtype, device)
        _fill(state[name], [(found[source], source) for source in sources])
    if config.tie_word_embeddings:
        _check_tied(found, state["embed_tokens.weight"])
        state["lm_head.weight"] = state["embed_tokens.weight"]
    model.load_state_dict(state, strict=True, assign=True)
    if config.tie_word_embeddings:
        model.lm_head.weight = model.embed_tokens.weight
    return model.to(device).ready()


def _empty(
    shape: tuple[int, ...], by_columns: bool, dtype: torch.dtype, device: str | torch.device
) -> Tensor:
    """Memory for a parameter, laid out as `Decoder.ready` wants it."""
    if by_columns and len(shape) == 2:
        return torch.empty(shape[::-1], dtype=dtype, device=device).t()
    return torch.empty(shape, dtype=dtype, device=device)


def _fill(parameter: Tensor, sources: list[tuple[Path, str]]) -> None:
    """Copy the rows of several tensors, one after another, converting them to its dtype.

    Raises CheckpointError for a number that is not finite there.
    """
    row = 0
    for path, name in sources:
        start = row
        for part in slices(path, name):
            check_finite(part, parameter.dtype, f"{path}: {name}", row - start)
            parameter[row : row + len(part)].copy_(part)
            row += len(part)


def _wanted(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of each tensor in the checkpoint, the head apart."""
    c, d = config, config.head_dim
    shapes = {
        "model.embed_tokens.weight": (c.vocab_size, c.hidden_size),
        "model.norm.weight": (c.hidden_size,),
    }
    for i in range(c.num_layers):
        attn, mlp = f"model.layers.{i}.self_attn", f"model.layers.{i}.mlp"
        for name, heads in (("q", c.num_query_heads), ("k", c.num_kv_heads), ("v", c.num_kv_heads)):
            shapes[f"{attn}.{name}_proj.weight"] = (heads * d, c.hidden_size)
            if c.qkv_bias:
                shapes[f"{attn}.{name}_proj.bias"] = (heads * d,)
        shapes[f"{attn}.o_proj.weight"] = (c.hidden_size, c.num_query_heads * d)
        if c.o_bias:
            shapes[f"{attn}.o_proj.bias"] = (c.hidden_size,)
        if c.qk_norm:
            shapes[f"{attn}.q_norm.weight"] = shapes[f"{attn}.k_norm.weight"] = (d,)
        for name, shape in (
            ("gate", (c.intermediate_size, c.hidden_size)),
            ("up", (c.intermediate_size, c.hidden_size)),
            ("down", (c.hidden_size, c.intermediate_size)),
        ):
            shapes[f"{mlp}.{name}_proj.weight"] = shape
            if c.mlp_bias:
                shapes[f"{mlp}.{name}_proj.bias"] = shape[:1]
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"model.layers.{i}.{name}.weight"] = (c.hidden_size,)
    return shapes


def _fused(config: ModelConfig) -> dict[str, list[str]]:
    """Our parameter -> the checkpoint's tensors it is made of, stacked by rows."""
    fused: dict[str, list[str]] = {}
    for name in _wanted(config):
        ours = name.removeprefix("model.")
        for whole, parts in (
            ("qkv_proj", ("q_proj", "k_proj", "v_proj")),
            ("gate_up_proj", ("gate_proj", "up_proj")),
        ):
            for part in parts:
                ours = ours.replace(f".{part}.", f".{whole}.")
        fused.setdefault(ours, []).append(name)
    return fused


def _find_tensors(
    files: list[Path], wanted: dict[str, tuple[int, ...]], config: ModelConfig
) -> dict[str, Path]:
    """Which file holds each tensor; all shapes are checked here, before anything is loaded."""
    found: dict[str, Path] = {}
    head = {"lm_head.weight": (config.vocab_size, config.hidden_size)}
    for path in files:
        with opened(path) as handle:
            for name in handle.keys():  # noqa: SIM118 - not a dict
                found[name] = path
                expected = (wanted | head).get(name)
                part = handle.get_slice(name)
                shape = tuple(part.get_shape())
                if expected is not None and part.get_dtype() not in FLOATS:
                    raise CheckpointError(
                        f"{path}: {name} is stored as {part.get_dtype()}, "
                        f"expected one of {', '.join(FLOATS)}"
                    )
                if expected is not None and shape != expected:
                    raise CheckpointError(
                        f"{path}: {name} has shape {list(shape)}, expected {list(expected)}"
                    )
    if missing := [name for name in wanted if name not in found]:
        raise CheckpointError(
            f"{files[0].parent}: {missing[0]} is missing, expected shape "
            f"{list(wanted[missing[0]])} ({len(missing)} of {len(wanted)} tensors are "
            "missing)"
        )
    ignored = ("rotary_emb.inv_freq",)
    if extra := [n for n in found if n not in wanted and n not in head and not n.endswith(ignored)]:
        raise CheckpointError(
            f"{found[extra[0]]}: {extra[0]} has no place in a {config.architecture} of "
            "this configuration"
        )
    return found


def _check_head(config: ModelConfig, found: dict[str, Path]) -> None:
    if "lm_head.weight" not in found and not config.tie_word_embeddings:
        raise CheckpointError(
            "lm_head.weight is missing although tie_word_embeddings is false; set it "
            "to true if the head is the embedding model.embed_tokens.weight"
        )


def _check_tied(found: dict[str, Path], embedding: Tensor) -> None:
    """A head beside a tied embedding must be the same numbers."""
    if "lm_head.weight" not in found:
        return
    row = 0
    for part in slices(found["lm_head.weight"], "lm_head.weight"):
        if not torch.equal(part.to(embedding), embedding[row : row + len(part)]):
            raise CheckpointError(
                "tie_word_embeddings is true, yet lm_head.weight differs from "
                "model.embed_tokens.weight; set it to false to use the head"
            )
        row += len(part)
