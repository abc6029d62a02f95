"""The three forms of an output: live view, HTML with a table and the payload, text."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from growth_cases import example, with_vocab

from kvlab.widgets import CacheGrowth, cache_growth, growth_html, growth_payload, module_source
from kvlab.widgets.html import html_form, table
from kvlab.widgets.modules import PARTS

HOSTILE = "<img src=x onerror=alert(1)>"
LIVE = "application/vnd.jupyter.widget-view+json"


class Elements(HTMLParser):
    """Tags of a page, and the text inside its JSON script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.script = ""
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append(tag)
        self._inside = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.script += data


def test_one_output_has_a_live_view_an_html_form_and_a_text() -> None:
    data, _ = cache_growth(example())._repr_mimebundle_()
    assert set(data) == {"text/plain", "text/html", LIVE}
    assert data["text/plain"] == "CacheGrowth(request 'r1', 10 stops, 8 positions, 2,048 bytes)"


def test_two_runs_give_the_same_html_and_the_same_text() -> None:
    one, other = cache_growth(example()), cache_growth(example())
    assert one.html() == other.html() and repr(one) == repr(other)
    assert "0x" not in repr(one) and one.model_id not in one.html()


def test_the_html_form_carries_the_payload_and_a_captioned_table() -> None:
    payload = growth_payload(example())
    page = growth_html(payload)
    found = Elements(page)
    assert json.loads(found.script) == payload
    assert page.startswith('<div class="kvlab-view" data-view="cache_growth">')
    assert {"table", "caption", "thead", "ol"} <= set(found.tags)
    assert (
        '<th scope="row">7</th>' in page
        and "2,048 bytes in the stored tensors = 2 · 2 layers" in page
    )
    for _, sentence in payload["stops"]:
        assert f"<li>{sentence}</li>".replace("'", "&#x27;") in page


def test_no_line_of_the_html_form_is_blank() -> None:
    """A blank line would end the raw HTML in the static book."""
    page = growth_html(growth_payload(with_vocab(example(), ["\n\n", "a\n\nb", "\r\n"])))
    assert all(line.strip() for line in page.splitlines())


def test_hostile_text_stays_text() -> None:
    """W08: a prompt with markup is shown as text, in the table and inside the JSON."""
    texts = [HOSTILE, "</script><script>alert(1)</script>", "<!--", "&lt;", "'\""]
    page = growth_html(growth_payload(with_vocab(example(), texts)))
    found = Elements(page)
    assert "img" not in found.tags and found.tags.count("script") == 1
    assert (
        "<" not in found.script
        and HOSTILE in json.loads(found.script)["trace"]["meta"]["vocab"].values()
    )
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_a_long_table_leaves_out_its_middle() -> None:
    page = growth_html(growth_payload(example()))
    assert "left out" not in page
    rows = table("many", ("n",), [(n,) for n in range(3)])
    assert rows.count("<tr>") == 4


def test_titles_are_escaped() -> None:
    page = html_form({"view": 'x"><b>'}, "<p>content</p>")
    assert "<b>" not in page.replace("\\u003c", "")


@pytest.mark.parametrize("view", sorted(PARTS))
def test_a_module_is_one_file_without_imports_network_or_markup_from_text(view: str) -> None:
    source = module_source(view)
    assert not re.search(r"^\s*import\b|\bimport\s*\(|https?:|//[a-z0-9-]+\.[a-z]", source, re.M)
    assert not re.search(r"fetch\(|XMLHttpRequest|WebSocket|@import|url\(", source)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", source)
    assert source.count("export default") == 1 and "export function mount" in source


def test_the_widget_sends_its_module_and_its_payload() -> None:
    widget = CacheGrowth(example(), layers=[1])
    state = widget.get_state()
    assert state["_esm"] == module_source("cache_growth")
    assert state["payload"]["layers"] == [1]


def test_an_unknown_view_is_named() -> None:
    with pytest.raises(ValueError, match=r"no view is called 'x'; there are .*cache_growth, .*"):
        module_source("x")


def test_views_import_neither_torch_nor_the_engine() -> None:
    code = (
        "import sys, kvlab.widgets.growth_view\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('torch', 'numpy')"
        " or m in ('kvlab.llm', 'kvlab.engine', 'kvlab.tensors')]\n"
        "print(bad)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
