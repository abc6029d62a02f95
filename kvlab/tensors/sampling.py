"""From logits to a selected token.

logits -> temperature -> top-k -> top-p -> renormalise -> one draw. Each request draws from a
stream of its own, addressed by (seed, continuation, output index): the draw does not depend on
who shares the batch, on chunks, or on a preemption, and there is no state to lose. Section 21.6.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from kvlab.core.request import Request, SamplingParams
from kvlab.core.scheduler_output import SampledToken


def probabilities(logits: Tensor, params: SamplingParams) -> Tensor:
    """logits [V] -> probabilities [V], float64, sum 1: what a draw picks from.

    temperature 0 puts everything on the largest logit (the first of equals).
    """
    logits = logits.detach().cpu().double()
    if params.temperature == 0:
        return torch.zeros_like(logits).index_fill_(0, logits.argmax(), 1.0)
    probs = torch.softmax((logits - logits.max()) / params.temperature, dim=-1)
    if params.top_k is None and params.top_p == 1.0:
        return probs
    ordered, order = probs.sort(descending=True, stable=True)
    keep = torch.ones_like(ordered, dtype=torch.bool)
    if params.top_k is not None:
        keep[params.top_k :] = False
    ordered = ordered * keep
    if params.top_p < 1.0:  # smallest set that reaches top_p of what top-k left
        before = (ordered / ordered.sum()).cumsum(0).roll(1)
        before[0] = 0.0
        keep &= before < params.top_p
    kept = torch.zeros_like(probs).scatter_(0, order[keep], ordered[keep])
    return kept / kept.sum()


def uniform(seed: int, sample_index: int, output_index: int) -> float:
    """A number in [0, 1) from the request's own stream; equal on every machine and device."""
    digest = hashlib.sha256(f"{seed}/{sample_index}/{output_index}".encode()).digest()
    return int.from_bytes(digest[:7], "little") / 2**56


def draw(probs: Tensor, u: float) -> int:
    """The token at which the running sum of probabilities [V] passes u."""
    token = int(torch.searchsorted(probs.cumsum(0), u, right=True))
    return token if token < len(probs) and probs[token] > 0 else int(probs.nonzero()[-1])


def sample(logits: Tensor, requests: Sequence[Request]) -> list[SampledToken]:
    """logits [R, V], one row a request. Returns one selected token a request."""
    assert logits.shape[0] == len(requests)
    greedy = _largest(logits)
    selected = []
    for row, request, best in zip(logits, requests, greedy, strict=True):
        params = request.sampling_params
        token = best
        if params.temperature > 0:
            u = uniform(params.seed or 0, request.sample_index, len(request.output_token_ids))
            token = draw(probabilities(row, params), u)
        selected.append(SampledToken(token, _logprobs(row, token, params.logprobs)))
    return selected


def _largest(logits: Tensor) -> list[int]:
    """Of each row [V], the token of the largest logit; the first of equals."""
    if logits.is_cuda:  # so that R numbers are copied to the host, and not R * V
        return logits.argmax(-1).tolist()
    return logits.float().cpu().numpy().argmax(axis=-1).tolist()  # on a CPU, numpy's is faster


def _logprobs(logits: Tensor, token: int, count: int | None) -> dict[int, float] | None:
    """Before temperature and filters: the selected token's and the `count` largest."""
    if count is None:
        return None
    logprobs = torch.log_softmax(
        logits.double() if logits.device.type == "cpu" else logits.float(), dim=-1
    )
    best = logprobs.topk(min(count, len(logprobs))).indices.tolist() if count else []
    return {i: float(logprobs[i]) for i in dict.fromkeys([token, *best])}
