"""What does not fit together is refused before anything is launched, by name and with a remedy."""

import subprocess
import sys
import textwrap

import pytest
import torch
from paged_cases import Case, on_device

from kvlab.tensors import launch

pytestmark = pytest.mark.usefixtures("triton_runs")
FP8 = torch.float8_e4m3fn


@pytest.fixture
def case():
    return Case((4, 2), 64, 16, (33, 17))


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


WRONG = [
    ({"query": zeros(2, 4, 32)}, r"query is \[2, 4, 32\]; give \[rows, heads, 64\]"),
    ({"query": zeros(2, 64)}, r"query is \[2, 64\]"),
    ({"query": zeros(2, 3, 64)}, "num_query_heads is 3; it must be a multiple of the cache's 2"),
    ({"query": zeros(2, 4, 64, dtype=torch.float64)}, "query.dtype is torch.float64; give one of"),
    ({"query": zeros(2, 4, 128)[..., ::2]}, r"query.stride\(\) .* call .contiguous\(\)"),
    ({"query": zeros(4, 2, 64).transpose(0, 1)}, r"query.stride\(\) .* call .contiguous\(\)"),
    ({"value_cache": zeros(12, 16, 2, 32)}, "value_cache is .* it must be like key_cache"),
    ({"key_cache": zeros(12, 16, 64)}, "key_cache is .* of one layer"),
    (
        {"block_table": zeros(3, 3, dtype=torch.int32)},
        r"block_table is \[3, 3\]; give \[2, 'any'\]",
    ),
    ({"block_table": zeros(2, 3)}, "block_table.dtype is torch.float32; give one of int32, int64"),
    ({"block_table": zeros(2, 6, dtype=torch.int32)[:, ::2]}, r"block_table.stride\(\)"),
    ({"seq_lens": zeros(3, dtype=torch.int32)}, r"seq_lens is \[3\]; give \[2\]"),
    ({"window": 0}, "window is 0; give the positions that a query reads, at least 1, or None"),
    ({"key_scale": 0.5}, "key_scale is 0.5; a torch.float32 cache stores numbers as they are"),
    ({"num_splits": 999}, "num_splits is 999; give 1 to 128, or None"),
    ({"tile": 24}, "tile is 24; give a power of two from 16 to 1024"),
    ({"out": zeros(2, 4, 32)}, r"out is \[2, 4, 32\]"),
    ({"out": zeros(2, 4, 64, dtype=torch.float16)}, "out is .*float16.*give a contiguous"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_decode_refuses(case, wrong, message):
    with pytest.raises(ValueError, match=message):
        case.decode(**wrong)


WRONG_VALUES = [
    ({"seq_lens": torch.tensor([33, 49])}, r"seq_lens is \[49\]; .* from 0 to 48 positions"),
    ({"seq_lens": torch.tensor([-1, 17])}, r"seq_lens is \[-1\]"),
    ({"block_table": torch.full((2, 3), 99)}, "block_table is .*99.* the pool has 12 blocks"),
    ({"seq_lens": torch.tensor([33, 33])}, r"block_table is \[-1\]; the pool has 12 blocks"),
]


@pytest.fixture
def values_are_read(triton_runs):
    """Of tensors on a GPU the host reads no values: it would have to wait for them."""
    if triton_runs == "compiled":
        pytest.skip("values on a GPU are not looked at")


@pytest.mark.usefixtures("values_are_read")
@pytest.mark.parametrize(("wrong", "message"), WRONG_VALUES, ids=["long", "below", "id", "-1"])
def test_decode_refuses_values(case, wrong, message):
    with pytest.raises(ValueError, match=message):
        case.decode(**wrong)


@pytest.mark.usefixtures("values_are_read")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_query_len": 4}, "max_query_len is 4; a request has 5 queries"),
        ({"max_query_len": 99}, "max_query_len is 99; give the most queries of a request, up to 6"),
        ({"query_start_loc": torch.tensor([0, 6])}, r"query_start_loc is \[2\]; give \[3\]"),
        ({"query_start_loc": torch.tensor([0, 6, 5])}, "it must rise from 0 to 6"),
        ({"query_start_loc": torch.tensor([0, 2, 5])}, "it must rise from 0 to 6"),
        ({"seq_lens": torch.tensor([4, 17])}, r"seq_lens is \[4\]; the queries' own positions"),
        ({"rows": 8}, "rows is 8; give a power of two from 16"),
    ],
)
def test_prefill_refuses(wrong, message):
    case = Case((4, 2), 64, 16, (33, 17), chunks=(5, 1))
    with pytest.raises(ValueError, match=message):
        case.prefill(**wrong)


