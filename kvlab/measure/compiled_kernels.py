"""Compile the kernels ahead of time for GPUs that need not be here, and look at what came out.

    python -m kvlab.measure.compiled_kernels [--all] [--json]

A kernel is compiled for what tensors/kernel_table.py picks on each GPU. Four things can be read off
without the GPU: registers, shared memory (the compiler does not refuse too much of it), spills
(numbers that found no register and go through memory), and whether the dot products became
tensor-core instructions. Triton brings NVIDIA's and AMD's compilers with it. Section 21.5.
"""

import argparse
import json
import multiprocessing
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from kvlab.tensors import kernel_table
from kvlab.tensors.kernel_table import Device, next_power_of_two, padded_dim, padded_group

TARGETS = {"sm_80": ("cuda", 80, 32), "sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
SHARED_LIMIT = {"sm_80": 166_912, "sm_90": 232_448, "gfx942": 65_536}  # bytes a program
TENSOR_CORES = {"cuda": r"\b(HMMA|HGMMA|IMMA|QGMMA)\b", "hip": r"\b(v_mfma)_"}
WORKERS = 2
REQUESTS, KV_HEADS, GROUP, LONGEST, CHUNK = 8, 8, 4, 8192, 512  # what the plans are made for
BLOCK_SIZE, MULTIPROCESSORS = 16, 132


@dataclass(frozen=True)
class Build:
    """One kernel for one GPU. dtype: of queries, K and V; stored: of the cache, "i8" for int8.

    "fp8e4nv" is Triton's name of float8_e4m3fn.
    """

    kernel: str
    target: str
    dtype: str = "bf16"
    stored: str = "bf16"
    head_dim: int = 128
    windowed: bool = False


@dataclass(frozen=True)
class Compiled:
    """shared: bytes. tensor_cores: the instructions found, "" for none. error: what the compiler
    said if it refused; then the numbers are 0."""

    build: Build
    registers: int = 0
    shared: int = 0
    spills: int = 0
    tensor_cores: str = ""
    error: str = ""


ATTENTION = ("paged_decode_kernel", "paged_prefill_kernel")
KERNELS = ("write_kv_kernel", "reduce_splits_kernel", *ATTENTION)


def usual_builds() -> list[Build]:
    """bfloat16 in all kernels on all GPUs; float16, wide heads, 8-bit caches where they differ.

    One is refused: sm_80 has no float8 of this kind, so tensors/launch_checks.py asks for another.
    """
    builds = [Build(kernel, target) for kernel in KERNELS for target in TARGETS]
    builds += [Build(kernel, target, head_dim=256) for kernel in ATTENTION for target in TARGETS]
    builds += [Build(kernel, "sm_90", "fp16", "fp16", head_dim=64) for kernel in ATTENTION]
    for stored in ("fp8e4nv", "i8"):
        builds += [
            Build(kernel, "sm_90", stored=stored) for kernel in ("write_kv_kernel", *ATTENTION)
        ]
        builds += [Build("paged_decode_kernel", "gfx942", stored=stored)]
    return [*builds, Build("paged_decode_kernel", "sm_80", stored="fp8e4nv")]


def all_builds() -> list[Build]:
    """Every kernel, GPU, type and width that the table knows; minutes instead of seconds."""
    pairs = [(dtype, dtype) for dtype in ("bf16", "fp16", "fp32")]
    pairs += [("bf16", "fp8e4nv"), ("bf16", "i8"), ("fp16", "i8")]
    return [
        Build(kernel, target, dtype, stored, head_dim, windowed)
        for target in TARGETS
        for dtype, stored in pairs
        for head_dim in (64, 80, 128, 256)
        for kernel, windowed in [*((name, False) for name in KERNELS), (KERNELS[-1], True)]
    ]


def compile_all(builds: Sequence[Build], workers: int = WORKERS) -> list[Compiled]:
    """Compile each in a fresh process, whatever Triton does in this one, with an empty cache."""
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(workers, spawn, _settle, (folder,)) as pool,
    ):
        return list(pool.map(compile_one, builds))


def _settle(folder: str) -> None:
    """Before Triton is imported: it is to compile, and to find nothing compiled."""
    os.environ.update(TRITON_INTERPRET="0", TRITON_CACHE_DIR=folder)


