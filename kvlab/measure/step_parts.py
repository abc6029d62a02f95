"""What a step's time goes to: operations of torch by group, and the rest (section 21.2).

torch's profiler names each operation of a few real steps and its own time, without what it
calls; names are gathered into groups. What no operation accounts for is spent outside torch: the
batch laid out in Python, calls, the selection's bookkeeping, on a GPU also waiting for the next
kernel. The profiler itself costs some microseconds an operation, which fall to that rest: a
profiled step is longer than another, and the shares are those of the profiled one.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import torch
from torch.profiler import ProfilerActivity, profile

from kvlab.measure.phase_steps import Steps
from kvlab.measure.roofline_records import Case
from kvlab.tensors.model import Decoder

MATRIX, ATTENTION, CACHE = "matrix products", "attention", "keys and values"
ELEMENTS, VIEWS, REST = "element by element", "views and buffers", "outside torch"
GROUPS = {
    MATRIX: ("mm", "addmm", "mv", "addmv", "_linear_pointwise"),
    ATTENTION: ("bmm", "baddbmm", "_softmax", "_safe_softmax"),  # and all that hold _attention
    CACHE: ("index_copy_", "index_select"),  # written to slots, gathered from blocks
    VIEWS: (
        *("view", "as_strided", "slice", "select", "transpose", "t", "permute", "expand"),
        *("unsqueeze", "squeeze", "reshape", "_reshape_alias", "_unsafe_view", "unflatten"),
        *("flatten", "chunk", "split", "narrow", "unbind", "alias", "detach", "contiguous"),
        *("empty", "empty_like", "empty_strided", "resize_", "linear", "matmul", "to", "_to_copy"),
    ),
}
LOG_LEVEL = "KINETO_LOG_LEVEL"
_GROUP = {name: group for group, names in GROUPS.items() for name in names}
_TORCHS = ("aten::", "mkldnn::")  # namespaces of operations


@dataclass(frozen=True)
class StepParts:
    """Seconds of one step by group; together they are `seconds`."""

    case: Case
    seconds: float
    parts: Mapping[str, float]

    @property
    def shares(self) -> dict[str, float]:
        """Each part of the step, the largest first; they sum to 1."""
        ordered = sorted(self.parts.items(), key=lambda item: -item[1])
        return {name: value / self.seconds for name, value in ordered}

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    def __str__(self) -> str:
        """ "decode 1 x 512: matrix products 77%, outside torch 10%, ..." """
        told = ", ".join(f"{name} {100 * share:.0f}%" for name, share in self.shares.items())
        return f"{self.case}: {told}"


def step_parts(model: Decoder, case: Case, *, repetitions: int = 3) -> StepParts:
    """Profile a few steps of one case; the mean. Raises ValueError as `Steps`."""
    if type(repetitions) is not int or repetitions < 1:
        raise ValueError(f"repetitions is {repetitions!r}; give at least 1")
    steps, on_gpu = Steps(model, [case]), model.device.type == "cuda"
    steps.prepare(case)
    output = steps.output(case)
    steps.run(output)
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with _silent(), profile(activities=kinds, acc_events=True) as profiler:
        _synchronize(on_gpu)
        began = time.perf_counter()
        for _ in range(repetitions):
            steps.run(output)
        _synchronize(on_gpu)
        taken = time.perf_counter() - began
    parts = dict.fromkeys((MATRIX, ATTENTION, CACHE, ELEMENTS, VIEWS), 0.0)
    for event in profiler.key_averages():
        if event.key.startswith(_TORCHS):
            own = event.self_device_time_total if on_gpu else event.self_cpu_time_total
            parts[group_of(event.key)] += own / 1e6 / repetitions
    seconds = max(taken / repetitions, sum(parts.values()))
    return StepParts(case, seconds, {**parts, REST: seconds - sum(parts.values())})


def group_of(operation: str) -> str:
    """The group of an operation such as "aten::mm"; what has no other is ELEMENTS."""
    name = operation.rpartition("::")[2]
    return ATTENTION if "_attention" in name else _GROUP.get(name, ELEMENTS)


@contextmanager
def _silent() -> Iterator[None]:
    """Some builds of the profiler write lines about themselves to the terminal."""
    before = os.environ.get(LOG_LEVEL)
    os.environ.setdefault(LOG_LEVEL, "99")
    try:
        yield
    finally:
        if before is None:
            del os.environ[LOG_LEVEL]


def _synchronize(on_gpu: bool) -> None:
    if on_gpu:
        torch.cuda.synchronize()
