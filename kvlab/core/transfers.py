"""Copies of whole blocks: within the device, to another tier and back (sections 21.3 and 21.5).

The field says swap out and swap in, or offload and load, or store and load. Here a *store* copies
a block from the device to the CPU tier, a *load* copies it back, and a request that lost its
device blocks to a store is *offloaded*.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True)
class BlockCopy:
    """Copy the keys and values of block `src` to block `dst` before the step's own writes.

    Within one tier both are ids of that tier. Of a store `src` is a device block and `dst` a CPU
    block, of a load the other way round.
    """

    src: int
    dst: int


@dataclass(frozen=True)
class TransferReport:
    """What a runner says about copies between tiers that ended since its last report.

    Bytes and seconds count copies that succeeded. A copy is named by its `dst`, which nobody else
    writes to while it is under way.
    """

    stored: tuple[BlockCopy, ...] = ()
    loaded: tuple[BlockCopy, ...] = ()
    failed_stores: tuple[BlockCopy, ...] = ()
    failed_loads: tuple[BlockCopy, ...] = ()
    bytes_stored: int = 0
    bytes_loaded: int = 0
    seconds_storing: float = 0.0
    seconds_loading: float = 0.0

    def __bool__(self) -> bool:
        """Whether any copy ended."""
        return bool(self.stored or self.loaded or self.failed_stores or self.failed_loads)

    def __add__(self, other: "TransferReport") -> "TransferReport":
        """Both together."""
        names = [f.name for f in fields(self)]
        return TransferReport(*(getattr(self, n) + getattr(other, n) for n in names))


@dataclass
class OffloadStats:
    """What went between the tiers since the start.

    blocks_*, bytes_*, seconds_*: copies that ended well; failed_*: copies that did not.
    requests_offloaded, requests_loaded: requests whose blocks left for the CPU tier, and those
    that came back so. refused: requests that the full tier had no room for, they are recomputed.
    evicted_stored: prefix blocks that were evicted and whose store began; evicted_lost: those
    that the full tier had no room for. tokens_found: prompt positions that a lookup found in the
    tier and not on the device.
    """

    blocks_stored: int = 0
    blocks_loaded: int = 0
    bytes_stored: int = 0
    bytes_loaded: int = 0
    seconds_storing: float = 0.0
    seconds_loading: float = 0.0
    failed_stores: int = 0
    failed_loads: int = 0
    requests_offloaded: int = 0
    requests_loaded: int = 0
    refused: int = 0
    evicted_stored: int = 0
    evicted_lost: int = 0
    tokens_found: int = 0

    def add(self, report: TransferReport) -> None:
        """Count the copies of one report."""
        self.blocks_stored += len(report.stored)
        self.blocks_loaded += len(report.loaded)
        self.failed_stores += len(report.failed_stores)
        self.failed_loads += len(report.failed_loads)
        self.bytes_stored += report.bytes_stored
        self.bytes_loaded += report.bytes_loaded
        self.seconds_storing += report.seconds_storing
        self.seconds_loading += report.seconds_loading

    def as_dict(self) -> Mapping[str, int | float]:
        """The counters by name, for tables."""
        return asdict(self)
