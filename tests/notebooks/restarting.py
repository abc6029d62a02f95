"""A page in a real kernel that is restarted as JupyterLab's button does it, and run from the top.

What a cell shows is compared with what the page was committed with, as nbval compares it: text,
HTML, pictures in SVG; not in cells that carry the tag `nbval-ignore-output`.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import psutil
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

CELL_SECONDS = 300  # only to end a run that hangs
COMPARED = ("text/plain", "text/html", "image/svg+xml")
IGNORED = "nbval-ignore-output"
Shown = dict[str, str]  # "stdout", or a MIME type -> text


@dataclass(frozen=True)
class Cell:
    """A code cell: what it shows in the committed page, or None where that may differ."""

    source: str
    tags: Sequence[str]
    shown: Shown | None


def page(path: Path) -> list[Cell]:
    """The code cells of a committed notebook."""
    found = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            tags = cell.metadata.get("tags", [])
            free = IGNORED in tags or cell.execution_count is None
            found.append(Cell(cell.source, tags, None if free else shown(cell.outputs)))
    return found


def shown(outputs: Sequence[dict]) -> Shown:
    """What a reader sees, by kind; several outputs of a kind one after another."""
    found: defaultdict[str, str] = defaultdict(str)
    for output in outputs:
        if output["output_type"] == "stream":
            found[output["name"]] += output["text"]
        elif output["output_type"] in ("execute_result", "display_data"):
            for kind in COMPARED:
                text = output["data"].get(kind, "")
                found[kind] += text if isinstance(text, str) else json.dumps(text)
    return {kind: text for kind, text in found.items() if text}


@dataclass
class Kernel:
    """A running kernel. problems: what went otherwise than on the committed page, in sentences."""

    manager: KernelManager
    client: BlockingKernelClient
    problems: list[str] = field(default_factory=list)

    def run(self, source: str) -> tuple[Shown, str]:
        """What a cell shows, and its error, or nothing."""
        outputs: list[dict] = []

        def note(message: dict) -> None:
            kind, content = message["msg_type"], message["content"]
            if kind in ("stream", "execute_result", "display_data"):
                outputs.append({"output_type": kind, **content})

        reply = self.client.execute_interactive(
            source, allow_stdin=False, output_hook=note, timeout=CELL_SECONDS
        )["content"]
        error = f"{reply['ename']}: {reply['evalue']}" if reply["status"] == "error" else ""
        return shown(outputs), error

    def run_from_the_top(self, cells: Sequence[Cell], count: int, *, twice: bool = False) -> None:
        """The first `count` cells; twice: the last of them once more. Notes what differs."""
        places = [*range(count), *([count - 1] if twice else [])]
        for turn, place in enumerate(places):
            cell = cells[place]
            found, error = self.run(cell.source)
            again = " when it was run again" if turn == count else ""
            if error:
                self.problems.append(f"cell {place}{again} raised {error}")
                return
            for kind in sorted({*found, *(cell.shown or {})}) if cell.shown is not None else ():
                if found.get(kind) != cell.shown.get(kind):
                    was, now = cell.shown.get(kind), found.get(kind)
                    self.problems.append(f"cell {place}{again}: {kind} was {was!r}, is {now!r}")

    def restart(self) -> list[psutil.Process]:
        """As the button does it. Gives the processes that the old kernel has left, itself included.

        Those that end by themselves within seconds are not counted.
        """
        own = psutil.Process(self.manager.provisioner.pid)
        family = [own, *own.children(recursive=True)]
        self.client.stop_channels()
        self.manager.restart_kernel(now=False)
        self.client = _client(self.manager)
        _gone, left = psutil.wait_procs(family, timeout=10)
        return left


def _client(manager: KernelManager) -> BlockingKernelClient:
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=CELL_SECONDS)
    return client


@contextmanager
def kernel(folder: Path) -> Iterator[Kernel]:
    """A new kernel of this interpreter, which works in `folder`."""
    manager = KernelManager(
        kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[])
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("MPLBACKEND", None)  # the kernel takes the one that shows figures in the page
    manager.start_kernel(cwd=str(folder), env=environment, extra_arguments=["--log-level=ERROR"])
    running = None
    try:
        running = Kernel(manager, _client(manager))
        yield running
    finally:
        if running is not None:
            running.client.stop_channels()
        manager.shutdown_kernel(now=True)
