"""The models that are timed: a random Llama of 5.4 M parameters, the tiny model, one of 135 M.

All are folders in Hugging Face layout, so that kvlab and transformers load the same weights from
the same file.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from kvlab import tiny
from kvlab.model_source import load
from kvlab.tensors.checkpoint_save import save_model

RANDOM_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 4096,
    "hidden_size": 256,
    "intermediate_size": 688,  # with tied embeddings 5,401,856 parameters in all
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": None,
    "dtype": "float32",
}

SMOLLM2_SHAPE = RANDOM_LLAMA | {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,  # 134,515,008 parameters
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000.0,
}


@dataclass(frozen=True)
class Subject:
    """A model to be timed: its name in the table and its folder."""

    name: str
    folder: Path


def write_random_llama(folder: Path, seed: int = 0) -> Subject:
    """Seeded weights, large enough that outputs vary: for costs, not for answers."""
    _write_random(folder, RANDOM_LLAMA, seed)
    return Subject("random Llama", folder)


def write_135m(folder: Path) -> Subject:
    """SmolLM2 where it is installed, its weights as float32; else random ones in its shape."""
    try:
        _, _, decoder = load("smollm2", None, torch.float32, torch.device("cpu"))
    except ValueError:  # not installed
        _write_random(folder, SMOLLM2_SHAPE, seed=0)
        return Subject("random weights in SmolLM2-135M's shape (it is not installed)", folder)
    save_model(decoder, folder, dtype=torch.float32)
    return Subject("SmolLM2-135M-Instruct, prompts of random tokens", folder)


def tiny_model() -> Subject:
    return Subject("tiny model", tiny.FOLDER)


def random_prompts(batch: int, length: int, vocab_size: int, seed: int) -> list[list[int]]:
    """`batch` prompts of random ids. Another seed gives prompts that no prefix cache has seen."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocab_size, (batch, length), generator=generator).tolist()


def _write_random(folder: Path, config: dict[str, object], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = {name: _draw(shape, generator) for name, shape in _shapes(config).items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _draw(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if len(shape) == 1:
        return torch.ones(shape)  # a norm's weight
    return torch.randn(shape, generator=generator) * 0.8 * shape[1] ** -0.5


def _shapes(c: dict[str, object]) -> dict[str, tuple[int, ...]]:
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    queries, keys = (c[f"num_{n}_heads"] * c["head_dim"] for n in ("attention", "key_value"))
    shapes = {
        "model.embed_tokens.weight": (c["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    of_a_layer = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    for layer in range(c["num_hidden_layers"]):
        for name, shape in of_a_layer.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    return shapes
