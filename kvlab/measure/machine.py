"""Which machine and which versions a figure belongs to. Nothing names a person or a network."""

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

import kvlab


def machine() -> dict[str, object]:
    """CPU model, cores, memory in bytes, system. None where the system does not tell."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count())
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(usable),
        "memory_bytes": _memory_bytes(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def versions() -> dict[str, str | None]:
    """What was measured, and with what. None: not installed."""
    found: dict[str, str | None] = {
        "kvlab": kvlab.__version__,
        "python": platform.python_version(),
    }
    for name in ("torch", "transformers"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def load_average() -> float | None:
    """Runnable processes over the last minute: above 0 at the start, others share the machine."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def short_name(found: dict[str, object]) -> str:
    """For a file name: letters, digits and dashes; for example `amd-epyc-2-cores`."""
    words = f"{found['cpu'] or found['system']} {found['cores']} cores".lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")


def _cpu_model() -> str | None:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        named = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
        if named:
            return named[1].strip()
    if platform.system() == "Darwin":
        asked = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True
        )
        return asked.stdout.strip() or None
    return platform.processor() or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
