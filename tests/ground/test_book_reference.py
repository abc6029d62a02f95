"""The API reference: every name that a reader meets, as the package's text has it."""

import html
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvlab.book.build import build
from kvlab.book.checks import Page
from kvlab.book.reference import INDEX, Reference, reference
from kvlab.book.reference_commands import commands
from kvlab.book.reference_names import PACKAGES, READING
from kvlab.book.reference_source import module_path, read_module, resolve
from kvlab.book.reference_text import Links, render, summary, taught_in

ROOT = Path(__file__).parents[2]
READING_TEXT = (ROOT / "notebooks" / READING).read_text("utf-8")
NOTEBOOKS = {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
}
NOWHERE = Links(*[lambda _: None] * 4)
SOMEWHERE = Links(
    lambda name: {"free": "api_core.html#free"}.get(name),
    lambda number: f"{number}.html",
    lambda number: {"21.2": "here.html#eq-21.2"}.get(number),
    lambda path: f"files/{path}",
)
CORE = ("block_pool", "memory", "kv_cache_manager", "scheduler_output")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("book") / "site")


@pytest.fixture(scope="module")
def shown(site: Path) -> dict[str, str]:
    """anchor -> the text under its heading. An anchor that stands twice fails."""
    found: dict[str, str] = {}
    for path in sorted(site.glob("api_*.html")):
        text = path.read_text("utf-8").partition("<main>")[2].partition("</main>")[0]
        for part in re.split(r"(?=<h[234] id=)", text)[1:]:
            anchor = re.match(r'<h\d id="([^"]+)"', part)
            assert anchor and anchor[1] not in found
            found[anchor[1]] = html.unescape(re.sub(r"<[^>]+>", "", part))
    return found


def homes(package: str) -> dict[str, str]:
    """What a package offers: name -> the module that it comes from, without importing that."""
    there = importlib.import_module(package)
    lazy = getattr(there, "_HOME", None)
    if lazy is not None:
        return dict(lazy)
    return {name: getattr(there, name).__module__ for name in there.__all__}


@pytest.mark.parametrize("package", PACKAGES)
def test_what_a_package_offers_is_there_with_its_signature(
    package: str, shown: dict[str, str]
) -> None:
    offered = homes(package)
    assert len(offered) >= 2
    for name, module in offered.items():
        text = shown[f"{module}.{name}"]
        assert re.search(rf"\b(?:class {name}\b|def {name}\()", text), name
        assert f"{module.replace('.', '/')}.py, line " in text


@pytest.mark.parametrize("path", re.findall(r"\]\(\.\./(kvlab/[\w/]+)\.py\)", READING_TEXT))
def test_what_a_file_of_the_engine_defines_is_there(path: str, shown: dict[str, str]) -> None:
    text = (ROOT / f"{path}.py").read_text("utf-8")
    names = re.findall(r"^(?:class|def) ([a-zA-Z]\w*)", text, re.MULTILINE)
    assert names
    assert [n for n in names if f"{path.replace('/', '.')}.{n}" not in shown] == []


@pytest.mark.parametrize("name", CORE)
def test_a_signature_has_every_parameter_with_its_type_and_default(
    name: str, shown: dict[str, str]
) -> None:
    module = importlib.import_module(f"kvlab.core.{name}")
    for entry in read_module(ROOT, module.__name__).entries.values():
        if entry.anchor not in shown or entry.kind == "constant":
            continue
        for one in (entry, *entry.members):
            real = inspect.getattr_static(module, entry.name)
            if one is not entry:
                real = inspect.getattr_static(real, one.name.split(".")[1])
            real = getattr(real, "fget", None) or getattr(real, "__func__", real)
            for parameter in inspect.signature(real).parameters.values():
                default = "" if parameter.default is parameter.empty else " = "
                typed = "" if parameter.name == "self" else rf": [^\n]+{default}"
                assert re.search(rf"\b{parameter.name}\b{typed}", shown[one.anchor])


def test_what_notebooks_import_from_its_modules_is_there(shown: dict[str, str]) -> None:
    for anchor in (
        "kvlab.core.formats.FORMATS",  # a constant
        "kvlab.core.transfers.BlockCopy",  # imported by way of kv_cache_manager
        "kvlab.measure.engine_options.markdown",  # module.NAME
        "kvlab.measure.ledger.byte_ledger",
        "kvlab.tiny.prompt",
    ):
        assert anchor in shown
    assert "def byte_ledger(" in shown["kvlab.measure.ledger.byte_ledger"]


def test_shapes_beside_parameters_and_fields_are_kept(shown: dict[str, str]) -> None:
    spec = shown["kvlab.tensors.attention.paged_attention_spec"]
    assert "query: Tensor,  # [N, num_query_heads, head_dim], rows of all requests" in spec
    assert "positions: Tensor  # [N] counted" in shown["kvlab.tensors.input_batch.InputBatch"]


