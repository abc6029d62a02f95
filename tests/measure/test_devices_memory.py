"""What a Linux machine tells of its caches, read from its files."""

import os
from pathlib import Path

import pytest

from kvlab.measure import devices

MIB = 2**20


def cache(root: Path, cpu: int, index: int, level: int, size: str, shared: str) -> None:
    folder = root / f"cpu{cpu}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, text in (("level", level), ("size", size), ("shared_cpu_list", shared)):
        (folder / name).write_text(f"{text}\n")


@pytest.fixture
def four_cores(tmp_path: Path, monkeypatch) -> Path:
    """Two pairs of cores; each pair shares a last-level cache of 32 MiB."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    for cpu, pair in enumerate(("0-1", "0-1", "2-3", "2-3")):
        cache(tmp_path, cpu, 0, 1, "48K", str(cpu))
        cache(tmp_path, cpu, 2, 2, "1024K", str(cpu))
        cache(tmp_path, cpu, 3, 3, "32768K", pair)
    return tmp_path


def test_all_last_level_caches_count_each_once(four_cores: Path) -> None:
    assert devices._linux(four_cores) == 64 * MIB


def test_caches_of_processors_that_are_not_ours_do_not_count(four_cores: Path, monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1}, raising=False)
    assert devices._linux(four_cores) == 32 * MIB


def test_a_large_second_level_is_not_the_last_one(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    cache(tmp_path, 0, 2, 2, "4M", "0")
    cache(tmp_path, 0, 3, 3, "2M", "0")
    assert devices._linux(tmp_path) == 2 * MIB


def test_a_machine_that_tells_nothing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert devices._linux(tmp_path) is None
    assert devices._linux(tmp_path / "absent") is None
