"""Decode attention through block tables beside the same K/V in one rectangle, on a CPU.

    contiguous   K, V [B, Hkv, T, d] as they lie           one call of torch's attention
    paged        blocks of 16 in shuffled order            `PagedAttention`, as in an engine's step

Both pack the query heads of a group into the query length. The paged step also lays out its batch
and writes the new position's K/V. Shapes are those of one layer of an 8-billion model (section
21.5).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from kvlab.core.scheduler_output import ScheduledRequest
from kvlab.measure.report import against, aligned
from kvlab.measure.rounds import interleave, paired_ratio, summary
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.input_batch import build_input_batch
from kvlab.tensors.kv_cache import PagedCache
from kvlab.tensors.ops import PagedAttention

RATIO_GOAL = 1.5  # paged / contiguous
BLOCK = 16
SECONDS_A_ROUND = 0.05  # a short step is repeated until a round takes this long


@dataclass(frozen=True)
class Shape:
    """What is decoded: one new position of each request, after contexts[i] - 1 others."""

    batch: int
    num_query_heads: int
    num_kv_heads: int
    head_dim: int
    contexts: tuple[int, ...]


FULL = Shape(8, 32, 8, 128, (512, 2048, 8192))  # 1.1 GB of K/V at the longest, held twice
QUICK = Shape(2, 4, 2, 32, (16, 64))


def measure(shape: Shape, rounds: int) -> list[dict[str, object]]:
    """A row for each context: seconds of both, paged / contiguous round by round, and the largest
    difference of their outputs."""
    return [_row(shape, context, rounds) for context in shape.contexts]


@torch.inference_mode()
def _row(shape: Shape, context: int, rounds: int) -> dict[str, object]:
    ways = _ways(shape, context)
    start = time.perf_counter()
    first = {name: way() for name, way in ways.items()}  # buffers are there from now on
    each = (time.perf_counter() - start) / len(ways)
    repeats = max(1, round(SECONDS_A_ROUND / each)) if rounds > 1 else 1
    tasks = {name: lambda _, way=way: _seconds(way, repeats) for name, way in ways.items()}
    found = interleave(tasks, rounds)
    return {
        "context": context,
        "seconds": {name: summary(seconds) for name, seconds in found.items()},
        "ratio": paired_ratio(found["paged"], found["contiguous"]),
        "difference": float((first["paged"] - first["contiguous"]).abs().max()),
    }


def _seconds(way: Callable[[], Tensor], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        way()
    return (time.perf_counter() - start) / repeats


def _ways(shape: Shape, context: int) -> dict[str, Callable[[], Tensor]]:
    """The same decode step over the same numbers, laid out in two ways."""
    s, generator = shape, torch.Generator().manual_seed(0)
    keys, values = (
        torch.randn(s.batch, s.num_kv_heads, context, s.head_dim, generator=generator) for _ in "KV"
    )
    query = torch.randn(s.batch, s.num_query_heads, s.head_dim, generator=generator)
    packed = query.view(s.batch, s.num_kv_heads, -1, s.head_dim)  # [B, Hkv, G, d]

    def contiguous() -> Tensor:
        return F.scaled_dot_product_attention(packed, keys, values).view(query.shape)

    attention, rows = _paged(s, keys, values)
    key, value = keys[:, :, -1].contiguous(), values[:, :, -1].contiguous()  # [B, Hkv, d]

    def paged() -> Tensor:
        attention.begin(build_input_batch(rows, BLOCK, query.device))
        return attention(0, query, key, value)

    return {"contiguous": contiguous, "paged": paged}


def _paged(
    shape: Shape, keys: Tensor, values: Tensor
) -> tuple[PagedAttention, tuple[ScheduledRequest, ...]]:
    """The pool of one layer, filled through shuffled block tables, and the step's rows."""
    s, context = shape, keys.shape[2]
    config = ModelConfig(
        vocab_size=2,
        hidden_size=s.num_query_heads * s.head_dim,
        intermediate_size=1,
        num_layers=1,
        num_query_heads=s.num_query_heads,
        num_kv_heads=s.num_kv_heads,
        head_dim=s.head_dim,
        max_model_len=context,
    )
    a_request = -(-context // BLOCK)
    order = torch.randperm(s.batch * a_request, generator=torch.Generator().manual_seed(1))
    tables = order.view(s.batch, a_request).tolist()
    cache = PagedCache(config, s.batch * a_request, BLOCK)
    for table, k, v in zip(tables, keys, values, strict=True):
        slots = torch.tensor(table)[:, None] * BLOCK + torch.arange(BLOCK)
        cache.write(0, k.transpose(0, 1), v.transpose(0, 1), slots.flatten()[:context])
    rows = tuple(
        ScheduledRequest(str(i), context - 1, [0], table, ()) for i, table in enumerate(tables)
    )
    return PagedAttention(cache, torch.float32), rows


def table(rows: Sequence[Mapping], shape: Shape) -> str:
    lines = [["context", "contiguous, ms", "paged, ms", "paged / contiguous", "", "goal", "differ"]]
    for row in rows:
        ratio, seconds = row["ratio"], row["seconds"]
        lines.append(
            [
                f"{row['context']:,}",
                *(f"{1e3 * seconds[name]['median']:.2f}" for name in ("contiguous", "paged")),
                f"{ratio['median']:.2f}x",
                f"[{ratio['min']:.2f} .. {ratio['max']:.2f}]",
                against(ratio["median"] <= RATIO_GOAL, f"{RATIO_GOAL}x"),
                f"{row['difference']:.0e}",
            ]
        )
    title = (
        f"Paged decode: one layer, batch {shape.batch}, {shape.num_query_heads} query and "
        f"{shape.num_kv_heads} KV heads of {shape.head_dim}, float32, blocks of {BLOCK}, one thread"
    )
    return f"{title}\n{aligned(lines)}"
