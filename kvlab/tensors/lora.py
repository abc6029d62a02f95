"""LoRA: a small change of some weight matrices, kept apart from the matrices themselves.

    y = x W^T + scale * (x A^T) B^T        W [out, in], A [r, in], B [out, r]

Eq. 3 of Hu et al. (2021), "LoRA: Low-Rank Adaptation of Large Language Models", for rows of tokens.
W + scale * B A would give the same y. Kept apart, the base weights are there once, and each
request of a step may use another adapter: its rows get its own second term, the others none.
"""

import copy
import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from kvlab.core.scheduler_output import ScheduledRequest
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.model import Decoder

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
PROJECTIONS = (*ATTENTION, "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, eq=False)
class LowRank:
    """The change of one matrix, scale * B A. Its rank is at most r, the length of A and B."""

    a: Tensor  # [r, in]
    b: Tensor  # [out, r]
    scale: float

    def added_by(self, x: Tensor) -> Tensor:
        """x [n, in] -> what it adds to the matrix's output, [n, out]. B A is never built."""
        return (x @ self.a.T) @ self.b.T * self.scale

    def matrix(self) -> Tensor:
        """scale * B A, [out, in], as it is added to merged weights."""
        return self.scale * (self.b @ self.a)


@dataclass(frozen=True, eq=False)
class Adapter:
    """Changes by the name of the projection: {"layers.0.self_attn.q_proj": LowRank, ...}.

    by_place: the same by the decoder's own matrices, which hold q, k, v and gate, up stacked: for
    each matrix the rows [start, end) of its output that a change belongs to.
    identity: sha256 over names, scales, A and B. It enters the identity of every block computed
    with the adapter; a name would not do, since other weights can be loaded under it.

    Raises ValueError for a projection that the model does not have, for other shapes than its, and
    for numbers that are not finite: one spoils every score.
    """

    changes: Mapping[str, LowRank]
    config: ModelConfig
    by_place: dict[str, list[tuple[slice, LowRank]]] = field(init=False, repr=False)
    identity: str = field(init=False)

    def __post_init__(self) -> None:
        places = projections(self.config)
        by_place: dict[str, list[tuple[slice, LowRank]]] = {}
        for name, change in sorted(self.changes.items()):
            check_shapes(name, tuple(change.a.shape), tuple(change.b.shape), self.config)
            check_finite(name, change)
            by_place.setdefault(places[name].matrix, []).append((places[name].rows, change))
        object.__setattr__(self, "by_place", by_place)
        object.__setattr__(self, "identity", self._digest())

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for name, change in sorted(self.changes.items()):
            shapes = tuple(change.a.shape), tuple(change.b.shape)
            digest.update(f"{name} {change.scale!r} {shapes} {change.a.dtype}".encode())
            for part in (change.a, change.b):
                digest.update(part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()

    def __repr__(self) -> str:
        ranks = sorted({len(change.a) for change in self.changes.values()})
        rank = " and ".join(map(str, ranks))
        return (
            f"Adapter({len(self.changes)} matrices, rank {rank}, {self.num_parameters:,} numbers)"
        )

    @property
    def projections(self) -> frozenset[str]:
        """Which kinds it changes, in some layer: "q_proj", "v_proj" ..."""
        return frozenset(name.rpartition(".")[2] for name in self.changes)

    @property
    def num_parameters(self) -> int:
        return sum(change.a.numel() + change.b.numel() for change in self.changes.values())

    def with_change(self, name: str, **halves: Tensor) -> "Adapter":
        """Another adapter, with other numbers for a or b of one projection."""
        return Adapter({**self.changes, name: replace(self.changes[name], **halves)}, self.config)

    def fitted(self, model: Decoder) -> "Adapter":
        """In the model's dtype and on its device. Raises ValueError where it does not fit."""
        check_takes_adapters(model)
        like = model.embed_tokens.weight
        changes = {
            name: LowRank(c.a.detach().to(like), c.b.detach().to(like), c.scale)
            for name, c in self.changes.items()
        }
        return Adapter(changes, model.config)


def check_takes_adapters(model: Decoder) -> None:
    """Raise ValueError for a model whose layers are not kvlab's own."""
    if hasattr(model, "attention_over"):
        raise ValueError(
            "an adapter goes with kvlab's own decoder, not with a model that transformers runs; "
            "merge it there with PEFT and give the result"
        )


# ---- where a projection's rows are


@dataclass(frozen=True)
class Projection:
    """Where a projection lies: a matrix of the decoder and rows of its output; its own shape."""

    matrix: str
    rows: slice
    num_outputs: int
    num_inputs: int


@functools.lru_cache(maxsize=8)
def projections(config: ModelConfig) -> dict[str, Projection]:
    """{"layers.0.self_attn.q_proj": Projection, ...}: all that an adapter can change.

    | q: Hq d rows | k: Hkv d | v: Hkv d |  qkv_proj      | gate: I | up: I |  gate_up_proj
    """
    c = config
    query, pair = c.num_query_heads * c.head_dim, c.num_kv_heads * c.head_dim
    hidden, inner = c.hidden_size, c.intermediate_size
    stacks = (
        ("self_attn.qkv_proj", hidden, (("q_proj", query), ("k_proj", pair), ("v_proj", pair))),
        ("self_attn.o_proj", query, (("o_proj", hidden),)),
        ("mlp.gate_up_proj", hidden, (("gate_proj", inner), ("up_proj", inner))),
        ("mlp.down_proj", inner, (("down_proj", hidden),)),
    )
    found = {}
    for layer in range(c.num_layers):
        for matrix, num_inputs, parts in stacks:
            start, home = 0, matrix.partition(".")[0]
            for name, rows in parts:
                found[f"layers.{layer}.{home}.{name}"] = Projection(
                    f"layers.{layer}.{matrix}", slice(start, start + rows), rows, num_inputs
                )
                start += rows
    return found


def check_shapes(
    name: str, a: tuple[int, ...], b: tuple[int, ...], config: ModelConfig, rank: int | None = None
) -> None:
    """Raise ValueError unless A [r, in] and B [out, r] fit the projection of this name."""
    place = projections(config).get(name)
    if place is None:
        raise ValueError(
            f"{name} is not a matrix that an adapter can change here; the model has "
            f"{config.num_layers} layers with {', '.join(PROJECTIONS)}"
        )
    rank = rank or (a[0] if a else 0)
    for half, shape, wanted in (
        ("lora_A", a, (rank, place.num_inputs)),
        ("lora_B", b, (place.num_outputs, rank)),
    ):
        if shape != wanted or rank < 1:
            raise ValueError(f"{name}.{half} has shape {list(shape)}, expected {list(wanted)}")


def check_finite(name: str, change: LowRank) -> None:
    """Raise ValueError, naming the tensor and the place, for NaN and infinities."""
    for half, tensor in (("lora_A", change.a), ("lora_B", change.b)):
        if tensor.isfinite().all():
            continue
        place = (~tensor.isfinite()).nonzero()[0].tolist()
        raise ValueError(
            f"{name}.{half} holds {tensor[tuple(place)].item()} at {place}, in {tensor.dtype}; "
            "look at the training, or compute in a dtype with a wider range"
        )
    if not math.isfinite(change.scale):
        raise ValueError(f"{name}: the scale is {change.scale}; give a finite number")


# ---- a step whose requests use different adapters, or none


class AdaptedRows:
    """What a pass adds for the rows of each adapter (`Adapted` in tensors/model.py).

    uses: (adapter, rows [n] of the flat list of tokens; None: all rows).
    """

    def __init__(self, uses: Sequence[tuple[Adapter, Tensor | None]]) -> None:
        self.uses = tuple(uses)

    def __call__(self, place: str, x: Tensor, y: Tensor) -> Tensor:
        for adapter, rows in self.uses:
            parts = adapter.by_place.get(place, ())
            mine = x[rows] if parts and rows is not None else x
            for columns, change in parts:
                if rows is None:
                    y[:, columns] += change.added_by(mine)
                else:
                    y[:, columns].index_add_(0, rows, change.added_by(mine))
        return y


def adapted_rows(
    requests: Sequence[ScheduledRequest], adapters: Mapping[str, Adapter], device: torch.device
) -> AdaptedRows | None:
    """The rows of a step by adapter; None where no request has one.

    requests     | A: 3 tokens, "x" | B: 1, none | C: 2, "x" | D: 1, "y" |
    rows of "x"     0   1   2                      4   5
    rows of "y"                                                 6
    """
    if all(request.adapter is None for request in requests):
        return None
    rows: dict[str, list[int]] = {}
    start = 0
    for request in requests:
        end = start + len(request.token_ids)
        if request.adapter is not None:
            rows.setdefault(request.adapter, []).extend(range(start, end))
        start = end
    return AdaptedRows(
        [
            (adapters[name], None if len(mine) == start else torch.tensor(mine, device=device))
            for name, mine in rows.items()
        ]
    )


# ---- merged


@torch.no_grad()
def merge(model: Decoder, adapter: Adapter) -> Decoder:
    """A copy of the model with W + scale * B A in the place of W; the given one stays as it is.

    It costs nothing more to run, and every request of its engine uses the adapter. Raises
    ValueError for an adapter that does not fit.
    """
    fitted, merged = adapter.fitted(model), copy.deepcopy(model)
    for place, parts in fitted.by_place.items():
        weight = merged.get_submodule(place).weight  # [out, in]
        for rows, change in parts:
            weight[rows] += change.matrix()
    return merged


def random_adapter(
    config: ModelConfig,
    rank: int = 4,
    *,
    names: Sequence[str] = ("q_proj", "v_proj"),
    size: float = 0.5,
    seed: int = 0,
) -> Adapter:
    """A seeded adapter without a purpose, to look at what any adapter does to K/V and identities.

    names: the projections that it changes, in every layer. size: how large B A is beside a
    matrix of `Decoder.random`, about. Raises ValueError for a name that is no projection.
    """
    if unknown := [name for name in names if name not in PROJECTIONS]:
        raise ValueError(f"names has {unknown[0]!r}; projections are {', '.join(PROJECTIONS)}")
    generator = torch.Generator().manual_seed(seed)
    changes = {}
    for name, place in projections(config).items():
        if name.rpartition(".")[2] in names:
            a = torch.randn(rank, place.num_inputs, generator=generator)
            b = torch.randn(place.num_outputs, rank, generator=generator)
            changes[name] = LowRank(a * (size * place.num_inputs**-0.5), b * rank**-0.5, 1.0)
    return Adapter(changes, config)
