"""The view "cache in two layouts" on a plain page and in JupyterLab."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")

from lab_server import Lab, Watch
from plain_page import plain_page
from playwright.sync_api import Locator, Page, expect
from stillness import wait_until_still

from kvlab import LLM, SamplingParams, tiny
from kvlab.core.layouts import LayoutRun
from kvlab.widgets import compare_layouts, layouts_html, layouts_payload

HOSTILE = "</script><img src=x onerror=alert(1)>"
CELL = """
from kvlab import LLM, SamplingParams, tiny
from kvlab.widgets import cache_layouts

prompts = [
    tiny.prompt("Ada likes soup. Tom likes plums.", "What does Tom like?"),
    tiny.prompt("", "What does Ada like?", rules=""),
]
view = cache_layouts(LLM("tiny", block_size=4), prompts, SamplingParams(max_tokens=6))
view.add_class("t-layouts")
"""


@pytest.fixture(scope="module")
def run() -> LayoutRun:
    """Three real requests; A and B end before C. One token's text is hostile."""
    prompts = [
        tiny.prompt("Ada likes soup. Tom likes plums.", "What does Tom like?"),
        tiny.prompt("", "What does Ada like?", rules=""),
        tiny.prompt("The key is red.", "What colour is the key?", rules=""),
    ]
    params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (4, 3, 6)]
    found = compare_layouts(LLM("tiny", block_size=4), prompts, params)
    vocab = {**found.meta["vocab"], str(found.requests[0].prompt_token_ids[2]): HOSTILE}
    return LayoutRun({**found.meta, "vocab": vocab}, found.requests, found.passes)


@pytest.fixture
def opened(browser, tmp_path: Path) -> Iterator:
    """opened(payload) is a watched page that shows it."""
    watches = []

    def open_page(payload: dict, **options: object) -> Page:
        path = tmp_path / f"{len(watches)}.html"
        path.write_text(plain_page(layouts_html(payload), "cache_layouts"), encoding="utf-8")
        watches.append(Watch(browser.new_page(**options)))
        watches[-1].page.goto(path.as_uri())
        expect(watches[-1].page.locator(".kv[data-stop]")).to_be_visible()
        watches[-1].page.locator(".kv").focus()
        return watches[-1].page

    yield open_page
    for watch in watches:
        watch.page.close()
        assert watch.wrong == []


def letters(page: Page | Locator, layout: str, request: str) -> str:
    """What a row shows: P, O, p(ad), h(eld), t(ail); slots that are not there are left out."""
    cells = page.locator(f"[data-layout={layout}] [data-request={request}] .kvl-c")
    kinds = cells.evaluate_all("cs => cs.map(c => c.dataset.kind)")
    short = {"pad": "-", "tail": ".", "heldP": "h", "heldO": "h", "none": ""}
    return "".join(short.get(kind, kind) for kind in kinds)


def go(page: Page, stop: int) -> None:
    page.keyboard.press("Home")
    for _ in range(stop):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".kv")).to_have_attribute("data-stop", str(stop))


