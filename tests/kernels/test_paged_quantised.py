"""float8 and int8 caches read by the kernels, beside the specification on what is stored."""

import pytest
import torch
from kernel_checks import int8_case
from paged_cases import TOLERANCE, Case, nan_pool

from kvlab.tensors.stored import quantise_fp8

pytestmark = pytest.mark.usefixtures("triton_runs")
WORK = {"decode": None, "prefill": (0, 1, 9, 33)}


def stored_case(kind, dtype, work):
    """A case, and what of it is given to a kernel. The case's own caches hold what is read."""
    case = Case((6, 2), 80, 16, (0, 1, 17, 33), dtype=dtype, chunks=WORK[work])
    case.key_cache, case.value_cache = case.key_cache.float(), case.value_cache.float()
    if kind == "int8":
        return int8_case(case)
    given = {}
    for name, scale in (("key", 0.01), ("value", 0.003)):
        codes = nan_pool(case.key_cache.shape, torch.float8_e4m3fn)
        kept = quantise_fp8(getattr(case, name), scale)
        codes.view(torch.uint8).flatten(0, 1)[case.slots] = kept.view(torch.uint8)
        getattr(case, f"{name}_cache").copy_(codes.float() * scale)
        given |= {f"{name}_cache": codes, f"{name}_scale": scale}
    return case, given


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_a_quantised_cache_is_read_as_it_is_stored(kind, dtype, work):
    case, given = stored_case(kind, dtype, work)
    cut = {"num_splits": 3, "tile": 16} if work == "decode" else {}
    out = getattr(case, work)(**given, **cut)
    assert out.dtype == dtype
    assert case.error(out) < TOLERANCE[dtype]


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_float32_queries_over_a_narrower_cache(stored):
    """The stored dtype is apart from the one that computes: no more error than in float32."""
    case = Case((6, 2), 64, 16, (1, 17, 33), dtype=stored)
    case.query = case.query.float()
    assert case.error(case.decode(num_splits=2, tile=16)) < 1e-6
    assert case.error(case.prefill()) < 1e-6


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_result_is_rounded_once_and_to_nearest(dtype, work, triton_runs):
    """The interpreter computes in float32 and truncates casts: torch does the last one."""
    if triton_runs == "compiled":
        pytest.skip("compiled kernels compute in the dtype of the queries")
    case = Case((6, 2), 64, 16, (1, 17, 33), dtype=dtype, chunks=(1, 1, 1))
    out = getattr(case, work)()
    case.query = case.query.float()
    assert torch.equal(out, getattr(case, work)().to(dtype))


@pytest.mark.parametrize("name", ["key_cache", "value_cache"])
@pytest.mark.parametrize("work", WORK)
def test_a_nan_in_a_float8_cache_is_seen_by_those_that_read_it(work, name):
    """The interpreter would read it as 480. The other requests' answers are what they were."""
    case, given = stored_case("fp8", torch.float32, work)
    before = getattr(case, work)(**given)
    length = case.seq_lens[2]
    slot = int(case.block_table[2, 0]) * 16  # the first position of the third request
    given[name].view(torch.uint8).flatten(0, 1)[slot] = 0x7F
    out = getattr(case, work)(**given)
    rows = slice(2, 3) if work == "decode" else slice(1, 1 + 9)
    spoiled = torch.zeros(len(out), dtype=torch.bool)
    spoiled[rows] = True
    assert length == 17 and out[spoiled].isnan().all()
    assert torch.equal(out[~spoiled], before[~spoiled])
