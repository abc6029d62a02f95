"""From requests to block tables: prefix hits, slots for new positions, fork, copy-on-write, free.

Invariants (`check_invariants` asserts them):
- a block's ref_cnt is the number of tables that hold it, detached ones included
- a request's table has exactly the places that its positions need, between two steps
  `cdiv(num_computed_tokens, block_size)` of them
- tables only grow at the end; a shared, partly filled tail is replaced by a private copy before
  its owner writes to it (copy-on-write)
- a block with an identity is full and is never written to again
- a block that a coming query can read is never given back, any other is (core/windows.py)

Sections 21.4 and 21.5.
"""

from collections.abc import Callable, Iterable, Sequence

from kvlab.core.block_pool import BlockPool, KVCacheBlock, cdiv
from kvlab.core.checked import whole
from kvlab.core.kept_logits import KeptLogits, LogitsToKeep
from kvlab.core.prefix_cache import PrefixCachePolicy, PrefixCacheStats
from kvlab.core.prefix_lookup import PrefixLookup
from kvlab.core.request import Request, RequestStatus
from kvlab.core.table_invariants import check_table, check_tables
from kvlab.core.transfers import BlockCopy
from kvlab.core.windows import SlidingWindow, held

Observer = Callable[..., None]  # observer(kind, request, **data)


