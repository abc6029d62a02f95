"""The allocator playground in JupyterLab: mouse, keys, script, undo, copy-on-write, download."""

import re
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")

from lab_server import Lab, Watch
from plain_page import plain_page
from playwright.sync_api import Locator, Page, expect

from kvlab import Trace
from kvlab.widgets import allocator_playground, block_table

LINES = """(rows) => rows.map((row) => {
  const parts = [...row.querySelectorAll("button,label")].map((e) => e.getBoundingClientRect());
  const { left, right } = row.getBoundingClientRect();
  const isIn = parts.every((box) => box.left >= left - 1 && box.right <= right + 1);
  return [new Set(parts.map((box) => Math.round((box.top + box.bottom) / 2))).size, isIn];
})"""
HOSTILE = "<img src=x onerror=alert(1)>"
CELLS = [
    "from kvlab.widgets import allocator_playground\nplayground = allocator_playground()",
    "playground",
    "'playground' + ' done'",
]


@pytest.fixture(scope="module")
def page(watch, lab: Lab) -> Page:
    lab.write("playground.ipynb", CELLS)
    watch.page.set_viewport_size({"width": 1280, "height": 720})
    lab.open(watch.page, "playground.ipynb")
    lab.run_all(watch.page)
    expect(watch.page.get_by_text("'playground done'", exact=True)).to_be_visible(timeout=60_000)
    return watch.page


@pytest.fixture
def pad(page: Page) -> Locator:
    """The editor at Table 21.1."""
    editor = page.locator(".kv[data-view=editor]")
    editor.evaluate("element => element.scrollIntoView({ block: 'start' })")
    start_from(editor, "an empty pool of 12 blocks")
    start_from(editor, "Table 21.1")
    actions(editor, "start", "admit A 6", "admit B 4")
    return editor


def start_from(editor: Locator, name: str) -> None:
    editor.locator("[data-control=presets] select").select_option(name)
    expect(editor).not_to_have_attribute("data-busy", "")


def press(editor: Locator, name: str) -> None:
    editor.locator(f".kvp-pad [data-do={name}]").click()
    expect(editor).not_to_have_attribute("data-busy", "")


def choose(editor: Locator, name: str) -> None:
    editor.get_by_label("A running request").select_option(name)


def actions(editor: Locator, *texts: str) -> None:
    expect(editor.locator(".kvp-chip span")).to_have_text(list(texts))


def table_of(editor: Locator, request: str, table: str) -> None:
    expect(editor.locator(f"[data-request={request}]")).to_have_attribute("data-table", table)


def free(editor: Locator, *ids: int) -> None:
    expect(editor.locator("[data-free]")).to_have_text([str(i) for i in ids])


def rules(editor: Locator) -> Locator:
    return editor.locator(".kvp-audit [data-state=ok]")


def test_the_chapter_s_steps_by_mouse(pad: Locator) -> None:
    table_of(pad, "A", "7 2")
    table_of(pad, "B", "9")
    free(pad, 5)
    choose(pad, "A")
    for _ in range(3):
        press(pad, "append")
    table_of(pad, "A", "7 2 5")
    free(pad)
    expect(pad.locator("[data-rule=note]")).to_have_text(
        "after 5 · append A: takes block 5; position 8 goes to block 5, slot 0"
    )
    pad.get_by_label("Whose first tokens are shared").select_option("A")
    press(pad, "share")
    table_of(pad, "C", "7")
    expect(pad.locator("[data-block='7']")).to_have_attribute("data-refs", "2")
    expect(pad.get_by_label("A running request")).to_have_value("C")  # who was made last
    for name in "ACB":
        choose(pad, name)
        press(pad, "finish")
    expect(pad.locator("[data-rule=blocks]")).to_have_text(
        "✓0 in use + 0 evictable + 4 free = 4 usable blocks"
    )
    expect(rules(pad)).to_have_count(3)
    expect(pad.locator("[data-do=append]")).to_have_attribute("aria-disabled", "true")
    expect(pad.locator("[data-do=append]")).to_have_attribute("title", re.compile("admit one"))
    pad.locator("[data-action='5']").click()  # stops at every action
    table_of(pad, "A", "7 2 5")
    expect(pad.locator("[data-say]")).to_contain_text("A processes position 8.")


