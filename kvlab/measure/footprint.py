"""What a process pays for kvlab: time to import it, and the most memory it ever held.

Both are measured in fresh interpreters, one after the other in turns.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import kvlab
from kvlab.measure.rounds import interleave, summary

IMPORT_GOAL = 0.1  # seconds
PROGRAMS = {
    "bare interpreter": "pass",
    "import kvlab": "import kvlab",
    "from kvlab import LLM": "from kvlab import LLM",
    "import torch": "import torch",
}
# The kernel counts the memory of the process that starts another as that other's own until the
# program is loaded. A small interpreter in between keeps ours, with torch in it, out of it.
LAUNCHER = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"


def import_times(rounds: int) -> dict[str, dict[str, object]]:
    """Seconds that each program takes; `added`: beyond the bare interpreter of the same round."""

    def timed(program: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True, env=environment())
        return time.perf_counter() - start

    for program in PROGRAMS.values():  # files come into the page cache, bytecode is written
        timed(program)
    tasks = {name: lambda _, p=program: timed(p) for name, program in PROGRAMS.items()}
    seconds = interleave(tasks, rounds)
    bare = seconds["bare interpreter"]
    return {
        name: {
            "seconds": summary(taken),
            "added": summary([a - b for a, b in zip(taken, bare, strict=True)]),
        }
        for name, taken in seconds.items()
    }


def peak_memory(subjects: list[str], rounds: int, new_tokens: int) -> dict[str, object]:
    """Bytes each subject's own process held at most. A string says why there is no figure."""
    tasks = {name: lambda _, n=name: _peak(n, new_tokens) for name in subjects}
    peaks = interleave(tasks, rounds)
    return {
        name: next((p for p in found if isinstance(p, str)), None) or summary(found)
        for name, found in peaks.items()
    }


def _peak(subject: str, new_tokens: int) -> int | str:
    command = [sys.executable, "-m", "kvlab.measure.memory_subject", subject, str(new_tokens)]
    launched = [sys.executable, "-c", LAUNCHER, *command]
    done = subprocess.run(launched, capture_output=True, text=True, env=environment())
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {subject!r} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def environment() -> dict[str, str]:
    """This process's own kvlab, one thread, and no network for transformers."""
    home = str(Path(kvlab.__file__).parents[1])
    path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
