"""The book is built whole, and no mistake in it stays unseen: each check fails on a broken copy."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvlab.book.build import build
from kvlab.book.checks import Page, problems
from kvlab.book.folds import folded, keeps, split_code
from kvlab.book.manifest import Section, read
from kvlab.book.own_files import mark

ROOT = Path(__file__).parents[2]
VIEW = '<div class="kvlab-view" data-view="editor">\n<script type="application/json">{}</script>\n'
PAGE = "21_9_small"
SECTION = f"""
[[preprocessor.kvlab.section]]
id = "21.9"
notebook = "{PAGE}"
title = "Small"
minutes = 1
hardware = "any laptop"
written = true
claims = []
"""
Cell = dict[str, object]


def markdown(text: str) -> Cell:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def code(source: str, *outputs: dict) -> Cell:
    ran = {"execution_count": 1, "outputs": list(outputs)}
    return {"cell_type": "code", "metadata": {}, "source": source, **ran}


def result(**data: str) -> dict:
    named = {name.replace("_", "/"): content for name, content in data.items()}
    return {"output_type": "execute_result", "metadata": {}, "data": named}


ERROR = {"output_type": "error", "ename": "E", "evalue": "x", "traceback": ["E: so"]}
GOOD = [
    markdown("# 21.9 Small\n\nEq 9 aside, eq 21.2 says what $H_{kv}$ costs.\n\n## Its cost"),
    markdown("$$b = 2 \\cdot L \\tag{21.2}$$\n\n[above](21_9_small.ipynb#Its-cost)"),
    code("print(1)", {"output_type": "stream", "name": "stdout", "text": "one\n\n<b>two</b>\n"}),
    code("view", result(text_html=VIEW + "<table><tr><td>3</td></tr></table>\n</div>")),
]


@pytest.fixture
def clone(tmp_path: Path) -> Callable[..., Path]:
    """clone(*cells) is a clone whose only page has the good cells and these."""

    def make(*cells: Cell) -> Path:
        root = tmp_path / "clone"
        (root / "notebooks").mkdir(parents=True)
        (root / "kvlab").symlink_to(ROOT / "kvlab")
        before = (ROOT / "book.toml").read_text("utf-8").split("[[preprocessor")[0]
        (root / "book.toml").write_text(before + SECTION, encoding="utf-8")
        (root / "notebooks/SUMMARY.md").write_text(f"- [21.9 Small]({PAGE}.ipynb)\n", "utf-8")
        notebook = {"cells": [*GOOD, *cells], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        (root / f"notebooks/{PAGE}.ipynb").write_text(json.dumps(notebook), "utf-8")
        return root

    return make


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole book, from the notebooks as they are committed, by the command."""
    out = tmp_path_factory.mktemp("book") / "site"
    command = [sys.executable, "-m", "kvlab.cli", "book", "build", "--out", str(out)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert f"{out / 'index.html'}: built and checked in" in run.stdout
    return out


def html_outputs(notebook: dict) -> list[str]:
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    return ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]


def test_every_section_is_a_page_with_all_its_cells_views_and_formulas(site: Path) -> None:
    sections = read(ROOT).written
    assert len(sections) >= 7
    for section in sections:
        notebook = json.loads((ROOT / section.path).read_text("utf-8"))
        page = Page(site / f"{section.notebook}.html")
        cells = [c for c in notebook["cells"] if c["cell_type"] == "code" and c["source"]]
        views = sum('class="kvlab-view"' in html for html in html_outputs(notebook))
        runs = (notebook["cells"][place] for place in folded(notebook["cells"]))
        in_two = sum(all(split_code("".join(cell["source"]))) for cell in runs)
        assert (page.code, page.views, page.payloads) == (len(cells) + in_two, views, views)
        assert page.formulas == page.drawn
        shipped = (ROOT / section.path).read_bytes()
        assert (site / f"{section.notebook}.ipynb").read_bytes() == shipped


@pytest.mark.parametrize("section", read(ROOT).written, ids=lambda section: section.id)
def test_each_fold_of_a_page_is_code_by_itself_and_the_pages_words_are_in_it(
    site: Path, section: Section
) -> None:
    cells = json.loads((ROOT / section.path).read_text("utf-8"))["cells"]
    halves = [h for n in folded(cells) for h in split_code("".join(cells[n]["source"]))]
    for half in halves:
        ast.parse(half)
    text = (site / f"{section.notebook}.html").read_text("utf-8")
    assert "What the run shows" not in text
    checks = sum(cell["cell_type"] == "code" and keeps(cell) for cell in cells)
    assert text.count('class="kvlab-check"') == checks


def test_a_trace_stands_in_its_page_sign_by_sign(site: Path) -> None:
    notebook = json.loads((ROOT / "notebooks/21_6_growth.ipynb").read_text("utf-8"))
    (first, *_) = [html for html in html_outputs(notebook) if "kvlab-view" in html]
    payload = re.search(r'<script type="application/json">(.*)</script>', first)
    assert payload and payload[0] in (site / "21_6_growth.html").read_text("utf-8")