def test_by_keyboard_and_undo_is_ctrl_z(page: Page, pad: Locator) -> None:
    cells = page.locator(".jp-Cell").count()
    pad.locator("[data-do=append]").focus()
    page.keyboard.press("Enter")
    actions(pad, "start", "admit A 6", "admit B 4", "append A")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")  # the next button forks
    actions(pad, "start", "admit A 6", "admit B 4", "append A", "fork C A")
    expect(pad.locator("[data-do=fork]")).to_be_focused()
    page.keyboard.press("Control+z")
    actions(pad, "start", "admit A 6", "admit B 4", "append A")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    actions(pad, "start", "admit A 6")
    page.keyboard.press("Control+Shift+z")
    actions(pad, "start", "admit A 6", "admit B 4")
    page.keyboard.press("Control+y")
    actions(pad, "start", "admit A 6", "admit B 4", "append A")
    pad.get_by_label("Name of the new request").fill("D")
    tokens = pad.get_by_label("Tokens of its prompt")
    tokens.fill("3")
    page.keyboard.press("Enter")
    actions(pad, "start", "admit A 6", "admit B 4", "append A", "admit D 3")
    pad.locator(".kv[data-stop]").focus()
    for key in ("d", "d", "a", "Control+z"):
        page.keyboard.press(key)
    actions(pad, "start", "admit A 6", "admit B 4", "append A")
    assert page.locator(".jp-Cell").count() == cells


def test_fork_then_append_copies_before_it_writes(pad: Locator) -> None:
    choose(pad, "A")
    press(pad, "fork")
    table_of(pad, "C", "7 2")
    expect(pad.locator("[data-block='2']")).to_have_attribute("data-owners", "A C")
    press(pad, "append")
    table_of(pad, "C", "7 5")
    expect(pad.locator("[data-block='5'] em")).to_have_text("copy of 2")
    expect(pad.locator("[data-rule=note]")).to_contain_text("copies block 2 to block 5")
    pad.locator(".kv[data-stop]").focus()
    pad.page.keyboard.press("ArrowLeft")
    expect(pad.locator("[data-say]")).to_contain_text("Copy-on-write: the pool gives block 5")
    expect(pad.locator("[data-rule=note]")).to_contain_text("after 3 · fork C A")
    press(pad, "undo")
    table_of(pad, "C", "7 2")
    free(pad, 5)


def test_a_full_pool_is_told_and_changes_nothing(pad: Locator) -> None:
    choose(pad, "B")
    press(pad, "append")
    choose(pad, "A")
    for _ in range(2):
        press(pad, "append")
    before = pad.locator(".kvp").inner_text()
    press(pad, "append")
    error = pad.locator(".kve-error")
    expect(error).to_contain_text("line 6, 'append A': position 8 begins a new block, and none")
    expect(error).to_contain_text("A holds 7 and 2; B holds 9 and 5. A scheduler would preempt")
    assert pad.locator(".kvp").inner_text() == before
    choose(pad, "B")
    press(pad, "finish")  # the refused line is not in the way
    expect(error).to_have_count(0)
    free(pad, 5, 9)


def test_a_typed_script_runs_and_a_wrong_one_stays_to_be_corrected(
    page: Page, pad: Locator
) -> None:
    pad.locator("[data-do=text]").click()
    area = pad.get_by_label("Script", exact=True)
    expect(area).to_be_focused()
    expect(area).to_have_value("admit A 6\nadmit B 4")
    area.fill("admit A 6\nforc B A")
    page.keyboard.press("Control+Enter")
    expect(pad.locator(".kve-error")).to_contain_text(
        "line 2, 'forc B A': no action is called 'forc'; use admit, append"
    )
    expect(area).to_have_value("admit A 6\nforc B A")
    actions(pad, "start", "admit A 6", "admit B 4")
    area.fill("admit A 6\nfork B A # twins")
    pad.locator("[data-do=run]").click()
    actions(pad, "start", "admit A 6", "fork B A # twins")
    expect(pad.locator(".kve-error")).to_have_count(0)
    pad.locator("[data-do=text]").click()
    expect(area).to_be_hidden()


