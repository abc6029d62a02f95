"""Fewer KV heads for a trained decoder: neighbouring heads become their mean.

    query heads   0 1 2 3 4 5 6 7      0 1 2 3 4 5 6 7
    KV heads      0 0 1 1 2 2 3 3  ->  0 0 0 0 1 1 1 1      new 0 = mean(0, 1), new 1 = mean(2, 3)

The cache shrinks with the number of KV heads (eq 21.3); the answers suffer until the model is
trained on. Source: Ainslie et al. (2023), GQA, section 2.1: mean pooling loses less than taking
one head or starting anew (section 21.1).
"""

from dataclasses import replace

import torch
from torch import Tensor

from kvlab.tensors.model import Decoder


@torch.no_grad()
def mean_pool_kv_heads(model: Decoder, num_kv_heads: int) -> Decoder:
    """A new decoder whose K and V projections are means over groups of the old KV heads.

    Query head h reads KV head h // group before and after: the heads that are pooled are
    neighbours, so each query head reads the mean that its old KV head went into. Norms of heads
    (qk_norm) are shared by all heads and stay. The given model is not changed.

    Raises ValueError for what is no Decoder, and if num_kv_heads is no divisor of its KV heads.
    """
    if not isinstance(model, Decoder):
        raise ValueError(
            f"model has type {type(model).__name__}; give a Decoder, such as llm.model"
        )
    config = model.config
    _check(num_kv_heads, config.num_kv_heads)
    pooled = Decoder(replace(config, num_kv_heads=num_kv_heads))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for name in state:
        if ".qkv_proj." in name:
            state[name] = _pool_rows(state[name], model, num_kv_heads)
    pooled.load_state_dict(state, strict=True, assign=True)
    if config.tie_word_embeddings:
        pooled.lm_head.weight = pooled.embed_tokens.weight
    return pooled.to(model.device).ready()


def _check(wanted: int, found: int) -> None:
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1 or found % wanted:
        divisors = [n for n in range(1, found + 1) if found % n == 0]
        raise ValueError(
            f"num_kv_heads is {wanted!r}; {found} KV heads can be pooled into "
            f"{', '.join(map(str, divisors))}"
        )


def _pool_rows(stacked: Tensor, model: Decoder, num_kv_heads: int) -> Tensor:
    """Rows of q, k and v, stacked: [(Hq + 2 Hkv) d, D] or, of a bias, [(Hq + 2 Hkv) d].

    Rows of a head that are pooled keep their place within the head: rotary positions turn row i
    together with row i + d/2, so each pair is averaged with the same pair of other heads.
    """
    c = model.config
    query, key, value = stacked.split(
        [heads * c.head_dim for heads in (c.num_query_heads, c.num_kv_heads, c.num_kv_heads)]
    )
    means = [
        part.unflatten(0, (num_kv_heads, -1, c.head_dim)).mean(dim=1).flatten(0, 1)
        for part in (key, value)
    ]
    return torch.cat([query, *means])
