"""From a notebook's cells to a page of the book: formulas, links, outputs."""

import html
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.book.cells import chapter
from kvlab.book.folds import TOLD, explaining, folded, keeps, split_code, split_text
from kvlab.book.mathml import mathml
from kvlab.book.preprocessor import doors
from kvlab.book.prose import Places, equation_numbers, page_address, rewrite
from kvlab.book.tables import with_breaks

NOWHERE = Places(frozenset(), {})
BOTH = Places(frozenset({"21.2"}), {"21.2": "21_1_reuse", "21.6": "21_6_growth"})


@pytest.mark.parametrize(
    ("tex", "inside"),
    [
        ("T", "<mi>T</mi>"),
        ("H_{kv}", "<msub><mi>H</mi><mrow><mi>k</mi><mi>v</mi></mrow></msub>"),
        ("2^{30}", "<msup><mn>2</mn><mrow><mn>30</mn></mrow></msup>"),
        ("x_1^2", "<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>"),
        ("\\frac{a}{b}", "<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac>"),
        ("\\sum_t w", "<munder><mo>∑</mo><mi>t</mi></munder><mi>w</mi>"),
        ("\\lfloor t/4 \\rfloor", "<mo>⌊</mo><mi>t</mi><mo>/</mo><mn>4</mn><mo>⌋</mo>"),
        ("\\mathrm{ref\\_cnt}", '<mi mathvariant="normal">ref&#95;cnt</mi>'),
        ("A^{\\mathsf T}", '<msup><mi>A</mi><mrow><mi mathvariant="normal">T</mi></mrow></msup>'),
        ("a < b", "<mi>a</mi><mo>&lt;</mo><mi>b</mi>"),
    ],
)
def test_tex_becomes_mathml(tex: str, inside: str) -> None:
    assert mathml(tex) == f"<math><mrow>{inside}</mrow></math>"


def test_cases_are_a_table_of_two_columns() -> None:
    tree = ElementTree.fromstring(mathml("\\begin{cases} 1 & n < B \\\\ k & n \\ge B \\end{cases}"))
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.iter("mtr")]
    assert rows == [["1", "n<B"], ["k", "n≥B"]]


@pytest.mark.parametrize(
    "tex", ["\\nosuch", "{a", "a}", "\\frac{a}", "\\begin{array}a\\end{array}"]
)
def test_tex_that_is_unknown_or_unfinished_is_refused(tex: str) -> None:
    with pytest.raises(ValueError, match="formula"):
        mathml(tex)


@given(st.text("abHkv12+<&|*_^{} ", max_size=12))
def test_mathml_is_well_formed_or_refused(tex: str) -> None:
    try:
        found = mathml(tex)
    except ValueError:
        return
    assert ElementTree.fromstring(found).tag == "math"
    assert not set("*|`") & set(found)  # nothing that Markdown reads as its own


def test_a_formula_keeps_its_tex_and_its_number_is_an_anchor() -> None:
    shown = rewrite("$$b = 2\n\\cdot L \\tag{21.2}$$", NOWHERE)
    assert 'id="eq-21.2"' in shown
    assert 'data-tex="b = 2 \\cdot L"' in shown
    assert "(21.2)" in shown
    assert "\n" not in shown
    assert equation_numbers("$$b \\tag{21.2}$$ and $$c \\tag{21.3}$$") == ["21.2", "21.3"]


@pytest.mark.parametrize(
    "text",
    [
        "`$t$`",
        "```\n$t$ and eq 21.2\n```",
        "~~~~\n$$t$$\n~~~~",
        "``a ` $t$``",
        "```\n$t$\n````",
        "costs $5 or $6",
    ],
)
def test_code_and_prices_are_left_alone(text: str) -> None:
    assert rewrite(text, BOTH) == text


def test_a_bar_in_a_formula_does_not_end_a_tables_cell() -> None:
    row = rewrite("| $|a|$ | b |", NOWHERE)
    assert row.count("|") == 3


