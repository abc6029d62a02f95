"""Time and peak memory of loading a checkpoint: `python -m kvlab.measure.loading [GB]`.

Writes a random checkpoint of 1 GB (or what is given) into a folder that is deleted again, loads
it in a fresh process and prints what that process held at most. One copy of the weights is the
least that a model can have; a loader that keeps what it reads until it has converted it has two.
"""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from kvlab.measure.footprint import LAUNCHER, environment

UNIT = 4 * 12_582_912  # bytes of a layer, or of one table, of CONFIG_50M in float32


@dataclass(frozen=True)
class Loading:
    """file_nbytes: the weight files; weight_nbytes: the loaded parameters. before, peak: bytes of
    memory that the process held before it loaded, and at most until the model was there."""

    file_nbytes: int
    weight_nbytes: int
    seconds: float
    before: int
    peak: int

    @property
    def copies(self) -> float:
        """Memory that loading took at most, in sizes of the loaded model: 1.0 is the least."""
        return (self.peak - self.before) / self.weight_nbytes

    def __str__(self) -> str:
        return (
            f"{self.file_nbytes / 1e9:.2f} GB of files, {self.weight_nbytes / 1e9:.2f} GB of "
            f"weights: loaded in {self.seconds:.2f} s; {self.before / 1e9:.2f} GB held before, "
            f"{self.peak / 1e9:.2f} GB at most, {self.copies:.3f} times the weights"
        )


def write_random_checkpoint(folder: str | Path, nbytes: int, seed: int = 0) -> None:
    """A decoder of random float32 weights, about nbytes of them, in Hugging Face layout.

    Raises ValueError for fewer bytes than the two tables and one layer need.
    """
    import torch

    from kvlab.measure.random_decoder import CONFIG_50M, random_decoder
    from kvlab.tensors.checkpoint_save import save_model

    layers = round(nbytes / UNIT) - 2
    if layers < 1:
        raise ValueError(f"nbytes is {nbytes!r}; give at least {3 * UNIT}")
    config = replace(CONFIG_50M, num_layers=layers, tie_word_embeddings=False)
    save_model(random_decoder(config, seed=seed), folder, dtype=torch.float32)


def measure_loading(folder: str | Path, dtype: str = "float32") -> Loading:
    """Load a checkpoint in a fresh process of one thread. dtype: what it is loaded as.

    Raises ValueError where the system does not tell a process's memory (it is read from Linux's
    /proc) and where the folder holds no checkpoint.
    """
    if not Path("/proc/self/status").exists():
        raise ValueError("this system has no /proc/self/status to read a process's memory from")
    program = [sys.executable, "-m", "kvlab.measure.loading", "--load", str(folder), dtype]
    run = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *program],
        capture_output=True,
        text=True,
        env=environment(),
    )
    if run.returncode:
        said = run.stderr.strip().splitlines() or [f"exit status {run.returncode}"]
        raise ValueError(f"{folder} cannot be loaded: {said[-1]}")
    return Loading(**json.loads(run.stdout))


def _load(folder: str, dtype: str) -> None:
    """What the fresh process does."""
    import torch

    from kvlab.tensors.checkpoint import load_model
    from kvlab.tensors.checkpoint_files import weight_files

    torch.set_num_threads(1)
    sizes = [path.stat().st_size for path in weight_files(Path(folder))]
    before, start = _held("VmRSS"), time.perf_counter()
    model = load_model(folder, getattr(torch, dtype))
    seconds = time.perf_counter() - start
    found = {
        "file_nbytes": sum(sizes),
        "weight_nbytes": sum(p.nbytes for p in model.parameters()),
        "seconds": seconds,
        "before": before,
        "peak": _held("VmHWM"),
    }
    print(json.dumps(found))


def _held(name: str) -> int:
    """Bytes in memory now (VmRSS) or at most so far (VmHWM)."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/self/status has no {name}")


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--load"]:
        _load(*arguments[1:])
        return
    nbytes = int(float(arguments[0] if arguments else 1) * 1e9)
    with tempfile.TemporaryDirectory() as folder:
        write_random_checkpoint(folder, nbytes)
        print(measure_loading(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
