"""Muon: gradient descent whose step is an orthogonal matrix, so that all directions learn alike.

A gradient of a weight matrix is dominated by a few directions. Muon keeps its running mean G and
steps along U V^T of its singular value decomposition G = U S V^T instead: the same directions,
each with the size 1. Source: Jordan et al. (2024), "Muon: An optimizer for hidden layers".

torch.optim.Muon computes in bfloat16, which CPUs do slowly; this one stays in float32. It also
knows matrices that are several in one (q, k, v; gate, up): each part has directions of its own.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # coefficients of the odd polynomial, Jordan et al.


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """U V^T of each matrix [..., m, n], about: singular values end between .7 and 1.2.

    Newton-Schulz: x <- a x + b (x x^T) x + c (x x^T)^2 x drives each singular value towards 1
    and leaves the singular vectors alone. Products of matrices only, no decomposition.
    """
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices  # x x^T is then the smaller square
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """For matrices alone; embedding, norms and biases want another optimiser.

    params: groups as for any optimiser. A group's "splits" are the numbers of rows of the
    matrices that are stacked in each of its parameters; None: it is one matrix.
    """

    def __init__(
        self,
        params: Iterable[dict],
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.05,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "splits": None}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self) -> None:
        """One step for every parameter. Matrices of equal shape are orthogonalised together."""
        alike: dict[torch.Size, list[tuple[Tensor, Tensor, dict]]] = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                direction = self._direction(parameter, group["momentum"])
                sizes = group["splits"] or [parameter.shape[0]]
                parts = zip(parameter.split(sizes), direction.split(sizes), strict=True)
                for weight, part in parts:
                    alike.setdefault(part.shape, []).append((weight, part, group))
        for (rows, columns), parts in alike.items():
            scale = max(1.0, rows / columns) ** 0.5
            updates = orthogonal(torch.stack([part for _, part, _ in parts])) * scale
            for (weight, _, group), update in zip(parts, updates, strict=True):
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(update, alpha=-group["lr"])

    def _direction(self, parameter: Tensor, momentum: float) -> Tensor:
        """Nesterov: the gradient blended with its running mean."""
        state = self.state[parameter]
        if not state:
            state["mean"] = torch.zeros_like(parameter)
        state["mean"].lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(state["mean"], momentum)
