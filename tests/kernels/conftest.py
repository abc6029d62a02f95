"""The kernels run as Triton can run them here: interpreted on the CPU, or compiled for the GPU."""

import pytest

from kvlab import triton_mode

triton_mode.choose()  # before anything imports triton


@pytest.fixture(scope="session")
def triton_runs():
    """There is no Triton for macOS and Windows. A Triton in a mixed mode is a failure."""
    mode = triton_mode.current()
    if mode.mode is None:
        pytest.skip(mode.reason)
    assert mode.usable, mode.reason
    return mode.mode
