"""Tokens that stand for one byte of a character, told from the texts and ids in a trace.

A byte alone decodes to nothing, so its text is the vocabulary's sign for it: `<0xC3>`, or one odd
character such as `Ã`, which may also be a token of its own. Byte-level vocabularies number their
256 bytes in one order from some id on, so the distance from that order tells the two apart.
"""

import re
from collections import Counter
from collections.abc import Mapping

PRINTED = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))  # stand for themselves
OTHERS = [byte for byte in range(256) if byte not in PRINTED]  # stand as U+0100 and on
ORDER = {chr(byte): (rank, byte) for rank, byte in enumerate(PRINTED)}
ORDER |= {chr(256 + i): (len(PRINTED) + i, byte) for i, byte in enumerate(OTHERS)}
NAMED = re.compile(r"<0x([0-9A-F]{2})>")


def with_named_bytes(vocab: Mapping[str, str]) -> dict[str, str]:
    """The vocabulary with `<0xC3>` for the byte C3. Signs that are in doubt stay as they are.

    Sure is a sign whose id is as far from the order as that of another token of one sign.
    """
    single = {t: ORDER[text] for t, text in vocab.items() if text in ORDER}
    starts = Counter(int(token) - rank for token, (rank, _) in single.items())
    named = dict(vocab)
    for token, (rank, byte) in single.items():
        if byte >= 0x80 and starts[int(token) - rank] > 1:
            named[token] = f"<0x{byte:02X}>"
    return named


def byte_name(text: str) -> str | None:
    """`byte C3` for `<0xC3>`, None for any other text."""
    found = NAMED.fullmatch(text)
    return f"byte {found[1]}" if found else None