def test_commands_are_there_with_each_option(shown: dict[str, str]) -> None:
    assert {"kvlab lab", "kvlab serve", "kvlab book build"} <= {one.name for one in commands()}
    for one in commands():
        text = shown[one.anchor]
        assert one.doc in text
        assert all(option.shown in text and option.help in text for option in one.options)


def test_a_name_leads_to_its_file_and_to_the_section_that_teaches_it(site: Path) -> None:
    core = Page(site / "api_core.html")
    assert {"files/kvlab/core/block_pool.py", "21_5_paging.html"} <= set(core.links)
    assert "api_core.html#kvlab.core.kv_cache_manager.KVCacheManager.cache_blocks" in core.links
    assert (site / "files/kvlab/core/block_pool.py").is_file()


def test_read_the_engine_leads_to_the_names(site: Path) -> None:
    links = [link for link in Page(site / "reading_the_engine.html").links if "api_" in link]
    assert "api_core.html#kvlab.core.block_pool.BlockPool.touch" in links
    asked = re.findall(rf"\]\({INDEX}\.md#([\w.]+)\)", READING_TEXT)
    assert len(asked) > 20
    assert [name for name in asked if not any(link.endswith(f"#{name}") for link in links)] == []


def test_the_print_page_and_the_search_have_the_names(site: Path, shown: dict[str, str]) -> None:
    assert len(shown) > 500
    assert set(shown) - Page(site / "print.html").ids == set()
    (index,) = site.glob("searchindex-*.js")
    text = index.read_text("utf-8")
    for name in ("BlockPool", "allocate_slots", "kv_cache_gib"):
        assert re.search(rf'"title":\s*"{name}"', text.replace('\\"', '"'))


def test_the_index_lists_every_name_and_no_mark_is_left(site: Path, shown: dict[str, str]) -> None:
    links = [link.partition("#")[2] for link in Page(site / f"{INDEX}.html").links]
    names = [a for a in shown if (e := find(a)) is not None and "." not in e]
    assert len(names) > 200
    assert set(names) - set(links) == set()
    assert "make book" not in (site / f"{INDEX}.html").read_text("utf-8").partition("<main>")[2]
    assert "make book" in (ROOT / f"notebooks/{INDEX}.md").read_text("utf-8")


def find(anchor: str) -> str | None:
    """The name in an anchor, without its module."""
    module, _, name = anchor.rpartition(".")
    return name if (entry := resolve(ROOT, module, name)) and entry.anchor == anchor else None


def test_a_file_beside_the_clone_is_none_of_its_modules(tmp_path: Path) -> None:
    (tmp_path / "kvlab.py").write_text("", encoding="utf-8")
    (tmp_path / "kvlab").mkdir()
    assert module_path(tmp_path / "kvlab", "") is None
    assert module_path(tmp_path, "kvlab") == tmp_path / "kvlab.py"


# ---- what fails


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package's text, the manifest and nothing else."""
    shutil.copytree(
        ROOT / "kvlab",
        tmp_path / "kvlab",
        ignore=lambda folder, names: [n for n in names if "." in n and not n.endswith(".py")],
    )
    shutil.copy(ROOT / "book.toml", tmp_path)
    return tmp_path


def made(root: Path) -> Reference:
    equations = {f"21.{n}": "21_1_reuse" for n in range(1, 8)}
    return reference(root, NOTEBOOKS, READING_TEXT, equations)


POOL = "kvlab/core/block_pool.py"
DEF, FIRST = "def cdiv(", '    "CacheGrowth": '


@pytest.mark.parametrize(
    ("file", "place", "added", "complaint"),
    [
        (POOL, DEF, "def bare() -> None:\n    pass\n", "block_pool.py, line 19: bare has no doc"),
        (POOL, DEF, "class Bare:\n    size: int\n", "block_pool.py, line 19: Bare has no doc"),
        (POOL, DEF, 'def f():\n    """As eq 21.77."""\n', "'eq 21.77' is nowhere in the book"),
        (POOL, DEF, "def f(:\n", "block_pool.py is no Python: "),
        ("kvlab/widgets/__init__.py", FIRST, '"Gone": "kvlab.cli",\n', "kvlab.widgets offers Gone"),
    ],
)
def test_a_mistake_in_the_package_fails(
    copy: Path, file: str, place: str, added: str, complaint: str
) -> None:
    path = copy / file
    before = path.read_text("utf-8")
    assert before.count(place) == 1
    path.write_text(before.replace(place, added + place), encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(complaint)):
        made(copy)


def test_a_private_function_needs_no_docstring(copy: Path) -> None:
    path = copy / "kvlab/core/block_pool.py"
    path.write_text(f"{path.read_text('utf-8')}\n\ndef _bare():\n    pass\n", encoding="utf-8")
    assert "kvlab.core.block_pool._bare" not in made(copy).anchors