class KVCacheManager:
    """Gives requests their blocks. One instance a cache; it never touches a tensor."""

    def __init__(
        self,
        pool: BlockPool,
        block_size: int,
        *,
        enable_prefix_caching: bool = True,
        configuration: dict[str, object] | None = None,
        policy: PrefixCachePolicy | None = None,
        window: int | None = None,
    ) -> None:
        """configuration: what K/V depend on besides tokens; its hash is the root of identities.
        policy: what counts as a hit and what stays; None takes the safe choices.
        window: the widest, where every layer has one; None: each block stays to its request's end.
        """
        self.pool, self.block_size = pool, whole("block_size", block_size, 1)
        self.enable_prefix_caching = enable_prefix_caching
        self.policy = PrefixCachePolicy() if policy is None else policy
        self.stats = PrefixCacheStats()
        self.window = None if window is None else SlidingWindow(window, block_size)
        self.prefix = PrefixLookup(pool, block_size, configuration or {}, self.policy, self.window)
        self.kept_logits = KeptLogits(self.policy.kept_logits)
        self.observer: Observer | None = None
        self._tables: dict[str, list[KVCacheBlock]] = {}
        self._step_copies: dict[str, BlockCopy] = {}

    # ---- looking

    def block_table(self, request_id: str) -> list[int | None]:
        """Physical block ids of a request, in logical order; None: out of the window."""
        return [block.block_id for block in self._tables.get(request_id, ())]

    def blocks_of(self, request_id: str) -> Sequence[KVCacheBlock]:
        return self._tables.get(request_id, ())

    def written_block_ids(self) -> list[int]:
        """Blocks with an identity whose content exists: all but those of the step under way."""
        return self.prefix.written_block_ids()

    def get_computed_blocks(self, request: Request) -> tuple[list[KVCacheBlock], int]:
        """The longest cached prefix: its blocks and its number of tokens. Changes nothing.

        The last token is left out even if its block is cached: K/V alone give no logits, so at
        least one position has to be computed, unless its logits are kept too.
        """
        if not self.enable_prefix_caching:
            return [], 0
        keeps_logits = self.kept_logits.capacity > 0
        count = (request.num_tokens - (not keeps_logits)) // self.block_size
        hits = self.prefix.find(request, count)
        if len(hits) * self.block_size == request.num_tokens and hits[-1].logits_slot is None:
            hits = self.prefix.find(request, count - 1)
        return hits, len(hits) * self.block_size

    def blocks_needed(
        self, request: Request, num_new_tokens: int, hits: Sequence[KVCacheBlock] = ()
    ) -> int:
        """Free blocks that `allocate_slots` would use up, the copy of a shared tail included.

        Hits that are free count too: taking them out of the queue leaves less room.
        """
        length = request.num_computed_tokens + len(hits) * self.block_size + num_new_tokens
        table = self._tables.get(request.request_id, ())
        need = cdiv(length, self.block_size) - len(hits) - len(table)
        return max(need, 0) + sum(b.ref_cnt == 0 for b in hits) + self._tail_is_shared(request)

    def _tail_is_shared(self, request: Request) -> bool:
        table = self._tables.get(request.request_id)
        partly_filled = request.num_computed_tokens % self.block_size > 0
        return bool(table) and partly_filled and table[-1].ref_cnt > 1

    # ---- changing

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        hits: Sequence[KVCacheBlock] = (),
        *,
        delay_cache_blocks: bool = False,
    ) -> list[KVCacheBlock] | None:
        """Blocks for `num_new_tokens` more positions after the computed ones and the hits.

            | computed | hits | num_new_tokens |
            |  table already  |   new blocks   |

        Returns the newly taken blocks, or None, with nothing changed, where too few are free.
        Blocks that this call fills are registered at once, before the model has written them:
        requests of the same step may share them, since each layer writes before it attends.
        delay_cache_blocks: they are filled by a copy that ends later; see `cache_blocks`.
        """
        if num_new_tokens < (0 if hits else 1):
            who = f"request {request.request_id!r}"
            raise ValueError(f"{who}: slots for {num_new_tokens} tokens; give at least 1")
        length = request.num_computed_tokens + len(hits) * self.block_size + num_new_tokens
        table = self._tables.get(request.request_id, [])
        if table and length <= len(table) * self.block_size and table[-1].ref_cnt == 1:
            self._register(request, length)  # room in its own last block
            return []
        if self.blocks_needed(request, num_new_tokens, hits) > self.pool.num_free_blocks:
            return None
        if self.enable_prefix_caching and request.request_id not in self._tables:
            again = request.status is not RequestStatus.WAITING
            self.stats.record(request.num_tokens, len(hits) * self.block_size, again)
        table = self._tables.setdefault(request.request_id, [])
        if hits:
            self._share(request, hits)
        new = [self._copy_tail(request)] if self._tail_is_shared(request) else []
        while len(table) < cdiv(length, self.block_size):
            (block,) = self.pool.get_new_blocks(1)
            table.append(block)
            new.append(block)
            self._emit(
                "block_taken", request, block_id=block.block_id, logical_block=len(table) - 1
            )
        if not delay_cache_blocks:
            self._register(request, length)
        return new

    def _share(self, request: Request, hits: Sequence[KVCacheBlock]) -> None:
        """The table begins with blocks that other requests filled."""
        self.pool.touch(held(hits))
        table = self._tables[request.request_id]
        table.extend(hits)
        self.prefix.num_registered[request.request_id] = len(table)
        self._emit("shared", request, block_ids=[b.block_id for b in held(hits)])

    def _copy_tail(self, request: Request) -> KVCacheBlock:
        """Copy-on-write: a private block takes the shared tail's place in this table alone."""
        table = self._tables[request.request_id]
        shared = table[-1]
        (private,) = self.pool.get_new_blocks(1)
        self.pool.free_blocks([shared])
        table[-1] = private
        self._step_copies[request.request_id] = BlockCopy(shared.block_id, private.block_id)
        self._emit("copied", request, src=shared.block_id, dst=private.block_id)
        return private

    def _register(self, request: Request, length: int, pending: bool = True) -> None:
        if self.enable_prefix_caching:
            table, num_full = self._tables[request.request_id], length // self.block_size
            new = self.prefix.register(request, table, num_full, pending=pending)
            if new:
                self._emit("registered", request, block_ids=[b.block_id for b in new])

    def cache_blocks(self, request: Request) -> None:
        """Register what is computed: a copy from another tier has filled the blocks."""
        self._register(request, request.num_computed_tokens, pending=False)

    def fork(self, parent: Request, child: Request) -> None:
        """The child continues from the parent's tokens and shares all its blocks.

        Both may be in the middle of a step: the child's positions are the parent's.
        """
        if child.request_id in self._tables:
            raise ValueError(
                f"request {child.request_id!r} holds blocks already; fork into a new request"
            )
        table = self._tables.get(parent.request_id)
        if not table:
            raise ValueError(
                f"request {parent.request_id!r} holds no blocks; fork it once it is computed"
            )
        shared, who = held(table), parent.request_id
        self.pool.touch(shared)
        self._tables[child.request_id] = list(table)
        counts = self.prefix.num_registered
        counts[child.request_id] = counts.get(parent.request_id, 0)
        child.block_hashes = list(parent.block_hashes)
        child.block_contents = list(parent.block_contents)
        child.num_computed_tokens = parent.num_computed_tokens
        self._emit("forked", child, parent=who, block_ids=[b.block_id for b in shared])

    def free(self, request: Request) -> None:
        """Give back the request's references, deepest block first. Without blocks: nothing."""
        self._step_copies.pop(request.request_id, None)
        self.release(request, self.detach(request))

    def detach(self, request: Request) -> list[KVCacheBlock]:
        """Part a request from its table, still counted, until `release`: copies into it go on."""
        self.prefix.num_registered.pop(request.request_id, None)
        return self._tables.pop(request.request_id, [])

    def release(self, request: Request, table: Sequence[KVCacheBlock]) -> None:
        """Give a detached table back."""
        released = self._give_back(request, held(table))
        if table:
            self._emit("freed", request, block_ids=[b.block_id for b in released])

    def release_unreadable(self, request: Request) -> None:
        """Give back what no query from `num_computed_tokens` on reads; the table stays as long."""
        table = self._tables.get(request.request_id, [])
        gone = self.window.take_out(table, request.num_computed_tokens) if self.window else []
        if gone:
            self._give_back(request, gone)
            self._emit("out_of_window", request, block_ids=[b.block_id for b in gone])

    def _give_back(self, request: Request, blocks: Sequence[KVCacheBlock]) -> list[KVCacheBlock]:
        """One reference fewer to each, the deepest first. Returns those that are free now."""
        if not self.policy.retain_freed:  # the identity goes with the last reference
            last = [b for b in blocks if b.ref_cnt == 1 and b.block_hash is not None]
            for block in last:
                self.pool.uncache(block)
            if last:
                self._emit("unregistered", request, block_ids=[b.block_id for b in last])
        return self.pool.free_blocks(reversed(blocks))

    def use_kept_logits(self, request: Request) -> int:
        """The slot of the logits that a request cached whole selects from."""
        block = self._tables[request.request_id][-1]
        self._emit("logits_reused", request, block_id=block.block_id)
        return self.kept_logits.use(block)

    def reset_prefix_cache(self) -> bool:
        """Forget every identity, start the counters anew. False, with nothing changed, while a
        block is in use: as vLLM does, the caller ends its requests first.
        """
        if not self.pool.reset_prefix_cache():
            return False
        self.stats = PrefixCacheStats()
        self._emit("reset", None)
        return True

    # ---- a step's bracket

    def commit_step(self) -> None:
        """The step's model pass has succeeded: what it registered and copied stands."""
        self.prefix.pending.clear()
        self._step_copies.clear()

    def step_copies(self) -> tuple[BlockCopy, ...]:
        """Copies to carry out before the step writes anything."""
        return tuple(self._step_copies.values())

    def step_logits(self, requests: Iterable[Request]) -> tuple[LogitsToKeep, ...]:
        """Logits to keep after the pass: those of prompt blocks that the step fills."""
        if not self.kept_logits.capacity:
            return ()
        found, keep = self.prefix.pending.get, self.kept_logits.keep
        tables = ((r, self.blocks_of(r.request_id), found(r.request_id, ())) for r in requests)
        return tuple(kept for table in tables for kept in keep(*table, self.block_size))

    def undo_step(self, request: Request) -> None:
        """The step is not going to write this request's new positions: take back their identities.

        It loses its blocks and is computed again; those of earlier steps stay findable.
        """
        self.prefix.take_back(request)
        self.free(request)
        request.reset_to_recompute()

    def _emit(self, kind: str, request: Request | None, **data: object) -> None:
        if self.observer:
            self.observer(kind, request, **data)

    def check_invariants(
        self, requests: Sequence[Request] = (), detached: Sequence[Sequence[KVCacheBlock]] = ()
    ) -> None:
        """Raise AssertionError where a count, a table or an identity is wrong.

        requests: whose tables must fit their computed positions. detached: not given back yet.
        """
        check_tables(self.pool, self._tables, detached)
        for request in requests:
            check_table(request, self.blocks_of(request.request_id), self.block_size, self.window)
            if self.enable_prefix_caching:
                self.prefix.check_invariants(request, self.blocks_of(request.request_id))
