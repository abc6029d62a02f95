"""The engine's own pool and manager, driven by a request's name: a bench for exercises' checks."""

from collections.abc import Iterable, Sequence

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import BlockCopy, KVCacheManager
from kvlab.core.prefix_cache import PrefixCachePolicy
from kvlab.core.request import Request


class Allocator:
    """the engine's own

    The slots hold token ids in place of keys and values: what `read` finds in a request's slots
    should be the request's own tokens. A subclass may put another pool or manager in, to see what
    a mistake in it does.
    """

    Pool = BlockPool
    Manager = KVCacheManager

    def __init__(
        self,
        block_ids: int | Iterable[int],
        block_size: int = 4,
        policy: PrefixCachePolicy | None = None,
    ) -> None:
        """block_ids: a count, or the ids themselves in their free order."""
        self.pool = self.Pool(block_ids)
        self.manager = self.Manager(self.pool, block_size, policy=policy)
        self.block_size = block_size
        self.requests: dict[str, Request] = {}
        self._slots: dict[tuple[int, int], int | None] = {}  # (block, slot) -> token id

    @property
    def free(self) -> list[int]:
        """The free queue, the block to be taken next first."""
        return self.pool.free_block_ids

    def table(self, name: str) -> list[int]:
        """The request's blocks in logical order."""
        return self.manager.block_table(name)

    def hits(self, tokens: Iterable[int], **extras: str) -> int:
        """How many leading positions of a prompt a lookup finds. extras: adapter, cache_salt."""
        return self.manager.get_computed_blocks(Request("lookup", list(tokens), **extras))[1]

    def admit(self, name: str, tokens: Iterable[int], **extras: str) -> int | None:
        """Look a prompt up, give it blocks, compute the rest. Returns the positions that were hits,
        or None, with nothing changed, where too few blocks are free.
        """
        self._new(name)
        request = Request(name, list(tokens), **extras)
        hits, num_hit = self.manager.get_computed_blocks(request)
        new = request.num_tokens - num_hit
        if self.manager.allocate_slots(request, new, hits) is None:
            return None
        self.requests[name] = request
        self._compute(request, num_hit)
        return num_hit

    def append(self, name: str, token: int) -> tuple[int, int] | None:
        """Process one more token: block and slot of its position; None as in `admit`."""
        request = self._known(name)
        position = request.num_computed_tokens
        request.append_output(token)
        if self.manager.allocate_slots(request, 1) is None:
            del request.output_token_ids[-1], request.all_token_ids[-1]
            return None
        self._compute(request, position)
        return self._place(self.table(name), position)

    def fork(self, parent: str, child: str) -> None:
        """The child goes on from the parent's positions and shares its blocks."""
        self._new(child)
        source = self._known(parent)
        request = Request(child, source.prompt_token_ids)
        for token in source.output_token_ids:
            request.append_output(token)
        self.manager.fork(source, request)
        self.requests[child] = request

    def finish(self, name: str) -> None:
        """The request ends and gives its blocks back."""
        self.manager.free(self._known(name))
        del self.requests[name]

    def read(self, name: str) -> list[int | None]:
        """What stands in the slots of the request's positions, in logical order; None: nothing."""
        table = self.table(name)
        positions = range(self._known(name).num_computed_tokens)
        return [self._slots.get(self._place(table, t)) for t in positions]

    def _new(self, name: str) -> None:
        if name in self.requests:
            raise ValueError(f"request {name!r} is there already; finish it, or take another name")

    def _known(self, name: str) -> Request:
        if name not in self.requests:
            raise ValueError(f"there is no request {name!r}; there are {sorted(self.requests)}")
        return self.requests[name]

    def _place(self, table: Sequence[int], t: int) -> tuple[int, int]:
        return table[t // self.block_size], t % self.block_size

    def _compute(self, request: Request, start: int) -> None:
        """The step's pass: carry out its copies, then write the positions from `start` on."""
        self._copy(self.manager.step_copies())
        table = self.table(request.request_id)
        for t in range(start, request.num_tokens):
            self._slots[self._place(table, t)] = request.all_token_ids[t]
        request.num_computed_tokens = request.num_tokens
        self.manager.commit_step()

    def _copy(self, copies: Iterable[BlockCopy]) -> None:
        for copy in copies:
            for slot in range(self.block_size):  # whole blocks, as the tensors' copy
                self._slots[copy.dst, slot] = self._slots.get((copy.src, slot))
