"""How many weights a decoder has, from its configuration alone: nothing is built for it.

    layers     num_layers * (q, k, v, o, gate, up, down)
    head       vocab_size * hidden_size, once where the embedding is tied to it, else twice
    small      norms and biases

Sections 21.1, 21.2.
"""

from kvlab.tensors.config import ModelConfig


def layer_weights(c: ModelConfig) -> int:
    """Weights of one layer's matrices: q, k, v, o, gate, up, down."""
    heads = 2 * c.num_query_heads + 2 * c.num_kv_heads  # q and o; k and v
    return heads * c.head_dim * c.hidden_size + 3 * c.hidden_size * c.intermediate_size


def head_weights(c: ModelConfig) -> int:
    """Weights of the output head, tied or not."""
    return c.vocab_size * c.hidden_size


def small_weights(c: ModelConfig) -> int:
    """Norms and biases: read, but not multiplied with a matrix product's reuse."""
    norms = 2 * c.hidden_size + (2 * c.head_dim if c.qk_norm else 0)
    biases = 0
    if c.qkv_bias:
        biases += (c.num_query_heads + 2 * c.num_kv_heads) * c.head_dim
    if c.o_bias:
        biases += c.hidden_size
    if c.mlp_bias:
        biases += 2 * c.intermediate_size + c.hidden_size
    return c.num_layers * (norms + biases) + c.hidden_size


def num_parameters(c: ModelConfig) -> int:
    """As `Decoder.num_parameters`; tied weights are counted once."""
    tables = 1 if c.tie_word_embeddings else 2
    return c.num_layers * layer_weights(c) + small_weights(c) + tables * head_weights(c)
