"""Runs the real decode kernel in Triton's interpreter and writes down what it did.

`watch_decode` is given tensors; tensors/watch_engine.py takes them from an engine that is serving.
The result is a log (core/kernel_log.py) beside what was computed. The kernel is that of
tensors/kernels.py, and the log quotes its lines. Where kernels cannot be interpreted,
`recorded_log()` gives a log that ships with the package. Section 21.5.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from kvlab import triton_mode
from kvlab.core.checked import whole
from kvlab.core.kernel_log import CHANGED_COPY, KernelLog, recorded_log
from kvlab.core.kv_cache_manager import cdiv

if TYPE_CHECKING:
    from kvlab.tensors.kernel_tracer import KernelTracer

MOST_TURNS = 96  # of all programs: the view has three stops for each

__all__ = ["WatchedDecode", "can_watch", "recorded_log", "watch_decode", "why_not"]


class WatchedDecode(NamedTuple):
    """log: what the kernel did. output: what it computed of query; both have the shape
    [R, num_query_heads, head_dim].
    """

    log: KernelLog
    output: Tensor
    query: Tensor


def can_watch() -> bool:
    """Whether this process can interpret a kernel; `why_not` says what is in the way."""
    return why_not() == ""


def why_not() -> str:
    """Why no kernel can be watched here, "" where one can."""
    mode = triton_mode.current()
    if mode.mode == "interpreted" and mode.usable:
        return ""
    if mode.mode is None:
        return f"Triton is missing on this machine ({mode.reason})"
    if mode.mode == "compiled":
        return (
            f"Triton compiles its kernels here ({mode.reason}), and a compiled kernel cannot be "
            f"watched; start Python with {triton_mode.VARIABLE}=1 set to interpret them"
        )
    return f"Triton cannot be used in this process: {mode.reason}"


def check_can_watch() -> None:
    """Raises RuntimeError where no kernel can be watched, saying why and what there is instead."""
    if not can_watch():
        raise RuntimeError(f"{why_not()}. recorded_log() gives a log that was recorded elsewhere")


def watch_decode(
    query: Tensor,  # [R, num_query_heads, head_dim]
    key_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim], one layer
    value_cache: Tensor,
    block_table: Tensor | Sequence[Sequence[int]],  # [R, W]
    seq_lens: Tensor | Sequence[int],  # [R]
    *,
    window: int | None = None,
    key_scale: float | Tensor | None = None,
    value_scale: float | Tensor | None = None,
    num_splits: int = 2,
    tile: int = 16,
    about: str = "",
    names: Sequence[str] = (),
    decode: Callable[..., Tensor] | None = None,
    kernels: Sequence[object] | None = None,
) -> WatchedDecode:
    """Run the decode kernel over these tensors and write down what each of its programs did.

    block_table: entries of blocks behind the window may be -1, as where they were freed.
    num_splits, tile: as for `paged_decode`; the smallest tile it takes, so that there is something
    to see. about, names: what is watched and the requests' names, for the view. decode, kernels:
    another function with the arguments of `paged_decode`, and the jitted functions that it
    launches, the decode kernel first, all of one file or cell; None takes kvlab's own. Everything
    is copied to the CPU, where the interpreter works.

    Raises RuntimeError where kernels cannot be interpreted, saying why, and ValueError for shapes
    that do not fit and for more turns than one can look at.
    """
    check_can_watch()
    table, lens = (torch.as_tensor(numbers).cpu() for numbers in (block_table, seq_lens))
    tensors = [t.detach().cpu().contiguous() for t in (query, key_cache, value_cache)]
    cut = {"window": window, "num_splits": num_splits, "tile": tile}
    _check(*tensors, table, lens)
    _check_cut(tensors[1], table, lens, **cut)
    decode, kernels = _what_runs(decode, kernels)
    tracer = _tracer(kernels, tensors, num_splits)
    scales = {"key_scale": _on_cpu(key_scale), "value_scale": _on_cpu(value_scale)}
    with tracer.watching(), torch.inference_mode():
        output = decode(*tensors, table, lens, **scales, **cut)
    log = _log(tracer, tensors, table, lens, kernels, **cut)
    return WatchedDecode(replace(log, about=about, names=tuple(map(str, names))), output, query)


def _what_runs(decode: Callable | None, kernels: Sequence | None) -> tuple[Callable, Sequence]:
    if (decode is None) != (kernels is None):
        raise ValueError("give both decode and kernels, or neither")
    return _own() if decode is None else (decode, kernels)


def _tracer(
    kernels: Sequence[object], tensors: Sequence[Tensor], num_splits: int
) -> "KernelTracer":
    from kvlab.tensors.kernel_tracer import KernelTracer  # needs what the interpreter needs

    (requests, heads, _), kv_heads = tensors[0].shape, tensors[1].shape[2]
    return KernelTracer(*kernels, most_programs=requests * (kv_heads * num_splits + heads))


def _own() -> tuple[Callable[..., Tensor], list]:
    """kvlab's decode and its kernels. Imported here: tensors/kernels.py needs Triton."""
    from kvlab.tensors.kernels import paged_decode_kernel, reduce_splits_kernel
    from kvlab.tensors.launch import paged_decode

    return paged_decode, [paged_decode_kernel, reduce_splits_kernel]


