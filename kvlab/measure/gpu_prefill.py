"""Paged prefill as a share of what a matrix product reaches, beside torch's attention.

FLOPs are those of the two products over the pairs of query and key that the mask allows: 4 d for
each pair and head. What a tile computes above the diagonal is not counted.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from kvlab.measure.gpu_decode import BACKENDS
from kvlab.measure.gpu_pools import Pool, make_pool
from kvlab.measure.gpu_setting import Setting, largest_difference, tried

GOAL = 0.7  # of torch's attention


@torch.inference_mode()
def measure(setting: Setting, matmul: float | None) -> dict[str, object]:
    """A row for each of the setting's prompts. matmul: FLOPs a second."""
    rows = [
        {"batch": b, "new": n, "before": past, **tried(partial(_row, setting, b, n, past, matmul))}
        for b, n, past in setting.sizes.prompts
    ]
    return {"rows": rows}


def flops(setting: Setting, batch: int, new: int, before: int) -> int:
    """Query i of a chunk reads before + i + 1 keys."""
    pairs = new * before + new * (new + 1) // 2
    return 4 * batch * setting.sizes.heads[0] * setting.sizes.head_dim * pairs


def _row(
    setting: Setting, batch: int, new: int, before: int, matmul: float | None
) -> dict[str, object]:
    pool = make_pool(setting, batch, before + new, queries=new)
    row = prefill_time(setting, pool, flops(setting, batch, new, before), matmul)
    row["sdpa"] = tried(partial(_best_sdpa, setting, pool, new, before))
    return row


def prefill_time(
    setting: Setting, pool: Pool, work: int, matmul: float | None, **settings: object
) -> dict[str, object]:
    """Seconds, and FLOPs a second as a share of the product's."""
    seconds = setting.seconds([partial(pool.prefill, **settings)])
    rate = work / seconds
    return {
        "seconds": seconds,
        "flops_per_second": rate,
        "share": rate / matmul if matmul else None,
    }


def _best_sdpa(setting: Setting, pool: Pool, new: int, before: int) -> dict[str, object]:
    """Over K/V in one rectangle, heads shared by torch or repeated beforehand."""
    keys, values = pool.rectangle()
    query = pool.query.unflatten(0, (-1, new)).transpose(1, 2).contiguous()  # [B, Hq, n, d]
    ours, found, failed = pool.prefill(), {}, {}
    group = query.shape[1] // keys.shape[1]
    repeated = [x.repeat_interleave(group, dim=1) for x in (keys, values)]
    for backend in (SDPBackend.MATH,) if setting.dry else BACKENDS:
        for form, rows in (("shared", (keys, values)), ("repeated", repeated)):
            way = partial(_sdpa, backend, query, *rows, before)
            told = tried(partial(_timed, setting, way, ours))
            name = f"{backend.name.lower().removesuffix('_attention')}, {form}"
            if "error" in told:
                failed[name] = told["error"]
            else:
                found[name] = told
    if not found:
        return {"error": f"no way ran: {failed}"}
    best = min(found, key=lambda name: found[name]["seconds"])
    return {"way": best, **found[best], "failed": failed}


def _sdpa(backend: SDPBackend, query: Tensor, keys: Tensor, values: Tensor, before: int) -> Tensor:
    """[B, Hq, n, d], as torch gives it."""
    mask = {"is_causal": True} if before == 0 else {}
    if before:  # torch's is_causal is aligned at the top left
        mask["attn_mask"] = causal_lower_right(query.shape[2], keys.shape[2])
    with sdpa_kernel(backend):
        shared = keys.shape[1] != query.shape[1]
        return F.scaled_dot_product_attention(query, keys, values, enable_gqa=shared, **mask)


def _timed(setting: Setting, way: Callable[[], Tensor], ours: Tensor) -> dict[str, object]:
    differ = largest_difference(way().transpose(1, 2).flatten(0, 1), ours)
    return {"seconds": setting.seconds([way]), "differ": differ}
