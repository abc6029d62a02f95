"""Prompts served one after the other by a new engine, and what each found of the earlier ones."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from kvlab.core.hashing import short
from kvlab.core.kv_cache_manager import cdiv
from kvlab.core.request import SamplingParams
from kvlab.llm import LLM
from kvlab.prompts import Prompt
from kvlab.widgets.byte_tokens import with_named_bytes
from kvlab.widgets.growth_words import count
from kvlab.widgets.prefix_data import (
    COMPUTED,
    LAST,
    PARTLY,
    REUSED,
    PrefixBlock,
    PrefixRow,
    PrefixRun,
    match_end,
    num_equal,
    two_digits,
)

NAMES = "ABCDEFGH"
MOST_TOKENS = 256  # of one prompt
LARGEST_BLOCK = 256  # slots; no prompt would fill a larger one


@dataclass(eq=False)
class Served:
    """A prompt after its pass. keys, values: [num_layers, num_kv_heads, tokens, head_dim]."""

    name: str
    salt: str | None
    token_ids: list[int]
    hashes: list[bytes]
    table: list[int]
    num_cached: int
    keys: Tensor
    values: Tensor
    blocks: list[PrefixBlock] = field(default_factory=list)

    def tokens_of(self, index: int, size: int) -> tuple[int, ...]:
        return tuple(self.token_ids[index * size : (index + 1) * size])


Places = dict[tuple[int, ...], list[tuple[Served, int]]]  # full blocks so far, by their tokens


def prefix_rows(
    llm: LLM,
    prompts: Sequence[Prompt],
    salts: Sequence[str | None] | None = None,
    block_size: int = 4,
) -> tuple[PrefixRow, ...]:
    """What each prompt found in the cache that the prompts before it had filled.

    A new engine over the weights of `llm` serves them one after the other; the blocks of `llm`
    are left alone. The same arguments give the same rows. salts: one a prompt; None or "" is
    none. Raises ValueError for a prompt without tokens or with more than 256, for more than
    eight prompts, and for salts and block sizes (1 to 256) that do not fit. Section 21.4.
    """
    return serve(llm, prompts, salts, block_size).rows


def serve(
    llm: LLM,
    prompts: Sequence[Prompt],
    salts: Sequence[str | None] | None = None,
    block_size: int = 4,
) -> PrefixRun:
    """As `prefix_rows`, with the root, and the engine's own counts of tokens."""
    ids = _checked(llm, prompts)
    if type(block_size) is not int or not 1 <= block_size <= LARGEST_BLOCK:
        raise ValueError(
            f"block_size is {block_size!r}; give an integer from 1 to {LARGEST_BLOCK} (a prompt "
            f"has {MOST_TOKENS} tokens at most)"
        )
    salts = checked_salts(salts, len(ids))
    fresh = _engine_beside(llm, block_size, sum(cdiv(len(i) + 2, block_size) for i in ids))
    places: Places = {}
    served: list[Served] = []
    for name, salt, token_ids in zip(NAMES, salts, ids, strict=False):
        one = _serve_one(fresh, name, salt, token_ids)
        one.blocks = _blocks(one, fresh, places)
        served.append(one)
    rows = [_row(one, served[:i], fresh) for i, one in enumerate(served)]
    root, stats = fresh.engine.scheduler.manager.prefix.root, fresh.prefix_cache_stats
    return PrefixRun(short(root), block_size, tuple(rows), stats.queries, stats.hits)


def checked_salts(salts: Sequence[str | None] | None, num_prompts: int) -> list[str | None]:
    """One a prompt, in order; "" is None. Raises ValueError for anything else."""
    if salts is None:
        return [None] * num_prompts
    if not isinstance(salts, list | tuple):
        raise ValueError(
            f"salts is {salts!r}; give a list of {count(num_prompts, 'text')}, or None"
        )
    if len(salts) != num_prompts:
        raise ValueError(
            f"{count(num_prompts, 'prompt')} and {count(len(salts), 'salt')}, {salts!r}; give one "
            "each, or None"
        )
    for salt in salts:
        if not isinstance(salt, str | None):
            raise ValueError(f"salts has {salt!r}; give texts, and None or '' for no salt")
        if salt and re.search("[\ud800-\udfff]", salt):
            raise ValueError(
                f"salts has {salt!r}, which holds characters that are no valid Unicode; leave them "
                "out"
            )
    return [salt or None for salt in salts]