def test_an_equation_of_one_page_is_an_anchor_that_another_page_may_name(site: Path) -> None:
    growth, reuse = (Page(site / f"{name}.html") for name in ("21_6_growth", "21_1_reuse"))
    assert {"eq-21.2", "eq-21.6"} <= growth.ids
    assert {"eq-21.1", "eq-21.2", "eq-21.3"} <= reuse.ids
    assert "#eq-21.4" in Page(site / "21_2_latency.html").links


def test_only_pages_are_published_and_views_have_their_modules(site: Path) -> None:
    assert not (site / "source").exists()
    assert not (site / "conftest.py").exists()
    assert '<base href="./">' in (site / "404.html").read_text("utf-8")  # finds its styles here
    text = (site / "kvlab/book/static/views.js").read_text("utf-8")
    sources = json.loads(text.removeprefix("window.KVLAB_VIEWS = ").rstrip(";\n"))
    assert "player.js" in sources["views"]["cache_growth"]
    assert "VIEWS.cache_growth" in sources["parts"]["cache_growth.js"]


def test_a_file_of_the_package_that_a_page_names_lies_in_the_book(
    clone: Callable[..., Path], tmp_path: Path
) -> None:
    root = clone(markdown("[the engine](../kvlab/engine.py), [safe?](../SECURITY.md)"))
    (root / "SECURITY.md").write_text("# Safe?\n", encoding="utf-8")
    site = build(root, tmp_path / "site")
    assert (site / "files/kvlab/engine.py").read_bytes() == (ROOT / "kvlab/engine.py").read_bytes()
    assert (site / "files/SECURITY.md").read_text("utf-8") == "# Safe?\n"


def test_a_page_in_markdown_stands_beside_the_notebooks(
    clone: Callable[..., Path], tmp_path: Path
) -> None:
    root = clone()
    with (root / "notebooks/SUMMARY.md").open("a", encoding="utf-8") as summary:
        summary.write("- [More](more.md)\n")
    text = f"# More\n\n[there]({PAGE}.ipynb#Its-cost), eq 21.2 with $H_q$\n"
    (root / "notebooks/more.md").write_text(text, encoding="utf-8")
    page = Page(build(root, tmp_path / "site") / "more.html")
    assert {f"{PAGE}.html#its-cost", f"{PAGE}.html#eq-21.2"} <= set(page.links)
    assert (page.formulas, page.drawn) == (1, 1)
    (root / "notebooks/more.md").write_text(f"{text}\n~~~\nopen", encoding="utf-8")
    with pytest.raises(ValueError, match=r"more\.md: '~~~' is opened and never closed"):
        build(root, tmp_path / "site")


