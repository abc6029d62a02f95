"""A notebook's Markdown as mdBook reads it: formulas as elements, links that lead to pages.

What stands in code is left alone. A formula becomes an element that carries its TeX (for KaTeX) and
its MathML (for a page without scripts); a numbered one is an anchor, `\\tag{21.2}` being #eq-21.2,
and "eq 21.2" in the text a link to it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from urllib.parse import unquote

from kvlab.book.mathml import mathml

PIECES = re.compile(
    r"""(?P<fence>^[ ]*(?P<ticks>`{3,}|~{3,}).*?^[ ]*(?P=ticks)[`~]*[ ]*$)
      | (?P<code>(?<!`)(?P<tick>`+)(?!`).*?(?<!`)(?P=tick)(?!`))
      | (?<!\\)\$\$(?P<display>.+?)\$\$
      | (?<!\\)\$(?P<inline>[^\s$](?:[^$]*?[^\s$\\])?)\$(?!\d)
      | \]\((?P<link>[^)\s]+)\)
      | \b(?P<says>eqs?\.?|equations?)[ ]\(?(?P<number>21\.\d+)\)?""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
OPENED = re.compile(r"^[ ]*(?:`{3,}|~{3,}).*|(?<!\\)\$\$.*", re.MULTILINE)
FILES = "files/"  # in the site: what pages link to in the clone
TAG = re.compile(r"\s*\\tag\{([^}]*)\}\s*")


@dataclass(frozen=True)
class Places:
    """Where an equation's number leads from one page: to this page, or else to its first.

    here: the numbers of this page. first: number -> the page (without ending) that has it first.
    """

    here: frozenset[str]
    first: Mapping[str, str]

    def address(self, number: str) -> str | None:
        if number in self.here:
            return f"#eq-{number}"
        return f"{self.first[number]}.html#eq-{number}" if number in self.first else None


def equation_numbers(markdown: str) -> list[str]:
    """The numbers of the equations, in order."""
    shown = (match["display"] for match in PIECES.finditer(markdown))
    return [tag[1] for formula in shown if formula for tag in TAG.finditer(formula)]


def rewrite(markdown: str, places: Places) -> str:
    """The text for mdBook.

    Raises ValueError for a formula unknown to mathml.py, an equation that is nowhere, and a fence
    or a `$$` that is never closed: mdBook would show the rest of the page as code, or the TeX.
    """
    if left := OPENED.search(PIECES.sub("x", markdown)):
        raise ValueError(f"{left[0].strip()[:60]!r} is opened and never closed")

    def piece(match: re.Match[str]) -> str:
        for name, made in RULES.items():
            if match[name] is not None:
                return made(match, places)
        return match[0]  # code

    return PIECES.sub(piece, markdown)


def _display(match: re.Match[str], _: Places) -> str:
    tex = match["display"]
    number = TAG.search(tex)
    formula = _formula("div", TAG.sub("", tex), "kvlab-math kvlab-display", display=True)
    tag = f'<span class="kvlab-tag">({number[1]})</span>' if number else ""
    anchor = f' id="eq-{number[1]}"' if number else ""
    return f'<div class="kvlab-equation"{anchor}>{formula}{tag}</div>'


def _inline(match: re.Match[str], _: Places) -> str:
    return _formula("span", match["inline"], "kvlab-math", display=False)


def _formula(element: str, tex: str, kind: str, display: bool) -> str:
    tex = " ".join(tex.split())
    source = escape(tex).replace("|", "&#124;")  # a bar would end a table's cell
    return f'<{element} class="{kind}" data-tex="{source}">{mathml(tex, display)}</{element}>'


def _link(match: re.Match[str], _: Places) -> str:
    return f"]({page_address(match['link'])})"


def page_address(link: str) -> str:
    """`21_6_growth.ipynb#The-cells` as the book's own address; any other link as it is.

    A file beside the notebooks' folder, as `../kvlab/engine.py`, is copied into the book. mdBook
    takes any link to .md for one of its pages; written %2Emd it is left alone.
    """
    if link.startswith("../"):
        return FILES + re.sub(r"\.md(?=#|$)", "%2Emd", link.removeprefix("../"))
    place, mark, heading = link.partition("#")
    if "://" in link or not (place.endswith(".ipynb") or (mark and not place)):
        return link
    page = place.removesuffix(".ipynb") + ".html" if place else ""
    return page + mark + heading_anchor(unquote(heading))


def heading_anchor(heading: str) -> str:
    """JupyterLab's anchor of a heading (its text with hyphens) as mdBook's."""
    if heading.startswith("eq-"):
        return heading
    kept = (sign for sign in heading.lower() if sign.isalnum() or sign in "-_ ")
    return "".join(kept).replace(" ", "-")


def _reference(match: re.Match[str], places: Places) -> str:
    address = places.address(match["number"])
    if address is None:
        raise ValueError(f"{match[0]!r} is nowhere in the book: no formula has \\tag")
    return f"[{match[0]}]({address})"


RULES: dict[str, Callable[[re.Match[str], Places], str]] = {
    "display": _display,
    "inline": _inline,
    "link": _link,
    "number": _reference,
}
