"""How much memory a device can still give: what a budget is held against (section 21.1).

    CPU     the least of: what the system calls available, what each control group that this
            process is in may still take (a container's limit), what `ulimit -v` leaves
    CUDA    the least of: what the GPU has free, and what PyTorch may still take of the share that
            set_per_process_memory_fraction gives it; to both, what PyTorch holds and does not use
    MPS     what Metal recommends at most, less what it holds

A figure is of now. Other processes take memory too, and nobody keeps it for us.
"""

import os
import re
from pathlib import Path, PurePosixPath

import torch

GROUPS = Path("/sys/fs/cgroup")
# limit, use, and the line of memory.stat with files in memory that are given up where it is wanted
VERSION_2 = ("memory.max", "memory.current", "inactive_file")
VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def free_nbytes(device: torch.device) -> int | None:
    """Bytes that can still be taken. None where the system does not tell."""
    if device.type == "cuda":
        return _on_cuda(device)
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    if device.type != "cpu":
        return None
    told = [_available(), group_nbytes(), _address_space()]
    return min((nbytes for nbytes in told if nbytes is not None), default=None)


def _on_cuda(device: torch.device) -> int:
    index = torch.cuda.current_device() if device.index is None else device.index
    free, total = torch.cuda.mem_get_info(index)
    held, used = torch.cuda.memory_reserved(index), torch.cuda.memory_allocated(index)
    share = int(torch.cuda.get_per_process_memory_fraction(index) * total)
    return max(min(free, share - held) + held - used, 0)


def _available() -> int | None:
    """What processes could take without others giving way; elsewhere than on Linux, pages that
    are free, or all that there are."""
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        found = re.search(r"^MemAvailable:\s*(\d+) kB", meminfo.read_text(), re.MULTILINE)
        if found:
            return 1024 * int(found[1])
    for pages in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES"):
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf(pages)
        except (AttributeError, ValueError, OSError):
            continue
    return None


def group_nbytes(root: Path = GROUPS, own: str | None = None) -> int | None:
    """What this process's control groups may still take, the tightest of them. None: no limit.

    own: the text of /proc/self/cgroup, `number:controllers:path` a line. A limit of any group
    above binds too. Inside a container the path may be one of the host: what is not there under
    `root` is passed over.
    """
    if own is None:
        listed = Path("/proc/self/cgroup")
        own = _text(listed)
    places = [(root, VERSION_2, PurePosixPath())]
    for line in own.splitlines():
        if line.count(":") < 2:
            continue
        _, controllers, path = line.split(":", 2)
        place = PurePosixPath(path.lstrip("/"))
        if ".." in place.parts:  # above what this process can see
            continue
        if not controllers:
            places += [(root, VERSION_2, place), (root / "unified", VERSION_2, place)]
        elif "memory" in controllers.split(","):
            places.append((root / "memory", VERSION_1, place))
    folders = {(base / p, names) for base, names, place in places for p in (place, *place.parents)}
    left = [_group(folder, names) for folder, names in folders]
    return min((nbytes for nbytes in left if nbytes is not None), default=None)


def _group(folder: Path, names: tuple[str, str, str]) -> int | None:
    """What one group may still take; None: it has no limit, or there is none here."""
    limit, used = (_number(folder / name) for name in names[:2])
    if limit is None or used is None:
        return None
    files = re.search(rf"^{names[2]} ([0-9]+)$", _text(folder / "memory.stat"), re.MULTILINE)
    return max(limit - used + (int(files[1]) if files else 0), 0)


def _number(path: Path) -> int | None:
    """A file's number; None without the file, and for "max"."""
    text = _text(path).strip()
    return int(text) if re.fullmatch("[0-9]{1,30}", text) else None


def _text(path: Path) -> str:
    """A file's text; nothing where it cannot be read. Bytes that are no UTF-8 match no number."""
    try:
        return path.read_text("utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _address_space() -> int | None:
    """What `ulimit -v` leaves this process; None: there is no limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit, statm = resource.getrlimit(resource.RLIMIT_AS)[0], Path("/proc/self/statm")
    if limit == resource.RLIM_INFINITY or not statm.is_file():
        return None
    return max(limit - int(statm.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE"), 0)
