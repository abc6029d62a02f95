"""Chains of identities with one mistake each, and what tells them from a right one. Section 21.4.

The mistakes stand in the engine's own lookup, in the method that makes identities out of tokens.
"""

import random
from collections.abc import Callable, Sequence
from itertools import combinations

from kvlab.core.block_pool import BlockPool
from kvlab.core.hashing import BlockHash, HashFunction, encode_block, sha256, truncated_sha256
from kvlab.core.prefix_cache import PrefixCachePolicy
from kvlab.core.prefix_lookup import PrefixLookup
from kvlab.core.request import Request
from kvlab.exercises.namesakes import labelled
from kvlab.exercises.reading import show_argument

Identities = Callable[[Sequence[int]], list[BlockHash]]
BLOCK_SIZE = 4


class NoParent(PrefixLookup):
    """identities of the tokens alone, without the block before"""

    def block_hashes(self, request: Request, end: int, start: int = 0) -> list[BlockHash]:
        hashes, size = request.block_hashes, self.block_size
        for i in range(len(hashes), end):
            tokens = request.all_token_ids[i * size : (i + 1) * size]
            hashes.append(self.policy.hash_function(encode_block(self.root, tokens)))
        return hashes[start:end]


class PlaceForParent(PrefixLookup):
    """identities of the tokens and the block's place, without the block before"""

    def block_hashes(self, request: Request, end: int, start: int = 0) -> list[BlockHash]:
        hashes, size = request.block_hashes, self.block_size
        for i in range(len(hashes), end):
            tokens = [i, *request.all_token_ids[i * size : (i + 1) * size]]
            hashes.append(self.policy.hash_function(encode_block(self.root, tokens)))
        return hashes[start:end]


class OneBlockBack(PrefixLookup):
    """identities of the block's tokens and those of one block before it, no further"""

    def block_hashes(self, request: Request, end: int, start: int = 0) -> list[BlockHash]:
        hashes, size = request.block_hashes, self.block_size
        for i in range(len(hashes), end):
            tokens = [i, *request.all_token_ids[max(i - 1, 0) * size : (i + 1) * size]]
            hashes.append(self.policy.hash_function(encode_block(self.root, tokens)))
        return hashes[start:end]


class OneBlockLate(PrefixLookup):
    """identities of the block before and all before it, without the block's own tokens"""

    def block_hashes(self, request: Request, end: int, start: int = 0) -> list[BlockHash]:
        hashes, size = request.block_hashes, self.block_size
        for i in range(len(hashes), end):
            tokens = request.all_token_ids[max(i - 1, 0) * size : i * size]
            content = encode_block(hashes[-1] if hashes else self.root, tokens)
            hashes.append(self.policy.hash_function(content))
        return hashes[start:end]


class NeverTwice(PrefixLookup):
    """identities that count the lookups, so that no two requests share one"""

    lookups = 0

    def block_hashes(self, request: Request, end: int, start: int = 0) -> list[BlockHash]:
        self.lookups += 1
        chain = super().block_hashes(request, end, start)
        return [block_hash + self.lookups.to_bytes(4, "little") for block_hash in chain]


def identities_of(lookup: type[PrefixLookup], hash_function: HashFunction = sha256) -> Identities:
    """identities(tokens): those of a prompt's full blocks of four, by a lookup of this kind."""
    policy = PrefixCachePolicy(hash_function=hash_function)
    made = lookup(BlockPool(1), BLOCK_SIZE, {}, policy)

    def identities(tokens: Sequence[int]) -> list[BlockHash]:
        """Those of a prompt's full blocks of four, the first block's in front."""
        prompt = list(tokens)
        return list(made.block_hashes(Request("lookup", prompt), len(prompt) // BLOCK_SIZE))

    return identities


def chains() -> Sequence[tuple[Identities]]:
    """The engine's own chain, once more with another hash function, and the wrong ones.

    All have one name; their labels say what they are.
    """
    own, right = "PrefixLookup (the engine's own", identities_of(PrefixLookup)
    other = identities_of(PrefixLookup, truncated_sha256(16))
    wrong = (NoParent, PlaceForParent, OneBlockBack, OneBlockLate, NeverTwice)
    return (
        (labelled(right, f"{own})"),),
        (labelled(other, f"{own}, with a hash of 16 bytes)"),),
        *((labelled(identities_of(kind), show_argument(kind)),) for kind in wrong),
    )


def can_be_trusted(identities: Identities) -> bool:
    """Whether identities are equal where the tokens so far are equal, and nowhere else.

    Looked at in prompts at random, of which many have blocks in common.
    """
    draw = random.Random(5)
    blocks = [tuple(draw.randrange(9) for _ in range(BLOCK_SIZE)) for _ in range(3)]
    prompts = [sum((draw.choice(blocks) for _ in range(4)), ()) for _ in range(40)]
    seen = [
        (prompt[: (i + 1) * BLOCK_SIZE], identity)
        for prompt in prompts
        for i, identity in enumerate(identities(prompt))
    ]
    return all((a == b) == (one == other) for (a, one), (b, other) in combinations(seen, 2))