def test_rows_bytes_and_words_agree_with_the_run_at_every_stop(opened, run: LayoutRun) -> None:
    payload = layouts_payload(run)
    page = opened(payload, viewport={"width": 1280, "height": 900})
    for (_, _, sentence), (_, _, state) in zip(payload["stops"], run.states(), strict=True):
        expect(page.locator("[data-say]")).to_have_text(sentence)
        for i, request in enumerate(run.requests):
            row = state.rows[i] if state.running[i] else state.rows[i].replace("P", "h")
            row = row if state.running[i] else row.replace("O", "h")
            assert letters(page, "rectangle", request.name) == row
            held, prompt = state.num_computed_tokens[i], len(request.prompt_token_ids)
            blocks = "".join("P" if p < prompt else "O" for p in range(held))
            assert letters(page, "blocks", request.name) == blocks + "." * state.tails[i]
        for kind, nbytes in (
            ("rectangle", state.rectangle_nbytes),
            ("blocks", sum(state.block_nbytes)),
        ):
            expect(page.locator(f"[data-bytes={kind}]")).to_have_text(f"{nbytes:,} bytes")
        assert page.locator(".kvl-mark[data-agree=false]").count() == 0
        page.keyboard.press("ArrowRight")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_output_differs_from_a_prompt_where_letters_have_no_room(opened, scheme: str) -> None:
    """Eight requests of 44 slots: cells of 6 pixels. A bar at the bottom marks an output."""
    ids = [list(range(5, 5 + n)) for n in (40, 3, 9, 17, 22, 5, 30, 12)]
    params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (5, 5, 2, 5, 5, 5, 5, 5)]
    many = compare_layouts(LLM("tiny", block_size=8), ids, params)
    options = {"viewport": {"width": 1280, "height": 900}, "color_scheme": scheme}
    page = opened(layouts_payload(many), **options)
    go(page, 4)
    expect(page.locator(".kvl[data-fine]")).to_be_visible()
    for layout, request, kinds in (
        ("rectangle", "A", {"P", "O"}),
        ("blocks", "A", {"P", "O"}),
        ("rectangle", "C", {"heldP", "heldO"}),
    ):
        cells = page.locator(f"[data-layout={layout}] [data-request={request}] .kvl-c")
        found = cells.evaluate_all(
            """cs => cs.map(c => {
              const { backgroundImage, boxShadow } = getComputedStyle(c);
              return [c.dataset.kind, backgroundImage !== "none" || boxShadow !== "none"];
            })"""
        )
        drawn = {(kind, bar) for kind, bar in found if kind in kinds}
        assert drawn == {(kind, kind.endswith("O")) for kind in kinds}
        letter = "c => getComputedStyle(c, '::after').content"
        assert cells.first.evaluate(letter) == "none"


def test_the_ring_is_around_what_changed(opened, run: LayoutRun) -> None:
    page = opened(layouts_payload(run), viewport={"width": 1280, "height": 900})
    rings = page.locator("[data-layout=blocks] .kvl-ring:visible")
    expect(page.locator(".kvl-ring:visible")).to_have_count(0)
    go(page, 2)
    expect(rings).to_have_count(3)
    ring = page.locator("[data-layout=rectangle] .kvl-ring:visible").bounding_box()
    column = [
        page.locator(f"[data-layout=rectangle] [data-request={r}] .kvl-c").nth(25).bounding_box()
        for r in "AC"
    ]
    assert ring["x"] <= column[0]["x"] and ring["y"] <= column[0]["y"]
    assert ring["x"] + ring["width"] >= column[1]["x"] + column[1]["width"]
    assert ring["y"] + ring["height"] >= column[1]["y"] + column[1]["height"]


def test_given_back_in_one_half_still_held_in_the_other(opened, run: LayoutRun) -> None:
    page = opened(layouts_payload(run), viewport={"width": 1280, "height": 900})
    ended = next(i for i, (_, kind, _) in enumerate(run.states()) if kind == "ended")
    go(page, ended)
    expect(page.get_by_text("3 blocks given back: 7, 8, 9")).to_be_visible()
    expect(page.locator("[data-share=held]")).to_contain_text("11ended, still held14%")
    expect(page.locator("[data-layout=rectangle] [data-request=B]")).to_have_attribute(
        "aria-label", "B, ended, still held: 9 prompt positions, 2 outputs, 16 padding"
    )


@pytest.mark.parametrize("width", [620, 1280, 1900])
def test_nothing_moves_at_any_width(opened, run: LayoutRun, width: int) -> None:
    payload = layouts_payload(run)
    page = opened(payload, viewport={"width": width, "height": 900})
    boxes = []
    for _ in payload["stops"]:
        boxes.append(page.get_by_text("end", exact=True).last.bounding_box())
        page.keyboard.press("ArrowRight")
    assert all(box == boxes[0] for box in boxes)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


CUT = """[...document.querySelectorAll(".kvl *:not(.kvl-scroll):not(.kvl-scroll *)")]
  .filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0)
  .map((e) => `${e.className}: ${e.textContent}`)"""


def test_on_a_phone_no_word_is_cut_and_nothing_moves(opened, run: LayoutRun) -> None:
    payload = layouts_payload(run)
    page = opened(payload, viewport={"width": 390, "height": 844})
    heights = []
    for _ in payload["stops"]:
        assert page.evaluate(CUT) == []
        heights.append(page.locator(".kv").bounding_box()["height"])
        page.keyboard.press("ArrowRight")
    assert heights == heights[:1] * len(payload["stops"])
    sight = page.locator(".kvl-scroll").last.bounding_box()
    gone = [one.bounding_box() for one in page.get_by_text(" given back: ").all()]
    gone = [box["x"] + box["width"] for box in gone if box]
    assert len(gone) == len(run.requests) and max(gone) <= sight["x"] + sight["width"]
    page.keyboard.press("p")
    wait_until_still(page)
    assert page.evaluate(CUT) == []


