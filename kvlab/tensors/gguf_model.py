"""A Llama-layout decoder from a GGUF file, llama.cpp's format: one file, weights quantised.

A quantised tensor is stored in small blocks of integers with a scale each (Q4_1: 32 values in 20
bytes). They are turned back into floating point here, so what is loaded computes as any other
model. llama.cpp rotates neighbouring pairs of a head's values where Hugging Face rotates its two
halves, so its files hold the rows of q and k in another order; here they are put back.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import torch
from torch import Tensor

from kvlab.tensors.checkpoint_files import CheckpointError, check_finite
from kvlab.tensors.config import ModelConfig, config_from_hf
from kvlab.tensors.gguf_tokenizer import tokenizer_from
from kvlab.tensors.memory_budget import refuse_weights
from kvlab.tensors.model import Decoder
from kvlab.tensors.tokenizer import Tokenizer
from kvlab.tensors.weight_counts import num_parameters

if TYPE_CHECKING:
    from gguf.gguf_reader import ReaderTensor

ROWS = 512  # of a matrix, turned into floating point at a time
PARTS = {  # a parameter of ours -> the file's tensors that it is made of, stacked by rows
    "embed_tokens": ("token_embd",),
    "norm": ("output_norm",),
    "lm_head": ("output",),
    "input_layernorm": ("attn_norm",),
    "self_attn.qkv_proj": ("attn_q", "attn_k", "attn_v"),
    "self_attn.o_proj": ("attn_output",),
    "post_attention_layernorm": ("ffn_norm",),
    "mlp.gate_up_proj": ("ffn_gate", "ffn_up"),
    "mlp.down_proj": ("ffn_down",),
}


def load_gguf(
    path: str | Path, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
) -> tuple[Decoder, Tokenizer]:
    """The decoder of a GGUF file, ready for inference, and its tokenizer.

    Raises CheckpointError, naming the file, for one that is damaged, of another architecture than
    llama, or of a stored type that the gguf package does not read; ImportError without gguf; and
    NotEnoughMemory, before it reads the weights, where they do not fit.
    """
    path = Path(path)
    values, tensors = _opened(path)
    tokenizer = tokenizer_from(values, path)
    config = _config(values, tensors, path)
    return _filled(config, tensors, path, dtype, device).ready(), tokenizer


def load_gguf_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a GGUF file alone, with its chat template; no weights are read.

    Raises as `load_gguf`.
    """
    return tokenizer_from(_opened(Path(path))[0], Path(path))


def _opened(path: Path) -> tuple[dict[str, object], dict[str, "ReaderTensor"]]:
    """The file's keys as Python's own values, and its tensors by name, read when they are used.

    The reader itself is let go: it holds an array for each of the 100,000 words and merges.
    """
    from gguf import GGUFReader

    class Reader(GGUFReader):
        """With plain arrays over the mapped file: numpy's own kind for these takes thrice as long
        to cut into 250,000 pieces."""

        @property
        def data(self) -> numpy.ndarray:
            return self._plain

        @data.setter
        def data(self, mapped: numpy.memmap) -> None:
            self._plain = numpy.asarray(mapped)

    try:
        reader = Reader(path)
        values = {key: field.contents() for key, field in reader.fields.items()}
    except (ValueError, IndexError, KeyError, TypeError, OSError, OverflowError) as error:
        raise CheckpointError(
            f"{path} cannot be read as GGUF (truncated or damaged?): {error}"
        ) from None
    return values, {tensor.name: tensor for tensor in reader.tensors}


def _config(
    values: dict[str, object], tensors: dict[str, "ReaderTensor"], path: Path
) -> ModelConfig:
    """The file's keys by their names in a config.json; the reader of those checks them."""
    architecture = values.get("general.architecture")
    if architecture != "llama":
        raise CheckpointError(
            f"{path}: architecture {architecture!r} is not read from GGUF; supported is 'llama' "
            "(give other families as a folder in Hugging Face layout)"
        )
    scaling = values.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise CheckpointError(f"{path}: llama.rope.scaling.type is {scaling!r}; supported: 'none'")
    embedding = tensors.get("token_embd.weight")
    names = {
        "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length",
        "num_hidden_layers": "block_count",
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "head_dim": "attention.key_length",
        "max_position_embeddings": "context_length",
        "rms_norm_eps": "attention.layer_norm_rms_epsilon",
        "rope_theta": "rope.freq_base",
    }
    hf = {ours: values.get(f"llama.{key}") for ours, key in names.items()}
    hf |= {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": None if embedding is None else int(embedding.shape[-1]),
        "tie_word_embeddings": "output.weight" not in tensors,
        "eos_token_id": values.get("tokenizer.ggml.eos_token_id"),
    }
    try:
        config = config_from_hf(hf, str(path))
    except ValueError as error:
        raise CheckpointError(str(error)) from None
    rotated = values.get("llama.rope.dimension_count", config.head_dim)
    if rotated != config.head_dim:
        raise CheckpointError(
            f"{path}: llama.rope.dimension_count is {rotated}; supported: all of a head's "
            f"{config.head_dim} values"
        )
    return config


