"""From tokens to identities, and from identities to blocks that may be read (section 21.4)."""

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
    ) -> None:
        if not isinstance(policy, PrefixCachePolicy):
            raise ValueError(f"the policy is {policy!r}; give a PrefixCachePolicy")
        self.pool, self.block_size, self.policy = pool, block_size, policy
        self.root = root_hash({**configuration, "block_size": block_size})

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

    def find(self, request: Request, count: int) -> list[KVCacheBlock]:
        """The longest run of the first `count` blocks that is cached. Changes nothing.

        With `exact_match` a block of equal identity must also hold equal tokens and extras, after
        blocks that do.
        """
        hits: list[KVCacheBlock] = []
        parent: BlockContent | None = None
        for i, block_hash in enumerate(self.block_hashes(request, count)):
            wanted = (request.block_contents[i], parent) if self.policy.exact_match else None
            block = self.pool.get_cached_block(block_hash, wanted)
            if block is None:
                break
            hits.append(block)
            parent = block.content
        return hits

    def register(
        self, request: Request, table: Sequence[KVCacheBlock], start: int, end: int
    ) -> list[KVCacheBlock]:
        """Make blocks [start, end) of a table findable. Returns those that were not before."""
        blocks, hashes = table[start:end], self.block_hashes(request, end, start)
        if not self.policy.exact_match:
            return self.pool.cache_full_blocks(blocks, hashes)
        parent = table[start - 1].content if start else None
        contents = []
        for content in request.block_contents[start:end]:
            parent = (content, parent)
            contents.append(parent)
        return self.pool.cache_full_blocks(blocks, hashes, contents)
