"""TeX to MathML, for the part of TeX that the chapter uses.

A page without scripts shows its formulas as MathML, which browsers draw by themselves; where
scripts run, KaTeX takes over (static/host.js). A command that is not known here raises ValueError,
so that no formula is ever half shown: add it to one of the tables.
"""

import re
from collections.abc import Callable
from html import escape

TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|\d+(?:\.\d+)?|\s+|.", re.DOTALL)
OPERATORS = {
    "\\cdot": "·",
    "\\times": "×",
    "\\in": "∈",
    "\\le": "≤",
    "\\leq": "≤",
    "\\ge": "≥",
    "\\geq": "≥",
    "\\ne": "≠",
    "\\approx": "≈",
    "\\to": "→",
    "\\infty": "∞",
    "\\lfloor": "⌊",
    "\\rfloor": "⌋",
    "\\lceil": "⌈",
    "\\rceil": "⌉",
    "\\sum": "∑",
    "\\prod": "∏",
    "\\bmod": "mod",
    "\\ldots": "…",
    "\\dots": "…",
    "\\{": "{",
    "\\}": "}",
    "\\%": "%",
}
NAMES = {
    **{f"\\{name}": name for name in ("log", "ln", "exp", "max", "min")},
    "\\Delta": "Δ",
    "\\alpha": "α",
    "\\beta": "β",
    "\\lambda": "λ",
    "\\mu": "μ",
    "\\sigma": "σ",
    "\\ell": "ℓ",
}
SPACES = {"\\,": "0.17em", "\\;": "0.28em", "\\ ": "0.33em", "\\quad": "1em", "\\qquad": "2em"}
WORDS = {"\\text": "mtext", "\\mathrm": "mi", "\\operatorname": "mi", "\\mathsf": "mi"}
BLACKBOARD = {"R": "ℝ", "N": "ℕ", "Z": "ℤ"}
LIMITS = ("\\sum", "\\prod", "\\max", "\\min")
SKIPPED = ("\\!", "\\left", "\\right", "\\displaystyle")


def mathml(tex: str, display: bool = False) -> str:
    """One line of MathML. Raises ValueError for TeX outside of the tables above."""
    reader = _Reader(tex)
    body = reader.row()
    if reader.ahead:
        raise ValueError(f"formula {tex!r}: {reader.ahead} closes nothing")
    block = ' display="block"' if display else ""
    return f"<math{block}>{body}</math>"


class _Reader:
    """Reads tokens from left to right; `ahead` is the next one, empty at the end."""

    def __init__(self, tex: str) -> None:
        self.tex, self.tokens, self.place = tex, TOKEN.findall(tex), 0

    @property
    def ahead(self) -> str:
        while self.place < len(self.tokens) and self.tokens[self.place].isspace():
            self.place += 1
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        token = self.ahead
        if not token or (wanted and token != wanted):
            raise ValueError(f"formula {self.tex!r}: {wanted or 'something'} is missing")
        self.place += 1
        return token

    def row(self, ends: tuple[str, ...] = ("}",)) -> str:
        """Atoms with their indices, up to a token of `ends`, which stays."""
        found = []
        while self.ahead and self.ahead not in ends:
            if self.ahead in SKIPPED:
                self.take()
            else:
                found.append(self.scripted())
        return f"<mrow>{''.join(found)}</mrow>"

    def scripted(self) -> str:
        over = self.ahead in LIMITS
        atom, marks = self.atom(), {}
        while self.ahead in ("_", "^"):
            mark = self.take()
            marks[mark] = self.atom()
        if not marks:
            return atom
        below = "under" if over else "sub"
        above = "over" if over else "sup"
        kind = (below if "_" in marks else "") + (above if "^" in marks else "")
        return f"<m{kind}>{atom}{marks.get('_', '')}{marks.get('^', '')}</m{kind}>"

    def atom(self) -> str:
        token = self.take()
        if token in COMMANDS:
            return COMMANDS[token](self)
        for table, element in ((OPERATORS, _operator), (NAMES, _name), (SPACES, _space)):
            if token in table:
                return element(table[token])
        if token in WORDS:
            words = escape(self.raw()).replace(" ", "&#160;")
            return f'<{WORDS[token]} mathvariant="normal">{_plain(words)}</{WORDS[token]}>'
        if token.startswith("\\"):
            raise ValueError(f"formula {self.tex!r}: kvlab/book/mathml.py does not know {token}")
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        return f"<mi>{token}</mi>" if token.isalpha() else _operator(token)

    def group(self) -> str:
        """What stands in braces: here the opening one has been taken."""
        body = self.row()
        self.take("}")
        return body

    def raw(self) -> str:
        """The text in braces, or the one token that stands without them."""
        if self.ahead != "{":
            return self.take()
        self.take("{")
        start = self.place
        while self.place < len(self.tokens) and self.tokens[self.place] != "}":
            self.place += 1
        text = "".join(self.tokens[start : self.place])
        self.take("}")
        return re.sub(r"\\(.)", r"\1", text)

    def cases(self) -> str:
        """The lines of \\begin{cases}, whose `\\begin` has been taken."""
        if (name := self.raw()) != "cases":
            raise ValueError(f"formula {self.tex!r}: kvlab/book/mathml.py does not know {name}")
        rows, ends = [[]], ("&", "\\\\", "\\end")
        while True:
            rows[-1].append(f"<mtd>{self.row(ends)}</mtd>")
            end = self.take()
            if end == "\\end":
                break
            if end == "\\\\":
                rows.append([])
        self.raw()
        lines = "".join(f"<mtr>{''.join(row)}</mtr>" for row in rows)
        return f'<mrow><mo stretchy="true">{{</mo><mtable>{lines}</mtable></mrow>'


COMMANDS: dict[str, Callable[[_Reader], str]] = {
    "{": _Reader.group,
    "\\begin": _Reader.cases,
    "\\frac": lambda reader: f"<mfrac>{reader.atom()}{reader.atom()}</mfrac>",
    "\\sqrt": lambda reader: f"<msqrt>{reader.atom()}</msqrt>",
    "\\mathbb": lambda reader: f"<mi>{BLACKBOARD[reader.raw()]}</mi>",
}


def _operator(sign: str) -> str:
    return f"<mo>{_plain(escape(sign))}</mo>"


def _name(name: str) -> str:
    return f"<mi>{name}</mi>"


def _space(width: str) -> str:
    return f'<mspace width="{width}"></mspace>'


def _plain(text: str) -> str:
    """Text in which Markdown finds no mark of its own."""
    return "".join(f"&#{ord(sign)};" if sign in "*_`[]|~" else sign for sign in text)
