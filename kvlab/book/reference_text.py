"""A docstring as HTML: its paragraphs, drawings and lists, and what it says of each parameter.

The package's docstrings are prose with a few fixed openings, which become terms with their
description: a parameter's name and a colon, `Returns`, `Yields`, `Raises`, `Source:`. Lines that
are set in, or in columns, are a drawing or a formula. A sentence like "Section 21.5." is left out
here: it becomes a link beside the name.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby, pairwise, zip_longest

NUMBER = r"21\.\d[a-z]?(?![\w-])"
NUMBERS = rf"{NUMBER}(?:(?:,|\s+and|,\s+and)\s+{NUMBER})*"
ALONE = re.compile(rf"(?:^|(?<=[.)]))\s*\bSections?\s+{NUMBERS}\.(?=\s|$)")
EQUATION = re.compile(r"\((21\.\d+)\)")
CLOSING = re.compile(rf"\b[Ss]ections?\s+{NUMBERS}\)?\.?\s*$")
COLUMNS = re.compile(r"\s|.*\S {2,}\S")  # set in, or with a gap as between columns
SENTENCE = re.compile(r"""(?<=[\w)\]`'"]\.)(?:\s+(?=[A-Z`\[(]|\w+: )|\n)""")
OPENING = re.compile(
    r"(?:^|(?<=[.;)])\s)(?:(?P<source>Sources?(?: of [\w ,]+)?): |(?P<says>Returns|Yields|Raises) "
    r"|(?P<names>\w+(?:(?:, | and )\w+)*): )",
    re.MULTILINE,
)
INLINE = re.compile(
    rf"""``(?P<twice>.+?)`` | `(?P<once>[^`]+)`
      | (?P<sections>\b[Ss]ections?[ ]{NUMBERS})
      | (?P<equation>\b(?:[Ee]qs?\.?|[Ee]quations?)[ ]\(?(?P<number>21\.\d+)\)?)
      | (?<![\w*])(?P<stars>\*\*?)(?P<stressed>[^\s*](?:[^*]*[^\s*])?)(?P=stars)(?![\w*])
      | (?<![\w/.])(?P<file>(?:kvlab/)?[a-z]+(?:/\w+)+\.py)\b
      | (?P<error>\b[A-Z]\w*Error\b)
      | (?<![\w\[\]])(?P<shape>\[(?:\.\.\.|[\w*/+ -]+)(?:,[ ](?:\.\.\.|[\w*/+ -]+))*\])""",
    re.VERBOSE,
)
Address = Callable[[str], str | None]  # None: it leads nowhere


@dataclass(frozen=True)
class Links:
    """Where the words of a docstring lead, from the page that it stands on."""

    name: Address
    section: Address
    equation: Address
    file: Address


def sections_of(text: str) -> list[str]:
    """The sections that a text names, each once, in order."""
    named = re.findall(rf"\b[Ss]ections?\s+({NUMBERS})", text)
    return list(dict.fromkeys(n for group in named for n in re.findall(NUMBER, group)))


def taught_in(doc: str) -> list[str]:
    """The sections that a docstring gives as its own: by a sentence of their own, or at its end."""
    first, *_ = doc.split("\n\n", maxsplit=1)
    ends = (match[0] for text in (first, doc) if (match := CLOSING.search(text)))
    return sections_of(" ".join([*(match[0] for match in ALONE.finditer(doc)), *ends]))


def summary(doc: str) -> str:
    """The first sentence of a docstring, as text."""
    first = " ".join(doc.partition("\n\n")[0].split())
    return SENTENCE.split(first, maxsplit=1)[0]


def render(doc: str, parameters: Sequence[str], width: int, links: Links) -> str:
    """HTML without a blank line, so that Markdown leaves it alone.

    parameters: names that begin a description. width: the most signs of a line; where a line ends
    although the next word would fit, its author meant an end.
    """
    shown = []
    for block in re.split(r"\n\s*\n", doc.strip("\n")):
        for kind, lines in _runs(block.split("\n")):
            if kind == "drawing":
                shown.append(_drawing(lines, links))
            elif kind == "list":
                shown.append(_list(lines, links))
            else:
                shown.extend(_paragraph(lines, parameters, width, links))
    return "\n".join(shown)


def inline(text: str, links: Links) -> str:
    """One line of text: code, shapes, *stress*, and links to names, files, sections, equations."""
    text, parts, end = " ".join(text.split()), [], 0
    for match in INLINE.finditer(text):
        parts += [escape(text[end : match.start()], quote=False), _inline(match, links)]
        end = match.end()
    return "".join([*parts, escape(text[end:], quote=False)])


def _inline(match: re.Match[str], links: Links) -> str:
    if code := match["twice"] or match["once"]:
        name = re.match(r"[\w.]+", code)
        return _link(f"<code>{escape(code)}</code>", links.name(name[0]) if name else None)
    if match["sections"]:
        return re.sub(NUMBER, lambda one: _link(one[0], links.section(one[0])), match[0])
    if match["equation"]:
        address = links.equation(match["number"])
        if address is None:
            raise ValueError(f"{match[0]!r} is nowhere in the book: no formula has \\tag")
        return _link(match[0], address)
    if match["stars"]:
        element = "em" if match["stars"] == "*" else "strong"
        return f"<{element}>{inline(match['stressed'], links)}</{element}>"
    if match["file"]:
        return _link(f"<code>{match[0]}</code>", links.file(match[0]))
    return f"<code>{escape(match[0])}</code>"


def _link(shown: str, address: str | None) -> str:
    return shown if address is None else f'<a href="{escape(address)}">{shown}</a>'


def _runs(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """A block's lines as ("text" | "drawing" | "list", lines) one after another."""
    kinds = []
    for line in lines:
        in_list = kinds[-1:] == ["list"] and line.startswith("  ")
        if line.startswith("- ") or in_list:
            kinds.append("list")
        else:
            kinds.append("drawing" if COLUMNS.match(line) else "text")
    for kind, run in groupby(zip(kinds, lines, strict=True), key=lambda pair: pair[0]):
        yield kind, [line for _, line in run]


def _drawing(lines: list[str], links: Links) -> str:
    """Sign by sign; a formula's number, as (21.2), is a link to it."""
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    text = escape("\n".join(line[margin:] for line in lines), quote=False)
    text = EQUATION.sub(lambda match: f"({_link(match[1], links.equation(match[1]))})", text)
    return f"<pre>{text}</pre>"


def _list(lines: list[str], links: Links) -> str:
    items = re.split(r"(?:^|\n)- ", "\n".join(lines))[1:]
    return f"<ul>{''.join(f'<li>{inline(item, links)}</li>' for item in items)}</ul>"


def _paragraph(
    lines: list[str], parameters: Sequence[str], width: int, links: Links
) -> Iterator[str]:
    text = ALONE.sub("", _with_ends(lines, width))
    pieces = list(_pieces(text, parameters))
    for is_term, run in groupby(pieces, key=lambda piece: piece[0] is not None):
        if is_term:
            yield f'<dl class="kvlab-said">{"".join(_term(*piece, links) for piece in run)}</dl>'
        else:
            yield from (f"<p>{inline(said, links)}</p>" for _, said in run)


def _with_ends(lines: list[str], width: int) -> str:
    """One line; where the author ended one early, after a sentence, the sign of a line's end."""
    text = lines[0]
    for before, line in pairwise(lines):
        word = line.split(" ", 1)[0]
        early = before.endswith((".", ".)")) and len(before) + 1 + len(word) <= width
        text += ("\n" if early else " ") + line
    return text


def _pieces(text: str, parameters: Sequence[str]) -> Iterator[tuple[str | None, str]]:
    """(term, description) and (None, plain text), in order."""
    found = [one for one in OPENING.finditer(text) if _opens(one, parameters)]
    if before := text[: found[0].start() if found else None].strip():
        yield None, before
    for match, following in zip_longest(found, found[1:]):
        said = text[match.end() : following.start() if following else None]
        cut = SENTENCE if match["says"] else re.compile("\n")
        own, *rest = cut.split(said, maxsplit=1)
        yield match["names"] or match["says"] or match["source"], own
        if after := "".join(rest).strip():
            yield None, after


def _opens(match: re.Match[str], parameters: Sequence[str]) -> bool:
    names = match["names"]
    return names is None or set(re.split(", | and ", names)) <= set(parameters)


def _term(term: str | None, said: str, links: Links) -> str:
    says = (term or "").startswith(("Returns", "Yields", "Raises", "Source"))
    shown = term if says else re.sub(r"\w+(?=, | and |$)", r"<code>\g<0></code>", term or "")
    return f"<dt>{shown}</dt><dd>{inline(said.strip().rstrip(';'), links)}</dd>"
