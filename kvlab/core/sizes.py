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
_WHOLE = r"\d{1,3}(?:,\d{3}){1,13}|\d[\d_]{0,40}"  # a comma groups three digits: 1,5 is no number
_SIZE = re.compile(rf"((?:{_WHOLE})(?:\.\d{{0,20}})?) ?([a-zA-Z]*)")


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


def in_units(nbytes: int) -> str:
    """The fitting binary unit, two decimals at most: 1280 is `1.25 KiB`, 2^30 is `1 GiB`.

    Never 1,024 of a unit that has a next one: 2^20 - 1 rounds to `1 MiB`. Raises ValueError for
    what is no number of bytes.
    """
    if not isinstance(nbytes, int) or isinstance(nbytes, bool) or nbytes < 0:
        raise ValueError(f"nbytes is {nbytes!r}; give a whole number of at least 0")
    power = _power(nbytes)
    if power == 0:
        return _in_bytes(nbytes)
    unit, size = list(BINARY.items())[power - 1]
    return f"{_decimals(nbytes, size).rstrip('0').rstrip('.')} {unit}"


def both_units(nbytes: int) -> str:
    """`40.00 GiB (42.95 GB)`: the fitting binary unit and the decimal one beside it."""
    power = _power(nbytes)
    if power == 0:
        return _in_bytes(nbytes)
    names = list(zip(BINARY.items(), DECIMAL.items(), strict=True))
    (binary, two), (decimal, ten) = names[power - 1]
    return f"{_decimals(nbytes, two)} {binary} ({_decimals(nbytes, ten)} {decimal})"


def _power(nbytes: int) -> int:
    """Which binary unit fits: 0 for bytes, 1 for KiB, ...; at 1,024.00 it is the next one."""
    power = min(max(abs(nbytes).bit_length() - 1, 0) // 10, len(BINARY))
    rounds_up = 0 < power < len(BINARY) and _hundredths(nbytes, 2 ** (10 * power)) == 102_400
    return power + rounds_up


def _in_bytes(nbytes: int) -> str:
    return f"{nbytes:,} byte" if abs(nbytes) == 1 else f"{nbytes:,} bytes"


def _decimals(nbytes: int, unit: int) -> str:
    """Two decimals, from integers alone; three digits grouped."""
    hundredths, sign = _hundredths(nbytes, unit), "-" if nbytes < 0 else ""
    return f"{sign}{hundredths // 100:,}.{hundredths % 100:02d}"


def _hundredths(nbytes: int, unit: int) -> int:
    """Of the unit, rounded half up."""
    return (200 * abs(nbytes) + unit) // (2 * unit)
