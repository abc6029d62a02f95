"""An experiment: keys and values of requests that are running, kept on the host between steps.

For full attention every old position is read again at every step, so all of a request's blocks
come to the device before each pass, and the blocks that the pass wrote go back after it. It
computes the same outputs and shows the price: the transfer is paid every step, and grows with the
context (section 21.3).
"""

from collections.abc import Mapping

import torch

from kvlab.core.block_pool import cdiv
from kvlab.core.scheduler_output import SampledToken, ScheduledRequest, SchedulerOutput
from kvlab.core.transfers import BlockCopy, OffloadStats, TransferReport
from kvlab.tensors.host_tier import HostTier
from kvlab.tensors.runner import ModelRunner


class ActiveOffload:
    """Stands in for a runner: `llm.engine.runner = ActiveOffload(llm.runner)`.

    Each device block has its own place on the host. After each step the device's pool is
    overwritten with NaN: what a later step reads has come back from the host.
    reports: what was transferred in each step; stats: all of them together.
    """

    def __init__(self, runner: ModelRunner) -> None:
        """Raises ValueError for a runner that has a CPU tier: its copies would read NaN."""
        if runner.host_tier is not None:
            raise ValueError("ActiveOffload: the runner has a CPU tier; use one without cpu_blocks")
        self.runner = runner
        self.host = HostTier(runner.cache, runner.cache.num_blocks)
        self.reports: list[TransferReport] = []
        self.stats = OffloadStats()
        self._leave()

    def execute(self, output: SchedulerOutput) -> Mapping[str, SampledToken]:
        """Blocks in, the step, written blocks out. Raises RuntimeError for a copy that failed."""
        size = self.runner.cache.block_size
        needed = {block_id for row in output.requests for block_id in _read(row, size)}
        needed |= {copy.src for copy in output.blocks_to_copy}
        self.host.start([], _in_place(needed))
        loaded = self.host.finished(wait=True)
        sampled = self.runner.execute(output)
        written = {block_id for row in output.requests for block_id in _written(row, size)}
        self.host.start(_in_place(written), [])
        stored = self.host.finished(wait=True)
        self._leave()
        self.reports.append(loaded + stored)
        self.stats.add(self.reports[-1])
        if loaded.failed_loads or stored.failed_stores:
            raise RuntimeError("a copy between device and host failed, and no other has the block")
        return sampled

    def _leave(self) -> None:
        """Nothing stays on the device."""
        with torch.inference_mode():
            self.runner.cache.fill_with_nan()

    def finished_transfers(self, wait: bool = False) -> TransferReport:
        """None that a scheduler knows of."""
        return self.runner.finished_transfers(wait)


def _in_place(block_ids: set[int]) -> list[BlockCopy]:
    return [BlockCopy(i, i) for i in sorted(block_ids)]


def _read(row: ScheduledRequest, block_size: int) -> list[int]:
    """Blocks that hold positions from before this step, as far as they are read."""
    return [b for b in row.block_ids[: cdiv(row.start, block_size)] if b is not None]


def _written(row: ScheduledRequest, block_size: int) -> list[int]:
    """Blocks that this step writes positions to."""
    return list(row.block_ids[row.start // block_size : cdiv(row.end, block_size)])
