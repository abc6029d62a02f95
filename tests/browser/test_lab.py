"""The views in JupyterLab: scrubbing, keys, live editors, and what remains without a kernel."""

import shutil
import subprocess
import sys

import nbformat
import pytest
from nbformat import NotebookNode

pytest.importorskip("playwright", reason="the browser tests need the extra dev")

from lab_server import ROOT, Lab, Watch, environment
from playwright.sync_api import Locator, Page, expect

LIVE = "application/vnd.jupyter.widget-view+json"
HOSTILE = "<img src=x onerror=alert(1)>"
VIEW = """
from kvlab import LLM, SamplingParams, tiny
from kvlab.widgets import LiveEditor, Slider, TextArea, cache_growth, growth_editor

llm = LLM("tiny", block_size=4)
llm.start_trace()
prompt = tiny.prompt("Ada likes soup. The key is red.", "What colour is the key?")
llm.generate(prompt, SamplingParams(max_tokens=8))
view = cache_growth(llm.stop_trace())
_ = view.add_class("t-view")
"""
ERRING = """
def compute(word):
    if word == "boom":
        raise RuntimeError("no such word")
    return {"lines": [["Said", word, "answer"]], "view": view.payload}

erring = LiveEditor(compute, [TextArea("word", "Word", "soup")], "Erring")
_ = erring.add_class("t-erring")
"""
SLOW = """
import time

def wait(count):
    time.sleep(0.1)
    return {"lines": [["Count", str(count), "answer"]], "view": None}

slow = LiveEditor(wait, [Slider("count", "Count", 0, 0, 20)], "Slow")
_ = slow.add_class("t-slow")
"""
GROW = """
grow = growth_editor(llm)
_ = grow.add_class("t-grow")
"""
CELLS = [
    VIEW,
    "view",
    ERRING,
    "erring",
    SLOW,
    "slow",
    GROW,
    "grow",
    "'all' + ' done'",
    "erring.check()",
]


@pytest.fixture(scope="module")
def page(watch, lab: Lab) -> Page:
    """The notebook above, open and run."""
    lab.write("views.ipynb", CELLS)
    lab.open(watch.page, "views.ipynb")
    lab.run_all(watch.page)
    expect(watch.page.get_by_text("'all done'", exact=True)).to_be_visible(timeout=60_000)
    return watch.page


@pytest.fixture
def view(page: Page) -> Locator:
    """The cache-growth view at its first stop, with the focus."""
    root = page.locator(".t-view .kv[data-stop]")
    root.scroll_into_view_if_needed()
    root.focus()
    page.keyboard.press("Home")
    expect(root).to_have_attribute("data-stop", "0")
    return root


def kinds(view: Locator) -> str:
    """P, O, s(elected), k(nown), ... for each position."""
    return "".join(view.locator(".kvg-col").evaluate_all("cs => cs.map(c => c.dataset.kind[0])"))


def say(view: Locator) -> Locator:
    return view.locator("[data-say]")


def test_arrow_keys_walk_through_the_stops(page: Page, view: Locator) -> None:
    assert kinds(view) == "k" * 27 + "f" * 6
    page.keyboard.press("ArrowRight")
    expect(say(view)).to_contain_text("The prompt pass processes positions 0 to 26")
    assert kinds(view) == "P" * 27 + "s" + "f" * 5  # the last slot of block 6 is empty
    page.keyboard.press("ArrowRight")
    expect(say(view)).to_contain_text("The logits of position 26 select ' The'")
    expect(view.locator("[data-pos='27']")).to_have_attribute("data-kind", "selected")
    expect(view.locator("[data-bytes]")).to_have_text("55,296 bytes")
    page.keyboard.press("ArrowRight")
    expect(say(view)).to_contain_text("Pass 1 processes the first output ' The' at position 27")
    expect(view.locator("[data-pos='27']")).to_have_attribute("data-kind", "O")
    expect(view.locator("[data-bytes]")).to_have_text("57,344 bytes")
    expect(view.locator(".kvg-mark")).to_have_attribute("data-agree", "true")
    page.keyboard.press("ArrowLeft")
    expect(view).to_have_attribute("data-stop", "2")
    page.keyboard.press("End")
    expect(say(view)).to_contain_text("The request ends (stop).")


def test_the_mouse_clicks_and_drags_the_slider(page: Page, view: Locator) -> None:
    box = view.locator(".kv-track").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.click(box["x"] + box["width"] * 5 / 13, middle)
    expect(view).to_have_attribute("data-stop", "5")
    expect(say(view)).to_contain_text("Pass 2 processes the second output ' key'")
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 12 / 13, middle, steps=10)
    page.mouse.up()
    expect(view).to_have_attribute("data-stop", "12")
    assert kinds(view) == "P" * 27 + "O" * 5 + "s"
    view.locator("[data-do=back]").click()
    expect(view).to_have_attribute("data-stop", "11")


