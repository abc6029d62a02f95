"""mdBook's preprocessor: notebooks, as they are committed, become chapters, beside Markdown pages.

    python -m kvlab.book.preprocessor supports html    exit 0: yes
    python -m kvlab.book.preprocessor                  [context, book] as JSON in, book out

mdBook reads an .ipynb file of SUMMARY.md as if it were Markdown, so each chapter's content arrives
as the notebook's JSON. Nothing is executed here. Where the summary lists the API reference, its
pages are made from the package's text (reference.py). A mistake in a page ends with exit code 1 and
one line on stderr.
"""

import json
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from kvlab.book.cells import chapter
from kvlab.book.links import GITHUB, binder_url, colab_url
from kvlab.book.manifest import read
from kvlab.book.notebook_file import not_as_run, parsed
from kvlab.book.prose import FILES, Places, equation_numbers, rewrite
from kvlab.book.reference import INDEX, Reference, reference
from kvlab.book.reference_names import READING

ENDING = ".ipynb"


def chapters(items: list[Any]) -> Iterator[dict[str, Any]]:
    """Every chapter of mdBook's tree, in order; separators and part titles are left out."""
    for item in items:
        if isinstance(item, dict) and "Chapter" in item:
            yield item["Chapter"]
            yield from chapters(item["Chapter"]["sub_items"])


def convert(context: dict[str, Any], book: dict[str, Any]) -> dict[str, Any]:
    """Change the chapters in place. Raises ValueError for a page's mistake."""
    pages = {}
    texts = {one["path"]: one["content"] for one in chapters(book["items"])}  # as committed
    for one in chapters(book["items"]):
        if (one["path"] or "").endswith(ENDING):
            pages[one["path"].removesuffix(ENDING)] = (one, _as_run(one["content"], one["path"]))
    numbers = {page: _numbers(page, notebook) for page, (_, notebook) in pages.items()}
    first: dict[str, str] = {}
    for page, found in numbers.items():
        for number in found:
            first.setdefault(number, page)
    repository = read(Path(context["root"])).repository
    has_readme = (Path(context["root"]) / "README.md").is_file()
    for page, (one, notebook) in pages.items():
        places = Places(frozenset(numbers[page]), first)
        line = doors(page, repository, has_readme=has_readme)
        one["content"] = chapter(notebook, page, line, places)
    for one in chapters(book["items"]):
        if (one["path"] or "").endswith(".md"):
            one["content"] = _rewritten(one["path"], one["content"], first)
    notebooks = {page: notebook for page, (_, notebook) in pages.items()}
    if f"{INDEX}.md" in texts:
        root, reading = Path(context["root"]), texts.get(READING, "")
        _add_reference(reference(root, notebooks, reading, first), book["items"])
    return book


def _as_run(content: str, path: str) -> dict[str, Any]:
    """A notebook that was run whole. Raises ValueError for a cell that was not, or that failed."""
    notebook = parsed(content, path)
    if found := "; ".join(not_as_run(notebook["cells"])):
        raise ValueError(f"{path}: {found}")
    return notebook


def _rewritten(path: str, text: str, first: dict[str, str]) -> str:
    try:
        return rewrite(text, Places(frozenset(equation_numbers(text)), first))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _add_reference(made: Reference, items: list[Any]) -> None:
    """Fill the reference's index, put its pages below it, and lead links to where each name is."""
    for one in chapters(items):
        one["content"] = made.linked(one["content"])
    index = next(one for one in chapters(items) if one["path"] == f"{INDEX}.md")
    index["content"] = made.filled(index["content"])
    index["sub_items"] = [
        {
            "Chapter": {
                "name": title,
                "content": text,
                "number": [1, number],  # never shown; it sets the pages in, in the sidebar
                "sub_items": [],
                "path": f"{page}.md",
                "source_path": None,
                "parent_names": [index["name"]],
            }
        }
        for number, (page, title, text) in enumerate(made.pages, start=1)
    ]


def _numbers(page: str, notebook: dict[str, Any]) -> list[str]:
    """The page's equation numbers. Raises ValueError for one that stands there twice."""
    texts = ("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "markdown")
    found = [number for text in texts for number in equation_numbers(text)]
    if len(found) != len(set(found)):
        raise ValueError(
            f"{page}{ENDING}: an equation's number stands twice on one page: {', '.join(found)}"
        )
    return found


def doors(page: str, repository: str, *, has_readme: bool = False) -> str:
    """Where the page can be run: a clone, its notebook; Colab and Binder at a known address."""
    links = [f'<a href="{page}{ENDING}" download>download it</a>']
    if repository.startswith(GITHUB):
        path = f"notebooks/{page}{ENDING}"
        links += [
            f'<a href="{escape(colab_url(repository, path))}">open in Colab</a>',
            f'<a href="{escape(binder_url(repository, path))}">open in Binder</a>',
        ]
    install = "<code>make lab</code> in a clone of kvlab"
    if has_readme:  # %2E: mdBook would write .html for .md
        install += f' (<a href="{FILES}README%2Emd">README</a>)'
    said = f"What you see is the notebook as it ran. To run it yourself: {install} ·"
    return f'<p class="kvlab-doors">{said} {" · ".join(links)}</p>'


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["supports"]:
        return 0 if arguments[1:] == ["html"] else 1
    try:
        context, book = json.load(sys.stdin)
        json.dump(convert(context, book), sys.stdout)
    except (ValueError, OSError) as error:
        print(f"kvlab: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
