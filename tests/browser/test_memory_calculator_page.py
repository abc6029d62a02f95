"""The memory calculator in JupyterLab: keys and mouse change figures that agree with the core."""

import json

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")

from lab_server import Lab, Watch
from plain_page import plain_page
from playwright.sync_api import Locator, Page, expect

from kvlab.core import presets
from kvlab.core.sizes import both_units
from kvlab.core.spec import KVCacheSpec
from kvlab.core.storage import Storage
from kvlab.widgets import memory_calculator

HOSTILE = "<img src=x onerror=alert(1)>"
CELLS = [
    """
from kvlab.widgets import memory_calculator

calculator = memory_calculator()
_ = calculator.add_class("t-memory")
""",
    "calculator",
    "'memory' + ' done'",
]


@pytest.fixture(scope="module")
def page(watch: Watch, lab: Lab) -> Page:
    watch.page.set_viewport_size({"width": 1280, "height": 720})
    lab.write("memory.ipynb", CELLS)
    lab.open(watch.page, "memory.ipynb")
    lab.run_all(watch.page)
    expect(watch.page.get_by_text("'memory done'", exact=True)).to_be_visible(timeout=60_000)
    return watch.page


@pytest.fixture
def editor(page: Page) -> Locator:
    editor = page.locator(".t-memory .kv[data-view=editor]")
    editor.evaluate("element => element.scrollIntoView()")
    return editor


def control(editor: Locator, name: str) -> Locator:
    return editor.locator(f"[data-control={name}] :is(select, textarea, input)")


def figure(editor: Locator, name: str) -> Locator:
    return editor.locator(f"[data-figure='{name}'] td").first


def slide(editor: Locator, name: str, key: str, wanted: str) -> None:
    """Press an arrow key on a slider until it shows the number."""
    slider = control(editor, name)
    output = editor.locator(f"[data-control={name}] output")
    for _ in range(40):
        if output.text_content() == wanted:
            break
        slider.press(key)
    expect(output).to_have_text(wanted)


def core(model: str, context: int, requests: int) -> str:
    spec = KVCacheSpec.from_config(presets.preset(model).config)
    return both_units(Storage(spec).nbytes(context, requests))


def test_arrow_keys_change_the_context_and_the_figures_agree_with_the_core(
    watch: Watch, editor: Locator
) -> None:
    expect(figure(editor, "whole cache")).to_have_text(core("llama-3.1-8b", 8192, 8))
    slide(editor, "context", "ArrowRight", "65,536")
    expect(figure(editor, "whole cache")).to_have_text(core("llama-3.1-8b", 65536, 8))
    expect(editor.locator("[data-kind=answer]")).to_have_text(
        "✗ does not fit: 980.51 MiB (1,028.14 MB) missing of 80.00 GiB"
    )
    expect(editor.locator(".kvy-bar")).to_have_attribute("data-missing", "1028136960")
    expect(editor.locator("[data-mark=limit]")).to_have_text("✗ after 64,555")
    expect(editor.locator(".kvy-dot")).to_have_attribute("data-length", "65536")
    slide(editor, "gpu", "ArrowRight", "96")
    expect(editor.locator("[data-kind=answer]")).to_contain_text("✓ fits")
    assert watch.wrong == []


def test_a_model_is_chosen_by_its_first_letters(watch: Watch, page: Page, editor: Locator) -> None:
    slide(editor, "context", "ArrowLeft", "8,192")
    control(editor, "model").focus()
    page.keyboard.type("gemma")
    expect(figure(editor, "a token")).to_have_text("507,904 bytes")
    expect(figure(editor, "whole cache")).to_have_text(core("gemma-3-27b", 8192, 8))
    expect(editor.locator("[data-mark=bend]")).to_have_text("window full: 1,024")
    expect(editor.locator(".kve-text").nth(1)).to_contain_text("52 of these have a window of 1,024")
    control(editor, "window_policy").select_option("reserve_full")
    expect(figure(editor, "whole cache")).to_have_text(both_units(8 * 8192 * 507904))
    expect(editor.locator("[data-mark=bend]")).to_have_count(0)
    control(editor, "window_policy").select_option("capped")
    assert watch.wrong == []


