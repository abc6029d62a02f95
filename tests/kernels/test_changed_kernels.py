"""A copy of the kernels with one line changed, and a real engine's case to run it over."""

import pytest
import torch

from kvlab import LLM
from kvlab.measure.kernel_case import kernel_case
from kvlab.tensors import kernels, launch
from kvlab.tensors.changed_kernels import ChangedKernels
from kvlab.tensors.watch_kernel import can_watch, watch_decode

pytestmark = pytest.mark.usefixtures("triton_runs")
BLOCKS = (7, 2, 9, 5, 17, 14, 3, 12, 19, 10, 1, 16)


@pytest.fixture(scope="module")
def case():
    llm = LLM("tiny")
    return kernel_case(llm.model, llm.encode("Ada likes soup. The key is"), BLOCKS, 9, layer=1)


def error(case, found):
    return (found.double() - case.wanted()).abs().max()


def test_the_case_is_what_the_engine_computed(case) -> None:
    assert case.seq_lens.tolist() == [10, 10]
    first, second = case.block_table.tolist()
    assert first[:1] == second[:1] == [7] and first[-1] != second[-1]
    assert error(case, case.by_engine) < 1e-5
    assert error(case, launch.paged_decode(*case.given)) < 1e-5
    assert torch.isnan(case.key_cache[0]).all()  # block 0 is nobody's


def test_a_change_is_seen_there_alone(case) -> None:
    wrong = ChangedKernels("paged_decode_kernel", "* scale2", "* scale2 * 2.0")
    assert wrong.change == (
        '- score2 = tl.dot(query, tl.trans(key), input_precision="ieee") * scale2\n'
        '+ score2 = tl.dot(query, tl.trans(key), input_precision="ieee") * scale2 * 2.0'
    )
    assert error(case, wrong.paged_decode(*case.given)) > 0.01
    assert launch.kernels() is kernels
    assert error(case, launch.paged_decode(*case.given)) < 1e-5


def test_a_watched_run_says_that_its_lines_are_a_copy(case) -> None:
    if not can_watch():
        pytest.skip("kernels are watched in the interpreter")
    same = ChangedKernels("paged_decode_kernel", "* scale2", "* scale2 * 1.0")
    log = watch_decode(*case.given, decode=same.paged_decode, kernels=same.kernels)[0]
    assert log.file == "kernels.py, changed"
    assert watch_decode(*case.given)[0].file == "kernels.py"


def test_the_real_kernels_are_back_after_an_error(case) -> None:
    wrong = ChangedKernels("paged_decode_kernel", "* scale2", "* scale3")
    with pytest.raises(Exception, match="scale3"):
        wrong.paged_decode(*case.given)
    assert launch.kernels() is kernels


@pytest.mark.parametrize(
    ("kernel", "old", "count"),
    [("paged_decode_kernel", "no such text", 0), ("reduce_splits_kernel", "tl.load", 2),
     ("no_kernel", "tl.load", 0)],
)  # fmt: skip
def test_what_does_not_stand_there_once_is_refused(kernel, old, count) -> None:
    with pytest.raises(ValueError, match=f"stands {count} times in {kernel}"):
        ChangedKernels(kernel, old, "")