def test_a_small_page_is_built_and_an_old_site_goes_first(
    clone: Callable[..., Path], tmp_path: Path
) -> None:
    root, out = clone(), tmp_path / "site"
    build(root, out)
    (out / "old.html").write_text("<p>of an older book</p>", encoding="utf-8")
    mark(out)
    build(root, out)
    html = (out / f"{PAGE}.html").read_text("utf-8")
    assert not (out / "old.html").exists()
    assert "one\n\n&lt;b&gt;two&lt;/b&gt;" in html.replace("&#10;", "\n").replace("\n\n\n", "\n\n")
    assert 'href="#eq-21.2"' in html
    assert f'href="{PAGE}.html#its-cost"' in html
    assert 'These inputs need a kernel: <a href="21_9_small.ipynb" download' in html


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        (markdown("[x](nowhere.html)"), "the link nowhere.html leads nowhere"),
        (markdown("[x](../kvlab/no_such.py)"), "the link files/kvlab/no_such.py leads nowhere"),
        (markdown("[x](http://[bad)"), r"the link http://\[bad is no address"),
        (markdown("[x](#no-such-place)"), "leads to no anchor"),
        (markdown(f"[x]({PAGE}.ipynb#No-such-place)"), "#no-such-place leads to no anchor"),
        (code("x", result(text_html='<img src="http://a.example/x.png">')), "fetches http://a."),
        (markdown("![x](https://a.example/x.png)"), "fetches https://a.example/x.png"),
        (code("x", result(text_html="<style>a{b:url(//a.example/x)}</style>")), "fetches //a."),
        (markdown("A formula: $\\nosuch{x}$"), r"cell 5: formula .* does not know \\nosuch"),
        (markdown("As eq 21.77 says"), "'eq 21.77' is nowhere in the book"),
        (markdown("```python\nx = 1\n\nNo end, `y`"), r"cell 5: '```python' is opened and never"),
        (markdown("So $$a = b\n\nand on"), r"cell 5: '\$\$a = b' is opened and never closed"),
        (markdown("$$a \\tag{21.2}$$"), "number stands twice on one page"),
        (code("x", result(application_json="{}")), "an output is only application/json"),
        (code("x", ERROR), rf"{PAGE}\.ipynb: cell 5 ended in an error: mend it, or tag it"),
        (code("x") | {"execution_count": None}, rf"{PAGE}\.ipynb: cell 5 was not executed"),
        (
            code("x", result(**{"image_svg+xml": "<p>"})),
            "cell 5: an SVG picture without <svg: '<p>'",
        ),
        (code("x", {"output_type": "pyout"}), "cell 5 has an output of an unknown type, 'pyout'"),
        (markdown("<div>never closed\n\ntext"), "mdBook complains"),
        (code("x", result(text_html='<div class="kvlab-view">no trace</div>')), "have their trace"),
    ],
)
def test_a_mistake_on_a_page_fails_the_build(
    clone: Callable[..., Path], tmp_path: Path, cell: Cell, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        build(clone(cell), tmp_path / "site")


def test_an_error_that_was_asked_for_is_published(
    clone: Callable[..., Path], tmp_path: Path
) -> None:
    cell = code("x", ERROR) | {"metadata": {"tags": ["raises-exception"]}}
    site = build(clone(cell), tmp_path / "site")
    assert "<pre>E: so</pre>" in (site / f"{PAGE}.html").read_text("utf-8")


def test_a_notebook_that_is_cut_off_is_named(clone: Callable[..., Path], tmp_path: Path) -> None:
    root = clone()
    path = root / f"notebooks/{PAGE}.ipynb"
    path.write_text(path.read_text("utf-8")[:-9], encoding="utf-8")
    with pytest.raises(ValueError, match=rf"kvlab: {PAGE}\.ipynb is no notebook of nbformat 4"):
        build(root, tmp_path / "site")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('src = "notebooks"', 'src = "pages"', r"src names 'pages', which has no SUMMARY\.md"),
        ("python -m kvlab.book.preprocessor", "python -m no_such_module", "mdBook"),
        ('"kvlab/book/static/host.js"', '"kvlab/book/static/katex/katex.min.js"', "host.js once"),
        (f'notebook = "{PAGE}"', 'notebook = "21_8_other"', "this section is not in the book"),
        ("no-section-label = true", "no-section-label = true\nprint.enable = false", "print.html"),
    ],
)
def test_a_mistake_in_the_configuration_fails_the_build(
    clone: Callable[..., Path], tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    root = clone()
    text = (root / "book.toml").read_text("utf-8")
    assert old in text
    (root / "book.toml").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=complaint):
        build(root, tmp_path / "site")


@pytest.mark.parametrize(
    ("name", "old", "new", "complaint"),
    [
        (f"{PAGE}.html", "<math>", "<span>", f"{PAGE}.html: 2 formulas, 1 of them as MathML"),
        ("print.html", "language-python", "language-none", "print.html: code: 0 of 2"),
        ("print.html", "kvlab-view", "kvlab-no-view", "print.html: views: 0 of 1"),
        ("toc.html", "<body", '<script src="https://a.example/x.js"></script><body', "fetches"),
        ("kvlab/book/static/book*.css", ":root{", "@import '//a.example/x';:root{", "fetches //a"),
    ],
)
def test_a_damaged_site_is_noticed(
    clone: Callable[..., Path], tmp_path: Path, name: str, old: str, new: str, complaint: str
) -> None:
    site = build(clone(), tmp_path / "site")
    assert problems(site, [PAGE]) == []
    (path,) = site.glob(name)
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    (found,) = problems(site, [PAGE])
    assert complaint in found


def test_a_notebook_that_cannot_be_downloaded_is_noticed(
    clone: Callable[..., Path], tmp_path: Path
) -> None:
    site = build(clone(), tmp_path / "site")
    (site / f"{PAGE}.ipynb").unlink()
    assert f"{PAGE}.ipynb: cannot be downloaded" in problems(site, [PAGE])


def test_a_preprocessor_that_mdbook_skips_is_noticed(
    clone: Callable[..., Path], tmp_path: Path
) -> None:
    root = clone()
    text = (root / "book.toml").read_text("utf-8")
    skipped = text.replace("python -m kvlab.book.preprocessor", "false")  # supports nothing
    (root / "book.toml").write_text(skipped, encoding="utf-8")
    notebook = {"cells": [code("print(1)")]}
    (root / f"notebooks/{PAGE}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    with pytest.raises(ValueError, match="shows no code; the preprocessor did not run"):
        build(root, tmp_path / "site")


def test_a_folder_of_something_else_is_not_deleted(
    clone: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear", encoding="utf-8")
    with pytest.raises(ValueError, match="something else than an old book"):
        build(clone(), tmp_path / "mine")
    assert (tmp_path / "mine/letter.txt").read_text("utf-8") == "dear"
