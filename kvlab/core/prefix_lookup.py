"""From tokens to identities, and from identities to blocks that may be read (section 21.4).

A block is registered when the step that fills it is scheduled, before the model has written it:
until the step is committed its identity is *pending* and can be taken back.

Where every layer has a window, a hit needs no more than the blocks that the next query reads: the
last ceil((window - 1) / block_size) of the prefix. Those before them may be evicted already.
"""

from collections.abc import Mapping, Sequence

from kvlab.core.block_pool import BlockPool, KVCacheBlock
from kvlab.core.hashing import (
    BlockContent,
    BlockHash,
    encode_block,
    extra_keys_of,
    root_hash,
)
from kvlab.core.prefix_cache import PrefixCachePolicy
from kvlab.core.request import Request
from kvlab.core.windows import SlidingWindow, beyond


class PrefixLookup:
    """The chain of a request's block identities, and the pool searched by it.

    root: identity of the configuration; one pool holds K/V of one configuration.
    """

    def __init__(
        self,
        pool: BlockPool,
        block_size: int,
        configuration: Mapping[str, object],
        policy: PrefixCachePolicy,
        window: SlidingWindow | None = None,
    ) -> None:
        if not isinstance(policy, PrefixCachePolicy):
            raise ValueError(f"the policy is {policy!r}; give a PrefixCachePolicy")
        self.pool, self.block_size, self.policy = pool, block_size, policy
        self.window = window
        self.root = root_hash({**configuration, "block_size": block_size})
        self.num_registered: dict[str, int] = {}  # leading blocks of a table with an identity
        self.pending: dict[str, list[KVCacheBlock]] = {}  # registered in the step under way

    def block_hashes(self, request: Request, end: int, start: int = 0) -> list[BlockHash]:
        """Identities of full blocks [start, end); computed once, kept with the request.

        Raises ValueError where the request has fewer full blocks.
        """
        if end * self.block_size > request.num_tokens:
            raise ValueError(
                f"request {request.request_id!r} has {request.num_tokens} tokens, not {end} "
                f"full blocks of {self.block_size}"
            )
        hashes, size, policy = request.block_hashes, self.block_size, self.policy
        for i in range(len(hashes), end):
            tokens = request.all_token_ids[i * size : (i + 1) * size]
            extras = extra_keys_of(request.adapter, request.cache_salt, i)
            content = encode_block(hashes[-1] if hashes else self.root, tokens, extras)
            hashes.append(policy.hash_function(content))
            if policy.exact_match:
                request.block_contents.append(content)
        return hashes[start:end]

    def find(
        self,
        request: Request,
        count: int,
        after: Sequence[KVCacheBlock] = (),
        pool: BlockPool | None = None,
    ) -> list[KVCacheBlock]:
        """The longest run of the first `count` blocks that is cached. Changes nothing.

        With a window also a run that begins later, if it covers what the next query reads and
        ends later. In the place of blocks that are out of the window stand markers then.

        With `exact_match` a block of equal identity must also hold equal tokens and extras, after
        blocks that do.
        after: leading blocks that are found already; the answer continues them. pool: another
        tier's, to look there instead.
        """
        pool = self.pool if pool is None else pool
        hits: list[KVCacheBlock] = []
        parent: BlockContent | None = after[-1].content if after else None
        for i, block_hash in enumerate(self.block_hashes(request, count, len(after)), len(after)):
            wanted = (request.block_contents[i], parent) if self.policy.exact_match else None
            block = pool.get_cached_block(block_hash, wanted)
            if block is None:
                break
            hits.append(block)
            parent = block.content
        if self.window is None:
            return hits
        later = self._find_later(request, len(after) + len(hits), count, pool)
        if later:
            return later[len(after) :]
        out = self.window.first_held((len(after) + len(hits)) * self.block_size)
        return beyond(hits, min(max(out - len(after), 0), len(hits)))

    def _find_later(
        self, request: Request, start: int, count: int, pool: BlockPool
    ) -> list[KVCacheBlock]:
        """Markers, and the last run of cached blocks within [start, count) that covers a window."""
        hashes, end = self.block_hashes(request, count), count
        while end > start:
            first = self.window.first_held(end * self.block_size)
            place = end
            while place > first and pool.get_cached_block(hashes[place - 1]) is not None:
                place -= 1
            if place == first:  # all of them, by their identities
                run = self._verified(request, first, end, pool)
                if len(run) == end - first:
                    return beyond([], first) + run
                place = first + len(run) + 1
            end = place - 1
        return []

    def _verified(
        self, request: Request, first: int, end: int, pool: BlockPool
    ) -> list[KVCacheBlock]:
        """Blocks [first, end) as far as they hold what the request's do, and not only the hash."""
        run: list[KVCacheBlock] = []
        parent = self.content_before(request, first)
        for i in range(first, end):
            wanted = (request.block_contents[i], parent) if self.policy.exact_match else None
            block = pool.get_cached_block(request.block_hashes[i], wanted)
            if block is None:
                break
            run.append(block)
            parent = block.content
        return run

    def content_before(self, request: Request, place: int) -> BlockContent | None:
        """What the request's block before this place stands for; None where only hashes count."""
        content: BlockContent | None = None
        for own in request.block_contents[:place]:
            content = (own, content)
        return content

    def register(
        self,
        request: Request,
        table: Sequence[KVCacheBlock],
        num_full: int,
        *,
        pending: bool = True,
    ) -> list[KVCacheBlock]:
        """Make the first `num_full` blocks of a table findable. Returns those that were not before.

        pending: the step under way is to write them; False: they are written.
        """
        start = self.num_registered.get(request.request_id, 0)
        if num_full <= start:
            return []
        self.num_registered[request.request_id] = num_full
        new = self._cache(request, table, start, num_full)
        if new and pending:
            self.pending.setdefault(request.request_id, []).extend(new)
        return new

    def _cache(
        self, request: Request, table: Sequence[KVCacheBlock], start: int, end: int
    ) -> list[KVCacheBlock]:
        blocks, hashes = table[start:end], self.block_hashes(request, end, start)
        if not self.policy.exact_match:
            return self.pool.cache_full_blocks(blocks, hashes)
        parent = table[start - 1].content if start else None
        contents = []
        for content in request.block_contents[start:end]:
            parent = (content, parent)
            contents.append(parent)
        return self.pool.cache_full_blocks(blocks, hashes, contents)

    def others_await(self, request: Request) -> bool:
        """Whether another request counts on blocks that this one is to write in this step."""
        return any(block.ref_cnt > 1 for block in self.pending.get(request.request_id, ()))

    def take_back(self, request: Request) -> None:
        """The step is not going to write what it registered for this request."""
        self.pool.release_unregistered(self.pending.pop(request.request_id, ()))

    def written_block_ids(self) -> list[int]:
        """Blocks with an identity whose content exists: all but the pending ones."""
        pending = {b.block_id for blocks in self.pending.values() for b in blocks}
        blocks = self.pool.blocks.values()
        return [
            b.block_id for b in blocks if b.block_hash is not None and b.block_id not in pending
        ]

    def check_invariants(self, request: Request, table: Sequence[KVCacheBlock]) -> None:
        """Raise AssertionError where a block of the request has another's identity."""
        for block, block_hash in zip(table, request.block_hashes, strict=False):
            assert block.block_hash in (None, block_hash), f"block {block.block_id}: wrong identity"
