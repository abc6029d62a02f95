"""What is noted of a request on its way to the CPU tier and back (section 21.3)."""

from dataclasses import dataclass, field

from kvlab.core.block_pool import KVCacheBlock
from kvlab.core.request import Request
from kvlab.core.transfers import BlockCopy


@dataclass(frozen=True)
class Offloaded:
    """What the tier holds of a request: CPU blocks of its first `num_tokens` positions.

    Where blocks came free behind a window, the table begins with the first that is not out.
    """

    request: Request
    table: tuple[KVCacheBlock, ...]
    num_tokens: int


@dataclass(frozen=True)
class Found:
    """CPU blocks that continue a request's hits on the device, up to position `num_tokens`.

    hits: those; markers stand for what is out of the window of a query at `num_tokens`.
    ready: their stores have ended; before that they cannot be loaded.
    """

    hits: tuple[KVCacheBlock, ...]
    blocks: tuple[KVCacheBlock, ...]
    num_tokens: int
    ready: bool


@dataclass(eq=False)
class Loading:
    """A request whose device blocks are being filled. `table` is set once it ended meanwhile."""

    request: Request
    num_tokens: int
    sources: dict[int, KVCacheBlock]  # CPU block by the device block it is copied to
    under_way: set[int] = field(default_factory=set)  # device blocks whose copy has not ended
    failed: bool = False
    table: list[KVCacheBlock] | None = None

    def copies(self) -> list[BlockCopy]:
        """From CPU blocks to device blocks, in logical order."""
        return [BlockCopy(cpu.block_id, target) for target, cpu in self.sources.items()]


@dataclass(frozen=True)
class Arrivals:
    """Requests whose wait for a copy is over: what they need is there, or is to be recomputed."""

    loaded: tuple[Request, ...] = ()
    load_failed: tuple[Request, ...] = ()
    store_failed: tuple[Request, ...] = ()
