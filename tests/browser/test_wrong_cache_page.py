"""The wrong-cache laboratory in JupyterLab by keyboard, and on a page without a kernel."""

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")

from lab_server import Lab, Watch
from plain_page import plain_page
from playwright.sync_api import Locator, Page, expect

from kvlab import LLM
from kvlab.widgets import wrong_cache_lab

HOSTILE = "</script><img src=x onerror=alert(1)>"
CELLS = [
    """
from kvlab import LLM
from kvlab.widgets import wrong_cache_lab

lab = wrong_cache_lab(LLM("tiny"), "nothing", case=2, count=4)
_ = lab.add_class("t-wrong")
""",
    "lab",
    "'all' + ' done'",
]


@pytest.fixture(scope="module")
def page(watch: Watch, lab: Lab) -> Page:
    lab.write("wrong.ipynb", CELLS)
    lab.open(watch.page, "wrong.ipynb")
    lab.run_all(watch.page)
    expect(watch.page.get_by_text("'all done'", exact=True)).to_be_visible(timeout=60_000)
    return watch.page


@pytest.fixture
def editor(page: Page) -> Locator:
    return page.locator(".t-wrong .kv[data-view=editor]")


def test_a_damage_is_chosen_by_keyboard_and_the_sentence_follows(
    watch: Watch, page: Page, editor: Locator
) -> None:
    say = editor.locator("[data-say]")
    expect(say).to_contain_text("The cache is left as it is. The model says “")
    expect(editor.locator("[data-changed]")).to_have_count(0)
    editor.locator("select").focus()
    page.keyboard.type("fact exchanged")
    expect(say).to_contain_text("The table names another request's blocks")
    expect(editor.locator("[data-kind=answer]")).to_contain_text("✗ the other request's answer")
    expect(editor.locator(".kvw [data-changed]").first).to_be_visible()
    expect(editor.locator(".kvw .kvw-badge")).to_have_text("F")
    assert watch.wrong == []


def test_another_case_is_another_question(watch: Watch, page: Page, editor: Locator) -> None:
    question = editor.locator(".kve-text").first
    before = question.text_content()
    editor.locator("input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    expect(question).not_to_have_text(before)
    expect(editor.locator(".kvw [data-fact=first]")).to_have_count(1)
    assert watch.wrong == []


def test_nothing_moves_from_damage_to_damage(page: Page, editor: Locator) -> None:
    heights = set()
    for name in ("nothing", "fact hidden", "value's block hidden", "padding read"):
        editor.locator("select").select_option(name)
        expect(editor.locator("[data-say]")).not_to_have_text("")
        expect(editor).not_to_have_attribute("data-busy", "")
        heights.add(round(editor.bounding_box()["height"]))
    assert len(heights) == 1


def test_without_a_kernel_the_same_picture_is_drawn_and_text_stays_text(browser, tmp_path) -> None:
    shown = wrong_cache_lab(LLM("tiny"), "fact zeroed", count=2)
    shown.result = {**shown.result, "view": {**shown.result["view"], "sentence": HOSTILE}}
    path = tmp_path / "page.html"
    path.write_text(plain_page(shown.html(), "editor"), encoding="utf-8")
    watch = Watch(browser.new_page())
    watch.page.goto(path.as_uri())
    watch.page.wait_for_function("window.kvlab")
    changed = sum(end - start for start, end in shown.result["view"]["changed"])
    expect(watch.page.locator(".kvw [data-changed]")).to_have_count(changed)
    expect(watch.page.locator("[data-say]")).to_have_text(HOSTILE)
    expect(watch.page.locator("img")).to_have_count(0)
    expect(watch.page.locator("select")).to_be_disabled()
    watch.page.close()
    assert watch.wrong == []