def test_a_long_rectangle_scrolls_and_keeps_the_newest_column_in_sight(opened) -> None:
    prompts = [list(range(5, 25)) * 7, [5, 6, 7]]
    long = compare_layouts(LLM("tiny", block_size=4), prompts, SamplingParams(max_tokens=3))
    page = opened(layouts_payload(long), viewport={"width": 1280, "height": 900})
    more = page.locator("[data-layout=rectangle] [data-do=right]")
    expect(more).to_be_visible()
    go(page, 2)
    scroll = page.locator("[data-layout=rectangle] .kvl-scroll").bounding_box()
    cell = page.locator("[data-layout=rectangle] [data-request=B] .kvl-c").nth(140).bounding_box()
    assert scroll["x"] <= cell["x"]
    assert cell["x"] + cell["width"] <= scroll["x"] + scroll["width"]
    before = page.locator(".kv").bounding_box()
    page.locator("[data-layout=rectangle] [data-do=left]").click()
    page.wait_for_function(
        "x => document.querySelector('.kvl-scroll').scrollLeft < x", arg=140 * 16 - scroll["width"]
    )
    assert page.locator(".kv").bounding_box() == before


def test_hostile_text_is_a_title_and_nothing_more(opened, run: LayoutRun) -> None:
    page = opened(layouts_payload(run))
    go(page, 1)
    cell = page.locator("[data-layout=rectangle] [data-request=A] .kvl-c").nth(2)
    expect(cell).to_have_attribute("title", f"A, slot 2: position 2, '{HOSTILE}', prompt")
    assert page.locator("img").count() == 0


def test_bytes_that_disagree_with_the_formula_are_marked(opened, run: LayoutRun) -> None:
    payload = layouts_payload(run)
    payload["layouts"]["passes"][0]["rectangle_nbytes"] += 8
    page = opened(payload)
    go(page, 1)
    mark = page.locator("[data-layout=rectangle] .kvl-mark")
    expect(mark).to_have_attribute("data-agree", "false")
    expect(mark).to_have_text("✗ tensors 153,608, formula 153,600")


def test_without_scripts_the_table_is_there(browser, tmp_path: Path, run: LayoutRun) -> None:
    path = tmp_path / "plain.html"
    html = f'<!doctype html><meta charset="utf-8">{layouts_html(layouts_payload(run))}'
    path.write_text(html, encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    expect(page.get_by_role("row")).to_have_count(5)
    expect(page.get_by_role("listitem")).to_have_count(len(layouts_payload(run)["stops"]))
    context.close()


def test_in_jupyterlab_keys_walk_and_nothing_is_sent(browser, lab: Lab) -> None:
    lab.write("layouts.ipynb", [CELL, "'all' + ' done'"])
    watch = Watch(browser.new_page(viewport={"width": 1280, "height": 800}))
    page = watch.page
    try:
        lab.open(page, "layouts.ipynb")
        lab.run_all(page)
        expect(page.get_by_text("'all done'", exact=True)).to_be_visible(timeout=60_000)
        view = page.locator(".t-layouts .kv[data-stop]")
        view.scroll_into_view_if_needed()
        view.focus()
        before, sent = view.bounding_box(), len(watch.sent)
        total = int(view.get_attribute("data-total"))
        for stop in range(1, total + 1):
            page.keyboard.press("ArrowRight")
            expect(view).to_have_attribute("data-stop", str(stop))
            assert view.bounding_box() == before
        expect(view.locator("[data-say]")).to_contain_text("Blocks: none, 0 bytes.")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        expect(view.locator("[data-say]")).to_contain_text(
            "B is padded by 16: 16 slots hold keys and values of a filler token, nothing of the "
        )
        assert letters(view, "rectangle", "B") == "P" * 9 + "-" * 16
        assert letters(view, "blocks", "B") == "P" * 9 + "..."
        assert len(watch.sent) == sent
        assert watch.wrong == []
    finally:
        page.close()
