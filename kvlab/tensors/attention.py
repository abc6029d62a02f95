"""Attention as a specification: the formula in plain torch, slow and readable.

    scores  = q . k / sqrt(d_h)      over the positions that the query may see
    weights = softmax(scores)        sums to 1
    output  = sum of weights * v

tensors/ops.py computes the same fast; every backend is tested against this file. Section 21.1.
"""

import torch
from torch import Tensor


def causal_mask(
    num_queries: int,
    num_keys: int,
    device: torch.device | str = "cpu",
    window: int | None = None,
) -> Tensor:
    """[num_queries, num_keys], True where a query may read. Aligned at the bottom right:

    past 3, 2 queries:   1 1 1 1 0        with a window of 2:   0 0 1 1 0
                         1 1 1 1 1                              0 0 0 1 1

    window: how many keys a query reads at most, its own position's among them; 1 sees only
    itself. None: all of them. Source: Jiang et al. (2023), Mistral 7B, section 2.
    """
    past = num_keys - num_queries
    mask = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril(past)
    return mask if window is None else mask.triu(past - window + 1)


def attention_weights(query: Tensor, key: Tensor, mask: Tensor) -> Tensor:
    """query [..., H_q, n, d], key [..., H_kv, T, d], mask broadcastable to [..., n, T].

    Returns [..., H_q, n, T]. Query head h reads KV head h // (H_q / H_kv). A query that may read
    nothing (padding) gets weights of zero.
    """
    group = query.shape[-3] // key.shape[-3]
    key = key.repeat_interleave(group, dim=-3)
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    allowed = mask.unsqueeze(-3)
    scores = scores.masked_fill(~allowed, float("-inf"))
    return torch.softmax(scores, dim=-1).masked_fill(~allowed, 0.0)


def attend_masked(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Weights times values: [..., H_q, n, d]. Shapes as in `attention_weights`."""
    group = query.shape[-3] // value.shape[-3]
    return attention_weights(query, key, mask) @ value.repeat_interleave(group, dim=-3)


def paged_attention_spec(
    query: Tensor,  # [N, num_query_heads, head_dim], rows of all requests one after another
    key_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim], one layer
    value_cache: Tensor,
    block_tables: list[list[int]],
    query_lens: list[int],
    seq_lens: list[int],
    dtype: torch.dtype = torch.float64,
    window: int | None = None,
) -> Tensor:
    """Attention through block tables, request by request. The queries are each sequence's last.

    Returns [N, num_query_heads, head_dim] in `dtype`. Source: Kwon et al. (2023), section 4.1.
    """
    assert sum(query_lens) == query.shape[0]
    outputs, row = [], 0
    for table, n, length in zip(block_tables, query_lens, seq_lens, strict=True):
        keys, values = (
            c[table].flatten(0, 1)[:length].transpose(0, 1).to(dtype)
            for c in (key_cache, value_cache)
        )
        q = query[row : row + n].transpose(0, 1).to(dtype)  # [Hq, n, d]
        mask = causal_mask(n, length, query.device, window)
        outputs.append(attend_masked(q, keys, values, mask).transpose(0, 1))
        row += n
    return torch.cat(outputs)