def test_space_plays_and_pauses(page: Page, view: Locator) -> None:
    page.keyboard.press("Space")
    expect(view).to_have_attribute("data-playing", "")
    expect(view).to_have_attribute("data-stop", "1")
    page.keyboard.press("Space")
    expect(view).not_to_have_attribute("data-playing", "")


def test_the_newest_position_is_in_sight_and_nothing_jumps(page: Page, view: Locator) -> None:
    before = view.bounding_box()
    total = int(view.get_attribute("data-total"))
    for stop in range(total + 1):
        expect(view).to_have_attribute("data-stop", str(stop))
        assert view.bounding_box() == before, f"the view moved at stop {stop}"
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    last, scroll = (view.locator(s).bounding_box() for s in ("[data-pos='32']", ".kvg-scroll"))
    assert last["x"] + last["width"] <= scroll["x"] + scroll["width"]


def test_keys_do_not_reach_jupyterlab_and_scrubbing_sends_nothing(watch, view: Locator) -> None:
    page, cells = watch.page, watch.page.locator(".jp-Cell").count()
    before = len(watch.sent)
    for key in (
        "a",
        "b",
        "d",
        "d",
        "x",
        "y",
        "m",
        "ArrowRight",
        "ArrowDown",
        "Space",
        "End",
        "Home",
    ):
        page.keyboard.press(key)
    expect(view).to_have_attribute("data-stop", "0")
    expect(view).to_be_focused()
    assert page.locator(".jp-Cell").count() == cells
    assert len(watch.sent) == before


def test_the_presenter_switch_makes_all_views_large_and_hides_the_code(
    page: Page, view: Locator
) -> None:
    def size() -> float:
        return view.evaluate("e => parseFloat(getComputedStyle(e).fontSize)")

    code = page.locator(".jp-CodeCell", has=view).locator(".jp-Cell-inputWrapper")
    small = size()
    page.keyboard.press("p")
    expect(code).to_be_hidden()
    assert size() > small
    assert page.locator(".kv.kv-large").count() == page.locator(".kv").count()
    page.keyboard.press("p")
    expect(code).to_be_visible()
    assert size() == small


def test_an_error_stands_in_the_editor_and_the_last_good_picture_stays(
    page: Page, lab: Lab
) -> None:
    """W02."""
    editor = page.locator(".t-erring .kv[data-view=editor]")
    expect(editor).to_have_attribute("data-updates", "0")
    editor.locator("textarea").fill("boom")
    expect(editor.locator("[role=alert]")).to_contain_text("RuntimeError: no such word")
    expect(editor.locator(".kve-text")).to_have_text("soup")
    expect(editor.locator(".kvg-col[data-kind=P]").first).to_be_visible()
    check = page.locator(".jp-CodeCell").filter(has_text="erring.check()")
    check.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    expect(check.locator(".jp-OutputArea")).to_contain_text("RuntimeError: no such word")
    editor.locator("textarea").fill("key")
    expect(editor.locator("[role=alert]")).to_have_count(0)
    expect(editor.locator(".kve-text")).to_have_text("key")


# Times between the events of a drag, in ms, as the page has seen them.
PAUSES = """input => {
    let last = null;
    input.pauses = [];
    for (const kind of ["input", "change"]) input.addEventListener(kind, () => {
        if (last !== null) input.pauses.push(performance.now() - last);
        last = performance.now();
    });
}"""


def test_a_drag_of_twenty_steps_makes_at_most_two_updates(page: Page) -> None:
    """W06: each update takes 100 ms. A hand that rests for 300 ms gets one more for it, and a busy
    machine moves the mouse with such rests."""
    editor = page.locator(".t-slow .kv[data-view=editor]")
    slider = editor.locator("input[type=range]")
    slider.scroll_into_view_if_needed()
    slider.evaluate(PAUSES)
    box = slider.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 8, y)
    page.mouse.down()
    for step in range(1, 21):
        page.mouse.move(box["x"] + 8 + (box["width"] - 16) * step / 20, y)
    page.mouse.up()
    expect(editor.locator(".kve-text")).to_have_text("20")
    expect(editor).not_to_have_attribute("data-busy", "")
    pauses = slider.evaluate("input => input.pauses")
    rests = sum(pause > 290 for pause in pauses)
    assert len(pauses) >= 15  # the drag passed through most of the twenty steps
    assert 1 <= int(editor.get_attribute("data-updates")) <= 2 + rests


