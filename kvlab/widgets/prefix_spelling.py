"""Texts shown so that no sign of them stays hidden and no two salts look alike.

A salt that differs from another by a blank, by an accent's encoding or by a sign without ink is
another salt, and its reader has to see that. Section 21.4.
"""

import unicodedata

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}  # control, direction, odd blanks ...
COMBINING = {"Mn", "Mc", "Me"}
NO_INK = "\u115f\u1160\u2800\u3164\uffa0"  # letters and a symbol that draw nothing
OWN_SIGNS = "␣“”"  # `spelled` and the sentences around it use them


def seen(text: str) -> str:
    """Line breaks, control signs, those that turn the direction, and others without ink as
    escapes; blanks and all else as they are."""
    return "".join(_escaped(char) if _is_hidden(char) else char for char in text)


def spelled(salt: str) -> str:
    """A salt in full: a blank as ␣, what `seen` escapes and accents that stand alone as escapes.

    So is all that is not ASCII where another spelling looks the same (where Unicode's NFKC form is
    another text). Letters of two alphabets that look alike stay as they are.
    """
    is_only = unicodedata.normalize("NFKC", salt) == salt
    return "".join(_sign(char, is_only) for char in salt)


def _sign(char: str, is_only: bool) -> str:
    if char == " ":
        return "␣"
    if char.isascii():
        return _escaped(char)  # of a visible one: itself; a backslash twice
    is_mark = unicodedata.category(char) in COMBINING
    clear = is_only and not is_mark and char not in OWN_SIGNS and not _is_hidden(char)
    return char if clear else _escaped(char)


def _is_hidden(char: str) -> bool:
    return char != " " and (unicodedata.category(char) in HIDDEN or char in NO_INK)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
