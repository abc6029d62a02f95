"""Sizes in words and back, with units that mean what they say: GiB is 2^30 bytes, GB is 10^9.

Reading and writing are exact: a size is parsed as a fraction, and text is made from integers.
Section 21.1.
"""

import re
from fractions import Fraction

BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
DECIMAL = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
_UNITS = {name.lower(): size for name, size in (BINARY | DECIMAL).items()}
_UNITS |= {"": 1, "b": 1, "byte": 1, "bytes": 1}
_SIZE = re.compile(r"(\d[\d_,]{0,40}(?:\.\d{0,20})?) ?([a-zA-Z]*)")


def parse_size(text: str | int) -> int:
    """`80GiB`, `80 GB`, `1.5MiB` or a count of bytes, as bytes.

    Raises ValueError for anything else: for a bare `G`, which people read both ways, and for what
    is no whole number of bytes.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        if text < 0:
            raise ValueError(f"a size is {text} bytes; give 0 or more")
        return text
    found = _SIZE.fullmatch(text.strip()) if isinstance(text, str) and len(text) < 100 else None
    unit = found and _UNITS.get(found[2].lower())
    if unit is None:
        raise ValueError(
            f"{str(text)[:40]!r} is no size; write for example 80GiB (2^30 bytes each), "
            "80GB (10^9 bytes each), or a number of bytes"
        )
    size = Fraction(re.sub("[_,]", "", found[1])) * unit
    if size.denominator != 1:
        raise ValueError(f"{text!r} is no whole number of bytes; round it")
    return size.numerator


def gib(nbytes: int) -> float:
    """In GiB, 2^30 bytes each."""
    return nbytes / 2**30


def gb(nbytes: int) -> float:
    """In GB, 10^9 bytes each."""
    return nbytes / 10**9


def both_units(nbytes: int) -> str:
    """`40.00 GiB (42.95 GB)`: the fitting binary unit and the decimal one beside it."""
    power = min(max(abs(nbytes).bit_length() - 1, 0) // 10, len(BINARY))
    if power == 0:
        return f"{nbytes:,} byte" if abs(nbytes) == 1 else f"{nbytes:,} bytes"
    names = list(zip(BINARY.items(), DECIMAL.items(), strict=True))
    (binary, two), (decimal, ten) = names[power - 1]
    return f"{_decimals(nbytes, two)} {binary} ({_decimals(nbytes, ten)} {decimal})"


def _decimals(nbytes: int, unit: int) -> str:
    """Two decimals, rounded half up, from integers alone; three digits grouped."""
    hundredths = (200 * abs(nbytes) + unit) // (2 * unit)
    sign = "-" if nbytes < 0 else ""
    return f"{sign}{hundredths // 100:,}.{hundredths % 100:02d}"