def test_a_long_name_in_a_table_may_be_broken_and_an_option_is_not() -> None:
    others = "<td><code>a/b_1.py</code></td><td><code>--no-enable_prefix_caching</code></td>"
    long = "<td><code>kvlab/core/&lt;a_b&gt;/</code></td>"
    table = '<div class="table-wrapper"><table><tr>{}</tr></table></div>'
    page = f"<code>kvlab/core/block_pool.py</code>{table.format(others + long)}"
    broken = '<td><code class="kvlab-long">kvlab/<wbr>core/&lt;a_<wbr>b&gt;/</code></td>'
    assert with_breaks(page) == page.replace(long, broken)


def test_a_number_leads_to_its_equation_here_or_where_it_is_first() -> None:
    assert rewrite("Then eq 21.2 says", BOTH) == "Then [eq 21.2](#eq-21.2) says"
    assert rewrite("see eq 21.6", BOTH) == "see [eq 21.6](21_6_growth.html#eq-21.6)"
    assert rewrite("section 21.6 is no equation", BOTH) == "section 21.6 is no equation"


@pytest.mark.parametrize(
    ("link", "address"),
    [
        ("21_6_growth.ipynb", "21_6_growth.html"),
        ("21_6_growth.ipynb#The-same,-in-numbers", "21_6_growth.html#the-same-in-numbers"),
        ("21_6_growth.ipynb#eq-21.6", "21_6_growth.html#eq-21.6"),
        ("#The-cells", "#the-cells"),
        ("../kvlab/engine.py", "files/kvlab/engine.py"),
        ("../SECURITY.md", "files/SECURITY%2Emd"),
        ("images/a.png", "images/a.png"),
        ("https://example.org/x.ipynb#A", "https://example.org/x.ipynb#A"),
    ],
)
def test_links_lead_to_pages_of_the_book(link: str, address: str) -> None:
    assert page_address(link) == address


def page(*cells: dict) -> str:
    title = {"cell_type": "markdown", "source": ["# 21.9 A title\n", "\n", "text"]}
    return chapter({"cells": [title, *cells]}, "21_9_a", "<p>doors</p>", NOWHERE)


def shown(output: dict) -> str:
    cell = {"cell_type": "code", "metadata": {}, "source": "run()", "outputs": [output]}
    return page(cell).split("run()\n```", 1)[1].strip()


def test_a_page_begins_with_its_title_and_its_doors() -> None:
    assert page().startswith("# 21.9 A title\n\n<p>doors</p>\n\n")
    with pytest.raises(ValueError, match="must begin with its title"):
        chapter({"cells": []}, "21_9_a", "", NOWHERE)


@given(st.text("ab<& \n", max_size=20))
def test_text_stands_as_printed_and_without_a_blank_line(text: str) -> None:
    block = shown({"output_type": "stream", "name": "stdout", "text": text})
    assert not [line for line in block.split("\n") if not line.strip()]
    inside = block.split("<pre>")[1].split("</pre>")[0]
    assert [line.rstrip() for line in html.unescape(inside).split("\n")] == [
        line.rstrip() for line in text.rstrip("\n").split("\n")
    ]


def test_an_error_that_was_asked_for_is_shown_without_its_colours() -> None:
    error = {"output_type": "error", "traceback": ["\x1b[31mValueError\x1b[0m: no"]}
    assert "<pre>ValueError: no</pre>" in shown(error)


def test_the_richest_form_without_a_kernel_is_shown() -> None:
    forms = {"text/plain": "plain", "image/png": "iVBO\n", "application/x": "{}"}
    data = {"output_type": "display_data", "data": forms, "metadata": {}}
    assert 'src="data:image/png;base64,iVBO"' in shown(data)
    data["data"] = {**forms, "text/html": "<p>\n\n<b>rich</b></p>"}
    assert "<p>\n<b>rich</b></p>" in shown(data)


