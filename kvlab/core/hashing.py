"""Block identity: what must be equal before one request may read another's K/V (section 21.4).

    h_0 = sha256(configuration)          the root: weights, position scheme, cache format ...
    h_i = sha256(h_(i-1), tokens_i, extras_i)

Every part is length-framed and carries its kind, so that no two different inputs give the same
bytes: `[1, 23]` and `[12, 3]` differ, adapter "X" and salt "X" differ. Python's built-in `hash`
is not used: it changes from process to process.

Different inputs may still have one identity: a hash is shorter than what it stands for. So a
block also keeps the input, and a hit compares inputs (`same_content`).
"""

import hashlib
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

BlockHash = bytes  # 32 bytes of sha256
HashFunction = Callable[[bytes], BlockHash]
ExtraKeys = tuple[tuple[str, str], ...]  # (kind, value), for example ("adapter", "style-7")
BlockContent = tuple[bytes, "BlockContent | None"]  # the hash's input, and that of the block before


def sha256(data: bytes) -> BlockHash:
    """The default hash function: no two different inputs with one digest are known."""
    return hashlib.sha256(data).digest()


def truncated_sha256(num_bytes: int) -> HashFunction:
    """A deliberately weak hash, to see collisions: the first `num_bytes` bytes of sha256.

    One byte has 256 values: two different blocks share one once in 256 times (section 21.4).
    """
    if type(num_bytes) is not int or not 0 <= num_bytes <= 32:
        raise ValueError(f"num_bytes is {num_bytes!r}; sha256 has 32 bytes, give 0 to 32")
    return lambda data: hashlib.sha256(data).digest()[:num_bytes]


def encode_value(value: object) -> bytes:
    """Canonical bytes of a configuration value: None, bool, int, float, str, bytes, list, dict."""
    match value:
        case None:
            return _frame(b"n", b"")
        case bool():
            return _frame(b"b", b"\1" if value else b"\0")
        case int():
            return _frame(b"i", str(value).encode())
        case float():
            return _frame(b"f", value.hex().encode())
        case str():
            return _frame(b"s", value.encode("utf-8", "surrogatepass"))
        case bytes():
            return _frame(b"y", value)
        case Mapping():
            pairs = sorted((encode_value(k), encode_value(v)) for k, v in value.items())
            return _frame(b"d", b"".join(k + v for k, v in pairs))
        case list() | tuple():
            return _frame(b"l", b"".join(encode_value(v) for v in value))
    raise TypeError(
        f"an identity cannot hold a {type(value).__name__}: {value!r}; use str, int, list or dict"
    )


def _frame(kind: bytes, payload: bytes) -> bytes:
    return kind + len(payload).to_bytes(8, "little") + payload


@lru_cache
def _token_frame(count: int) -> Callable[..., bytes]:
    """The frame of `count` ids in one go: kind, number of bytes, ids."""
    return struct.Struct(f"<cQ{count}q").pack


def encode_tokens(token_ids: Sequence[int]) -> bytes:
    """Eight bytes a token, signed: no two lists of ids share their bytes."""
    try:
        return _token_frame(len(token_ids))(b"t", 8 * len(token_ids), *token_ids)
    except struct.error:
        bad = next((t for t in token_ids if not _fits(t)), token_ids)
        raise ValueError(f"token id {bad!r} is not an integer of 64 bits") from None


def _fits(token: object) -> bool:
    try:
        return -(2**63) <= operator.index(token) < 2**63
    except TypeError:
        return False


def root_hash(configuration: Mapping[str, object]) -> BlockHash:
    """h_0, the identity of everything that K/V depend on besides the tokens."""
    return hashlib.sha256(b"kvlab.root.1" + encode_value(configuration)).digest()


def encode_block(parent: BlockHash, token_ids: Sequence[int], extra_keys: ExtraKeys = ()) -> bytes:
    """What a block's identity is the hash of: h_(i-1), the block's own token ids and its extras.

    parent: the root for the first block. Raises ValueError for an id beyond 64 bits.
    Source: vLLM design document "Automatic Prefix Caching".
    """
    data = _frame(b"p", parent) + encode_tokens(token_ids)
    return data + encode_value([list(pair) for pair in extra_keys]) if extra_keys else data


def hash_block_tokens(
    parent: BlockHash,
    token_ids: Sequence[int],
    extra_keys: ExtraKeys = (),
    hash_function: HashFunction = sha256,
) -> BlockHash:
    """h_i = hash(h_(i-1), tokens_i, extras_i); see `encode_block`."""
    return hash_function(encode_block(parent, token_ids, extra_keys))


def same_content(one: BlockContent | None, other: BlockContent | None) -> bool:
    """Equal inputs of this block's hash and of all before it.

    The input holds the identity of the block before, and identities may collide: so the blocks
    before are compared too. Blocks of one chain share these objects, and the first that is the
    same object on both sides ends the comparison, most often the next one.
    """
    while one is not other:
        if one is None or other is None or one[0] != other[0]:
            return False
        one, other = one[1], other[1]
    return True


def extra_keys_of(adapter: str | None, cache_salt: str | None, block_index: int) -> ExtraKeys:
    """The adapter is in every block's identity, the salt in the first (the chain carries it)."""
    if adapter is None and cache_salt is None:
        return ()
    keys = (("adapter", adapter),) if adapter is not None else ()
    if block_index == 0 and cache_salt is not None:
        keys += (("salt", cache_salt),)
    return keys


def short(block_hash: BlockHash | None) -> str | None:
    """First 8 hex digits, as shown in tables and views."""
    return None if block_hash is None else block_hash.hex()[:8]
