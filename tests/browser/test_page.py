"""The same modules on a plain page without Jupyter, as the static book mounts them."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")

from lab_server import Watch
from plain_page import plain_page
from playwright.sync_api import Locator, Page, expect
from stillness import resize, wait_until_still

from kvlab import LLM, SamplingParams, Trace, tiny
from kvlab.widgets import grow_a_cache, growth_editor, growth_html, growth_payload

HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def trace() -> Trace:
    """A run of the tiny model whose prompt holds hostile text."""
    llm = LLM("tiny", block_size=4)
    llm.start_trace()
    prompt = tiny.prompt("Ada likes soup. The key is red.", "What colour is the key?")
    llm.generate(prompt, SamplingParams(max_tokens=8))
    document = json.loads(llm.stop_trace().to_json())
    first = document["events"][0]["patch"]["requests"]["r1"]["token_ids"][2]
    document["meta"]["vocab"][str(first)] = HOSTILE
    return Trace.from_dict(document)


@pytest.fixture
def opened(browser, tmp_path: Path):
    """open(html, view) writes a page with the view's module and opens it, watched."""
    watches = []

    def open_page(
        html: str, view: str = "cache_growth", exports: str = "", **options: object
    ) -> Page:
        path = tmp_path / f"{len(watches)}.html"
        path.write_text(plain_page(html, view, exports), encoding="utf-8")
        watches.append(Watch(browser.new_page(**options)))
        watches[-1].page.goto(path.as_uri())
        return watches[-1].page

    yield open_page
    for watch in watches:
        watch.page.close()
        assert watch.wrong == []


def test_the_browser_decodes_the_same_frames_as_python(opened, trace: Trace) -> None:
    page = opened("", exports="\nexport { framesOf };")
    page.wait_for_function("window.kvlab")
    states = page.evaluate("d => [...kvlab.framesOf(d)].map(f => f.state)", trace.to_dict())
    assert states == [frame.state for frame in trace.frames()]


@pytest.mark.parametrize("width", [700, 1280, 1900])
def test_nothing_moves_at_any_width(opened, trace: Trace, width: int) -> None:
    html = growth_html(growth_payload(trace))
    page = opened(html, viewport={"width": width, "height": 800})
    view = page.locator(".kv[data-stop]")
    expect(view).to_have_attribute("data-total", "13")
    view.focus()
    boxes = []
    for _ in range(14):
        boxes.append(page.get_by_text("end", exact=True).last.bounding_box())
        page.keyboard.press("ArrowRight")
    assert all(box == boxes[0] for box in boxes)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def at_the_end(page: Page) -> Locator:
    view = page.locator(".kv[data-stop]")
    view.focus()
    page.keyboard.press("End")
    return view


def test_cells_legend_and_sentence_agree_when_the_request_has_ended(opened, trace: Trace) -> None:
    page = opened(growth_html(growth_payload(trace)), viewport={"width": 1280, "height": 800})
    view = page.locator(".kv[data-stop]")
    row = view.locator(".kvg-legend li[data-kind=gone]")
    expect(row).to_contain_text("0")
    expect(row.get_by_text("given back", exact=True)).to_be_visible()
    at_the_end(page)
    expect(view.locator("[data-say]")).to_contain_text("6 outputs selected, 5 processed")
    expect(row.locator("b")).to_have_text("32")
    expect(row.get_by_text("given back: 27 P, 5 O")).to_be_visible()
    expect(view.get_by_text("selected, never processed")).to_be_visible()
    expect(view.get_by_text("selected, not yet processed")).to_be_hidden()
    for kind, count in (("gone", 32), ("selected", 1), ("P", 0), ("O", 0)):
        expect(view.locator(f".kvg-col[data-kind={kind}]")).to_have_count(count)
        expect(view.locator(f".kvg-legend li[data-kind={kind}] b")).to_have_text(str(count))
    expect(view.locator("[data-pos='32']")).to_have_attribute("title", re.compile("never proc"))
    expect(view.locator(".kvg-ring")).to_be_hidden()