def test_a_picture_says_what_its_cell_said_of_it() -> None:
    data = {"text/plain": "<Figure>", "image/png": "iVBO"}
    picture = {"output_type": "display_data", "data": data, "metadata": {}}
    assert 'alt="A figure, described in the text"' in shown(picture)
    picture["metadata"] = {"image/png": {"alt": "a < b"}}
    assert 'alt="a &lt; b"' in shown(picture)
    picture["metadata"] = {"image/png": 5}
    assert 'alt="A figure, described in the text"' in shown(picture)


def test_a_fence_is_longer_than_those_in_its_code() -> None:
    cell = {"cell_type": "code", "metadata": {}, "source": "'''\n````\n'''", "outputs": []}
    assert "`````python\n'''\n````\n'''\n`````" in page(cell)


def test_the_setup_cell_is_folded() -> None:
    tagged = {"tags": ["setup"]}
    cell = {"cell_type": "code", "metadata": tagged, "source": "import kvlab", "outputs": []}
    assert '<details class="kvlab-setup">' in page(cell)


def asked_and_answered(*sources: str) -> list[dict]:
    """Code cells that each print their own source; a text that begins with # is Markdown."""

    def cell(source: str) -> dict:
        if source.startswith("#"):
            return {"cell_type": "markdown", "source": source}
        printed = {"output_type": "stream", "name": "stdout", "text": f"of {source}"}
        return {"cell_type": "code", "metadata": {}, "source": source, "outputs": [printed]}

    return [cell(source) for source in sources]


@pytest.mark.parametrize(
    ("sources", "places"),
    [
        (["a()", "b()"], set()),
        (["a()", 'predict("p", None)', "# text", 'x = 1\nreveal("p", x)', "b()"], {3}),
        (["predict({})", "a()", "# text", "reveal({})", "b()", "    shown = reveal(3)"], {1, 3, 5}),
        (["predict(1)", "a()", "predict(2)", "b()", "reveal(1)"], {3, 4}),
        (["predict(1)", "a()", "b()"], set()),
        (["from kvlab.exercises import predict, reveal", "a()"], set()),
    ],
)
def test_what_answers_a_prediction_is_found(sources: list[str], places: set[int]) -> None:
    assert folded(asked_and_answered(*sources)) == places


def test_the_run_is_folded_below_its_code_and_the_question_is_not() -> None:
    told = 'x = 3\n# so it is three\nassert x == 3\nreveal("p", x)'
    text = page(*asked_and_answered('predict("p", None)', told, "# Next"))
    before, fold = text.split('<details class="kvlab-run"><summary>The run\'s output</summary>')
    assert "<pre>of predict" in before and before.rstrip().endswith("```python\nx = 3\n```")
    inside, after = fold.split("</details>")
    assert '```python\n# so it is three\nassert x == 3\nreveal("p", x)\n```' in inside
    assert "<pre>of x = 3" in inside
    assert after.strip() == "# Next"


def test_the_text_that_says_why_is_folded_with_the_run() -> None:
    cells = asked_and_answered('predict("p", None)', 'reveal("p", 3)', "# text")
    cells[2]["source"] = "Three, since $T$ is 3.\n\nNow the picture:"
    before, fold = page(*cells).split("<summary>The run's output, and why</summary>")
    inside, after = fold.split("</details>")
    assert 'reveal("p", 3)' not in before and 'reveal("p", 3)' in inside
    assert "Three, since" in inside and after.strip() == "Now the picture:"