def _sources(name: str) -> list[str]:
    """layers.3.mlp.gate_up_proj.weight -> [blk.3.ffn_gate.weight, blk.3.ffn_up.weight]"""
    layer, ours, kind = re.fullmatch(r"(?:layers\.(\d+)\.)?(.+)\.(weight|bias)", name).groups()
    block = "" if layer is None else f"blk.{layer}."
    return [f"{block}{part}.{kind}" for part in PARTS[ours]]


def _part_rows(name: str, whole: int, config: ModelConfig) -> int:
    """How many rows of a parameter's `whole` this tensor has."""
    kinds = {
        "attn_q": config.num_query_heads * config.head_dim,
        "attn_k": config.num_kv_heads * config.head_dim,
        "attn_v": config.num_kv_heads * config.head_dim,
        "ffn_gate": config.intermediate_size,
        "ffn_up": config.intermediate_size,
    }
    return kinds.get(name.split(".")[-2], whole)


def _check(config: ModelConfig, tensors: dict[str, "ReaderTensor"], path: Path) -> None:
    """All names and shapes, before any memory is taken for them."""
    if config.num_layers > len(tensors):
        raise CheckpointError(
            f"{path}: llama.block_count is {config.num_layers}, with {len(tensors)} tensors"
        )
    with torch.device("meta"):  # shapes alone
        parameters = dict(Decoder(config).named_parameters())
    wanted = {}
    for name, parameter in parameters.items():
        whole, *columns = parameter.shape
        for part in _sources(name):
            wanted[part] = [_part_rows(part, whole, config), *columns]
    if missing := [name for name in wanted if name not in tensors]:
        raise CheckpointError(f"{path}: {missing[0]} is missing, expected {wanted[missing[0]]}")
    if extra := [name for name in tensors if name not in wanted]:
        raise CheckpointError(
            f"{path}: {extra[0]} has no place in a {config.architecture} without biases "
            "and with plain rotary positions, the kind that is read from GGUF"
        )
    for name, expected in wanted.items():
        shape = [int(size) for size in reversed(tensors[name].shape)]
        if shape != expected:
            raise CheckpointError(f"{path}: {name} has shape {shape}, expected {expected}")


def _filled(
    config: ModelConfig,
    tensors: dict[str, "ReaderTensor"],
    path: Path,
    dtype: torch.dtype,
    device: str | torch.device,
) -> Decoder:
    _check(config, tensors, path)
    refuse_weights(num_parameters(config), dtype, torch.device(device))
    model, state = Decoder(config), {}
    for name, parameter in model.named_parameters():  # a tied head is not among them
        by_rows = name == "embed_tokens.weight" and not config.tie_word_embeddings
        columns_first = torch.device(device).type == "cpu" and not by_rows
        state[name] = _empty(parameter.shape, columns_first, dtype, device)
    for name, parameter in state.items():  # all are placed before: no gaps are left between them
        _fill(parameter, [tensors[part] for part in _sources(name)], config, path)
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["embed_tokens.weight"]
    model.load_state_dict(state, strict=True, assign=True)
    if config.tie_word_embeddings:
        model.lm_head.weight = model.embed_tokens.weight
    return model.to(device)


def _empty(
    shape: torch.Size, columns_first: bool, dtype: torch.dtype, device: str | torch.device
) -> Tensor:
    """Memory for a parameter, laid out as `Decoder.ready` wants it."""
    if columns_first and len(shape) == 2:
        return torch.empty(shape[::-1], dtype=dtype, device=device).t()
    return torch.empty(shape, dtype=dtype, device=device)


def _fill(whole: Tensor, parts: list["ReaderTensor"], config: ModelConfig, path: Path) -> None:
    """Write a parameter's parts into its rows, in its own dtype: nothing is held twice.

    Raises CheckpointError for a number that is not finite there.
    """
    heads = {"attn_q": config.num_query_heads, "attn_k": config.num_kv_heads}
    start = 0
    for tensor in parts:
        end = start + int(tensor.shape[-1])
        rows = whole[start:end]
        for at in range(0, len(rows), ROWS):
            chunk = tensor.data[at : at + ROWS]
            stored = _floats(chunk, tensor, path)
            check_finite(stored, whole.dtype, f"{path}: {tensor.name}", at)
            rows[at : at + ROWS] = stored
        kind = tensor.name.split(".")[-2]
        if kind in heads:
            rows.copy_(hugging_face_order(rows, heads[kind]))
        start = end


def hugging_face_order(rows: Tensor, num_heads: int) -> Tensor:
    """Undo llama.cpp's order: in each head, rows a0 b0 a1 b1 ... become a0 a1 ... b0 b1 ...

    rows: [num_heads * head_dim, hidden_size]; rotary positions turn each a with its b.
    """
    pairs = rows.reshape(num_heads, -1, 2, rows.shape[-1])
    return pairs.transpose(1, 2).reshape(rows.shape)


def _floats(chunk: numpy.ndarray, tensor: "ReaderTensor", path: Path) -> Tensor:
    from gguf.quants import dequantize

    try:
        return torch.from_numpy(dequantize(chunk, tensor.tensor_type).copy())
    except (RuntimeError, ValueError, KeyError):  # a type that the package cannot turn back
        raise CheckpointError(
            f"{path}: {tensor.name} is stored as {tensor.tensor_type.name}, which the gguf package "
            "does not turn back into floating point; take a file in Q8_0, Q4_K_M or F16"
        ) from None
