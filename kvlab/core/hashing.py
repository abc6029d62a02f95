"""Block identity: what must be equal before one request may read another's K/V (section 21.4).

    h_0 = sha256(configuration)          the root: weights, position scheme, cache format ...
    h_i = sha256(h_(i-1), tokens_i, extras_i)

Every part is length-framed and carries its kind, so that no two different inputs give the same
bytes: `[1, 23]` and `[12, 3]` differ, adapter "X" and salt "X" differ. Python's built-in `hash`
is not used: it changes from process to process.
"""

import hashlib
import struct
from collections.abc import Mapping, Sequence

BlockHash = bytes  # 32 bytes of sha256
ExtraKeys = tuple[tuple[str, str], ...]  # (kind, value), for example ("adapter", "style-7")


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


def encode_tokens(token_ids: Sequence[int]) -> bytes:
    """Eight bytes a token, signed: no two lists of ids share their bytes."""
    try:
        return _frame(b"t", struct.pack(f"<{len(token_ids)}q", *token_ids))
    except struct.error:
        bad = next(
            (t for t in token_ids if not isinstance(t, int) or not -(2**63) <= t < 2**63), token_ids
        )
        raise ValueError(f"token id {bad!r} is not an integer of 64 bits") from None


def root_hash(configuration: Mapping[str, object]) -> BlockHash:
    """h_0, the identity of everything that K/V depend on besides the tokens."""
    return hashlib.sha256(b"kvlab.root.1" + encode_value(configuration)).digest()


def hash_block_tokens(
    parent: BlockHash, token_ids: Sequence[int], extra_keys: ExtraKeys = ()
) -> BlockHash:
    """h_i from h_(i-1), the block's own token ids and its extras.

    parent: 32 bytes, the root for the first block. Raises ValueError for an id beyond 64 bits.
    Source: vLLM design document "Automatic Prefix Caching".
    """
    data = _frame(b"p", parent) + encode_tokens(token_ids)
    if extra_keys:
        data += encode_value([list(pair) for pair in extra_keys])
    return hashlib.sha256(data).digest()


def extra_keys_of(adapter: str | None, cache_salt: str | None, block_index: int) -> ExtraKeys:
    """The adapter is in every block's identity, the salt in the first (the chain carries it)."""
    keys = (("adapter", adapter),) if adapter is not None else ()
    if block_index == 0 and cache_salt is not None:
        keys += (("salt", cache_salt),)
    return keys


def short(block_hash: BlockHash | None) -> str | None:
    """First 8 hex digits, as shown in tables and views."""
    return None if block_hash is None else block_hash.hex()[:8]
