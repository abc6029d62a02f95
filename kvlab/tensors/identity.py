"""What K/V depend on besides the tokens: the configuration behind every block identity."""

import hashlib
from dataclasses import asdict

import torch

from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.model import Decoder


def weights_digest(model: Decoder) -> str:
    """sha256 over all parameters, by name: one changed weight gives another digest."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}".encode())
        digest.update(parameter.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def configuration_of(model: Decoder, cache: PagedCache) -> dict[str, object]:
    """Weights, position scheme, attention settings, cache format and stored dtype."""
    config = asdict(model.config)
    config["eos_token_ids"] = None  # ends a request, does not change its K/V
    return {
        "weights": weights_digest(model),
        "model": config,
        "compute_dtype": str(model.dtype),
        "cache": {"layout": "paged", "dtype": str(cache.dtype)},
    }
