"""What a device can still give: control groups of both versions, and `ulimit -v` for real."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kvlab.tensors import free_memory
from kvlab.tensors.free_memory import free_nbytes, group_nbytes

MIB = 2**20
CPU = torch.device("cpu")


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".", 1)).write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("limit", "stat", "free"),
    [
        ("8000", "anon 900\ninactive_file 2500\nactive_file 10\n", 8000 - 5000 + 2500),
        ("8000", None, 3000),
        ("4000", "inactive_file 0\n", 0),  # more is used than may be: nothing is left
        ("max", "inactive_file 2500\n", None),
    ],
)
def test_a_container_s_files_in_memory_can_be_given_up(tmp_path, limit, stat, free):
    write(tmp_path, memory__max=limit, memory__current="5000")
    if stat is not None:
        write(tmp_path, memory__stat=stat)
    assert group_nbytes(tmp_path, own="0::/\n") == free


def test_version_1_has_other_names(tmp_path):
    names = {"memory__limit_in_bytes": 9000, "memory__usage_in_bytes": 6000}
    write(tmp_path / "memory" / "class" / "ada", **names)
    stat = "inactive_file 7\ntotal_inactive_file 500"
    write(tmp_path / "memory" / "class" / "ada", memory__stat=stat)
    own = "9:name=systemd:/\n4:cpu,memory:/class/ada\n0::/\n"
    assert group_nbytes(tmp_path, own) == 3500


def test_the_tightest_of_the_groups_above_counts(tmp_path):
    """A user's session has 100 MiB of which 90 are used; the process's own group has no limit."""
    write(tmp_path / "users" / "ada", memory__max=100 * MIB, memory__current=90 * MIB)
    write(tmp_path / "users" / "ada" / "kernel", memory__max="max", memory__current=MIB)
    write(tmp_path / "users", memory__max=4000 * MIB, memory__current=200 * MIB)
    assert group_nbytes(tmp_path, "0::/users/ada/kernel\n") == 10 * MIB
    assert group_nbytes(tmp_path, "0::/users/tom\n") == 3800 * MIB


def test_a_path_of_the_host_inside_a_container(tmp_path):
    """The container's own group is the root that it sees."""
    write(tmp_path, memory__max=64 * MIB, memory__current=MIB)
    for path in ("/docker/0a1b", "/../../0a1b", "/"):
        assert group_nbytes(tmp_path, f"0::{path}\n") == 63 * MIB
    assert group_nbytes(tmp_path, "") == 63 * MIB


def test_no_groups_at_all(tmp_path):
    assert group_nbytes(tmp_path, "0::/a\n4:memory:/b\n") is None


def test_a_full_container_is_not_taken_for_one_without_a_limit(monkeypatch):
    monkeypatch.setattr(free_memory, "group_nbytes", lambda: 0)
    assert free_nbytes(CPU) == 0


def test_a_device_that_tells_nothing():
    assert free_nbytes(torch.device("meta")) is None


def test_what_ulimit_leaves_is_what_can_be_taken():
    """In a process of its own, which then takes most of what it was told, and cannot take more."""
    if not Path("/proc/self/statm").is_file():
        pytest.skip("no /proc/self/statm on this system")
    program = """
import resource, torch
from kvlab.tensors.free_memory import free_nbytes
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), resource.RLIM_INFINITY))
free = free_nbytes(torch.device("cpu"))
print(free)
torch.empty(free - (32 << 20), dtype=torch.uint8)
try:
    torch.empty(free + (32 << 20), dtype=torch.uint8)
except RuntimeError as error:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    free, refused = done.stdout.split()
    assert refused == "refused" and 200 * MIB < int(free) <= 256 * MIB


@pytest.mark.parametrize(
    ("limit", "used", "own"),
    [
        ("²", "5", "0::/\n"),
        ("9" * 5000, "5", "0::/\n"),
        ("8000", "many", "0::/\n"),
        ("max", "5", "no line of this kind\n0\n\n"),
    ],
)
def test_what_is_no_number_sets_no_limit(tmp_path, limit, used, own):
    write(tmp_path, memory__max=limit, memory__current=used)
    assert group_nbytes(tmp_path, own) is None


def test_bytes_that_are_no_text_set_no_limit(tmp_path):
    (tmp_path / "memory.max").write_bytes(b"\xff\xfe")
    write(tmp_path, memory__current=5)
    assert group_nbytes(tmp_path, "0::/\n") is None
    write(tmp_path, memory__max=8000)
    (tmp_path / "memory.stat").write_bytes(b"\xff\ninactive_file 5\n")
    assert group_nbytes(tmp_path, "0::/\udcff\n") == 8000