def test_markers_say_how_many_columns_are_out_of_sight_and_scroll_there(
    opened, trace: Trace
) -> None:
    page = opened(growth_html(growth_payload(trace)), viewport={"width": 1180, "height": 800})
    view, scroll = page.locator(".kv[data-stop]"), page.locator(".kvg-scroll")
    left, right = view.locator("[data-do=left]"), view.locator("[data-do=right]")
    box = view.bounding_box()

    def whole() -> list[int]:
        """Positions whose columns are in sight as a whole."""
        frame, labels = scroll.bounding_box(), view.locator(".kvg-labels").bounding_box()
        start, end = labels["x"] + labels["width"], frame["x"] + frame["width"]
        boxes = [column.bounding_box() for column in view.locator(".kvg-col").all()]
        return [
            p
            for p, b in enumerate(boxes)
            if b["x"] >= start - 1 and b["x"] + b["width"] <= end + 4.5
        ]

    expect(left).to_be_hidden()
    seen = whole()
    assert seen[0] == 0
    expect(right).to_have_text(f"{32 - seen[-1]} more ▸")
    right.focus()
    page.keyboard.press("Enter")
    expect(right).to_be_hidden()  # 33 columns are two screens
    expect(view).to_be_focused()
    seen = whole()
    assert seen[-1] == 32
    expect(left).to_have_text(f"◂ {seen[0]} more")
    expect(left).to_have_attribute("aria-label", f"{seen[0]} positions further left: scroll there")
    left.focus()
    page.keyboard.press("Space")
    expect(left).to_be_hidden()
    expect(view).to_have_attribute("data-stop", "0")
    assert view.bounding_box() == box
    at_the_end(page)
    expect(left).to_be_visible()
    assert 32 in whole()
    edge = """e => e.querySelector(".kvg-labels").getBoundingClientRect().right
      + parseFloat(getComputedStyle(e).getPropertyValue("--cover"))"""
    for place in (None, 70):  # where the view scrolled to, and a reader in the middle of a column
        if place is not None:
            scroll.evaluate("(e, x) => { e.scrollLeft = x; }", place)
        expect(left).to_have_text(f"◂ {whole()[0]} more")
        ends = [c.bounding_box() for c in view.locator(".kvg-col").all()[: whole()[0]]]
        assert max(box["x"] + box["width"] for box in ends) <= scroll.evaluate(edge) + 0.5


def test_where_all_columns_fit_there_are_no_markers_and_ticks_are_explained(
    opened, trace: Trace
) -> None:
    page = opened(growth_html(growth_payload(trace)), viewport={"width": 1900, "height": 800})
    expect(page.locator(".kv[data-stop]")).to_be_visible()
    expect(page.locator(".kvg-more")).to_be_hidden()
    expect(page.locator(".kv-track")).to_have_attribute("title", re.compile("^Long ticks"))


def test_bytes_of_a_character_are_two_digits(opened) -> None:
    llm = LLM("tiny", block_size=4)
    llm.start_trace()
    llm.generate(tiny.prompt("ü", "?", rules=""), SamplingParams(max_tokens=1))
    page = opened(growth_html(growth_payload(llm.stop_trace())))
    column = page.locator(".kvg-col").filter(has=page.get_by_text("C3", exact=True))
    expect(column).to_have_attribute("title", re.compile("^position [0-9]+: byte C3, prompt"))
    expect(page.get_by_text("BC", exact=True)).to_have_count(1)


def test_hostile_text_is_a_title_and_a_label_and_nothing_more(opened, trace: Trace) -> None:
    """W08."""
    page = opened(growth_html(growth_payload(trace)))
    column = page.locator(".kvg-col[data-pos='2']")
    expect(column.locator(".kvg-t")).to_have_text(HOSTILE)
    assert HOSTILE in column.get_attribute("title")
    assert page.locator("img").count() == 0


