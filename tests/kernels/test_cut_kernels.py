"""Each check fails when its line is taken out of a kernel: the same source, one line changed."""

import importlib.util
from pathlib import Path

import kernel_checks
import pytest

from kvlab.tensors import launch

pytestmark = pytest.mark.usefixtures("triton_runs")
DECODE, PREFILL, REDUCE = "paged_decode_kernel", "paged_prefill_kernel", "reduce_splits_kernel"
WRITE = "store_rows"
VALUE = "tl.load(value_cache_ptr + stored_at, mask=mask, other=0.0)"
FLOOR = "tl.maximum(new_max2, LOWEST)"
EACH_VALUE = "tl.load(value_scale_ptr + stored_row, mask={}, other=0.0)"
CUTS = {  # name: (kernel, what stands there, what is put there, the check that must fail)
    "V unmasked": (DECODE, VALUE, "tl.load(value_cache_ptr + stored_at)", "k01_decode"),
    "V unmasked in prefill": (
        PREFILL,
        VALUE,
        "tl.load(value_cache_ptr + stored_at)",
        "k01_prefill",
    ),
    "scores unmasked": (
        DECODE,
        "tl.where(allowed[None, :], score2, ",
        "tl.where(True, score2, ",
        "k01_decode",
    ),
    "merged by a natural logarithm": (DECODE, "tl.log2(divisor)", "tl.log(divisor)", "k04_merge"),
    "weighted by e": (REDUCE, "tl.exp2(lse2 - max2)", "tl.exp(lse2 - max2)", "k04_merge"),
    "sum not corrected": (DECODE, "running_sum * correction", "running_sum", "k04_merge"),
    "acc not corrected": (DECODE, "acc *= correction[:, None]", "acc *= 1.0", "k04_merge"),
    "empty part divided by 0": (
        DECODE,
        "tl.where(running_sum > 0, running_sum, 1.0)",
        "running_sum + 0.0",
        "k05_empty_parts",
    ),
    "length 0 divided by 0": (
        DECODE,
        "tl.where(running_sum > 0, running_sum, 1.0)",
        "running_sum + 0.0",
        "k05_length_zero",
    ),
    "merge of nothing but empty parts": (
        REDUCE,
        "tl.where(total > 0, total, 1.0)",
        "total",
        "k05_empty_parts",
    ),
    "minus infinity from itself": (
        REDUCE,
        'tl.where(max2 == float("-inf"), 0.0, max2)',
        "max2 + 0.0",
        "k05_empty_parts",
    ),
    "head not padded under a mask": (
        DECODE,
        "allowed[:, None] & (dim < HEAD_DIM)[None, :]",
        "allowed[:, None] & (dim >= 0)[None, :]",
        "k07_decode",
    ),
    "head not padded under a mask in prefill": (
        PREFILL,
        "written[:, None] & (dim < HEAD_DIM)[None, :]",
        "written[:, None] & (dim >= 0)[None, :]",
        "k07_prefill",
    ),
    "window one too wide": (DECODE, "length - window, 0)", "length - window - 1, 0)", "n04_decode"),
    "window one too narrow": (
        DECODE,
        "length - window, 0)",
        "length - window + 1, 0)",
        "n04_decode",
    ),
    "window one too wide in prefill": (
        PREFILL,
        "position[None, :] > ",
        "position[None, :] >= ",
        "n04_prefill",
    ),
    "causal one too far": (
        PREFILL,
        "position[None, :] <= ",
        "position[None, :] - 1 <= ",
        "n09_rows",
    ),
    "causal one too short": (PREFILL, "position[None, :] <= ", "position[None, :] < ", "n09_rows"),
    "aligned at the top left": (
        PREFILL,
        "query_position = length - num_queries + token",
        "query_position = token",
        "n09_chunks",
    ),
    "a whole tile too many": (PREFILL, "(low + 1) // TILE", "(low + 2) // TILE", "whole_tiles"),
    "a row that saw nothing yet": (PREFILL, FLOOR, "new_max2", "window_edge"),
    "a tile of -inf": (DECODE, FLOOR, "new_max2", "infinite_tile"),
    "a tile of -inf in prefill": (PREFILL, FLOOR, "new_max2", "infinite_tile"),
    "nothing but -inf": (
        DECODE,
        'LOWEST, float("nan"), divisor',
        "LOWEST, 1.0, divisor",
        "infinite",
    ),
    "nothing but -inf in prefill": (
        PREFILL,
        'running_sum, float("nan")',
        "running_sum, 1.0",
        "infinite_prefill",
    ),
    "a part of nothing but -inf": (DECODE, "if NUM_SPLITS == 1:", "if True:", "infinite_part"),
    "nothing but -inf in all parts": (
        REDUCE,
        'LOWEST, float("nan"), max2',
        "LOWEST, 0.0, max2",
        "infinite_parts",
    ),
    "scale of V unmasked": (
        DECODE,
        EACH_VALUE.format("allowed"),
        "tl.load(value_scale_ptr + stored_row)",
        "int8_decode",
    ),
    "scale of V unmasked in prefill": (
        PREFILL,
        EACH_VALUE.format("written"),
        "tl.load(value_scale_ptr + stored_row)",
        "int8_prefill",
    ),
    "freed blocks read": (DECODE, "(position >= first) & ", "", "freed_decode"),
    "freed blocks read in prefill": (PREFILL, "(position > low - window) & ", "", "freed_prefill"),
    "codes cut off": (WRITE, "x = (x + ROUND) - ROUND", "x += 0.0", "int8_codes"),
}


def cut(folder, kernel, old, new):
    """The kernel's file with `old` replaced by `new` in it, imported under another name."""
    file = Path(launch.kernels().__file__)
    file = file.with_name("write_kernel.py") if kernel == WRITE else file
    before, start, rest = file.read_text().partition(f"def {kernel}(")
    body, end, after = rest.partition("\n\n\n@triton.jit")
    assert body.count(old) == 1, f"{kernel} has {old!r} {body.count(old)} times"
    path = folder / "cut_kernels.py"
    path.write_text(before + start + body.replace(old, new) + end + after)
    spec = importlib.util.spec_from_file_location("cut_kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of the NaN that must appear
@pytest.mark.parametrize("name", CUTS)
def test_a_cut_kernel_is_caught(name, tmp_path, monkeypatch, triton_runs):
    if triton_runs == "compiled":
        pytest.skip("kernels are cut in the interpreter")
    kernel, old, new, check = CUTS[name]
    module = cut(tmp_path, kernel, old, new)
    monkeypatch.setattr(launch, "kernels", lambda: module)
    with pytest.raises(AssertionError):
        getattr(kernel_checks, check)()


def test_a_kernel_cut_nowhere_passes(tmp_path, monkeypatch):
    """The way of cutting itself changes nothing."""
    module = cut(tmp_path, DECODE, "tl.log2(divisor)", "tl.log2(divisor)")
    monkeypatch.setattr(launch, "kernels", lambda: module)
    assert kernel_checks.k05_empty_parts() is None
    assert module.__file__ != launch.__file__
