"""All figures of a GPU in one run: parts in order, each within what time is left.

`benchmarks/gpu.py` calls `main`. After every part the JSON file is written again, so that a run
that is cut off has left what it measured.
"""

import argparse
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from kvlab import triton_mode
from kvlab.measure import (
    gpu_correct,
    gpu_decode,
    gpu_engine,
    gpu_prefill,
    gpu_report,
    gpu_tune,
)
from kvlab.measure.devices import device_name
from kvlab.measure.gpu_setting import BUDGET, DRY, FULL, Setting, copy_rate, matmul_rate, tried
from kvlab.measure.machine import versions

Report = dict[str, object]


@dataclass(frozen=True)
class Part:
    """seconds: left of the budget, or the part is not begun."""

    name: str
    seconds: float
    measure: Callable[[Setting, Report], Report]


PARTS = (
    Part("ceilings", 5, lambda setting, _: ceilings(setting)),
    Part("correctness", 20, lambda setting, _: gpu_correct.measure(setting)),
    Part("decode", 30, lambda setting, so_far: gpu_decode.measure(setting, _copy(so_far))),
    Part("prefill", 15, lambda setting, so_far: gpu_prefill.measure(setting, _matmul(so_far))),
    Part("engine", 40, lambda setting, _: gpu_engine.measure(setting)),
)
TUNE = Part("tune", 20, lambda setting, _: gpu_tune.measure(setting))


@torch.inference_mode()
def ceilings(setting: Setting) -> Report:
    """What a copy and a product reach: the bounds of all that follows."""
    return {
        "copy": tried(lambda: copy_rate(setting)),
        "matmul": tried(lambda: matmul_rate(setting)),
    }


def _copy(so_far: Report) -> float | None:
    """Bytes a second, if that was measured."""
    return so_far.get("ceilings", {}).get("copy", {}).get("bytes_per_second")


def _matmul(so_far: Report) -> float | None:
    return so_far.get("ceilings", {}).get("matmul", {}).get("flops_per_second")


def run(
    setting: Setting, parts: Sequence[Part], done: Callable[[str, Report], object] | None = None
) -> Report:
    """{part: figures, or {"error": ...} or {"skipped": ...}}, and the machine.

    done: called with each part's name and the report so far.
    """
    report: Report = {"machine": about(setting), "dry": setting.dry}
    for part in parts:
        began = setting.clock()
        if setting.seconds_left < part.seconds and not setting.dry:
            left = f"{setting.seconds_left:.0f} s left of {setting.budget:.0f}"
            report[part.name] = {"skipped": f"{left}, and it wants {part.seconds:.0f}"}
        else:
            report[part.name] = tried(lambda part=part: part.measure(setting, report))
        report[part.name]["seconds_taken"] = setting.clock() - began
        if setting.device.type == "cuda":
            torch.cuda.empty_cache()
        if done is not None:
            done(part.name, report)
    return report


def about(setting: Setting) -> Report:
    """The device, versions, and how Triton runs."""
    mode = triton_mode.current()
    try:
        import triton

        number = triton.__version__
    except ImportError:
        number = None
    return {
        "device": device_name(setting.device),
        **versions(),
        "triton": number,
        "triton_mode": mode.mode,
        "triton_reason": mode.reason,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 where a kernel was wrong or nothing could be measured, else 0."""
    options = _parser().parse_args(arguments)
    if not options.dry and not torch.cuda.is_available():
        print("torch sees no CUDA device; --dry runs everything in tiny sizes on the CPU")
        return 1
    device = torch.device("cpu" if options.dry else "cuda:0")
    setting = Setting(device, DRY if options.dry else FULL, options.dry, options.budget)
    wanted = [*PARTS, TUNE] if options.tune else PARTS
    if options.only:
        wanted = [part for part in (*PARTS, TUNE) if part.name in ("ceilings", *options.only)]

    def done(name: str, report: Report) -> None:
        print(gpu_report.section(name, report), flush=True)
        if options.out:
            _write(Path(options.out), report)

    report = run(setting, wanted, done)
    correct = report.get("correctness", {"wrong": 0})
    return int(correct.get("wrong", 1) > 0)


def _write(path: Path, report: Report) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure kvlab's kernels and engine on a GPU.")
    parser.add_argument("--out", help="JSON file to write, after every part")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: does it run?")
    parser.add_argument("--tune", action="store_true", help="also try other tiles and splits")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds for everything")
    names = [part.name for part in (*PARTS, TUNE)]
    parser.add_argument("--only", nargs="+", choices=names, help="these parts, and the ceilings")
    return parser
