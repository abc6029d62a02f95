"""The view "watch a kernel": which program read which slots, and what it held after each tile."""

from kvlab.core.kernel_log import KernelLog
from kvlab.widgets.growth_words import count
from kvlab.widgets.kernel_story import kernel_payload
from kvlab.widgets.kernel_table import kernel_html
from kvlab.widgets.view import View


class KernelWatch(View):
    """Programs, tiles, look-ups, slots, running maxima and sums. Arguments: see `kernel_view`."""

    view = "kernel_watch"

    def __init__(
        self, log: KernelLog, *, title: str | None = None, at: int | str | None = None
    ) -> None:
        super().__init__(payload=kernel_payload(log, title=title, at=at))

    def html(self) -> str:
        return kernel_html(self.payload)

    def __repr__(self) -> str:
        programs = self.payload["programs"]
        turns = sum(len(program["turns"]) for program in programs)
        recorded = ", recorded" if self.payload["recorded"] else ""
        return f"KernelWatch({count(len(programs), 'program')}, {count(turns, 'turn')}{recorded})"


def kernel_view(
    log: KernelLog, *, title: str | None = None, at: int | str | None = None
) -> KernelWatch:
    """A run of the decode kernel, step by step, beside the lines that ran; section 21.5.

        kernel_view(watch_request(engine, "A").log)

    Left: the programs, one a request, KV head and split. Middle: the tile of logical positions, the
    entries of the block table that it looks up, and the pool, where the slots that it reads light
    up. Right: the running maximum and sum of each query head. Below: the kernel's source. Arrow
    down and up go from program to program. at: the stop to open with, its number or words of its
    sentence, such as "turn 2 of 2" (the first stop that has them); None opens with the start, where
    nothing has run yet. Raises ValueError for anything but a log, and for a stop that is not there.
    """
    return KernelWatch(log, title=title, at=at)