def test_text_of_the_reader_is_run_and_shown_as_text(page: Page) -> None:
    """W08, and the notice about words that the model never learned."""
    editor = page.locator(".t-grow .kv[data-view=editor]")
    expect(editor.locator("[data-kind=answer]")).to_have_text("The key is red.")
    editor.locator("[data-control=question] textarea").fill(f"What is {HOSTILE}?")
    expect(editor.locator("[data-kind=notice]")).to_contain_text("never learned '<img src=x")
    assert editor.locator("img").count() == 0
    titles = editor.locator(".kvg-col").evaluate_all("cs => cs.map(c => c.title).join(' ')")
    assert "'<'" in titles and "'>'" in titles


@pytest.fixture
def saved(page: Page, lab: Lab) -> NotebookNode:
    """The notebook as JupyterLab saves it, its outputs with all forms."""
    lab.command(page, "docmanager:save")
    expect(page.locator(".jp-mod-current .jp-mod-dirty")).to_have_count(0)
    return nbformat.read(lab.folder / "views.ipynb", as_version=4)


def reopened(browser, lab: Lab, notebook: NotebookNode, name: str, trusted: bool) -> Page:
    """The notebook in a page of its own, whose kernel has run nothing."""
    notebook.cells.append(nbformat.v4.new_code_cell(f"# {name}"))  # another text: not signed yet
    nbformat.write(notebook, lab.folder / name)
    if trusted:
        settings = environment(lab.folder.parent / "home")
        command = [sys.executable, "-m", "jupyter", "trust", name]
        subprocess.run(command, cwd=lab.folder, env=settings, check=True, capture_output=True)
    page = browser.new_page()
    page.goto(lab.address(name))
    return page


@pytest.mark.parametrize("trusted", [True, False], ids=["committed", "stranger"])
def test_without_its_kernel_a_notebook_shows_the_table(
    browser, lab: Lab, saved: NotebookNode, trusted: bool
) -> None:
    """W04: a committed notebook (no live views stored), and one that JupyterLab does not trust."""
    for cell in saved.cells:
        for output in cell.outputs if trusted else ():
            output.get("data", {}).pop(LIVE, None)
    page = reopened(browser, lab, saved, f"table-{trusted}.ipynb", trusted)
    try:
        table = page.locator(".jp-OutputArea table", has_text="Stop 12 of 13").first
        expect(table.locator("caption")).to_contain_text("65,536 bytes in the stored tensors")
        expect(page.get_by_text("displaying widget")).to_have_count(0)
        assert page.locator(".jp-OutputArea img").count() == 0
    finally:
        page.close()


def test_with_saved_widget_state_a_trusted_notebook_still_scrubs(
    browser, lab: Lab, saved: NotebookNode
) -> None:
    page = reopened(browser, lab, saved, "state.ipynb", True)
    try:
        view = page.locator(".t-view .kv[data-stop]")
        view.focus()
        page.keyboard.press("ArrowRight")
        expect(say(view)).to_contain_text("The prompt pass processes positions 0 to 26")
    finally:
        page.close()


def test_the_section_21_6_runs_and_scrubs(browser, lab: Lab) -> None:
    """The committed notebook: run all, wait for its last cell, scrub by key and by mouse."""
    source = ROOT / "notebooks" / "21_6_growth.ipynb"
    if not source.exists():
        pytest.skip("notebooks/21_6_growth.ipynb is not written yet")
    shutil.copy(source, lab.folder)
    watch = Watch(browser.new_page(viewport={"width": 1280, "height": 800}))
    page = watch.page
    try:
        lab.open(page, source.name)
        lab.run_all_and_wait(page)
        assert page.locator(".jp-RenderedText[data-mime-type*=error]").count() == 0
        view = page.locator(".kv[data-view=cache_growth][data-stop]").first
        view.scroll_into_view_if_needed()
        view.focus()
        page.keyboard.press("Home")
        before, sentence = kinds(view), say(view).text_content()
        page.keyboard.press("ArrowRight")
        expect(say(view)).not_to_have_text(sentence)
        assert kinds(view) != before
        box = view.locator(".kv-track").bounding_box()
        page.mouse.click(box["x"] + box["width"] - 1, box["y"] + box["height"] / 2)
        expect(view).to_have_attribute("data-stop", view.get_attribute("data-total"))
        assert watch.wrong == []
    finally:
        page.close()


def test_nothing_left_this_machine_and_no_error_was_reported(watch, page: Page) -> None:
    """Last in this file: it looks back on all tests above."""
    assert watch.wrong == []
