"""Small models for the sections' runs: only their shape matters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvlab.tensors.config import ModelConfig


def config_of(layers: int, query_heads: int, kv_heads: int, head_dim: int) -> ModelConfig:
    """A model of this shape with a vocabulary of 20."""
    from kvlab.tensors.config import ModelConfig

    return ModelConfig(
        vocab_size=20,
        hidden_size=8,
        intermediate_size=16,
        num_layers=layers,
        num_query_heads=query_heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
    )
