"""Which devices there are, what they can compute with, and how time is taken on each.

CPU: a clock before and after. CUDA: device events, since a call returns before its work is done.
MPS: the clock, with a wait for the device on both sides. Section 21.2.
"""

import os
import platform
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch

from kvlab.core.checked import shown
from kvlab.measure.machine import machine
from kvlab.tensors.free_memory import free_nbytes

MOST_OF_FREE = 0.5  # of the free memory is taken, so that others have some too
HALF = (torch.float16, torch.bfloat16)


def names() -> list[str]:
    """What a choice of devices may offer here, such as ["cpu", "cuda"]."""
    found = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": _mps()}
    return [name for name, is_here in found.items() if is_here]


def default_device() -> str:
    """The fastest kind there is."""
    return names()[-1]


def checked_device(device: str | torch.device | None) -> torch.device:
    """None: the default one. Raises ValueError for a device that is not here."""
    try:
        found = torch.device(default_device() if device is None else device)
    except (RuntimeError, TypeError, ValueError):
        found = None
    if found is None or found.type not in names():
        raise ValueError(f"device is {shown(device)}; here there is {' and '.join(names())}")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        last = torch.cuda.device_count() - 1
        raise ValueError(f"device is {shown(device)}; the last CUDA device is cuda:{last}")
    return found


def checked_dtype(dtype: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    """None: float32 on a CPU, bfloat16 on CUDA (float16 where it has none), float16 on MPS.

    Raises ValueError for no floating-point type, and for half precision on a CPU: its products
    are slow there, and the figure would say nothing about the machine.
    """
    if dtype is None:
        return _default_dtype(device)
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if found not in (torch.float32, torch.float64, *HALF):
        raise ValueError(f"dtype is {dtype!r}; give float32, float16 or bfloat16")
    if device.type == "cpu" and found in HALF:
        raise ValueError(f"dtype is {name_of(found)} on a CPU; give float32, or another device")
    if device.type == "mps" and found is torch.float64:
        raise ValueError("dtype is float64, which MPS does not have; give float32 or float16")
    return found


def label(device: torch.device) -> str:
    """ "cpu", "cuda", "mps"; "cuda:1" for one that is not the first."""
    return f"{device.type}:{device.index}" if device.index else device.type


def name_of(dtype: torch.dtype | str) -> str:
    """torch.float32 -> "float32"; a format's name stays what it is."""
    return str(dtype).removeprefix("torch.")


def device_name(device: torch.device) -> str:
    """What the maker calls it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    found = machine()
    return f"{found['cpu'] or found['system']}{' GPU' if device.type == 'mps' else ''}"


def threads(device: torch.device) -> int | None:
    """Threads of torch on a CPU; None elsewhere."""
    return torch.get_num_threads() if device.type == "cpu" else None


def cache_nbytes(device: torch.device) -> int | None:
    """Bytes of the last-level cache. None where the system does not tell."""
    if device.type == "cuda":
        return getattr(torch.cuda.get_device_properties(device), "L2_cache_size", None)
    return _sysctl("hw.l3cachesize", "hw.perflevel0.l2cachesize", "hw.l2cachesize") or _linux()


def refuse_too_large(nbytes: int, device: torch.device, what: str, remedy: str) -> None:
    """Raises ValueError, before anything is allocated, for more than half of the free memory."""
    free = free_nbytes(device)
    if free is not None and nbytes > MOST_OF_FREE * free:
        raise ValueError(
            f"{what} takes {nbytes / 2**30:,.1f} GiB, and {device} has {free / 2**30:,.1f} GiB "
            f"free, of which half is taken at most; {remedy}"
        )


def elapsed(device: torch.device, work: Callable[[], object]) -> float:
    """Seconds that `work` takes on the device, from its start to the end of all it started."""
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.device(device):
            start.record()
            work()
            end.record()
            end.synchronize()
        return start.elapsed_time(end) / 1e3
    if device.type == "mps":
        torch.mps.synchronize()
    began = time.perf_counter()
    work()
    if device.type == "mps":
        torch.mps.synchronize()
    return time.perf_counter() - began


def _mps() -> bool:
    return torch.backends.mps.is_available()


def _default_dtype(device: torch.device) -> torch.dtype:
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    return torch.float16 if device.type == "mps" else torch.float32


def _sysctl(*keys: str) -> int | None:
    """The first of these that macOS tells."""
    if platform.system() != "Darwin":
        return None
    for key in keys:
        asked = subprocess.run(["sysctl", "-n", key], capture_output=True, text=True)
        if asked.stdout.strip().isdigit() and int(asked.stdout):
            return int(asked.stdout)
    return None


def _linux(root: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """The last-level caches of the processors that this process may use, all together.

    A large processor has several, each shared by some of its cores. index*/size: "32768K".
    """
    if not root.is_dir():  # another system, without sched_getaffinity
        return None
    units, last = {"K": 2**10, "M": 2**20, "G": 2**30}, {}
    for cpu in sorted(os.sched_getaffinity(0)):
        for index in root.glob(f"cpu{cpu}/cache/index*"):
            texts = [index / name for name in ("size", "level", "shared_cpu_list")]
            if not all(text.is_file() for text in texts):
                continue
            size, level, shared = (text.read_text().strip() for text in texts)
            if found := re.fullmatch(r"(\d+)([KMG])", size):
                last[int(level), shared] = int(found[1]) * units[found[2]]
    top = max((level for level, _ in last), default=0)
    return sum(nbytes for (level, _), nbytes in last.items() if level == top) or None
