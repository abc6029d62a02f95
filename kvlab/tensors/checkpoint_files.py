"""Which files of a Hugging Face folder hold its weights, and reading them a slice at a time.

Weights are read as safetensors alone: a header of names, types and shapes, then numbers. Pickle
files (.bin, .pt, .pth) can run code when they are opened, so they are never opened.
"""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

ONE_FILE = "model.safetensors"
SLICE_NBYTES = 4 << 20  # how much of a file is in memory beside the model while it is read
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


class CheckpointError(ValueError):
    """The folder does not hold a complete, fitting checkpoint."""


def weight_files(folder: Path) -> list[Path]:
    """The files that the folder's index names, or its one file. All of them are there.

    Where the one file stands beside an index that does not name it, it counts, as it does for
    transformers.

    Raises CheckpointError for a damaged index, a file that is missing, lies outside the folder,
    or is a pickle file.
    """
    index = folder / "model.safetensors.index.json"
    names = _named_by(index) if index.is_file() else [ONE_FILE]
    for name in names:
        path = folder / name
        if not path.is_file():
            found = sorted(p.name for p in folder.glob("*") if p.suffix in PICKLES)
            more = f"; {found[0]} is {NO_PICKLE}" if found else ""
            raise CheckpointError(f"{path} is missing{more}")
        if index.is_file() and not is_inside(path, folder):
            raise CheckpointError(
                f"{index} names {name!r}, a link to {path.resolve()}, which lies outside the folder"
            )
    if (folder / ONE_FILE).is_file():
        names = names if ONE_FILE in names else [ONE_FILE]
    return [folder / name for name in names]


NO_PICKLE = "a pickle file, which is not read here: convert it to safetensors"


def _named_by(index: Path) -> list[str]:
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError, OSError) as error:
        raise CheckpointError(f"{index} is not a weight index: {error}") from None
    if not names or not all(isinstance(name, str) for name in names):
        raise CheckpointError(f"{index} is not a weight index: it names no files")
    for name in sorted(names):
        if name in ("", "..") or Path(name).name != name or "\\" in name:
            raise CheckpointError(
                f"{index} names {name!r}, which is not a file name inside the folder"
            )
        if Path(name).suffix in PICKLES:
            raise CheckpointError(f"{index} names {name!r}, {NO_PICKLE}")
    return sorted(names)


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a file, links followed, lies in the folder or in the blobs of its hub cache.

    The hub's cache keeps files as models--OWNER--NAME/blobs/HASH, and a folder
    models--OWNER--NAME/snapshots/REVISION of links to them.
    """
    folder, target = folder.resolve(), path.resolve()
    roots = [folder]
    if folder.parent.name == "snapshots":
        roots.append(folder.parent.parent / "blobs")
    return any(target.is_relative_to(root) for root in roots)


@contextmanager
def opened(path: Path) -> Iterator[safe_open]:
    """A safetensors file on the CPU. Raises CheckpointError if it cannot be read."""
    try:
        with safe_open(path, framework="pt") as handle:
            yield handle
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} cannot be read as safetensors (truncated or damaged?): {error}"
        ) from None


def check_finite(
    stored: Tensor, dtype: torch.dtype, where: str, row: int = 0, advice: str = ""
) -> None:
    """Raise CheckpointError for a weight that is NaN or infinite in `dtype`: outputs would be NaN.

    stored: a tensor as the file has it, or some rows of it, the first of which is `row`.
    where: the file and the tensor, for the message. advice: what else to try.
    """
    if not stored.numel():
        return
    low, high = torch.aminmax(stored)  # both NaN where there is one; no copy is made
    most = torch.finfo(dtype).max
    if -most <= low and high <= most:
        return
    odd = ~stored.to(dtype).isfinite()
    if not odd.any():  # what is just above the largest number is rounded to it
        return
    place = odd.nonzero()[0].tolist()
    found, at = stored[tuple(place)].item(), [place[0] + row, *place[1:]]
    what = f"{advice}get the file again, or look at the training"
    if math.isfinite(found):
        what = f"{dtype} cannot hold it: give dtype=torch.float32"
    raise CheckpointError(f"{where} holds {found} at {at}; {what}")


def slices(path: Path, name: str) -> Iterator[Tensor]:
    """A tensor's rows, some at a time, as they are stored.

    The file is opened for each slice: what was read of an open file stays in memory until it is
    closed, and the whole of it would be a second copy of the model.
    """
    row = 0
    while True:
        with opened(path) as handle:
            part = handle.get_slice(name)
            count, *rest = part.get_shape()
            width = 8
            for size in rest:
                width *= size
            rows = max(1, SLICE_NBYTES // width)
            yield part[row : row + rows]
        row += rows
        if row >= count:
            return
