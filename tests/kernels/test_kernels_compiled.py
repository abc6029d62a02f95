"""The kernels compiled ahead of time for GPUs that are not here, by the command that shows it."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from kvlab.measure.compiled_kernels import (
    ATTENTION,
    KERNELS,
    SHARED_LIMIT,
    TARGETS,
    Build,
    Compiled,
    all_builds,
    argument_types,
    constants,
    table,
    usual_builds,
)

REFUSED = Build("paged_decode_kernel", "sm_80", stored="fp8e4nv")
BUILDS = [build for build in usual_builds() if build != REFUSED]
DOTS = [build for build in BUILDS if build.kernel in ATTENTION]


def named(builds: list[Build]) -> pytest.MarkDecorator:
    """One test a build, with a name that says which."""
    ids = [f"{b.kernel} {b.target} {b.dtype} {b.stored} {b.head_dim}" for b in builds]
    return pytest.mark.parametrize("build", builds, ids=ids)


@pytest.fixture(scope="module")
def compiled() -> dict[Build, Compiled]:
    """What the command found, run as in a shell where the interpreter is asked for."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not made for this system")
    run = subprocess.run(
        [sys.executable, "-m", "kvlab.measure.compiled_kernels", "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found = [Compiled(**{**row, "build": Build(**row["build"])}) for row in json.loads(run.stdout)]
    return {one.build: one for one in found}


@named(BUILDS)
def test_shared_memory_is_within_the_gpu_s_limit(compiled, build: Build) -> None:
    one = compiled[build]
    assert one.error == ""
    assert one.shared <= SHARED_LIMIT[build.target]


@named(BUILDS)
def test_nothing_spills(compiled, build: Build) -> None:
    """On sm_90 that is asked for; on the others the table's tiles were chosen so, too."""
    assert compiled[build].spills == 0
    assert 0 < compiled[build].registers <= (512 if build.target == "gfx942" else 255)


@named(DOTS)
def test_dot_products_run_on_tensor_cores(compiled, build: Build) -> None:
    """A decode step has 16 rows: Hopper takes the older instruction for it, the new for prefill."""
    wanted = "HGMMA" if build.kernel == "paged_prefill_kernel" else "HMMA"
    wanted = {"sm_80": "HMMA", "sm_90": wanted, "gfx942": "v_mfma"}[build.target]
    assert compiled[build].tensor_cores == wanted


def test_the_builds_are_every_kernel_on_every_gpu_and_every_stored_type(compiled) -> None:
    assert list(compiled) == usual_builds()
    bf16 = {(b.kernel, b.target) for b in BUILDS if b.stored == "bf16" and b.head_dim == 128}
    assert bf16 == {(kernel, target) for kernel in KERNELS for target in TARGETS}
    assert {b.stored for b in BUILDS if b.target == "sm_90"} == {"bf16", "fp16", "fp8e4nv", "i8"}
    assert {b.head_dim for b in DOTS} == {64, 128, 256}
    assert set(usual_builds()) < set(all_builds())


def test_a_plan_is_that_of_the_table() -> None:
    """8 requests of 8,192 positions, 8 KV heads: 64 programs in 4 splits for 132 processors."""
    decode = constants(Build("paged_decode_kernel", "sm_90"))
    assert (decode["TILE"], decode["NUM_SPLITS"], decode["num_warps"]) == (64, 4, 4)
    assert argument_types(Build("paged_decode_kernel", "sm_90"))["out_ptr"] == "*fp32"
    assert argument_types(Build("paged_prefill_kernel", "sm_90"))["out_ptr"] == "*bf16"
    prefill = constants(Build("paged_prefill_kernel", "sm_90", head_dim=256))
    assert (prefill["ROWS"], prefill["TILE"], prefill["PADDED_DIM"]) == (64, 64, 256)
    assert constants(Build("paged_decode_kernel", "gfx942", stored="i8"))["EACH_HAS_SCALE"]


def test_a_refusal_stands_in_the_table_and_stops_nothing(compiled) -> None:
    """sm_80 has no float8 of this kind: tensors/launch_checks.py refuses such a cache there."""
    refused = compiled[REFUSED]
    assert "type fp8e4nv not supported in this architecture" in refused.error
    other = Compiled(Build("reduce_splits_kernel", "sm_90"), registers=22, shared=2048)
    head, line, fine = table([refused, other]).split("\n")
    assert head.split()[:2] == ["kernel", "GPU"] and "fp8e4nv not supported" in line
    assert fine.split() == [
        "reduce_splits",
        "sm_90",
        "bf16",
        "bf16",
        "128",
        "22",
        "2,048",
        "0",
        "-",
    ]
