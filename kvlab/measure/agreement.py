"""Whether two greedy outputs are equal, and if not, whether that is a fault or a near tie.

Two correct programs add the same numbers in different orders. Where two logits nearly tie, the
last bit decides which is larger, and from there on the outputs go their own ways.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from kvlab.tensors.checkpoint import load_model
from kvlab.tensors.kv_cache import ContiguousAttention, ContiguousCache

NEAR_TIE = 2e-4  # each of two logits may be off by 1e-4 in float32
MISMATCH = "MISMATCH"

Tokens = Sequence[Sequence[int]]


def differences(folder: Path, prompts: Tokens, ours: Tokens, theirs: Tokens) -> list[str]:
    """One sentence for each request whose outputs differ; a fault's begins with MISMATCH."""
    return [
        _first_difference(folder, prompt, a, b)
        for prompt, a, b in zip(prompts, ours, theirs, strict=True)
        if list(a) != list(b)
    ]


def _first_difference(
    folder: Path, prompt: Sequence[int], a: Sequence[int], b: Sequence[int]
) -> str:
    if len(a) != len(b):
        return f"{MISMATCH}: {len(a)} and {len(b)} tokens"
    at = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    logits = exact_logits(folder, [*prompt, *a[:at]])
    behind = float(logits.max() - torch.minimum(logits[a[at]], logits[b[at]]))
    kind = "near tie" if behind < NEAR_TIE else MISMATCH
    return f"{kind} at output {at}: {a[at]} or {b[at]}, the lower {behind:.1e} below the largest"


def exact_logits(folder: Path, token_ids: Sequence[int]) -> torch.Tensor:
    """Logits [V] after a sequence, recomputed as a whole in float64."""
    model, count = load_model(folder, torch.float64), len(token_ids)
    cache = ContiguousCache(model.config, 1, torch.float64)
    cache.valid = torch.ones(1, count, dtype=torch.bool)
    with torch.inference_mode():
        attention = ContiguousAttention(cache, count)
        hidden = model(torch.tensor(token_ids), torch.arange(count), attention)
        return model.compute_logits(hidden[-1:])[0]
