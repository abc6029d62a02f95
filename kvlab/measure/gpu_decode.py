"""Paged decode as a share of what a copy reaches, beside other ways to attend on a GPU.

    kernel          tensors/kernels.py over scattered blocks
    SDPA            torch's attention over the same K/V in one rectangle [B, Hkv, T, d]: its best
                    backend, with the heads of a group packed into the query length or enable_gqa
    flex, paged     flex_attention, compiled, through torch's own page table, pages of 128
    gather + SDPA   blocks copied into a rectangle first

The bound is the time to read K and V once at the copy's rate.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from kvlab.measure.gpu_pools import Pool, make_pool
from kvlab.measure.gpu_setting import Setting, largest_difference, tried

BACKENDS = (
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
)
SHARE_GOAL, SDPA_GOAL = 0.85, 1.0  # of the copy's rate; of SDPA's time at most
STORED = ("bf16", "fp8", "int8")


@torch.inference_mode()
def measure(setting: Setting, copy: float | None) -> dict[str, object]:
    """A row for each batch and context, then one for each stored format. copy: bytes a second."""
    sizes = setting.sizes
    rows = [
        {"batch": b, "context": t, **tried(partial(_row, setting, b, t, copy))}
        for t in sizes.contexts
        for b in sizes.batches
    ]
    formats = [
        {"stored": stored, **tried(partial(_stored_row, setting, stored, copy))}
        for stored in STORED
    ]
    return {"rows": rows, "formats": formats}


def _row(setting: Setting, batch: int, context: int, copy: float | None) -> dict[str, object]:
    first = make_pool(setting, batch, context)
    count = setting.buffers_for(first.nbytes)
    pools = [first, *(make_pool(setting, batch, context, seed=i) for i in range(1, count))]
    row = {"kv_bytes": first.nbytes, "buffers": count}
    row |= kernel_time(setting, pools, copy)
    row["sdpa"] = tried(partial(best_sdpa, setting, pools))
    row["gather"] = tried(partial(_gather, setting, pools))
    if context in setting.sizes.flex_contexts:
        row["flex"] = tried(partial(_flex, setting, batch, context))
    return row


def kernel_time(
    setting: Setting, pools: list[Pool], copy: float | None, **settings: object
) -> dict[str, object]:
    """Seconds, and K/V bytes a second as a share of the copy's."""
    seconds = setting.seconds([partial(pool.decode, **settings) for pool in pools])
    rate = pools[0].nbytes / seconds
    return {"seconds": seconds, "bytes_per_second": rate, "share": rate / copy if copy else None}


def _stored_row(setting: Setting, stored: str, copy: float | None) -> dict[str, object]:
    batch, context = setting.sizes.stored
    pool = make_pool(setting, batch, context, stored=stored)
    return {"batch": batch, "context": context, **kernel_time(setting, [pool], copy)}


def best_sdpa(setting: Setting, pools: list[Pool]) -> dict[str, object]:
    """The fastest of torch's ways over rectangles, how fast the others were, why some failed."""
    rectangles = [(pool.query, *pool.rectangle()) for pool in pools]
    ours, found, failed = pools[0].decode(), {}, {}
    for name, way in sdpa_ways(setting):
        told = tried(partial(_timed_way, setting, way, rectangles, ours))
        if "error" in told:
            failed[name] = told["error"]
        else:
            found[name] = told
    if not found:
        return {"error": f"no way ran: {failed}"}
    best = min(found, key=lambda name: found[name]["seconds"])
    others = {name: told["seconds"] for name, told in found.items()}
    return {"way": best, **found[best], "ways": others, "failed": failed}


def _timed_way(
    setting: Setting, way: Callable[..., Tensor], given: list[tuple[Tensor, ...]], ours: Tensor
) -> dict[str, object]:
    differ = largest_difference(way(*given[0]), ours)
    return {"seconds": setting.seconds([partial(way, *each) for each in given]), "differ": differ}


def sdpa_ways(setting: Setting) -> Iterator[tuple[str, Callable[..., Tensor]]]:
    """By name: (query [B, Hq, d], keys, values [B, Hkv, T, d]) -> [B, Hq, d]."""
    backends = (SDPBackend.MATH,) if setting.dry else BACKENDS
    for backend in backends:
        for form in (_packed, _shared):
            name = f"{backend.name.lower().removesuffix('_attention')}, {form.__name__[1:]}"
            yield name, partial(_with_backend, backend, form)


def _with_backend(backend: SDPBackend, form: Callable[..., Tensor], *given: Tensor) -> Tensor:
    with sdpa_kernel(backend):
        return form(*given)


def _packed(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The heads of a group as rows of one matrix."""
    rows = query.unflatten(1, (keys.shape[1], -1))  # [B, Hkv, G, d]
    return F.scaled_dot_product_attention(rows, keys, values).flatten(1, 2)


def _shared(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """torch's own way of sharing heads."""
    rows = query[:, :, None]  # [B, Hq, 1, d]
    return F.scaled_dot_product_attention(rows, keys, values, enable_gqa=True)[:, :, 0]


def _gather(setting: Setting, pools: list[Pool]) -> dict[str, object]:
    def one(pool: Pool) -> Tensor:
        return _packed(pool.query, *pool_rows(pool))

    differ = largest_difference(one(pools[0]), pools[0].decode())
    return {"seconds": setting.seconds([partial(one, p) for p in pools]), "differ": differ}


def pool_rows(pool: Pool) -> tuple[Tensor, Tensor]:
    """K and V copied block after block, [B, Hkv, T, d]; T fills its blocks, as all contexts do."""
    keys, values = (
        cache[pool.block_table].flatten(1, 2).transpose(1, 2)
        for cache in (pool.key_cache, pool.value_cache)
    )
    return keys, values


def _flex(setting: Setting, batch: int, context: int) -> dict[str, object]:
    """Pages of their own size: flex_attention's blocks of keys are never smaller than its tiles."""
    from torch.nn.attention.experimental._paged_attention import PagedAttention
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention, noop_mask

    page, device = setting.sizes.flex_page, setting.device
    pool = make_pool(setting, batch, context, block=page)
    table = PagedAttention(batch * context // page, page, batch, device=str(device))
    for request in range(batch):
        table.reserve(torch.tensor(request, device=device), torch.tensor(context, device=device))
    mask = create_block_mask(noop_mask, batch, 1, 1, context, device=str(device), BLOCK_SIZE=page)
    paged = table.convert_logical_block_mask(mask)
    # [1, Hkv, all slots, d]: the pool's blocks in the order that torch's page table gave them
    ours, theirs = pool.block_table.flatten(), table.page_table[:, : context // page].flatten()
    keys, values = (
        torch.empty_like(cache).index_copy_(0, theirs.long(), cache[ours])
        .flatten(0, 1).transpose(0, 1)[None].contiguous()
        for cache in (pool.key_cache, pool.value_cache)
    )  # fmt: skip
    attend = flex_attention if setting.dry else torch.compile(flex_attention, dynamic=False)

    def work() -> Tensor:
        rows = pool.query[:, :, None]
        return attend(rows, keys, values, block_mask=paged, enable_gqa=True)[:, :, 0]

    differ = largest_difference(work(), pool.decode())
    return {"seconds": setting.seconds([work]), "differ": differ, "page": page}