@pytest.mark.parametrize(
    ("source", "seen", "told"),
    [
        ("x = 1\nprint(x)", "x = 1\nprint(x)", ""),
        ("%timeit f()\nassert True", "%timeit f()\nassert True", ""),
        ("for x in y:\n    assert x\nb()", "for x in y:\n    assert x\nb()", ""),
        (
            "if a:\n    b()\n    shown = reveal(3)\nelse:\n    c()",
            "if a:\n    b()",
            "if a:\n    shown = reveal(3)\nelse:\n    c()",
        ),
        (
            "if a:  # so\n    if b:\n        c()\n        # d\n        assert d",
            "if a:  # so\n    if b:\n        c()",
            "if a:  # so\n    if b:\n        # d\n        assert d",
        ),
        ("x = 1\nif a:\n    # so\n    assert b", "x = 1", "if a:\n    # so\n    assert b"),
        ("reveal(3)", "", "reveal(3)"),
        ("t = '''\nassert\n'''\n\nassert t\nb()", "t = '''\nassert\n'''", "assert t\nb()"),
    ],
)
def test_the_checks_of_a_run_are_folded(source: str, seen: str, told: str) -> None:
    assert split_code(source) == (seen, told)


@pytest.mark.parametrize(
    ("text", "why", "rest"),
    [
        ("Why.\n\n## Next\n\nText.", "Why.", "## Next\n\nText."),
        ("Why.\n\nThe picture:", "Why.", "The picture:"),
        ("The same for others.", "", "The same for others."),
        ("A **term**.\n\nWith **this**.\n\n## Next", "A **term**.", "With **this**.\n\n## Next"),
        (f"{TOLD}\n\nWhy.\n\nSo.\n\n</details>\n\nThe picture:", "Why.\n\nSo.", "The picture:"),
        ("<details>it</details>\n\n## Next", "", "<details>it</details>\n\n## Next"),
        ("## Next", "", "## Next"),
    ],
)
def test_of_the_text_only_what_says_why_is_folded(text: str, why: str, rest: str) -> None:
    assert split_text(text) == (why, rest)


@pytest.mark.parametrize(
    ("source", "is_one"),
    [
        ("editor.check()  # raises what went wrong in the editor, if anything did", True),
        ("for pool in pools:\n    assert pool\nprint('nothing leaked: every block is free')", True),
        ('check("21.6-1", append)', False),
        ("editor.check()\neditor", False),
        ("print('nothing leaked')\nx = 1", False),
        ("%timeit f()", False),
        ("", False),
    ],
)
def test_a_page_folds_its_checks_of_itself(source: str, is_one: bool) -> None:
    (cell,) = asked_and_answered(source)
    assert keeps(cell) is is_one
    before, mark, fold = page(cell).partition('<details class="kvlab-check">')
    assert bool(mark) is is_one
    assert not is_one or (source not in before and f"{source}\n```" in fold and "<pre>of" in fold)


def test_text_below_another_cell_says_nothing_of_a_run() -> None:
    cells = asked_and_answered("predict(1)", "a()", "# text", "reveal(1)", "# why", "# more")
    assert explaining(cells) == {4}


def test_doors_lead_to_colab_and_binder_where_the_address_is_known() -> None:
    assert "colab" not in doors("21_6_growth", "") and "README" not in doors("21_6_growth", "")
    assert '(<a href="files/README%2Emd">README</a>)' in doors("21_6_growth", "", has_readme=True)
    known = doors("21_6_growth", "https://github.com/someone/copy")
    assert "/github/someone/copy/blob/main/notebooks/21_6_growth.ipynb" in known
    assert "mybinder.org/v2/gh/someone/copy/main" in known
    assert "<script>" not in doors("21_6_growth", 'https://github.com/a"><script>alert(1)</script>')


@pytest.mark.parametrize(("renderer", "code"), [("html", 0), ("epub", 1)])
def test_the_preprocessor_says_what_it_supports(renderer: str, code: int) -> None:
    command = [sys.executable, "-m", "kvlab.book.preprocessor", "supports", renderer]
    assert subprocess.run(command, check=False).returncode == code


def test_the_preprocessor_answers_in_one_line_what_is_no_book() -> None:
    command = [sys.executable, "-m", "kvlab.book.preprocessor"]
    run = subprocess.run(command, input="", capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == "kvlab: Expecting value: line 1 column 1 (char 0)\n"
