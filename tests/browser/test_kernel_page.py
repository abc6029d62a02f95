"""The view "watch a kernel" on a plain page: what lights up, keys, the code, no jumps (21.5)."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")
sys.path.append(str(Path(__file__).parents[1] / "core"))

from kernel_log_cases import small_log
from lab_server import Watch
from plain_page import plain_page
from playwright.sync_api import Page, expect

from kvlab.core.kernel_log import Reduce, recorded_log
from kvlab.widgets import kernel_html, kernel_payload

# make test looks at this width in test_presenter_page and test_book_site
WIDE = pytest.param(1920, marks=pytest.mark.soak)

HOSTILE = "<img src=x onerror=alert(1)>"
PAYLOAD = kernel_payload(small_log())
STOPS = PAYLOAD["stops"]


@pytest.fixture
def opened(browser, tmp_path: Path):
    """open(payload) shows a page with the view, focused at its start, watched to the end."""
    watches = []

    def open_page(payload: dict = PAYLOAD, **options: object) -> Page:
        path = tmp_path / f"{len(watches)}.html"
        path.write_text(plain_page(kernel_html(payload), "kernel_watch"), encoding="utf-8")
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 720}, **options})
        watches.append(Watch(context.new_page()))
        page = watches[-1].page
        page.goto(path.as_uri())
        page.locator(".kv[data-stop]").focus()
        return page

    yield open_page
    for watch in watches:
        watch.page.context.close()
        assert watch.wrong == []


def stop_of(kind: str, nth: int = 0) -> int:
    return [i for i, stop in enumerate(STOPS) if stop["kind"] == kind][nth]


def lit(page: Page, what: str) -> list[int]:
    cells = page.locator(f".kvk-pool [data-on={what}]")
    return sorted(int(slot) for slot in cells.evaluate_all("all => all.map(c => c.dataset.slot)"))


def test_every_stop_has_its_sentence_and_its_lines(opened) -> None:
    page = opened()
    for stop in STOPS:
        expect(page.locator("[data-say]")).to_have_text(stop["sentence"])
        for attribute, lines in (("data-ran", stop["lines"]), ("data-at", stop["at"])):
            marked = page.locator(f"[data-open] code[{attribute}]")
            assert marked.evaluate_all("all => all.map(c => Number(c.dataset.line))") == lines
        page.keyboard.press("ArrowRight")


def test_the_slots_that_a_turn_reads_light_up(opened) -> None:
    page = opened()
    page.evaluate("i => views[0].show(i)", stop_of("lookup", 2))
    assert lit(page, "read") == [] and lit(page, "masked") == [22, 23]
    expect(page.locator(".kvk-block[data-on]")).to_have_attribute("data-block", "5")
    expect(page.locator(".kvk-entry[data-on]")).to_have_text("2→5")
    page.evaluate("i => views[0].show(i)", stop_of("read", 2))
    assert lit(page, "read") == [20, 21]
    expect(page.locator(".kvk-pool [data-slot='21']")).to_have_text("9")
    places = page.locator(".kvk-tile [data-place]")
    assert places.evaluate_all("all => all.map(c => c.dataset.on)") == ["read"] * 2 + ["masked"] * 2
    assert lit(page, "held") == [8, 9, 10, 11, 28, 29, 30, 31]
    page.evaluate("i => views[0].show(i)", stop_of("end"))
    assert lit(page, "held") == [8, 9, 10, 11, 20, 21, 28, 29, 30, 31]


def test_programs_maxima_and_sums(opened) -> None:
    page = opened()
    page.evaluate("i => views[0].show(i)", stop_of("read", 1))
    cells = page.locator(".kvk-grid td[data-program]")
    expect(cells).to_have_text(["1/2", ""])
    bars = page.locator(".kvk-head[data-head='0'] .kvk-bar span:nth-child(2)")
    expect(bars).to_have_text(["3.20", "1.75"])
    page.keyboard.press("ArrowRight")
    expect(bars).to_have_text(["3.20 → 4.10", "1.75 → 2.94"])
    expect(cells).to_have_text(["2/2", ""])
    page.evaluate("i => views[0].show(i)", stop_of("reduce"))
    expect(cells).to_have_text(["✓", "✓"])
    expect(page.locator(".kvk-share").first).to_contain_text("split 0: 0.90")


def test_keys_and_clicks_go_from_program_to_program(opened) -> None:
    page = opened()
    root = page.locator(".kv[data-stop]")
    for key, stop in (
        ("ArrowDown", stop_of("start")),
        ("ArrowDown", stop_of("start", 1)),
        ("ArrowUp", stop_of("start")),
        ("ArrowUp", 0),
        ("End", len(STOPS) - 1),
        ("ArrowUp", stop_of("start", 1)),
        ("ArrowDown", len(STOPS) - 1),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        expect(root).to_have_attribute("data-stop", str(stop))
    page.locator("[data-program='1']").click()
    expect(root).to_have_attribute("data-stop", str(stop_of("start", 1)))
    page.keyboard.press("p")
    expect(root).to_contain_class("kv-large")


@pytest.mark.parametrize("width", [700, 1280, WIDE])
def test_nothing_moves_while_scrubbing_and_all_fits(opened, width: int) -> None:
    payload = kernel_payload(recorded_log())
    page = opened(payload, viewport={"width": width, "height": 720})
    for large in (False, True):
        boxes = []
        for stop in range(len(payload["stops"])):
            page.evaluate("i => views[0].show(i)", stop)
            boxes.append(
                [
                    page.get_by_text("end", exact=True).last.bounding_box(),
                    page.locator(".kvk-middle").bounding_box(),
                ]
            )
        assert all(box == boxes[0] for box in boxes)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        if not large:
            page.locator("[data-do=presenter]").click()
    assert page.locator(".kv[data-stop]").bounding_box()["height"] < 720 or width == 700


@pytest.mark.parametrize("width", [390, 870])  # a phone; the column of the book
def test_tile_table_and_pool_are_read_whole(opened, width: int) -> None:
    payload = kernel_payload(recorded_log(), at="the earlier sum is scaled")
    page = opened(payload, viewport={"width": width, "height": 720})
    for part, what in (("tile", "[data-place]"), ("table", "[data-on]"), ("pool", "[data-block]")):
        box = page.locator(f".kvk-{part}").bounding_box()
        for seen in (one.bounding_box() for one in page.locator(f".kvk-{part} {what}").all()):
            assert box["x"] <= seen["x"] and seen["x"] + seen["width"] <= box["x"] + box["width"]
            assert box["y"] <= seen["y"] and seen["y"] + seen["height"] <= box["y"] + box["height"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_lines_of_a_stop_are_in_sight(opened, scheme: str) -> None:
    payload = kernel_payload(recorded_log())
    page = opened(payload, color_scheme=scheme)
    expect(page.locator(".kvk-note")).to_have_text("recorded")
    for i, stop in enumerate(payload["stops"]):
        if stop["kind"] not in ("lookup", "read", "sum", "reduce"):
            continue
        page.evaluate("i => views[0].show(i)", i)
        box = page.locator(".kvk-code").bounding_box()
        for line in stop["at"]:
            seen = page.locator(f"[data-open] [data-line='{line}']").bounding_box()
            assert box["y"] <= seen["y"] and seen["y"] + seen["height"] <= box["y"] + box["height"]


def test_it_opens_at_the_stop_that_is_named_and_home_goes_to_the_start(opened) -> None:
    payload = kernel_payload(recorded_log(), at="the earlier sum is scaled")
    page = opened(payload)
    expect(page.locator(".kv[data-stop]")).to_have_attribute("data-stop", "7")
    expect(page.locator("[data-say]")).to_contain_text("running max 10.36 → 14.77, so the earlier")
    assert len(lit(page, "read")) == 16
    page.keyboard.press("Home")
    expect(page.locator(".kv[data-stop]")).to_have_attribute("data-stop", "0")


def test_freed_blocks_and_shares_that_are_no_numbers_are_said(opened) -> None:
    nan = Reduce(0, 0, (float("nan"),) * 2, (10,), None)
    log = small_log(block_table=((-1, 2, 5),), window=6, reduces=(nan,))
    page = opened(kernel_payload(log, at="put"))
    expect(page.locator(".kvk-share")).to_have_text("split 0: NaNsplit 1: NaN")
    page.evaluate("i => views[0].show(i)", stop_of("start"))
    expect(page.locator(".kvk-entry b")).to_have_text(["freed", "2", "5"])


def test_hostile_names_are_text(opened) -> None:
    page = opened(kernel_payload(small_log(names=(HOSTILE,), about=HOSTILE), title=HOSTILE))
    expect(page.locator(".kv-title")).to_have_text(HOSTILE)
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-say]")).to_contain_text(f"request 0 ({HOSTILE})")
    assert page.locator("img").count() == 0
