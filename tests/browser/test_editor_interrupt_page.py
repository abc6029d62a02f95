"""A reader interrupts the kernel while an editor computes: it says so, and goes on."""

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")

from lab_server import Lab
from playwright.sync_api import Page, expect

EDITOR = """
import time
from kvlab.widgets import LiveEditor, Slider

def patient(seconds):
    time.sleep(seconds)
    return {"lines": [["Waited", f"{seconds} s", "answer"]]}

editor = LiveEditor(patient, [Slider("seconds", "Seconds", 0, 0, 90)], "Patience")
_ = editor.add_class("t-patience")
"""


@pytest.fixture(scope="module")
def page(watch, lab: Lab) -> Page:
    lab.write("interrupt.ipynb", [EDITOR, "editor", "'patience' + ' done'"])
    lab.open(watch.page, "interrupt.ipynb")
    lab.run_all(watch.page)
    expect(watch.page.get_by_text("'patience done'", exact=True)).to_be_visible(timeout=60_000)
    return watch.page


def test_an_editor_lives_on_after_an_interrupt(watch, lab: Lab, page: Page) -> None:
    editor = page.locator(".t-patience .kv[data-view=editor]")
    editor.locator("input").focus()
    page.keyboard.press("End")  # 90 seconds, longer than any of the waits below
    expect(editor).to_have_attribute("data-busy", "")
    expect(page.locator("#jp-main-statusbar")).to_contain_text("Busy")
    lab.command(page, "notebook:interrupt-kernel")
    expect(editor.locator(".kve-error")).to_contain_text("interrupted; change an input")
    expect(editor.locator(".kve-text")).to_have_text("0 s")  # the last inputs that worked
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(editor.locator(".kve-text")).to_have_text("1 s", timeout=15_000)
    expect(editor.locator(".kve-error")).to_have_count(0)
    assert watch.wrong == []
