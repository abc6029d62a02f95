"""What K/V depend on besides the tokens: the configuration behind every block identity."""

import hashlib
from dataclasses import asdict

import torch

from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.model import Decoder

SLICE_VALUES = 1 << 22  # how many are laid out row after row at a time


def weights_digest(model: Decoder) -> str:
    """sha256 over all parameters, by name: one changed weight gives another digest."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}".encode())
        rows = max(1, SLICE_VALUES * len(parameter) // max(1, parameter.numel()))
        for part in parameter.detach().split(rows):  # never a copy of a whole matrix
            digest.update(part.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def configuration_of(model: Decoder, cache: PagedCache) -> dict[str, object]:
    """Weights, position scheme, attention settings, cache format and stored dtype."""
    config = asdict(model.config)
    config["eos_token_ids"] = None  # ends a request, does not change its K/V
    if model.config.sliding_window is None:  # no layer has one: the identity names none
        del config["sliding_window"], config["layer_types"]
    stored: dict[str, object] = {"layout": "paged", "dtype": str(cache.dtype)}
    if isinstance(cache.key_scale, tuple):  # fp8: a code means another number at another scale
        stored["scales"] = [list(cache.key_scale), list(cache.value_scale)]
    return {
        "weights": weights_digest(model),
        "model": config,
        "compute_dtype": str(model.dtype),
        "cache": stored,
    }