def test_pool_block_size_and_retention_are_the_reader_s(page: Page, pad: Locator) -> None:
    pad.locator("[data-do=settings]").click()
    pool = pad.locator("[data-control=pool] input")
    pool.fill("20-22, 3")
    page.keyboard.press("Enter")
    table_of(pad, "A", "20 21")
    table_of(pad, "B", "22")
    pool.fill(HOSTILE)
    page.keyboard.press("Enter")
    expect(pad.locator(".kve-error")).to_contain_text("the pool has '<img'; give block ids")
    pool.fill("8 6 4 2 0")
    page.keyboard.press("Enter")
    table_of(pad, "A", "8 6")
    pad.locator("[data-control=block_size] input").focus()
    page.keyboard.press("ArrowLeft")  # three slots a block
    table_of(pad, "B", "4 2")
    pad.locator("[data-control=after_finish] select").select_option("keep full blocks, evictable")
    choose(pad, "A")
    press(pad, "finish")
    expect(pad.locator("[data-rule=blocks]")).to_contain_text("2 in use + 2 evictable + 1 free")
    expect(pad.locator("[data-control=presets] select")).to_have_value("your own")
    pad.locator("[data-do=settings]").click()


def test_what_was_taken_back_is_put_back_into_the_same_script_only(
    page: Page, pad: Locator
) -> None:
    redo = pad.locator("[data-do=redo]")
    press(pad, "append")
    press(pad, "undo")
    expect(redo).to_have_attribute("aria-disabled", "false")
    start_from(pad, "fork and copy-on-write")  # another script
    expect(redo).to_have_attribute("aria-disabled", "true")
    start_from(pad, "Table 21.1")
    pad.locator("[data-do=settings]").click()
    pool = pad.locator("[data-control=pool] input")
    pool.fill("no pool")
    page.keyboard.press("Enter")
    expect(pad.locator(".kve-error")).to_contain_text("the pool has 'no'; give block ids")
    press(pad, "undo")  # refused with the pool: nothing was taken back
    expect(redo).to_have_attribute("aria-disabled", "true")
    pool.fill("7 2 9 5")
    page.keyboard.press("Enter")
    actions(pad, "start", "admit A 6", "admit B 4")
    press(pad, "undo")
    press(pad, "redo")
    actions(pad, "start", "admit A 6", "admit B 4")
    expect(redo).to_have_attribute("aria-disabled", "true")
    pad.locator("[data-do=settings]").click()


def test_a_hostile_name_is_text(page: Page, pad: Locator) -> None:
    pad.get_by_label("Tokens of its prompt").fill("6")
    pad.get_by_label("Name of the new request").fill(HOSTILE)
    page.keyboard.press("Enter")
    expect(pad.locator(".kve-error")).to_contain_text(f"'admit \"{HOSTILE}\" 6'")  # no room
    pad.get_by_label("Tokens of its prompt").fill("2")
    pad.get_by_label("Name of the new request").fill(HOSTILE)
    page.keyboard.press("Enter")
    actions(pad, "start", "admit A 6", "admit B 4", f'admit "{HOSTILE}" 2')
    expect(pad.get_by_label("A running request")).to_have_value(HOSTILE)
    press(pad, "append")
    pad.locator("[data-action='3']").click()
    expect(pad.locator("[data-say]")).to_contain_text("C is admitted")
    pad.locator(".kv[data-stop]").focus()
    page.keyboard.press("ArrowLeft")
    expect(pad.locator("[data-say]")).to_contain_text("(request <img")
    assert page.locator(".kv img").count() == 0
    press(pad, "finish")


def test_the_saved_trace_is_the_kernel_s(page: Page, pad: Locator, tmp_path: Path) -> None:
    press(pad, "append")
    with page.expect_download() as download:
        pad.locator("[data-do=save]").click()
    assert download.value.suggested_filename == "playground-trace.json"
    download.value.save_as(tmp_path / "trace.json")
    trace = Trace.load(tmp_path / "trace.json")
    here = allocator_playground(script="admit A 6\nadmit B 4\nappend A")
    assert trace.to_dict() == here.trace.to_dict()
    assert repr(block_table(trace)).startswith("BlockTable(")


