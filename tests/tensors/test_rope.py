"""Rotary frequencies with literal bounds (case N05)."""

import torch

from kvlab.tensors.config import RopeScaling
from kvlab.tensors.rope import cos_sin, inverse_frequencies, rotate


def test_n05_llama3_keeps_blends_and_divides():
    """d 64, theta 5e5, factor 32, 1 and 4, 8,192: pairs 0-14 kept, 15-17 blended, 18-31 divided."""
    scaling = RopeScaling("llama3", 32.0, 1.0, 4.0, 8192)
    plain = inverse_frequencies(64, 5e5, RopeScaling())
    ratio = plain / inverse_frequencies(64, 5e5, scaling)
    assert torch.equal(ratio[:15], torch.ones(15))
    assert all(1 < r < 32 for r in ratio[15:18].tolist())
    torch.testing.assert_close(ratio[18:], torch.full((14,), 32.0))


def test_linear_scaling_divides_all():
    plain = inverse_frequencies(8, 1e4, RopeScaling())
    assert torch.equal(inverse_frequencies(8, 1e4, RopeScaling("linear", 4.0)), plain / 4)
    assert plain.tolist() == [1.0, 0.10000000149011612, 0.009999999776482582, 0.0010000000474974513]


def test_scores_depend_on_the_distance_alone():
    inv_freq = inverse_frequencies(8, 1e4, RopeScaling())
    q, k = torch.randn(2, 1, 1, 8, generator=torch.Generator().manual_seed(0))
    scores = []
    for at in (0, 5, 300):
        cos, sin = cos_sin(torch.tensor([at, at + 3]), inv_freq, torch.float32)
        scores.append(float((rotate(k, cos[:1], sin[:1]) * rotate(q, cos[1:], sin[1:])).sum()))
    assert max(scores) - min(scores) < 1e-4


def test_position_zero_changes_nothing():
    inv_freq = inverse_frequencies(8, 1e4, RopeScaling())
    x = torch.randn(1, 2, 8)
    assert torch.equal(rotate(x, *cos_sin(torch.tensor([0]), inv_freq, torch.float32)), x)
