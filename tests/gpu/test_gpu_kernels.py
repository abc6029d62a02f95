"""The kernels compiled for this GPU, beside the specification in float64."""

import pytest
import torch

from kvlab import triton_mode
from kvlab.measure import gpu_correct
from kvlab.measure.gpu_setting import FULL, Setting

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="module")
def setting():
    return Setting(DEVICE, FULL)


def test_triton_compiles_here():
    assert triton_mode.current().mode == "compiled"


@pytest.mark.parametrize("case", gpu_correct.FULL, ids=lambda case: case.name)
def test_attention(setting, case):
    found = gpu_correct.check(setting, case)
    assert found["holds"], found


@pytest.mark.parametrize("stored", gpu_correct.WRITTEN)
def test_writing(setting, stored):
    found = gpu_correct.check_writing(setting, stored)
    assert found["bytes_that_differ"] == 0
