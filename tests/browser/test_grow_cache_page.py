"""The editor "grow a cache" and the overview in JupyterLab: keys, presets, guard, links."""

import shutil

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")

from lab_server import ROOT, Lab
from playwright.sync_api import Locator, Page, expect

GROW = """
from kvlab.widgets import grow_a_cache, overview

grow = grow_a_cache()
_ = grow.add_class("t-grow-cache")
"""
BOUNDLESS = """
boundless = grow_a_cache(128, 16, 64, 0, 256, limit=2**60)
_ = boundless.add_class("t-boundless")
"""
OVERVIEW = """
from kvlab import LLM, SamplingParams, tiny

llm = LLM("tiny", block_size=8, num_blocks=12, max_num_seqs=2)
llm.start_trace()
for fact, question in tiny.examples()[:3]:
    prompt = llm.encode(tiny.prompt(fact, question, rules=""))
    llm.engine.add_request(prompt, SamplingParams(max_tokens=6))
    llm.engine.step()
llm.engine.run()
overview(llm.stop_trace())
"""
CELLS = [GROW, "grow", BOUNDLESS, "boundless", OVERVIEW, "'grow' + ' done'"]


@pytest.fixture(scope="module")
def page(watch, lab: Lab) -> Page:
    shutil.copy(ROOT / "notebooks" / "21_6_growth.ipynb", lab.folder / "21_6_growth.ipynb")
    lab.write("grow_cache.ipynb", CELLS)
    watch.page.set_viewport_size({"width": 1280, "height": 720})
    lab.open(watch.page, "grow_cache.ipynb")
    lab.run_all(watch.page)
    expect(watch.page.get_by_text("'grow done'", exact=True)).to_be_visible(timeout=60_000)
    return watch.page


def editor_of(page: Page, name: str = "t-grow-cache") -> Locator:
    editor = page.locator(f".{name} .kv[data-view=editor]")
    editor.scroll_into_view_if_needed()
    return editor


def texts(editor: Locator) -> Locator:
    return editor.locator(".kve-text")


def choose(editor: Locator, words: str) -> None:
    editor.locator("[data-control=presets] select").select_option(words)


def lanes(editor: Locator, kv: str) -> Locator:
    return editor.locator(f".kvc-panel[data-kv={kv}] .kvc-bar")


def test_keys_on_a_slider_change_the_bytes_and_they_agree(page: Page) -> None:
    editor = editor_of(page)
    choose(editor, "21.1's smallest example")
    expect(texts(editor).nth(0)).to_have_text("24 bytes")
    width = lanes(editor, "K").bounding_box()["width"]
    positions = editor.locator("[data-control=seq_len] input")
    positions.focus()
    page.keyboard.press("ArrowRight")
    expect(texts(editor).nth(0)).to_have_text("32 bytes")
    expect(texts(editor).nth(2)).to_have_text(
        "2 tensors of [1, 1, 4, 2], sum of nbytes 32: they agree ✓"
    )
    expect(texts(editor).nth(3)).to_contain_text("= 8 B; appending it added 8: they agree")
    expect(positions).to_have_attribute("aria-valuetext", "4")
    assert lanes(editor, "K").bounding_box()["width"] > width  # four positions are longer


def test_heads_are_lanes_and_layers_are_sheets(page: Page) -> None:
    editor = editor_of(page)
    choose(editor, "21.6's example")
    expect(lanes(editor, "K")).to_have_count(4)
    expect(lanes(editor, "V")).to_have_count(4)
    expect(editor.locator(".kvc-sheet")).to_have_attribute("data-layers", "2")
    expect(editor.locator("[data-say]")).to_contain_text(
        "both [1, 4, 5, 8]: 1 request with 4 KV heads"
    )
    editor.locator("[data-control=kv_heads] input").focus()
    page.keyboard.press("ArrowLeft")
    expect(lanes(editor, "K")).to_have_count(3)
    page.keyboard.press("ArrowLeft")
    expect(lanes(editor, "V")).to_have_count(2)
    expect(texts(editor).nth(0)).to_have_text("640 bytes")


def test_a_preset_sets_the_controls_and_a_slider_leaves_it(page: Page) -> None:
    editor = editor_of(page)
    choose(editor, "the same with 1 KV head (MQA)")
    expect(texts(editor).nth(0)).to_have_text("134,217,728 bytes = 128 MiB")
    expect(texts(editor).nth(2)).to_contain_text("64 tensors of [1, 1, 8192, 128]")
    expect(editor.locator("[data-control=layers] output")).to_have_text("32")
    editor.locator("[data-control=layers] input").focus()
    page.keyboard.press("ArrowLeft")
    expect(editor.locator("[data-control=presets] select")).to_have_value("your own numbers")
    page.keyboard.press("ArrowRight")
    chosen = editor.locator("[data-control=presets] select")
    expect(chosen).to_have_value("the same with 1 KV head (MQA)")


def test_what_is_too_large_is_not_allocated_and_nothing_moves(page: Page) -> None:
    editor = editor_of(page)
    choose(editor, "21.6's example")
    expect(texts(editor).nth(0)).to_have_text("1,280 bytes = 1.25 KiB")
    before = editor.bounding_box()
    choose(editor, "the 8B model, 32 requests of 8,192")
    expect(texts(editor).nth(2)).to_have_text(
        "not allocated: 32 GiB is more than the limit of 256 MiB; "
        "what you read is the formula alone"
    )
    expect(texts(editor).nth(2)).to_have_attribute("data-kind", "notice")
    expect(editor.locator("[data-total]")).to_have_text("32 GiB")
    assert editor.bounding_box() == before
    assert before["height"] < 600  # as much as JupyterLab shows at 1280 x 720


def test_an_impossible_allocation_is_told_in_the_widget(page: Page) -> None:
    editor = editor_of(page, "t-boundless")
    expect(texts(editor).nth(0)).to_have_text("0 bytes")  # nothing is processed yet
    positions = editor.locator("[data-control=seq_len] input")
    positions.focus()
    page.keyboard.press("End")
    expect(editor.locator(".kve-error")).to_contain_text(
        "MemoryError: this machine has no memory for 16 TiB of keys and values"
    )
    expect(texts(editor).nth(0)).to_have_text("0 bytes")  # the last picture that worked
    page.keyboard.press("Home")
    expect(editor.locator(".kve-error")).to_have_count(0)


def test_a_panel_of_the_overview_opens_its_section(page: Page) -> None:
    panel = page.locator(".kvo-panel[data-section='21.6']")
    expect(panel.locator("a")).to_have_text("open section 21.6 →")
    planned = page.locator(".kvo-panel[data-section='21.3']")
    expect(planned.get_by_text("section 21.3, not in this folder")).to_be_visible()
    expect(planned.locator("a")).to_have_count(0)
    panel.scroll_into_view_if_needed()
    told = panel.locator(".kvo-told").bounding_box()
    page.mouse.click(told["x"] + 40, told["y"] + 20)  # anywhere in the panel
    tab = page.locator(".lm-TabBar-tab.lm-mod-current", has_text="21_6_growth")
    expect(tab.first).to_be_visible()


def test_nothing_left_this_machine_and_no_error_was_reported(watch, page: Page) -> None:
    """Last in this file: it looks back on all tests above."""
    assert watch.wrong == []
