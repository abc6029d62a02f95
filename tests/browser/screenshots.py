"""Pictures of the views in JupyterLab, to be looked at by a person.

python tests/browser/screenshots.py FOLDER
"""

import shutil
import sys
import tempfile
from pathlib import Path

from lab_server import ROOT, Lab, running_browser, running_lab
from playwright.sync_api import Browser, expect

SMALL = """
import torch
from kvlab import LLM, Decoder, ModelConfig, SamplingParams, tiny
from kvlab.widgets import cache_growth, growth_editor

torch.manual_seed(0)
shape = dict(num_layers=2, num_query_heads=8, num_kv_heads=4, head_dim=8)
config = ModelConfig(vocab_size=64, hidden_size=64, intermediate_size=64, max_model_len=64, **shape)
small = LLM(Decoder.random(config), block_size=4, cache_dtype=torch.bfloat16, num_blocks=12)
small.start_trace()
small.generate([5, 6, 7, 8, 9], SamplingParams(max_tokens=4))
cache_growth(small.stop_trace())
"""
REAL = """
llm = LLM("tiny", block_size=4)
llm.start_trace()
llm.generate(tiny.prompt("Ada likes soup. The key is red.", "What colour is the key?"))
cache_growth(llm.stop_trace())
"""
LONG = """
notes = " ".join(["Ada likes soup. The key is red. Bob is in the garden."] * 8)
long = LLM("tiny", block_size=16, max_num_batched_tokens=64)
long.start_trace()
params = SamplingParams(max_tokens=24, ignore_eos=True)
long.generate(tiny.prompt(notes, "What colour is the key?"), params)
cache_growth(long.stop_trace())
"""
EDITOR = 'growth_editor(llm, question="What colour is the Zork?")'
SHOTS = (("small", 0, 5), ("real", 1, 8), ("end", 1, 99), ("long", 2, 20), ("editor", 3, None))
SIZES = ((1280, 720), (1920, 1000))


def take(lab: Lab, browser: Browser, theme: str, folder: Path) -> None:
    for width, height in SIZES:
        page = browser.new_page(viewport={"width": width, "height": height})
        lab.open(page, "views.ipynb")
        lab.run_all(page)
        expect(page.locator(".kv[data-stop]")).to_have_count(4, timeout=90_000)
        for name, index, stop in SHOTS:
            view = page.locator(".jp-OutputArea-child .kv").locator("visible=true").nth(index)
            view.scroll_into_view_if_needed()
            if stop is not None:
                view.focus()
                page.keyboard.press("Home")
                for _ in range(min(stop, int(view.get_attribute("data-total")))):
                    page.keyboard.press("ArrowRight")
            page.screenshot(animations="disabled", path=folder / f"{name}-{theme}-{width}.png")
        view = page.locator(".kv[data-stop]").nth(1)
        view.focus()
        for _ in range(4):
            page.keyboard.press("ArrowLeft")
        page.keyboard.press("p")
        expect(view).to_have_class("kv kv-large")
        page.screenshot(animations="disabled", path=folder / f"presenter-{theme}-{width}.png")
        page.close()


def take_section(lab: Lab, browser: Browser, theme: str, folder: Path) -> None:
    """The first view of section 21.6 as a reader meets it."""
    source = ROOT / "notebooks" / "21_6_growth.ipynb"
    if not source.exists():
        return
    shutil.copy(source, lab.folder)
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    lab.open(page, source.name)
    lab.run_all_and_wait(page)
    view = page.locator(".kv[data-stop]").first
    view.scroll_into_view_if_needed()
    view.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.screenshot(animations="disabled", path=folder / f"section-{theme}.png")
    page.close()


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with running_browser() as browser:
        for theme in ("Light", "Dark"):
            with (
                tempfile.TemporaryDirectory() as base,
                running_lab(Path(base), f"JupyterLab {theme}") as lab,
            ):
                lab.write("views.ipynb", [SMALL, REAL, LONG, EDITOR])
                take(lab, browser, theme.lower(), folder)
                take_section(lab, browser, theme.lower(), folder)


if __name__ == "__main__":
    main()