def test_the_mouse_drags_the_requests(watch: Watch, page: Page, editor: Locator) -> None:
    control(editor, "model").select_option("mamba-2.8b")
    expect(figure(editor, "state a request")).to_have_text("22.50 MiB (23.59 MB)")
    box = control(editor, "requests").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, middle, steps=12)
    page.mouse.up()
    expect(editor.locator("[data-control=requests] output")).to_have_text("1,024")
    expect(figure(editor, "whole cache")).to_have_text(core("mamba-2.8b", 8192, 1024))
    expect(editor.locator("[data-part=S] [data-size]")).to_have_text(both_units(1024 * 23592960))
    expect(editor.locator("[data-say]")).to_contain_text("The curve is flat")
    assert watch.wrong == []


def test_a_pasted_mistake_is_named_and_the_last_picture_stays(
    watch: Watch, editor: Locator
) -> None:
    slide(editor, "requests", "ArrowLeft", "8")
    control(editor, "model").select_option("pasted config")
    expect(figure(editor, "a token")).to_have_text("131,072 bytes")
    control(editor, "config").fill(
        json.dumps({"model_type": "llama", "num_hidden_layers": HOSTILE})
    )
    error = editor.locator(".kve-error")
    expect(error).to_contain_text(
        "config.json: num_hidden_layers is '<img src=x onerror=alert(1)>'"
    )
    expect(figure(editor, "a token")).to_have_text("131,072 bytes")
    keys = {"model_type": HOSTILE, "hidden_size": 64, "num_hidden_layers": 2}
    control(editor, "config").fill(json.dumps({**keys, "num_attention_heads": 4}))
    expect(error).to_have_count(0)
    expect(figure(editor, "a token")).to_have_text("512 bytes")
    expect(editor.locator("[data-note]").first).to_contain_text(
        f"model_type '{HOSTILE}' is unknown"
    )
    expect(editor.locator("img")).to_have_count(0)
    assert watch.wrong == []


def test_nothing_moves_from_model_to_model_and_all_of_it_is_on_one_screen(
    watch: Watch, page: Page, editor: Locator
) -> None:
    heights = set()
    for model in (*presets.names(), "tiny"):
        before = editor.locator("[data-say]").text_content()
        control(editor, "model").select_option(model)
        expect(editor.locator("[data-say]")).not_to_have_text(before)
        heights.add(round(editor.bounding_box()["height"]))
    assert len(heights) == 1 and heights.pop() <= 600  # what JupyterLab shows at 1280 x 720
    editor.locator(".kv-head [data-do=presenter]").first.click()
    large = editor.bounding_box()["height"]
    editor.locator(".kv-head [data-do=presenter]").first.click()
    assert large <= page.locator(".jp-WindowedPanel-outer").first.bounding_box()["height"]
    assert watch.wrong == []


def test_without_a_kernel_the_same_picture_is_drawn(browser, tmp_path) -> None:
    shown = memory_calculator("gpt-oss-20b", context=128)
    path = tmp_path / "page.html"
    path.write_text(plain_page(shown.html(), "editor"), encoding="utf-8")
    watch = Watch(browser.new_page())
    watch.page.goto(path.as_uri())
    watch.page.wait_for_function("window.kvlab")
    expect(watch.page.locator("[data-mark=bend]")).to_have_text("window full: 128")
    expect(watch.page.locator("[data-say]")).to_have_text(shown.result["view"]["sentence"])
    expect(watch.page.locator("select").first).to_be_disabled()
    for letter, _, size, text in shown.result["view"]["bar"]["parts"]:
        fill = watch.page.locator(f".kvy-bar [data-part={letter}]")
        expect(fill).to_have_attribute("data-bytes", str(size))
        expect(watch.page.locator(f".kvy-part[data-part={letter}] b")).to_have_text(text)
    watch.page.close()
    assert watch.wrong == []
