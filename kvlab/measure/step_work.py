"""The work of a step, counted from the model's shape: FLOPs and bytes (section 21.2).

FLOPs, a multiply and an add apart (2 for each weight that takes part):

    weights    2 * matrices of all layers       for each position that is computed
    head       2 * vocab_size * hidden_size     for each position whose logits are computed
    attention  4 * num_query_heads * head_dim   for each query and each key that it may see,
                                                in each layer: 2 d for q . k, 2 d for weight * v;
                                                in a layer with a window, the keys within it

Looking up an embedding multiplies nothing and counts nothing; norms, rotary positions, softmax,
biases and sampling are left out: they grow with hidden_size, not with its square.

Bytes that have to move between memory and processor, at least once a step:

    weights                  every weight of the layers, the last norm and the head, once
    embeddings               one row for each position
    keys and values read     all positions that a request has after the step, in the stored dtype;
                             in a layer with a window, those that some query of the step may see
    keys and values written  the new ones

Activations are left out: a good kernel keeps them in the caches.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

from kvlab.measure.roofline_records import Case
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.weight_counts import head_weights, layer_weights, small_weights

Lens = tuple[tuple[int, int], ...]  # (query_len, seq_len) of each request


def causal_pairs(query_len: int, seq_len: int) -> int:
    """Pairs of a query and a key it may see: the last query_len of seq_len positions ask.

    2 queries, 5 positions: the first sees 4, the second 5, together 9.
    """
    past = seq_len - query_len
    return query_len * past + query_len * (query_len + 1) // 2


def seen_pairs(query_len: int, seq_len: int, window: int | None) -> int:
    """As `causal_pairs`, in a layer where a query sees `window` keys at most; None: all of them.

    2 queries, 5 positions, window 3: each sees 3, together 6.
    """
    pairs = causal_pairs(query_len, seq_len)
    beyond = 0 if window is None else seq_len - window
    return pairs - causal_pairs(min(query_len, beyond), beyond) if beyond > 0 else pairs


def positions_read(query_len: int, seq_len: int, window: int | None) -> int:
    """Positions whose keys some query of the step may see: the first one's window, and the rest."""
    return seq_len if window is None else min(seq_len, window + query_len - 1)


def _over_layers(c: ModelConfig, count: Callable[[int, int, int | None], int], lens: Lens) -> int:
    """A count of one request in one layer, summed over both."""
    windows = Counter(map(c.window_of, range(c.num_layers)))
    return sum(
        layers * sum(count(*pair, window) for pair in lens) for window, layers in windows.items()
    )


def step_flops(
    c: ModelConfig, query_lens: Sequence[int], seq_lens: Sequence[int], logits_rows: int
) -> dict[str, int]:
    """FLOPs of one step over several requests. logits_rows: positions whose logits are computed."""
    pairs = _over_layers(c, seen_pairs, tuple(zip(query_lens, seq_lens, strict=True)))
    return {
        "weights": 2 * c.num_layers * layer_weights(c) * sum(query_lens),
        "head": 2 * head_weights(c) * logits_rows,
        "attention": 4 * c.num_query_heads * c.head_dim * pairs,
    }


def step_nbytes(
    c: ModelConfig,
    query_lens: Sequence[int],
    seq_lens: Sequence[int],
    logits_rows: int,
    weight_itemsize: int,
    cache_itemsize: int | Fraction,
) -> dict[str, int]:
    """Bytes of one step. *_itemsize: bytes of one value, as computed with and as stored."""
    weights = c.num_layers * layer_weights(c) + small_weights(c)
    if logits_rows:
        weights += head_weights(c)
    position = int(c.bytes_per_position(cache_itemsize))
    read = _over_layers(c, positions_read, tuple(zip(query_lens, seq_lens, strict=True)))
    return {
        "weights": weights * weight_itemsize,
        "embeddings": sum(query_lens) * c.hidden_size * weight_itemsize,
        "keys and values read": read * position // c.num_layers,
        "keys and values written": sum(query_lens) * position,
    }


def case_flops(c: ModelConfig, case: Case) -> dict[str, int]:
    """Each request of a case gets logits for its last position."""
    queries, lengths = [case.query_len] * case.batch, [case.seq_len] * case.batch
    return step_flops(c, queries, lengths, case.batch)


def case_nbytes(
    c: ModelConfig, case: Case, weight_itemsize: int, cache_itemsize: int | Fraction
) -> dict[str, int]:
    """As `case_flops`."""
    queries, lengths = [case.query_len] * case.batch, [case.seq_len] * case.batch
    return step_nbytes(c, queries, lengths, case.batch, weight_itemsize, cache_itemsize)