def test_scrubbing_asks_the_kernel_nothing_and_moves_nothing(
    watch, page: Page, pad: Locator
) -> None:
    start_from(pad, "Table 21.1 and steps 1 to 5")
    expect(pad.locator(".kvp-chip")).to_have_count(10)
    expect(pad.locator("[data-rule=blocks]")).to_contain_text("4 in use")  # the fullest first
    sent, box = len(watch.sent), pad.bounding_box()
    view = pad.locator(".kv[data-stop]")
    view.focus()
    page.keyboard.press("Home")
    for stop in range(1, int(view.get_attribute("data-total")) + 1):
        page.keyboard.press("ArrowRight")
        expect(view).to_have_attribute("data-stop", str(stop))
        expect(rules(pad)).to_have_count(3)
        assert pad.bounding_box() == box
    expect(pad.locator("[aria-current]")).to_have_text("9finish B")
    assert len(watch.sent) == sent
    assert box["height"] < 600  # as much as JupyterLab shows at 1280 x 720
    page.keyboard.press("p")
    expect(pad).to_have_class(re.compile("kv-large"))
    assert (
        pad.bounding_box()["height"]
        <= page.locator(".jp-WindowedPanel-outer").first.bounding_box()["height"]
    )
    page.keyboard.press("p")


def test_four_requests_stand_beside_each_other_without_scrolling(page: Page, pad: Locator) -> None:
    rows = pad.locator("[data-half=rows]")
    too_high = "e => e.scrollHeight - e.clientHeight"
    start_from(pad, "Table 21.1 and steps 1 to 5")
    expect(pad.locator("[data-half=rows] [data-request]")).to_have_count(3)
    expect(pad.locator("[data-rows=slots]")).to_have_count(1)
    assert rows.evaluate(too_high) <= 0
    start_from(pad, "the same, finished blocks kept")  # eight logical blocks: numbers, not slots
    expect(pad.locator("[data-half=rows] [data-request]")).to_have_count(4)
    expect(pad.locator("[data-rows=numbers]")).to_have_count(1)
    assert rows.evaluate(too_high) <= 0
    start_from(pad, "Table 21.1")
    for _ in range(2):
        press(pad, "share")
    expect(pad.locator("[data-half=rows] [data-request]")).to_have_count(4)
    expect(pad.locator("[data-rows=slots]")).to_have_count(1)
    assert rows.evaluate(too_high) <= 0


def test_nothing_left_this_machine_and_no_error_was_reported(watch, page: Page) -> None:
    """Of those in this file that use the notebook, the last: it looks back on all above."""
    assert watch.wrong == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_without_a_kernel_it_can_be_scrubbed_and_saved(
    browser, tmp_path: Path, scheme: str
) -> None:
    path = tmp_path / "playground.html"
    path.write_text(plain_page(allocator_playground().html(), "editor"), encoding="utf-8")
    watch = Watch(browser.new_page(viewport={"width": 900, "height": 800}, color_scheme=scheme))
    try:
        watch.page.goto(path.as_uri())
        editor = watch.page.locator(".kv[data-view=editor]")
        expect(editor.locator("[data-do=append]")).to_be_disabled()
        memory = "e => [e.getBoundingClientRect().x, e.offsetTop, e.offsetWidth, e.offsetHeight]"
        full = editor.locator("[data-half=memory]").evaluate(memory)  # each logical block has one
        editor.locator("[data-action='1']").click()
        table_of(editor, "A", "7 2")
        table_of(editor, "B", "")
        assert editor.locator("[data-half=memory]").evaluate(memory) == full
        with watch.page.expect_download() as download:
            editor.locator("[data-do=save]").click()
        download.value.save_as(tmp_path / "trace.json")
        assert len(Trace.load(tmp_path / "trace.json")) == 16
        paper = editor.evaluate("e => getComputedStyle(e).backgroundColor")
        assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]
        assert watch.wrong == []
    finally:
        watch.page.close()


@pytest.mark.parametrize(("width", "most"), [(860, [1, 1]), (390, [3, 3])])
def test_the_pad_s_words_stand_in_few_lines(
    browser, tmp_path: Path, width: int, most: list[int]
) -> None:
    """In a column of the book's width, and on a phone."""
    path = tmp_path / "playground.html"
    html = plain_page(allocator_playground().html(), "editor")
    path.write_text(f"<!doctype html><style>body{{margin:0}}</style>{html}", encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 800})
    try:
        page.goto(path.as_uri())
        rows = page.locator(".kvp-pad > .kvp-row")
        expect(rows).to_have_count(2)
        lines = rows.evaluate_all(LINES)
        assert all(found <= n and isin for (found, isin), n in zip(lines, most, strict=True)), lines
    finally:
        page.close()
