"""The work of a step, counted from the model's shape: FLOPs and bytes (section 21.2).

FLOPs, a multiply and an add apart (2 for each weight that takes part):

    weights    2 * matrices of all layers       for each position that is computed
    head       2 * vocab_size * hidden_size     for each position whose logits are computed
    attention  4 * num_query_heads * head_dim   for each query and each key that it may see,
                                                in each layer: 2 d for q . k, 2 d for weight * v

Looking up an embedding multiplies nothing and counts nothing; norms, rotary positions, softmax,
biases and sampling are left out: they grow with hidden_size, not with its square.

Bytes that have to move between memory and processor, at least once a step:

    weights                  every weight of the layers, the last norm and the head, once
    embeddings               one row for each position
    keys and values read     all positions that a request has after the step, in the stored dtype
    keys and values written  the new ones

Activations are left out: a good kernel keeps them in the caches.
"""

from collections.abc import Sequence

from kvlab.measure.roofline_records import Case
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


def causal_pairs(query_len: int, seq_len: int) -> int:
    """Pairs of a query and a key it may see: the last query_len of seq_len positions ask.

    2 queries, 5 positions: the first sees 4, the second 5, together 9.
    """
    past = seq_len - query_len
    return query_len * past + query_len * (query_len + 1) // 2


def step_flops(
    c: ModelConfig, query_lens: Sequence[int], seq_lens: Sequence[int], logits_rows: int
) -> dict[str, int]:
    """FLOPs of one step over several requests. logits_rows: positions whose logits are computed."""
    pairs = sum(causal_pairs(n, length) for n, length in zip(query_lens, seq_lens, strict=True))
    return {
        "weights": 2 * c.num_layers * layer_weights(c) * sum(query_lens),
        "head": 2 * head_weights(c) * logits_rows,
        "attention": 4 * c.num_query_heads * c.head_dim * c.num_layers * pairs,
    }


def step_nbytes(
    c: ModelConfig,
    query_lens: Sequence[int],
    seq_lens: Sequence[int],
    logits_rows: int,
    weight_itemsize: int,
    cache_itemsize: int,
) -> dict[str, int]:
    """Bytes of one step. *_itemsize: bytes of one value, as computed with and as stored."""
    weights = c.num_layers * layer_weights(c) + small_weights(c)
    if logits_rows:
        weights += head_weights(c)
    position = c.bytes_per_position(cache_itemsize)
    return {
        "weights": weights * weight_itemsize,
        "embeddings": sum(query_lens) * c.hidden_size * weight_itemsize,
        "keys and values read": sum(seq_lens) * position,
        "keys and values written": sum(query_lens) * position,
    }


def case_flops(c: ModelConfig, case: Case) -> dict[str, int]:
    """Each request of a case gets logits for its last position."""
    queries, lengths = [case.query_len] * case.batch, [case.seq_len] * case.batch
    return step_flops(c, queries, lengths, case.batch)


def case_nbytes(
    c: ModelConfig, case: Case, weight_itemsize: int, cache_itemsize: int
) -> dict[str, int]:
    """As `case_flops`."""
    queries, lengths = [case.query_len] * case.batch, [case.seq_len] * case.batch
    return step_nbytes(c, queries, lengths, case.batch, weight_itemsize, cache_itemsize)