def _on_cpu(scale: object) -> object:
    return scale.cpu() if isinstance(scale, Tensor) else scale


def _check(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    table: Tensor,
    lens: Tensor,
) -> None:
    """Shapes and types."""
    if query.ndim != 3 or key_cache.ndim != 4 or key_cache.shape != value_cache.shape:
        shapes = ", ".join(str(list(t.shape)) for t in (query, key_cache, value_cache))
        raise ValueError(
            f"query and caches have shapes {shapes}; give [R, num_query_heads, head_dim] and twice "
            "[num_blocks, block_size, num_kv_heads, head_dim], one layer"
        )
    if table.ndim != 2 or lens.ndim != 1 or not len(table) == len(lens) == len(query):
        raise ValueError(
            f"block_table has shape {list(table.shape)}, seq_lens {list(lens.shape)}, for "
            f"{len(query)} queries; give a row and a length for each"
        )
    if table.is_floating_point() or lens.is_floating_point():
        raise ValueError(
            f"block_table is of {table.dtype}, seq_lens of {lens.dtype}; give whole numbers"
        )


def _check_cut(
    key_cache: Tensor, table: Tensor, lens: Tensor, window: int | None, num_splits: int, tile: int
) -> None:
    """Entries of the table that are read, and how much there is to look at."""
    for name, number in (("num_splits", num_splits), ("tile", tile), ("window", window)):
        if name != "window" or number is not None:
            whole(name, number, 1)
    (size, heads), tiles = key_cache.shape[1:3], []
    for i, length in enumerate(lens.tolist()):
        entries, first = cdiv(length, size), 0 if window is None else max(0, length - window)
        row = table[i, first // size : entries].tolist()  # the rest is behind the window
        if entries > table.shape[1] or not all(0 <= block < len(key_cache) for block in row):
            behind = f" (those before entry {first // size} may be anything)" if first else ""
            raise ValueError(
                f"request {i} of {length} positions needs {entries} entries of its block table, "
                f"each below {len(key_cache)}{behind}; its row is {table[i].tolist()!r:.80}"
            )
        tiles.append(cdiv(length, tile) - first // tile)
    turns = heads * sum(max(number, num_splits) for number in tiles)
    if turns > MOST_TURNS:
        raise ValueError(
            f"{turns} turns of programs are more than one can look at ({MOST_TURNS}); give a "
            f"larger tile than {tile}, fewer splits than {num_splits}, or fewer or shorter requests"
        )


def _log(
    tracer: "KernelTracer",
    tensors: Sequence[Tensor],
    table: Tensor,
    lens: Tensor,
    kernels: Sequence[object],
    window: int | None,
    num_splits: int,
    tile: int,
) -> KernelLog:
    from kvlab.tensors.kernel_turns import Memory, programs, reduces

    query, key_cache, value_cache = tensors
    num_blocks, size, kv_heads, head_dim = key_cache.shape
    heads, lengths = query.shape[1], lens.tolist()
    memory = Memory(key_cache, value_cache, table.tolist())
    return KernelLog(
        file=_named(tracer.file),
        block_size=size,
        num_blocks=num_blocks,
        seq_lens=tuple(lengths),
        block_table=tuple(
            tuple(row[: cdiv(n, size)]) for row, n in zip(table.tolist(), lengths, strict=True)
        ),
        num_query_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        tile=tile,
        num_splits=num_splits,
        window=window,
        sources=tracer.sources(),
        programs=programs(tracer, kernels[0].fn.__name__, memory, heads // kv_heads),
        reduces=reduces(tracer, [k.fn.__name__ for k in kernels[1:]], heads, num_splits),
        triton=sys.modules["triton"].__version__,  # the kernels have imported it
    )


def _named(file: str) -> str:
    """Where the lines stand, in a reader's words."""
    if Path(file).exists():
        return Path(file).name
    return CHANGED_COPY if CHANGED_COPY in file else "a notebook's cell"
