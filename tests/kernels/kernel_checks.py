"""Checks of cases K01 to N09, each of which fails when the kernel's line for it is taken out.

test_kernel_cases.py runs them over the kernels as they are, test_cut_kernels.py over kernels with
one line changed.
"""

import torch
from paged_cases import LOW, Case, nan_pool, on_device, scored, slots_of

from kvlab.tensors import launch
from kvlab.tensors.stored import quantise_int8

CLOSE = 1e-6  # float32


def k01_decode():
    """A pool full of NaN: what is not a position of the request has no part in the result."""
    case = Case((4, 2), 64, 16, (1, 15, 16, 17, 33))
    assert case.error(case.decode()) < CLOSE


def k01_prefill():
    case = Case((4, 2), 64, 16, (1, 15, 16, 17, 33), chunks=(1, 3, 16, 2, 33))
    assert case.error(case.prefill()) < CLOSE


def k04_merge():
    """4,096 keys in 1, 5 and 8 parts: the merge by log2-sum-exp2 equals one pass."""
    case = Case((2, 1), 64, 16, (4096,))
    one_pass = case.decode(num_splits=1)
    assert case.error(one_pass) < CLOSE
    for parts in (5, 8):
        assert (case.decode(num_splits=parts) - one_pass).abs().max() < CLOSE


def k05_empty_parts():
    """More parts than blocks, and a request without positions: zeros, no NaN."""
    case = Case((4, 2), 64, 16, (0, 1, 33))
    out = case.decode(num_splits=8, tile=16)
    assert case.error(out) < CLOSE
    assert (out[0] == 0).all()


def k05_length_zero():
    case = Case((4, 2), 64, 16, (0, 1, 33))
    out = case.decode(num_splits=1)
    assert case.error(out) < CLOSE
    assert (out[0] == 0).all()


def k07_decode():
    """64, 80, 96, 128: what stands beside the last number of a head is not read."""
    for head_dim in (64, 80, 96, 128):
        case = Case((2, 1), head_dim, 16, (15, 31))
        assert case.error(case.decode()) < CLOSE


def k07_prefill():
    for head_dim in (64, 80, 96, 128):
        case = Case((2, 1), head_dim, 16, (15, 31), chunks=(4, 9))
        assert case.error(case.prefill()) < CLOSE


def rows_read(num_positions, num_queries, window=None):
    """Which positions each query read, as 0 and 1: V of position p is 1 in number p alone, and
    all scores are equal."""
    case = Case((1, 1), 16, 4, (num_positions,), chunks=(num_queries,), window=window)
    case.key_cache.zero_()
    table = slots_of(case.tables[0], 4, num_positions)
    case.value_cache.flatten(0, 1)[table] = torch.eye(num_positions, 16)[:, None]
    out = case.decode() if num_queries == 1 else case.prefill()
    return [" ".join(str(int(x > 0)) for x in row[0, :num_positions]) for row in out]


def n04_decode():
    """A window of w: w positions, the query's own among them."""
    assert rows_read(5, 1, window=1) == ["0 0 0 0 1"]
    assert rows_read(5, 1, window=3) == ["0 0 1 1 1"]
    assert rows_read(5, 1, window=9) == ["1 1 1 1 1"]


def n04_prefill():
    assert rows_read(5, 3, window=1) == ["0 0 1 0 0", "0 0 0 1 0", "0 0 0 0 1"]
    assert rows_read(5, 3, window=2) == ["0 1 1 0 0", "0 0 1 1 0", "0 0 0 1 1"]


