"""Two libraries, one product: every count of rows beside float64."""

import pytest
import torch

from kvlab.tensors import linear as module
from kvlab.tensors.linear import FEW_ROWS, LARGE, linear


@pytest.mark.parametrize("columns_first", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 16, 17, 64, 65, 130])
def test_every_count_of_rows(rows, columns_first):
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(700, 400, generator=generator)
    weight = weight.t().contiguous().t() if columns_first else weight
    bias, x = torch.randn(700, generator=generator), torch.randn(rows, 400, generator=generator)
    assert weight.numel() >= LARGE
    for b in (None, bias):
        want = x.double() @ weight.double().t() + (0 if b is None else b.double())
        assert linear(x, weight, b).shape == (rows, 700)
        assert torch.allclose(linear(x, weight, b).double(), want, atol=2e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_keep_theirs(dtype):
    weight, x = torch.ones(1024, 256, dtype=dtype), torch.ones(4, 256, dtype=dtype)
    y = linear(x, weight)
    assert y.dtype == dtype and y.tolist() == [[256.0] * 1024] * 4


def test_rows_of_a_wider_tensor():
    """Hidden states cut out of a larger one, as a batch's last rows are."""
    weight, wide = torch.ones(1024, 256), torch.ones(8, 300)
    assert linear(wide[::2, :256], weight).tolist() == [[256.0] * 1024] * 4


def test_gradients_pass():
    weight = torch.ones(1024, 256, requires_grad=True)
    linear(torch.ones(4, 256), weight).sum().backward()
    assert weight.grad.tolist() == [[4.0] * 256] * 1024


def test_without_onednn_it_is_the_same(monkeypatch):
    weight, x = torch.randn(1024, 256), torch.randn(FEW_ROWS[-1], 256)
    with_it = linear(x, weight)
    monkeypatch.setattr(module, "ONEDNN", None)
    assert (linear(x, weight) - with_it).abs().max() < 1e-4
