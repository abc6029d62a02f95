"""The models that are timed: a random Llama of 5.4 M parameters, and the tiny model.

The random one is written as a folder in Hugging Face layout, so that kvlab and transformers load
the same weights from the same file.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from kvlab import tiny

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


@dataclass(frozen=True)
class Subject:
    """A model to be timed: its name in the table and its folder."""

    name: str
    folder: Path


def write_random_llama(folder: Path, seed: int = 0) -> Subject:
    """Seeded weights, large enough that outputs vary: for costs, not for answers."""
    config = RANDOM_LLAMA
    generator = torch.Generator().manual_seed(seed)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = {name: _draw(shape, generator) for name, shape in _shapes(config).items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return Subject("random Llama", folder)


def tiny_model() -> Subject:
    return Subject("tiny model", tiny.FOLDER)


def random_prompts(batch: int, length: int, vocab_size: int, seed: int) -> list[list[int]]:
    """`batch` prompts of random ids. Another seed gives prompts that no prefix cache has seen."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocab_size, (batch, length), generator=generator).tolist()


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