def freed_behind_the_window(kind, chunks):
    """Blocks that no query reads were given back: the table has a block of NaN in their place,
    and for a tile's first rows the window begins in the middle of a tile."""
    case = Case((4, 2), 64, 4, (61, 30), chunks=chunks, window=9)
    wanted = case.wanted()
    for row, length, count in zip(case.block_table, case.lengths, case.chunks, strict=True):
        row[: (length - count - 9 + 1) // 4] = 0  # nobody's, never written
    out = getattr(case, kind)(tile=32)
    assert torch.isfinite(out).all()
    assert (out - wanted).abs().max() < CLOSE


def freed_decode():
    freed_behind_the_window("decode", None)


def freed_prefill():
    freed_behind_the_window("prefill", (5, 7))


def n09_rows():
    """Past 3, 2 queries: aligned at the bottom right."""
    assert rows_read(5, 2) == ["1 1 1 1 0", "1 1 1 1 1"]


def n09_chunks():
    """Chunks of 1 to 7, written and read one after another, give what one pass gives."""
    whole = Case((4, 2), 64, 4, (9,), chunks=(9,))
    wanted = whole.prefill()
    for size in range(1, 8):
        key_cache, value_cache = nan_pool(whole.key_cache.shape), nan_pool(whole.key_cache.shape)
        for start in range(0, 9, size):
            now = slice(start, min(start + size, 9))
            count = now.stop - start
            new = whole.key[now], whole.value[now]
            on_device(launch.write_kv, *new, key_cache, value_cache, whole.slots[now])
            out = on_device(
                launch.paged_prefill,
                whole.query[now], key_cache, value_cache, whole.block_table,
                torch.tensor([0, count]), torch.tensor([now.stop]), max_query_len=count,
            )  # fmt: skip
            assert (out - wanted[now]).abs().max() < CLOSE


def whole_tiles():
    """A tile of positions that some row may not read is not taken for a whole one."""
    case = Case((1, 1), 16, 16, (47,), chunks=(17,))  # the first query reads 31 of two tiles of 16
    assert case.error(case.prefill(rows=32, tile=16)) < CLOSE


def window_edge():
    """Rows further down see nothing of the tile in which the first row's window begins."""
    case = Case((1, 1), 16, 16, (300,), chunks=(40,), window=5)
    assert case.error(case.prefill(rows=64, tile=16)) < CLOSE


def int8_case(case):
    """The case, and the codes and scales of its K/V; its own caches then hold what is read."""
    given = {}
    for name in ("key", "value"):
        codes = torch.full(case.key_cache.shape, 77, dtype=torch.int8)
        scale = nan_pool(case.key_cache.shape[:3])
        kept, scale_of_kept = quantise_int8(getattr(case, name))
        codes.flatten(0, 1)[case.slots], scale.flatten(0, 1)[case.slots] = kept, scale_of_kept
        getattr(case, f"{name}_cache").copy_(codes * scale[..., None])
        given |= {f"{name}_cache": codes, f"{name}_scale": scale}
    return case, given


def int8_decode():
    case, given = int8_case(Case((4, 2), 64, 16, (1, 17, 33)))
    assert case.error(case.decode(num_splits=2, tile=16, **given)) < CLOSE


def int8_prefill():
    case, given = int8_case(Case((4, 2), 64, 16, (1, 17, 33), chunks=(1, 5, 33)))
    assert case.error(case.prefill(**given)) < CLOSE


def int8_codes():
    """Codes round to nearest: torch's own, bit for bit."""
    rows = torch.linspace(-3, 3, 64).expand(4, 2, 64).contiguous()
    key_cache = torch.zeros(2, 4, 2, 64, dtype=torch.int8)
    scale = nan_pool((2, 4, 2))
    launch.write_kv(rows, rows, key_cache, key_cache.clone(), torch.arange(4), scale, scale.clone())
    assert torch.equal(key_cache.flatten(0, 1)[:4], quantise_int8(rows)[0])


def infinite_tile():
    """A tile of scores of -inf, then four that are equal: the mean of 17 to 20."""
    case = scored(LOW + [0.0] * 4)
    for out in (case.decode(num_splits=1, tile=16), case.prefill(tile=16)):
        assert (out - 18.5).abs().max() < 1e-4


def infinite_part():
    """The first of two parts has nothing but -inf, and no weight."""
    out = scored(LOW + [0.0] * 4).decode(num_splits=2, tile=16)
    assert (out - 18.5).abs().max() < 1e-4


def infinite():
    """All scores are -inf: 0 / 0."""
    assert scored([*LOW, -torch.inf]).decode(num_splits=1, tile=16).isnan().all()


def infinite_prefill():
    assert scored([*LOW, -torch.inf]).prefill(tile=16).isnan().all()


def infinite_parts():
    assert scored([*LOW, -torch.inf]).decode(num_splits=3, tile=16).isnan().all()
