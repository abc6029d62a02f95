"""The instructor's set as slides in JupyterLab: keys turn them, and a view on one is live."""

import json
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")

from lab_server import ROOT, Lab
from playwright.sync_api import Page, expect

from kvlab.book import sets
from kvlab.book.manifest import read

NAMES = [section.notebook for section in read(ROOT).written]
WINDOW = {"width": 1280, "height": 720}
FIRST_CELLS = 9  # of 21.6: as far as its first view
NOW = """() => {
  const { content } = jupyterapp.shell.currentWidget, cell = content.activeCell;
  const scroller = content.node.querySelector(".jp-WindowedPanel-outer");
  const shown = [...content.node.querySelectorAll(".jp-deck-mod-onscreen")];
  const text = cell.node.querySelector(".jp-RenderedHTMLCommon") ?? cell.node;
  return {
    index: content.activeCellIndex,
    kind: (cell.model.getMetadata("slideshow") ?? {}).slide_type ?? null,
    code: cell.model.type === "code",
    deck: document.body.dataset.jpDeckMode === "presenting",
    hidden: scroller.scrollHeight - scroller.clientHeight,
    wide: scroller.scrollWidth - scroller.clientWidth,
    cells: shown.length,
    tables: shown.reduce((sum, one) => sum + one.querySelectorAll("table").length, 0),
    type: parseFloat(getComputedStyle(text).fontSize),
    frames: shown.flatMap((one) => [...one.querySelectorAll(".kv-framed")])
      .map((one) => one.getBoundingClientRect().toJSON()),
  };
}"""
TYPE = "e => getComputedStyle(e).fontSize"
COVERED = """(buttons) => buttons.map((one) => {
  const { left, top, height } = one.getBoundingClientRect();
  return [one, document.elementFromPoint(left + 4, top + height / 2)];
}).filter(([one, met]) => one.checkVisibility() && !one.contains(met))
  .map(([one, met]) => `${one.outerHTML.slice(0, 60)} is under ${met?.className}`)"""


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("taught")
    sets.write("instructor", ROOT / "notebooks", folder, force=False, now=datetime(2026, 5, 4))
    return folder


@pytest.fixture
def page(browser: object, lab: Lab) -> Iterator[Page]:
    """A page that leaves no deck behind: JupyterLab would open the next notebook as one."""
    page = browser.new_page(viewport=WINDOW)
    yield page
    lab.command(page, "deck:stop")
    expect(page.locator("#jp-main-statusbar")).to_be_visible()
    page.close()


def start(page: Page, lab: Lab, name: str) -> None:
    """All cells run, the first selected, the toolbar's button pressed."""
    lab.open(page, name)
    lab.run_all_and_wait(page)
    page.evaluate("jupyterapp.shell.currentWidget.content.activeCellIndex = 0")
    page.locator(".jp-Cell").first.locator(".jp-InputPrompt").first.click()
    page.locator(".jp-NotebookPanel-toolbar [data-jp-item-name=deck]").click()
    page.wait_for_function("document.body.dataset.jpDeckMode === 'presenting'")


def turned(page: Page, key: str) -> dict:
    """The slide after a key; the deck draws it in its own time."""
    before = page.evaluate(NOW)["index"]
    page.keyboard.press(key)
    page.wait_for_function(f"jupyterapp.shell.currentWidget.content.activeCellIndex !== {before}")
    return page.evaluate(NOW)


def test_keys_turn_the_slides_and_a_view_on_one_keeps_its_own(
    page: Page, lab: Lab, taught: Path
) -> None:
    notebook = json.loads((taught / "21_6_growth.ipynb").read_text(encoding="utf-8"))
    notebook["cells"] = notebook["cells"][:FIRST_CELLS]
    notebook["cells"][0]["source"] = ["# Growth\n\n", "| a table |\n", "| --- |\n", "| b |\n"]
    (lab.folder / "slides.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    start(page, lab, "slides.ipynb")
    opening = page.evaluate(NOW)
    assert opening["deck"] and opening["index"] == 0 and opening["hidden"] == 0
    assert round(opening["type"], 1) == 19.2  # 1.5 hundredths of the window's width
    table = page.locator(".jp-deck-mod-onscreen table")
    assert table.evaluate(TYPE) == "13.056px"  # 1.02 of them
    heading = turned(page, "ArrowRight")
    assert heading["kind"] == "slide"
    assert turned(page, "ArrowLeft")["index"] == 0
    slide = turned(page, "ArrowRight")
    while not page.locator(".jp-deck-mod-onscreen .kv").count():
        slide = turned(page, "Space")
    view = page.locator(".jp-deck-mod-onscreen .kv[data-stop]")
    assert view.locator("button").evaluate_all(COVERED) == []
    view.locator(".kv-title").click()
    for stop in ("1", "2", "3"):
        page.keyboard.press("ArrowRight")
        expect(view).to_have_attribute("data-stop", stop)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("p")
    expect(view).to_have_class("kv kv-large kv-framed")
    now = page.evaluate(NOW)
    assert now["index"] == slide["index"] and now["deck"]
    (frame,) = now["frames"]
    assert frame["top"] >= 0 and frame["bottom"] <= WINDOW["height"]
    assert abs(frame["width"] - frame["height"] * 16 / 9) < 1
    page.keyboard.press("Escape")  # the keys are the slides' again
    assert turned(page, "ArrowUp")["index"] < slide["index"]
    page.keyboard.press("Escape")
    page.wait_for_function("document.body.dataset.jpDeckMode !== 'presenting'")


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_every_slide_of_a_section_can_be_read(
    page: Page, lab: Lab, taught: Path, name: str
) -> None:
    """From first to last with Space, the views in large type. One cell that is longer scrolls."""
    shutil.copy(taught / f"{name}.ipynb", lab.folder)
    start(page, lab, f"{name}.ipynb")
    page.evaluate("document.querySelector('.kv [data-do=presenter]')?.click()")
    page.locator(".kv-framed, .jp-Notebook").first.wait_for(state="attached")
    cells = page.evaluate("jupyterapp.shell.currentWidget.content.widgets.length")
    seen, longer = [page.evaluate(NOW)], []
    while page.evaluate(
        "jupyterapp.shell.currentWidget.content.widgets"
        ".slice(jupyterapp.shell.currentWidget.content.activeCellIndex + 1)"
        ".some((cell) => !['skip', 'notes'].includes("
        "(cell.model.getMetadata('slideshow') ?? {}).slide_type))"
    ):
        seen.append(turned(page, "Space"))
        if seen[-1]["hidden"] > 10:
            longer.append(seen[-1])
        for frame in seen[-1]["frames"]:
            assert frame["top"] >= -1 and frame["bottom"] <= WINDOW["height"] + 1
    assert len(seen) > cells / 4
    assert all(slide["code"] and slide["cells"] == 1 for slide in longer)
    assert all(slide["tables"] < 2 for slide in longer)
    assert all(slide["wide"] <= 0 for slide in seen)
