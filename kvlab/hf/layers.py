"""How one layer of a foreign model attends: scale, window, cap on the scores, sinks.

    scores  = scaling * q . k                        then softcap * tanh(scores / softcap)
    weights = softmax over the keys in the window    a sink takes its share and gives nothing
    output  = sum of weights * v

`LayerAttention` is the formula for one request in plain torch. Where there is neither cap nor
sink, tensors/ops.py computes the same fast.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class LayerAttention:
    """What a layer hands to its attention besides queries, keys and values.

    scaling: factor of the scores. window: positions that a query reads, its own included; None:
    all before it. softcap: bound of the scores; None: there is none. sinks: [num_query_heads]
    scores that take part in the softmax and have no value (gpt-oss); None: there are none.
    """

    scaling: float
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = field(default=None, compare=False, repr=False)

    @property
    def is_plain(self) -> bool:
        """Nothing happens to the scores between product and softmax."""
        return self.softcap is None and self.sinks is None

    def scaled(self, query: Tensor) -> Tensor:
        """The query for attention that divides scores by sqrt(head_dim), as ours does."""
        factor = self.scaling * query.shape[-1] ** 0.5
        return query if abs(factor - 1.0) < 1e-9 else query * factor

    def first_key(self, position: int) -> int:
        """The earliest position that a query at `position` reads."""
        return 0 if self.window is None else max(0, position - self.window + 1)

    def mask(self, queries: range, keys: range, device: torch.device) -> Tensor:
        """[len(queries), len(keys)], True where a query may read; both are runs of positions."""
        q = torch.arange(queries.start, queries.stop, device=device)[:, None]
        k = torch.arange(keys.start, keys.stop, device=device)[None]
        allowed = k <= q
        return allowed if self.window is None else allowed & (k > q - self.window)

    def weights(self, query: Tensor, key: Tensor, mask: Tensor) -> Tensor:
        """query [H_q, n, d], scaled; key [H_kv, T, d]; mask [n, T]. Returns [H_q, n, T].

        Query head h reads KV head h // (H_q / H_kv). With sinks a row sums to less than 1.
        """
        key = key.repeat_interleave(query.shape[0] // key.shape[0], dim=0)
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        scores = scores.masked_fill(~mask, float("-inf"))
        if self.sinks is not None:
            sinks = self.sinks.to(scores.dtype)[:, None, None].expand(-1, scores.shape[1], 1)
            scores = torch.cat((scores, sinks), dim=-1)
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        return weights if self.sinks is None else weights[..., :-1]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Weights times values, [H_q, n, d]; value [H_kv, T, d], the rest as in `weights`."""
        group = query.shape[0] // key.shape[0]
        return self.weights(query, key, mask) @ value.repeat_interleave(group, dim=0)
