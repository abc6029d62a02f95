"""The schedule knobs in JupyterLab: keyboard and mouse, lessons, errors, both sizes."""

import re

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")

from lab_server import Lab, Watch
from playwright.sync_api import Locator, Page, expect

CELLS = [
    """
from kvlab import LLM
from kvlab.widgets import schedule_knobs

knobs = schedule_knobs(LLM("tiny"))
_ = knobs.add_class("t-knobs")
""",
    "knobs",
    "'knobs' + ' done'",
]


@pytest.fixture(scope="module")
def page(watch: Watch, lab: Lab) -> Page:
    watch.page.set_viewport_size({"width": 1280, "height": 720})
    lab.write("knobs.ipynb", CELLS)
    lab.open(watch.page, "knobs.ipynb")
    lab.run_all(watch.page)
    expect(watch.page.get_by_text("'knobs done'", exact=True)).to_be_visible(timeout=60_000)
    return watch.page


@pytest.fixture
def editor(page: Page) -> Locator:
    editor = page.locator(".t-knobs .kv[data-view=editor]")
    editor.evaluate("element => element.scrollIntoView()")
    return editor


def control(editor: Locator, name: str) -> Locator:
    return editor.locator(f"[data-control={name}] :is(select, input)")


def figures(editor: Locator) -> Locator:
    return editor.locator(".kve-lines .kve-text")


def test_knobs_by_keyboard_and_mouse(watch: Watch, page: Page, editor: Locator) -> None:
    expect(figures(editor).first).to_contain_text("7 steps · longest wait 4 (C)")
    expect(editor.locator(".kv-count")).to_have_text("step 3 of 7")  # C waits beside an empty seat
    seats = control(editor, "seats")
    seats.press("ArrowRight")  # three seats: nobody waits under "continuous" any more
    expect(editor.locator("[data-control=seats] output")).to_have_text("3")
    expect(figures(editor).nth(1)).to_contain_text("longest wait 0")
    control(editor, "compare").select_option("mixed")
    expect(editor.locator(".kvs-title b")).to_have_text(["static", "mixed"])
    box = control(editor, "seats").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 2, middle, steps=6)
    page.mouse.up()
    expect(editor.locator("[data-control=seats] output")).to_have_text("1")
    expect(editor.locator("[data-count=waiting]").first).to_be_visible()
    expect(figures(editor).first).to_contain_text("longest wait 6 (C)")
    legend, cursor = (editor.locator(css).bounding_box() for css in (".kvs-legend", ".kvs-cursor"))
    assert legend["y"] + legend["height"] <= cursor["y"] + 1  # covers no step
    assert watch.wrong == []


def test_a_lesson_sets_all_knobs_and_its_steps_are_scrubbed(
    watch: Watch, page: Page, editor: Locator
) -> None:
    control(editor, "presets").select_option("P12, or P4 D P4 D P4")
    expect(editor.locator(".kvs-title b")).to_have_text(["continuous", "alternating"])
    view = editor.locator(".kv[data-view=schedule]")
    view.focus()
    sent = len(watch.sent)
    page.keyboard.press("Home")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(page.locator("[data-say]").last).to_contain_text(
        "alternating, step 4: P4 of C (positions 4 to 7)"
    )
    assert len(watch.sent) == sent  # scrubbing asks the kernel nothing
    assert watch.wrong == []


def test_an_error_stands_in_the_widget_and_the_last_picture_stays(
    watch: Watch, editor: Locator
) -> None:
    control(editor, "presets").select_option("chat and long prompts")
    expect(figures(editor).first).to_contain_text("longest gap 5 (chat)")
    control(editor, "budget").press("ArrowLeft")
    error = editor.locator(".kve-error")
    expect(error).to_contain_text("the prompt has 24 tokens and a step computes at most 16")
    expect(error).to_contain_text("raise max_num_batched_tokens")
    expect(figures(editor).first).to_contain_text("longest gap 5 (chat)")
    control(editor, "budget").press("ArrowRight")
    expect(error).to_have_count(0)
    assert watch.wrong == []


def test_every_lesson_fits_the_screen_in_both_sizes(watch: Watch, editor: Locator) -> None:
    heights = {}
    names = control(editor, "presets").locator("option").all_text_contents()[1:]
    for name in names:
        control(editor, "presets").select_option(name)
        expect(editor.locator(".kv-hint").first).to_have_text("Up to date.")
        heights[name] = editor.bounding_box()["height"]
    control(editor, "presets").select_option(names[0])
    editor.locator(".kv-head [data-do=presenter]").first.click()
    expect(editor).to_have_class(re.compile("kv-large"))
    shown = watch.page.locator(".jp-WindowedPanel-outer").first.bounding_box()["height"]
    assert editor.bounding_box()["height"] <= shown
    expect(editor.locator("[data-run=static] text[data-step='1']").first).to_have_text("P3")
    editor.locator(".kv-head [data-do=presenter]").first.click()
    assert len(heights) == 5 and max(heights.values()) <= 600, heights
    assert watch.wrong == []