def _checked(llm: LLM, prompts: Sequence[Prompt]) -> list[list[int]]:
    """Token ids of each prompt."""
    if not isinstance(llm, LLM):
        raise ValueError(f"llm has type {type(llm).__name__}; give an LLM")
    if not isinstance(prompts, list | tuple) or not 1 <= len(prompts) <= len(NAMES):
        raise ValueError(f"prompts is {prompts!r}; give a list of 1 to {len(NAMES)} prompts")
    most = min(MOST_TOKENS, llm.model.config.max_model_len - 2)
    found = [llm.encode(prompt) for prompt in prompts]
    for name, ids in zip(NAMES, found, strict=False):
        if not ids:
            raise ValueError(f"prompt {name} has no tokens; type a few words")
        if len(ids) > most:
            raise ValueError(
                f"prompt {name} has {len(ids):,} tokens; shorten it to {most} at most "
                "(a word that the tokenizer does not know takes several)"
            )
    return found


def _engine_beside(llm: LLM, block_size: int, num_blocks: int) -> LLM:
    """Another engine over the same weights, with an empty cache of its own."""
    fresh = LLM(
        llm.model,
        block_size=block_size,
        num_blocks=num_blocks,
        dtype=llm.model.dtype,
        cache_dtype=llm.cache.dtype,
        device=llm.device,
    )
    fresh.name, fresh.tokenizer = llm.name, llm.tokenizer
    return fresh


def _serve_one(fresh: LLM, name: str, salt: str | None, token_ids: list[int]) -> Served:
    """The prompt pass. The request ends with its first output, and its blocks stay findable."""
    params = SamplingParams(max_tokens=2, ignore_eos=True)  # still there after the pass
    engine, length = fresh.engine, len(token_ids)
    (request,) = engine.add_request(token_ids, params, request_id=name, cache_salt=salt)
    while request.num_computed_tokens < length:
        engine.step()
    manager = engine.scheduler.manager
    table = manager.block_table(name)
    hashes = manager.prefix.block_hashes(request, length // manager.block_size)
    keys, values = fresh.cache.read(table, length)
    engine.abort(name)
    return Served(
        name,
        salt,
        token_ids,
        hashes,
        table,
        request.num_cached_tokens,
        keys.float(),
        values.float(),
    )


def _row(one: Served, earlier: list[Served], fresh: LLM) -> PrefixRow:
    """Compared with the earlier prompt that has most identities, then most tokens in common."""
    tokens = tuple(_texts(fresh, one.token_ids))
    own = (one.name, one.salt, tokens, one.num_cached, tuple(one.blocks))
    if not earlier:
        return PrefixRow(*own)

    def shared(other: Served) -> tuple[int, bool, int]:
        equal = num_equal(one.token_ids, other.token_ids)
        return num_equal(one.hashes, other.hashes), one.salt == other.salt, equal

    other = max(earlier, key=shared)
    end = match_end(one.token_ids, other.token_ids, one.salt == other.salt)
    return PrefixRow(*own, end, other.name, shared(other)[2])


def _texts(llm: LLM, token_ids: Sequence[int]) -> list[str]:
    """A text for each token; without a tokenizer, its id."""
    if llm.tokenizer is None:
        return [str(token) for token in token_ids]
    vocab = {str(token): llm.tokenizer.token_text(token) for token in token_ids}
    named = with_named_bytes(vocab)
    return [named[str(token)] for token in token_ids]


def _blocks(one: Served, fresh: LLM, places: Places) -> list[PrefixBlock]:
    """The prompt's blocks in order; its full ones join `places`."""
    size, texts = fresh.cache.block_size, _texts(fresh, one.token_ids)
    parent, found = fresh.engine.scheduler.manager.prefix.root, []
    for index, block_id in enumerate(one.table):
        tokens = tuple(texts[index * size : (index + 1) * size])
        if index == len(one.hashes):
            found.append(PrefixBlock(index + 1, tokens, None, short(parent), block_id, PARTLY))
            break
        same_tokens = places.setdefault(one.tokens_of(index, size), [])
        own = (index + 1, tokens, short(one.hashes[index]), short(parent), block_id)
        found.append(PrefixBlock(*own, *_kind_and_likeness(one, index, same_tokens, size)))
        same_tokens.append((one, index))
        parent = one.hashes[index]
    return found


def _kind_and_likeness(
    one: Served, index: int, same_tokens: list[tuple[Served, int]], size: int
) -> tuple:
    """The last five fields of a full block."""
    kind = REUSED if index * size < one.num_cached else COMPUTED
    if not same_tokens:
        return (kind,)

    def likeness(place: tuple[Served, int]) -> tuple[bool, bool]:
        other, at = place
        return other.hashes[at] == one.hashes[index], at == index

    other, at = max(same_tokens, key=likeness)
    same_identity = other.hashes[at] == one.hashes[index]
    mine, theirs = slice(index * size, (index + 1) * size), slice(at * size, (at + 1) * size)
    differences = [
        two_digits((a[:, :, mine] - b[:, :, theirs]).abs().max().item())
        for a, b in ((one.keys, other.keys), (one.values, other.values))
    ]
    if same_identity and kind == COMPUTED:
        kind = LAST
    return kind, (other.name, at + 1), same_identity, *differences
