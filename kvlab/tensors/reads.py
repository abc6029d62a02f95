"""Records what a query of a padded batch reads, with the padding masked and with it readable.

Two runs of the same model over the same rectangle; only the mask differs:

                     t0 t1 t2 pad pad t3   <- slots of the shorter request, 3 tokens of a prompt
query t3, masked      1  1  1   0   0  1
query t3, unmasked    1  1  1   1   1  1      what is computed from the filler is read as well

Positions count real tokens in both, and both process the tokens that the masked run selects, so
that each pass compares the same query over the same text. Section 21.1.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kvlab.core.attention_read import PaddedPass, PaddedReads, whole_number
from kvlab.tensors.attention import attention_weights, causal_mask
from kvlab.tensors.kv_cache import ContiguousAttention, ContiguousCache
from kvlab.tensors.model import Decoder
from kvlab.tensors.runner import rounded_weights


def padded_reads(
    model: Decoder,
    prompts: Sequence[Sequence[int]],
    *,
    request: int | None = None,
    passes: int = 1,
    pad_token_id: int = 0,
    token_text: Callable[[int], str] | None = None,
) -> PaddedReads:
    """Process prompts together, padded at the right, then `passes` selected tokens one by one.

    request: whose reads to keep; None takes the shortest. pad_token_id: what fills the rectangle.
    token_text: names tokens, such as `llm.tokenizer.token_text`. Selection is greedy and does not
    stop at an end token. Raises ValueError where nothing is padded, for ids out of range, and
    for prompts that are no lists of ids.
    """
    rows = _rows(model, prompts)
    request = _checked(model, rows, request, passes, pad_token_id)
    lengths = [len(row) for row in rows]
    width = max(lengths)
    slots: list[int | None] = [*rows[request], *([None] * (width - lengths[request]))]
    ids = torch.tensor([row + [pad_token_id] * (width - len(row)) for row in rows])
    runs = [_Run(model, len(rows), masked) for masked in (True, False)]
    found = []
    real = lengths
    for _ in range(passes + 1):
        ids = ids.to(model.device)
        (right, logits), (wrong, other) = (run.step(ids, real, request) for run in runs)
        query = len(slots) - 1 if found else real[request] - 1
        selected = logits.argmax(-1)
        found.append(_compared(query, (right, logits[request]), (wrong, other[request])))
        if len(found) <= passes:
            slots.append(int(selected[request]))
        ids, real = selected[:, None], [1] * len(rows)
    heads = model.config.num_query_heads, model.config.num_kv_heads
    return PaddedReads(request, lengths, slots, *heads, found, _named(slots, found, token_text))


class _Run:
    """One rectangle over the model, with the padding masked or readable."""

    def __init__(self, model: Decoder, batch: int, masked: bool) -> None:
        self.model, self.masked = model, masked
        self.cache = ContiguousCache(model.config, batch, model.dtype, model.device)

    @torch.inference_mode()
    def step(self, ids: Tensor, real: Sequence[int], request: int) -> tuple[dict, Tensor]:
        """One pass. ids [B, t], real: how many of each row are tokens.

        Returns the weights of the request's last real query, and the logits [B, V] of each
        row's last real position.
        """
        batch, width = ids.shape
        lens = torch.tensor(real, device=ids.device)
        offsets = torch.arange(width, device=ids.device)[None]
        past = self.cache.valid.sum(dim=1, keepdim=True)
        self.cache.valid = torch.cat((self.cache.valid, offsets < lens[:, None]), dim=1)
        attention = _Reading(self.cache, width, (request, real[request] - 1), self.masked)
        hidden = self.model(ids.flatten(), (past + offsets).flatten(), attention)
        last = hidden.unflatten(0, (batch, width))[torch.arange(batch), lens - 1]
        return attention.weights, self.model.compute_logits(last)


class _Reading(ContiguousAttention):
    """The attention of a rectangle, which also keeps the weights of one query in each layer."""

    def __init__(
        self, cache: ContiguousCache, width: int, query: tuple[int, int], masked: bool
    ) -> None:
        """query: request and column, among the new ones. Unmasked, the causal mask stays."""
        super().__init__(cache, width)
        if not masked:
            self.mask = causal_mask(width, cache.valid.shape[1], cache.valid.device)[None]
            self.mask = self.mask.expand(cache.batch, -1, -1)
        self.row, self.column = query
        self.weights: dict[str, list[list[float]]] = {}

    def __call__(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, window: int | None = None
    ) -> Tensor:
        mixed = super().__call__(layer, query, key, value, window)
        heads = query.unflatten(0, (self.cache.batch, self.width))[self.row, self.column]  # [Hq, d]
        keys = self.cache.keys[layer][self.row].to(query.dtype)
        mask = self.mask_within(window)[self.row, self.column][None]  # [1, T]
        end = keys.shape[1] - self.width + self.column + 1
        weights = attention_weights(heads[:, None], keys, mask)[:, 0, :end]
        self.weights[str(layer)] = rounded_weights(weights)
        return mixed


def _compared(query: int, right: tuple[dict, Tensor], wrong: tuple[dict, Tensor]) -> PaddedPass:
    """right, wrong: weights and logits [V] of the two runs."""
    difference = float((right[1] - wrong[1]).abs().max())
    tokens = (int(logits.argmax()) for _, logits in (right, wrong))
    return PaddedPass(query, right[0], wrong[0], *tokens, round(difference, 4))


def _named(
    slots: Sequence[int | None], passes: Sequence[PaddedPass], text: Callable[[int], str] | None
) -> dict[str, str]:
    """Texts of all token ids that occur."""
    if text is None:
        return {}
    selected = {t for p in passes for t in (p.masked_token, p.unmasked_token)}
    return {str(t): text(t) for t in sorted({*slots, *selected} - {None})}


def _rows(model: Decoder, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """The prompts as lists; raises ValueError for other things, and for what is no model."""
    if not isinstance(model, Decoder):
        raise ValueError(
            f"model has type {type(model).__name__}; give a Decoder, such as llm.model"
        )
    lists = list | tuple | range
    if not isinstance(prompts, lists) or not all(isinstance(row, lists) for row in prompts):
        raise ValueError(f"prompts is {prompts!r}; give a list of lists of token ids")
    return [list(row) for row in prompts]


def _checked(
    model: Decoder, rows: list[list[int]], request: int | None, passes: int, pad: int
) -> int:
    """The row to keep; raises ValueError for what cannot be run."""
    lengths, size = [len(row) for row in rows], model.config.vocab_size
    if not rows or min(lengths) == 0:
        raise ValueError(f"prompts of {lengths} tokens; give prompts of at least one token each")
    tokens = (pad, *(t for row in rows for t in row))
    if bad := [t for t in tokens if type(t) is not int or not 0 <= t < size]:
        raise ValueError(f"token {bad[0]!r} is not an id of this vocabulary (0 to {size - 1})")
    row = lengths.index(min(lengths)) if request is None else whole_number(request)
    if row not in range(len(rows)):
        raise ValueError(f"request is {request!r}; give a row from 0 to {len(rows) - 1}")
    if lengths[row] == max(lengths):
        raise ValueError(
            f"prompts of {lengths} tokens leave request {row} without padding; "
            "give a longer prompt beside it"
        )
    longest = model.config.max_model_len
    if type(passes) is not int or passes < 1 or max(lengths) + passes > longest:
        raise ValueError(
            f"passes is {passes!r}; give 1 or more, with at most {longest} positions in all"
        )
    return row
