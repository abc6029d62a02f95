"""How one number of the cache is stored: plain floats, eight bits with scales, llama.cpp's blocks.

Everything is counted for one vector: the keys (or values) of one head at one position. A scale a
vector, or a block of 32 values with its own scale, is part of the bytes. Section 21.1.
"""

from dataclasses import dataclass
from fractions import Fraction

from kvlab.core.spec_read import short


@dataclass(frozen=True)
class StoredFormat:
    """block_values numbers take block_bytes bytes; each vector adds scale_bytes.

    state_bytes: the size of a number in a fixed state, which these formats leave unquantised.
    """

    name: str
    block_bytes: int
    block_values: int = 1
    scale_bytes: int = 0
    state_bytes: int = 2
    about: str = ""

    def vector_bytes(self, width: int) -> int:
        """Bytes of one vector of `width` numbers. Raises ValueError where blocks do not fill it."""
        if width % self.block_values:
            raise ValueError(
                f"{self.name} packs {self.block_values} values into a block, and a vector here has "
                f"{width}; choose bf16, fp16, fp8 or int8, which take any width"
            )
        return width // self.block_values * self.block_bytes + self.scale_bytes

    def bytes_per_value(self, width: int | None = None) -> Fraction:
        """Bytes a number, scales included; exact. `width` is needed where a vector has a scale."""
        if self.scale_bytes and width is None:
            raise ValueError(f"{self.name} has one scale a vector; give the vector's width")
        width = self.block_values if width is None else width
        return Fraction(self.vector_bytes(width), width)

    @property
    def description(self) -> str:
        """The format in words, with the scale that was counted."""
        scale = f", one scale of {self.scale_bytes} bytes a token and head"
        return f"{self.name}: {self.about}{scale if self.scale_bytes else ''}"


FORMATS = {
    stored.name: stored
    for stored in (
        StoredFormat("bf16", 2, about="2 bytes a value"),
        StoredFormat("fp16", 2, about="2 bytes a value"),
        StoredFormat("fp32", 4, state_bytes=4, about="4 bytes a value"),
        StoredFormat("fp8", 1, about="1 byte a value"),
        StoredFormat("int8", 1, scale_bytes=4, about="1 byte a value"),
        StoredFormat("q8_0", 34, 32, about="34 bytes a block of 32 values, its scale among them"),
        StoredFormat("q4_0", 18, 32, about="18 bytes a block of 32 values, its scale among them"),
    )
}
WITH_SCALES = ("fp8", "int8")  # the formats that may have one scale a token and head
LARGEST_SCALE = 1024  # bytes; scales in use take 1 to 8


def stored_format(name: str, scale_bytes: int | None = None) -> StoredFormat:
    """A format by its name.

    scale_bytes: size of the one scale that each token and head has; None takes the usual: 4 for
    int8, and none for fp8, whose scale is one a tensor. Raises ValueError for an unknown name, and
    for a scale where the format has none or its own.
    """
    if not isinstance(name, str) or name not in FORMATS:
        raise ValueError(f"dtype is {name!r}; choose one of {', '.join(FORMATS)}")
    stored = FORMATS[name]
    if scale_bytes is None:
        return stored
    whole = isinstance(scale_bytes, int) and not isinstance(scale_bytes, bool)
    if not whole or not 0 <= scale_bytes <= LARGEST_SCALE:
        raise ValueError(
            f"scale_bytes is {short(scale_bytes)}; give a whole number of bytes, 0 to "
            f"{LARGEST_SCALE:,}"
        )
    if name not in WITH_SCALES:
        raise ValueError(
            f"scale_bytes is {scale_bytes} and dtype is {name}, which has no scale a token and "
            f"head; leave scale_bytes out, or choose {' or '.join(WITH_SCALES)}"
        )
    return StoredFormat(name, 1, 1, scale_bytes, stored.state_bytes, stored.about)
