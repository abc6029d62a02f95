"""y = x W^T + b, by the library that is the faster one for so many rows on a CPU.

    rows x [N, in]      1, 2      3 .. 64     more
    float32 weights      BLAS     oneDNN      BLAS       small ones and other types: always BLAS

A product with few rows costs what reading the weights costs. For N = 16, a batch's decode step,
BLAS (torch's matmul) copies them into an order of its own first; oneDNN, which torch brings along,
does not, and takes 0.5 to 0.8 of the time. For a prompt's hundreds of rows the copy pays, and BLAS
rounds half as much: its sums of products are summed in several parts.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

FEW_ROWS = range(3, 65)
LARGE = 1 << 18  # weights; below, the call itself costs more


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., in], weight [out, in], bias [out]: [..., out]. As torch's `linear`."""
    if (
        weight.numel() >= LARGE
        and x.shape[0] in FEW_ROWS
        and x.dim() == 2
        and weight.dtype == x.dtype == torch.float32
        and weight.device.type == "cpu"
        and ONEDNN is not None
        and not (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad))
    ):
        return ONEDNN(x, weight, bias, "none", [], "")  # no function is fused behind it
    return F.linear(x, weight, bias)


def _onednn() -> object | None:
    """torch's operator, which its compiler uses; None in a torch without oneDNN."""
    if not torch.backends.mkldnn.is_available():
        return None
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None)


ONEDNN = _onednn()
