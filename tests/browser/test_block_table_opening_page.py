"""The view "block table" opens at a named stop, and a copy's label is not cut off."""

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")
sys.path.append(str(Path(__file__).parents[1] / "widgets"))

from blocks_cases import PROMPT_A, chapter, forks
from history_runner import HistoryRunner, StepClock
from lab_server import Watch
from plain_page import plain_page
from playwright.sync_api import Page, expect

from kvlab import BlockPool, KVCacheManager, LLMEngine, SamplingParams, Scheduler
from kvlab.core.trace import Trace
from kvlab.widgets import block_table_html, block_table_payload

WIDER = "e => e.scrollWidth > e.clientWidth"


@pytest.fixture
def opened(browser, tmp_path: Path):
    """open(trace, at) shows a page of 1280 x 720 with the view, watched to the end."""
    watches = []

    def open_page(trace: Trace, at: str, width: int = 1280) -> Page:
        path = tmp_path / f"{len(watches)}.html"
        html = block_table_html(block_table_payload(trace, at=at))
        path.write_text(plain_page(html, "block_table"), encoding="utf-8")
        watches.append(Watch(browser.new_page(viewport={"width": width, "height": 720})))
        watches[-1].page.goto(path.as_uri())
        return watches[-1].page

    yield open_page
    for watch in watches:
        watch.page.close()
        assert watch.wrong == []


def test_it_opens_at_the_stop_that_is_named_and_home_goes_to_the_start(opened) -> None:
    page = opened(forks(), "Copy-on-write")
    expect(page.locator("[data-say]")).to_contain_text("B is about to write position 6, slot 2")
    expect(page.locator("[data-block='2']")).to_have_attribute("data-copy", "1")
    view = page.locator(".kv[data-stop]")
    view.focus()
    page.keyboard.press("Home")
    expect(view).to_have_attribute("data-stop", "0")


def test_on_a_phone_it_opens_with_the_stop_s_request_and_block_in_sight(opened) -> None:
    page = opened(chapter(), "C is admitted", 390)
    expect(page.locator(".kvb[data-narrow]")).to_be_attached()
    for half, what in (
        ("rows", "[data-request=C] [data-logical='0']"),
        ("memory", "[data-block='7']"),
    ):
        box = page.locator(f"[data-half={half}]").bounding_box()
        seen = page.locator(f"[data-half={half}] {what}").bounding_box()
        assert box["y"] <= seen["y"] and seen["y"] + seen["height"] <= box["y"] + box["height"]


def copy_that_fills_up(num_blocks: int) -> Trace:
    """Two continuations of six tokens over blocks 20, 21 ...; the copy of block 21 gets full."""
    manager = KVCacheManager(BlockPool(range(20, 20 + num_blocks)), 4)
    engine = LLMEngine(Scheduler(manager), HistoryRunner(4), StepClock())
    engine.start_trace()
    engine.add_request(PROMPT_A, SamplingParams(max_tokens=4, n=2), request_id="r")
    engine.run()
    return engine.stop_trace()


@pytest.mark.parametrize("num_blocks", [5, 12])  # cards in both of the sizes that have labels
def test_the_label_of_a_copy_has_room(opened, num_blocks: int) -> None:
    page = opened(copy_that_fills_up(num_blocks), "Copy-on-write")
    label = page.locator("[data-copy='21'] .kvb-id")
    expect(label).to_have_text("copy of 21")
    texts = set()
    while page.locator("[data-copy='21']").count():
        texts.add(label.inner_text())
        cut = [e.inner_text() for e in page.locator(".kvb-id").all() if e.evaluate(WIDER)]
        assert cut == []
        page.locator("[data-do=next]").click()
    assert any(re.search("[0-9a-f]{8} copy of 21", text) for text in texts)