@pytest.mark.usefixtures("values_are_read")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"key": zeros(3, 3, 64)}, r"key is \[3, 3, 64\]; give \[rows, 2, 64\]"),
        ({"value": zeros(2, 2, 64)}, "value is of 2 rows; give as many as of key, 3"),
        ({"slot_mapping": zeros(4, dtype=torch.long)}, r"slot_mapping is \[4\]; give \[3\]"),
        ({"slot_mapping": torch.tensor([0, 1, 64])}, r"slot_mapping is \[64\]; .* 64 slots"),
        ({"slot_mapping": torch.tensor([0, 1, -2])}, r"slot_mapping is \[-2\]"),
        ({"key_cache": zeros(4, 16, 64, 2).transpose(2, 3)}, r"key_cache.stride\(\)"),
        ({"key_scale": 1.0}, "key_scale is 1.0; a torch.float32 cache stores numbers as they are"),
    ],
)
def test_write_refuses_and_stores_nothing(wrong, message):
    pool = zeros(4, 16, 2, 64)
    given = {
        "key": torch.ones(3, 2, 64),
        "value": torch.ones(3, 2, 64),
        "key_cache": pool,
        "value_cache": pool.clone(),
        "slot_mapping": torch.tensor([0, 1, 2]),
    }
    with pytest.raises(ValueError, match=message):
        on_device(launch.write_kv, **given | wrong)
    assert not pool.any()


@pytest.mark.parametrize(
    ("dtype", "scale", "message"),
    [
        (torch.int8, None, r"key_scale is None; an int8 cache has one a position and head"),
        (torch.int8, 0.5, r"key_scale is 0.5; an int8 cache .* float32 \[4, 16, 2\]"),
        (torch.int8, torch.zeros(4, 16), r"key_scale is \[4, 16\] torch.float32"),
        (FP8, 0.0, "key_scale is 0.0; a float8 cache has one number above 0"),
        (FP8, 1e-46, "key_scale is 1e-46; a float8 cache has one number above 0 .* 2 .. -126"),
        (FP8, torch.ones(4, 16, 2), r"key_scale is \[4, 16, 2\] .*one number above 0"),
        (torch.uint8, None, "key_cache.dtype is torch.uint8; give one of float32, float16"),
    ],
)
def test_scales_that_do_not_belong_to_the_dtype(case, dtype, scale, message):
    pool = torch.zeros(4, 16, 2, 64).to(dtype)
    with pytest.raises(ValueError, match=message):
        case.decode(key_cache=pool, value_cache=pool, key_scale=scale, value_scale=scale)


@pytest.mark.parametrize("head_dim", [12, 264])
def test_widths_that_the_kernels_do_not_take(head_dim):
    pool = torch.zeros(4, 16, 2, head_dim)
    with pytest.raises(ValueError, match=f"head_dim is {head_dim}; .* a multiple of 8 up to 256"):
        launch.write_kv(pool[0], pool[0], pool, pool, torch.arange(16))


def test_a_given_result_is_written_and_returned(case):
    out = torch.full((2, 4, 64), torch.nan)
    wanted = case.decode()
    assert torch.equal(case.decode(out=out), wanted)
    assert torch.equal(out, wanted)


def test_no_requests():
    case = Case((4, 2), 64, 16, (33, 17))
    none = torch.empty(0, dtype=torch.long)
    changes = {"query": case.query[:0], "block_table": case.block_table[:0], "seq_lens": none}
    assert case.decode(**changes).shape == (0, 4, 64)
    starts = torch.tensor([0])
    assert case.prefill(**changes, query_start_loc=starts, max_query_len=0).shape == (0, 4, 64)


def in_a_new_process(before):
    code = """
    import torch
    from kvlab.tensors import launch
    try:
        launch.paged_decode(*[torch.zeros(1)] * 5)
    except RuntimeError as error:
        print(error)
    """
    code = before + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout


def test_without_triton_it_says_why_and_what_to_use():
    said = in_a_new_process("import sys; sys.modules['triton'] = None\n")
    assert "Triton's kernels cannot run here: it cannot be imported" in said
    assert "kvlab.tensors.ops" in said


def test_a_triton_in_a_mixed_mode_is_refused():
    late = "import os; os.environ.pop('TRITON_INTERPRET', None); import triton.language\n"
    said = in_a_new_process(late + "os.environ['TRITON_INTERPRET'] = '1'\n")
    assert "triton was imported to be compiled, but TRITON_INTERPRET is now 1" in said
