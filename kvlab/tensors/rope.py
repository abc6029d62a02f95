"""Rotary positions: each pair of coordinates (i, i + d/2) turns by position * frequency_i.

Source: Su et al. (2021), RoFormer; the llama3 stretching as in Llama 3.1's reference code.
"""

import math

import torch
from torch import Tensor

from kvlab.tensors.config import RopeScaling


def inverse_frequencies(head_dim: int, theta: float, scaling: RopeScaling) -> Tensor:
    """Radians a position for each of the head_dim / 2 pairs, float32, shape [head_dim / 2]."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    freq = 1.0 / theta**exponents
    if scaling.kind == "linear":
        return freq / scaling.factor
    if scaling.kind == "llama3":
        return _llama3(freq, scaling)
    return freq


def _llama3(freq: Tensor, s: RopeScaling) -> Tensor:
    """Short wavelengths stay, long ones are divided by the factor, between them a blend.

        wavelength:  | < L/high_freq_factor |  in between  | > L/low_freq_factor |
        frequency:   |      unchanged       |    blend     |      / factor       |

    L is the context length the model was first trained at.
    """
    wavelength = 2 * math.pi / freq
    context = s.original_max_position
    blend = (context / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)
    blended = (1 - blend) * freq / s.factor + blend * freq
    stretched = torch.where(wavelength > context / s.low_freq_factor, freq / s.factor, freq)
    between = (wavelength <= context / s.low_freq_factor) & (
        wavelength >= context / s.high_freq_factor
    )
    return torch.where(between, blended, stretched)


def cos_sin(positions: Tensor, inv_freq: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """positions [N] -> cos and signed sin of shape [N, 1, head_dim], ready for `rotate`.

    The sign is that of the turn: -sin for the first half of the coordinates, sin for the second.

    The angle is computed in float32 whatever the dtype: at position 10,000 half precision
    cannot tell neighbours apart.
    """
    angle = positions.float()[:, None] * inv_freq  # [N, d/2]
    cos, sin = angle.cos(), angle.sin()
    cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
    return cos[:, None].to(dtype), sin[:, None].to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [N, heads, head_dim] turned by its position; cos and signed sin [N, 1, head_dim].

    Pair (a, b) becomes (a cos - b sin, b cos + a sin); a roll by half a row brings b under a.
    """
    return (x * cos).addcmul_(x.roll(x.shape[-1] // 2, dims=-1), sin)