def test_without_scripts_the_table_is_there(browser, tmp_path: Path, trace: Trace) -> None:
    """W04."""
    path = tmp_path / "plain.html"
    path.write_text(f'<!doctype html><meta charset="utf-8">{growth_html(growth_payload(trace))}')
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    expect(page.get_by_role("row")).to_have_count(34)
    expect(page.get_by_role("cell", name=HOSTILE)).to_be_visible()
    expect(page.get_by_role("listitem")).to_have_count(14)
    context.close()


def test_bytes_that_disagree_with_the_formula_are_marked(opened, trace: Trace) -> None:
    document = json.loads(trace.to_json())
    for event in document["events"]:
        if event["kind"] == "computed":
            event["data"]["nbytes"] += 8
    page = opened(growth_html(growth_payload(Trace.from_dict(document))))
    page.locator(".kv").focus()
    page.keyboard.press("ArrowRight")
    mark = page.locator(".kvg-mark")
    expect(mark).to_have_attribute("data-agree", "false")
    expect(mark).to_have_text("✗ stored tensors 55,304, formula 55,296")


def test_many_layers_are_named_and_not_drawn(opened, trace: Trace) -> None:
    document = json.loads(trace.to_json())
    document["meta"]["num_layers"] = 32
    page = opened(growth_html(growth_payload(Trace.from_dict(document))))
    expect(page.get_by_text("layers 2 to 30 have the same shape (not drawn)")).to_be_visible()
    assert page.locator(".kvg-col[data-pos='0'] .kvg-c").count() == 6


def test_an_editor_without_a_kernel_shows_its_result_and_takes_no_input(opened) -> None:
    page = opened(growth_editor(LLM("tiny", block_size=4)).html(), "editor")
    editor = page.locator(".kv[data-view=editor]")
    expect(editor.locator("[data-kind=answer]")).to_have_text("The key is red.")
    expect(editor.locator("textarea").first).to_be_disabled()
    expect(editor.locator(".kv[data-view=cache_growth]")).to_have_attribute("data-stop", "12")


def test_every_choice_of_an_editor_can_be_read_and_moves_nothing(opened) -> None:
    html = grow_a_cache().html()
    page = opened(html, "editor", viewport={"width": 880, "height": 720})  # a column of the book
    cut = """() => [...document.querySelectorAll(".kve-field select")].filter((select) => {
      const alone = select.cloneNode(true);
      alone.style.cssText = "position:absolute;width:auto";
      select.parentElement.append(alone);
      const cut = alone.offsetWidth > select.offsetWidth + 1;
      alone.remove();
      return cut;
    }).map((select) => select.parentElement.textContent)"""
    fields = """all => all.map((e) => JSON.stringify(e.getBoundingClientRect()))"""
    for width, height in ((880, 720), (1280, 720), (1920, 1000)):
        resize(page, width, height)
        if width == 1280:
            page.locator("[data-do=presenter]").first.click()
            wait_until_still(page)
        assert page.evaluate(cut) == [], f"at {width} pixels"
        before = page.locator(".kve-field").evaluate_all(fields)
        page.locator("select").evaluate_all("all => all.forEach((e) => e.selectedIndex++)")
        assert page.locator(".kve-field").evaluate_all(fields) == before


def test_only_the_newest_inputs_are_sent_while_an_update_is_under_way(opened) -> None:
    """W06, with answers that take as long as the test says."""
    page = opened("", "editor", exports="\nexport { latestWins };")
    page.wait_for_function("window.kvlab")
    sent = page.evaluate(
        """() => {
            const sent = [];
            const channel = kvlab.latestWins((inputs) => sent.push(inputs), { slow: -1 });
            for (let i = 1; i <= 10; i++) channel.push(i);   // 1 is sent, 10 waits
            channel.done();                                  // slow: rests until release
            for (let i = 11; i <= 20; i++) channel.push(i);
            channel.release();
            channel.done();
            channel.push(21);                                // within the rest: held back
            channel.destroy();
            return sent;
        }"""
    )
    assert sent == [1, 20]