def test_a_link_to_no_name_and_an_index_without_marks_are_refused() -> None:
    book = Reference("names", (), {"kvlab.core.block_pool.BlockPool": "api_core"})
    link = f"[x]({INDEX}.md#kvlab.core.block_pool.BlockPool)"
    assert book.linked(link) == "[x](api_core.html#kvlab.core.block_pool.BlockPool)"
    with pytest.raises(ValueError, match=r"#kvlab\.no\.such names nothing"):
        book.linked(f"[x]({INDEX}.md#kvlab.no.such)")
    marks = "a <!-- reference:start -->b<!-- reference:end --> c"
    assert book.filled(marks) == "a names c"
    with pytest.raises(ValueError, match="needs the marks"):
        book.filled("a")


def test_the_reference_is_made_without_torch() -> None:
    program = (
        "import sys; from pathlib import Path; from kvlab.book.reference import reference\n"
        f"reference(Path({str(ROOT)!r}), {{}}, '', {{f'21.{{n}}': 'x' for n in range(9)}})\n"
        "print({'torch', 'triton', 'numpy', 'IPython', 'anywidget'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("set()", "")


# ---- a docstring as HTML


@pytest.mark.parametrize(
    ("doc", "inside"),
    [
        ("Raises ValueError for 0.", "<dt>Raises</dt><dd><code>ValueError</code> for 0.</dd>"),
        ("Adds. Returns [N, head_dim].", "<dt>Returns</dt><dd><code>[N, head_dim]</code>.</dd>"),
        ("size: bytes; must be even.", "<dt><code>size</code></dt><dd>bytes; must be even.</dd>"),
        (
            "key, value: as above.",
            "<dt><code>key</code>, <code>value</code></dt><dd>as above.</dd>",
        ),
        ("other: no parameter.", "<p>other: no parameter.</p>"),
        ("Source: Kwon et al. (2023).", "<dt>Source</dt><dd>Kwon et al. (2023).</dd>"),
        ("Where:\n\n    a = b < c", "<p>Where:</p>\n<pre>a = b &lt; c</pre>"),
        ("Two:\n- one\n- and a\n  long one", "<ul><li>one</li><li>and a long one</li></ul>"),
        ("b:\n\n    b = 2  (21.2)", '<pre>b = 2  (<a href="here.html#eq-21.2">21.2</a>)</pre>'),
        ("row    | a |\nother  | b |", "<pre>row    | a |\nother  | b |</pre>"),
        ("See `free` and `x`.", '<a href="api_core.html#free"><code>free</code></a> and <code>x'),
        ("Eq 21.2 in sections 21.1 and 21.5b.", '<a href="here.html#eq-21.2">Eq 21.2</a> in'),
        ("In sections 21.1 and 21.5b.", '<a href="21.1.html">21.1</a> and <a href="21.5b.html">'),
        ("A *store* of **programs**.", "<p>A <em>store</em> of <strong>programs</strong>.</p>"),
        ("It is 2 * rows * x, not a*b*c.", "<p>It is 2 * rows * x, not a*b*c.</p>"),
        ("See core/spec.py.", '<a href="files/core/spec.py"><code>core/spec.py</code></a>.'),
        ("<b> & [x](y)", "<p>&lt;b&gt; &amp; <code>[x]</code>(y)</p>"),
    ],
)
def test_a_docstring_is_rendered(doc: str, inside: str) -> None:
    found = render(doc, ("size", "key", "value"), 96, SOMEWHERE)
    assert inside in found
    assert "\n\n" not in found


def test_a_description_ends_where_its_author_ended_the_line() -> None:
    doc = "size: in bytes.\nThe rest is prose. Raises KeyError, changing nothing. More prose."
    assert render(doc, ("size",), 96, NOWHERE).split("\n") == [
        '<dl class="kvlab-said"><dt><code>size</code></dt><dd>in bytes.</dd></dl>',
        "<p>The rest is prose.</p>",
        '<dl class="kvlab-said"><dt>Raises</dt>'
        "<dd><code>KeyError</code>, changing nothing.</dd></dl>",
        "<p>More prose.</p>",
    ]


def test_the_section_that_teaches_a_name_is_read_from_its_docstring() -> None:
    assert taught_in("What it is. Section 21.5.") == ["21.5"]
    assert taught_in("What it is (section 21.4).\n\nMore.") == ["21.4"]
    assert taught_in("What.\n\nSource: vLLM. Sections 21.1, 21.5.") == ["21.1", "21.5"]
    assert taught_in("n: copies (section 21.5).\nseed: a number.") == []
    assert render("What it is. Section 21.5.", (), 96, NOWHERE) == "<p>What it is.</p>"


def test_a_summary_is_the_first_sentence() -> None:
    assert summary("One thing [N, D]. Another.") == "One thing [N, D]."
    assert summary("One\nthing, as vLLM v1.2 has it.\n\nMore.") == "One thing, as vLLM v1.2 has it."
    assert summary("One thing. size: in bytes.") == "One thing."
