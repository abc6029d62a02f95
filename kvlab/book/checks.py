"""What a built site must be: every section whole, no dead link, nothing from elsewhere."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

# Attributes that make a browser fetch something; a link that a reader may follow is none of them.
FETCHED = {
    ("script", "src"),
    ("img", "src"),
    ("img", "srcset"),
    ("source", "src"),
    ("video", "src"),
    ("audio", "src"),
    ("iframe", "src"),
    ("object", "data"),
    ("embed", "src"),
    ("link", "href"),
    ("use", "href"),
}
CSS_ADDRESS = re.compile(r"""(?:url\(\s*|@import\s+)["']?([^"')\s]+)""")
GENERATED = ("404.html", "toc.html")  # their links are relative to the site's address


def text_of(path: Path) -> str:
    """A file of the site. Raises ValueError, naming it, where it is no UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name}: {error}") from None


class Page(HTMLParser):
    """What a page holds: its anchors, what it links to, what it fetches, and how much it shows.

    Raises ValueError as `text_of`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.notebooks: list[str] = []
        self.fetched: list[str] = []
        self.code = self.views = self.payloads = self.formulas = self.drawn = 0
        self._style = False
        self.feed(text_of(path))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
            parts = _split(given["href"])
            if parts and "download" not in given and parts.path.endswith(".ipynb"):
                self.notebooks.append(given["href"])
        self.fetched += [given[name] for kind, name in FETCHED if kind == tag and name in given]
        self.fetched += CSS_ADDRESS.findall(given.get("style", ""))
        kinds = given.get("class", "").split()
        self.code += "language-python" in kinds
        self.views += "kvlab-view" in kinds
        self.payloads += tag == "script" and given.get("type") == "application/json"
        self.formulas += "kvlab-math" in kinds
        self.drawn += tag == "math"
        self._style = tag == "style"

    def handle_data(self, data: str) -> None:
        if self._style:
            self.fetched += CSS_ADDRESS.findall(data)

    def handle_endtag(self, tag: str) -> None:
        self._style = False


def problems(site: Path, sections: list[str]) -> list[str]:
    """One line for each thing that is wrong. sections: pages that must be there, without ending."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    found = [line for name in sections for line in _incomplete(site, name, pages)]
    there = [pages[site / f"{name}.html"] for name in sections if site / f"{name}.html" in pages]
    found += _missing_in_print(there, pages.get(site / "print.html"))
    places = {path.resolve(): page for path, page in pages.items()}
    for path, page in places.items():
        if path.name not in GENERATED:
            found += [f"{path.name}: {what}" for what in _dead(path, page, places)]
        found += [f"{path.name}: fetches {what}" for what in page.fetched if _is_remote(what)]
    for path in sorted(site.rglob("*.css")):
        addresses = CSS_ADDRESS.findall(text_of(path))
        found += [f"{path.name}: fetches {what}" for what in addresses if _is_remote(what)]
    return found


def _incomplete(site: Path, name: str, pages: dict[Path, Page]) -> Iterator[str]:
    path = site / f"{name}.html"
    if path not in pages:
        yield f"{name}.html: this section is not in the book; is it in SUMMARY.md?"
        return
    page = pages[path]
    if not page.code:
        yield f"{name}.html: shows no code; the preprocessor did not run"
    if page.views != page.payloads:
        yield f"{name}.html: {page.views} views, but {page.payloads} have their trace"
    if page.formulas != page.drawn:
        yield f"{name}.html: {page.formulas} formulas, {page.drawn} of them as MathML"
    if not (site / f"{name}.ipynb").is_file():
        yield f"{name}.ipynb: cannot be downloaded"


def _missing_in_print(sections: list[Page], whole: Page | None) -> Iterator[str]:
    """What the sections hold together, the print page must hold."""
    if whole is None:
        yield "print.html: is not there"
        return
    for what in ("code", "views", "payloads", "formulas"):
        wanted, found = sum(getattr(page, what) for page in sections), getattr(whole, what)
        if found < wanted:
            yield f"print.html: {what}: {found} of {wanted}"


def _dead(path: Path, page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    yield from (f"the link {link} leads to a notebook's file" for link in page.notebooks)
    for link in dict.fromkeys(page.links):
        parts = _split(link)
        if parts is None:
            yield f"the link {link} is no address"
            continue
        if parts.scheme or parts.netloc:
            continue
        beside = path.parent / unquote(parts.path)
        target = path if not parts.path else beside if beside in pages else beside.resolve()
        if target not in pages and not target.is_file():
            yield f"the link {link} leads nowhere"
        elif parts.fragment and target.suffix == ".html":
            there = pages.get(target, page)
            if unquote(parts.fragment) not in there.ids:
                yield f"the link {link} leads to no anchor"


def _is_remote(address: str) -> bool:
    parts = _split(address.strip())
    return parts is None or parts.scheme in ("http", "https", "ftp") or bool(parts.netloc)


def _split(address: str) -> SplitResult | None:
    """None for what no browser reads, as http://[x"""
    try:
        return urlsplit(address)
    except ValueError:
        return None