def compile_one(build: Build) -> Compiled:
    """Compile one kernel in this process, whose Triton must be one that compiles."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kvlab.tensors import kernels

    function = getattr(kernels, build.kernel)
    values = constants(build)
    values["DOT_DTYPE"] = getattr(kernels.tl, LANGUAGE[build.dtype])
    given = {name: values[name] for name in function.arg_names if name in values}
    kinds = argument_types(build)
    given |= {name: None for name in function.arg_names if kinds.get(name, "") is None}
    signature = {n: "constexpr" if n in given else kinds[n] for n in function.arg_names}
    options = {"num_warps": values["num_warps"], "num_stages": values["num_stages"]}
    aligned = {
        (place,): [["tt.divisibility", 16]]
        for place, (name, kind) in enumerate(signature.items())
        if kind.startswith("*") or name.endswith("_stride")
    }
    source = ASTSource(function, signature, given, aligned)
    try:
        made = triton.compile(source, target=GPUTarget(*TARGETS[build.target]), options=options)
    except Exception as error:
        said = getattr(error, "error_message", None) or f"{type(error).__name__}: {error}"
        return Compiled(build, error=" ".join(f"refused: {said}".split())[:200])
    backend = TARGETS[build.target][0]
    looked_at = _of_amd(made.asm["amdgcn"]) if backend == "hip" else _of_nvidia(made.asm["cubin"])
    registers, spills, text = looked_at
    found = sorted(set(re.findall(TENSOR_CORES[backend], text)))
    return Compiled(build, registers, made.metadata.shared, spills, " ".join(found))


LANGUAGE = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
ITEMSIZE = {"bf16": 2, "fp16": 2, "fp32": 4}


def constants(build: Build) -> dict[str, object]:
    """The constants of the compilation, as tensors/launch.py gives them, and the compiler's."""
    device = Device(build.target, MULTIPROCESSORS)
    size, width = ITEMSIZE[build.dtype], build.head_dim
    decode = kernel_table.decode_plan(REQUESTS, KV_HEADS, LONGEST, width, size, device)
    prefill = kernel_table.prefill_plan(CHUNK, GROUP, LONGEST, width, size, device)
    plan = prefill if build.kernel == "paged_prefill_kernel" else decode
    rows = prefill.rows if plan is prefill else kernel_table.written_rows(device)
    has_plan = build.kernel in ATTENTION  # the others take the compiler's own
    return {
        "NUM_KV_HEADS": KV_HEADS,
        "GROUP": GROUP,
        "PADDED_GROUP": padded_group(GROUP),
        "HEAD_DIM": width,
        "PADDED_DIM": padded_dim(width),
        "BLOCK_SIZE": BLOCK_SIZE,
        "TILE": plan.tile,
        "ROWS": rows,
        "NUM_SPLITS": decode.num_splits,
        "PADDED_SPLITS": next_power_of_two(decode.num_splits),
        "WINDOWED": build.windowed,
        "EACH_HAS_SCALE": build.stored == "i8",
        "SCALES": {"i8": "position", "fp8e4nv": "tensor"}.get(build.stored, "none"),
        "num_warps": plan.num_warps if has_plan else 4,
        "num_stages": plan.num_stages if has_plan else 3,
    }


def argument_types(build: Build) -> dict[str, str | None]:
    """Triton's type of each argument; None for one that is not there."""
    computed, stored = f"*{build.dtype}", f"*{build.stored}"
    scales = "*fp32" if build.stored == "i8" else None
    splits = build.kernel == "paged_decode_kernel" and int(constants(build)["NUM_SPLITS"]) > 1
    return {
        **dict.fromkeys(("query_ptr", "key_ptr", "value_ptr"), computed),
        **dict.fromkeys(("key_cache_ptr", "value_cache_ptr"), stored),
        **dict.fromkeys(("key_scale_ptr", "value_scale_ptr"), scales),
        **dict.fromkeys(("block_table_ptr", "seq_lens_ptr", "query_start_loc_ptr"), "*i32"),
        "slot_mapping_ptr": "*i64",
        "out_ptr": "*fp32" if splits else computed,  # parts are merged in float32
        **dict.fromkeys(("part_ptr", "lse2_ptr"), "*fp32"),
        **dict.fromkeys(("scale2", "key_scale", "value_scale"), "fp32"),
        **dict.fromkeys(("window", "num_tokens"), "i32"),
        **dict.fromkeys(("query_stride", "key_stride", "value_stride", "table_stride"), "i32"),
    }


def _of_nvidia(cubin: bytes) -> tuple[int, int, str]:
    """Registers a thread, instructions that store what found no register, and the program."""
    import triton

    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        usage = _read([tools / "cuobjdump", "--dump-resource-usage", path])
        text = _read([tools / "nvdisasm", path])
    registers = int(re.search(r"\bREG:(\d+)", usage)[1])
    return registers, len(re.findall(r"\bSTL\b", text)), text


def _of_amd(text: str) -> tuple[int, int, str]:
    """The same from AMD's assembly, whose last lines say what the kernel takes."""
    registers = int(re.search(r"\.vgpr_count:\s+(\d+)", text)[1])
    return registers, int(re.search(r"\.vgpr_spill_count:\s+(\d+)", text)[1]), text


def _read(command: Sequence[object]) -> str:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout


def table(found: Sequence[Compiled]) -> str:
    """One line a kernel and GPU."""
    rows = [
        f"{'kernel':<22} {'GPU':<7} {'dtype':<5} {'cache':<8} {'d':>3} "
        f"{'registers':>9} {'shared':>8} {'spills':>6}  tensor cores"
    ]
    for one in found:
        b = one.build
        name = b.kernel.removesuffix("_kernel") + (" window" if b.windowed else "")
        head = f"{name:<22} {b.target:<7} {b.dtype:<5} {b.stored:<8} {b.head_dim:>3} "
        numbers = f"{one.registers:>9} {one.shared:>8,} {one.spills:>6}  {one.tensor_cores or '-'}"
        rows.append(head + (one.error or numbers))
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="all types and widths (minutes)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    asked = parser.parse_args()
    found = compile_all(all_builds() if asked.all else usual_builds())
    if asked.json:
        print(json.dumps([asdict(one) for one in found]))
    else:
        print(f"Triton {version('triton')}\n{table(found)}")


if __name__ == "__main__":
    main()
