"""Memory of loading a checkpoint, read from a process of its own."""

from pathlib import Path

import pytest

from kvlab.measure.loading import UNIT, Loading, measure_loading, write_random_checkpoint


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_no_second_copy_of_the_weights(tmp_path):
    write_random_checkpoint(tmp_path, 4 * UNIT)
    found = measure_loading(tmp_path)
    assert found.weight_nbytes == pytest.approx(4 * UNIT, rel=0.001)
    assert 0 < found.file_nbytes - found.weight_nbytes < 100_000  # the header
    assert 0.9 < found.copies < 1.2
    half = measure_loading(tmp_path, "bfloat16")
    assert half.weight_nbytes * 2 == found.weight_nbytes
    assert 0.9 < half.copies < 1.2


def test_what_is_printed():
    found = Loading(1_000_000_000, 1_000_000_000, 2.5, 200_000_000, 1_250_000_000)
    assert found.copies == 1.05
    assert "0.20 GB held before, 1.25 GB at most, 1.050 times" in str(found)


def test_bad_arguments(tmp_path):
    with pytest.raises(ValueError, match="give at least 150994944"):
        write_random_checkpoint(tmp_path, 1000)
    with pytest.raises(ValueError, match=r"model\.safetensors is missing"):
        measure_loading(tmp_path)
