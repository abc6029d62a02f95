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
LAYOUTS = """
from kvlab import LLM, SamplingParams, tiny
from kvlab.widgets import cache_layouts

several = [
    tiny.prompt("Ada likes soup. Tom likes plums.", "What does Tom like?"),
    tiny.prompt("", "What does Ada like?", rules=""),
    tiny.prompt("The key is red.", "What colour is the key?", rules=""),
]
cache_layouts(LLM("tiny", block_size=4), several, SamplingParams(max_tokens=6))
"""
MANY_LAYOUTS = """
ids = [list(range(5, 5 + n)) for n in (40, 3, 9, 17, 22, 5, 30, 12)]
each = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (9, 12, 3, 6, 20, 4, 9, 2)]
cache_layouts(LLM("tiny", block_size=8), ids, each)
"""
WRONG = """
from kvlab import LLM
from kvlab.widgets import wrong_cache_lab
wrong_cache_lab(LLM("tiny"), case=4)
"""
GROW_CACHE = """
from kvlab.widgets import grow_a_cache

grow_a_cache(batch=3)
"""
OVERVIEW = """
from kvlab import LLM, SamplingParams, tiny
from kvlab.widgets import overview

llm = LLM("tiny", block_size=8, num_blocks=12, max_num_seqs=2)
llm.start_trace()
for fact, question in tiny.examples()[:3]:
    prompt = llm.encode(tiny.prompt(fact, question, rules=""))
    llm.engine.add_request(prompt, SamplingParams(max_tokens=6))
    llm.engine.step()
llm.engine.run()
overview(llm.stop_trace())
"""
WRONG_SHOTS = ("fact exchanged", "fact hidden", "table reversed", "padding read")
READS = """
from kvlab import LLM, SamplingParams, tiny
from kvlab.tensors.reads import padded_reads
from kvlab.widgets import attention_read

llm = LLM("tiny", block_size=4)
llm.start_trace(attention_layers=range(4))
llm.generate(tiny.prompt("Ada likes soup. The key is red.", "What colour is the key?"))
attention_read(llm.stop_trace(), layer=3)
"""
PADDED_READS = """
notes = ("Ada likes soup.", "Ada likes soup. The key is red.")
prompts = [llm.encode(tiny.prompt(note, "What does Ada like?", rules="")) for note in notes]
attention_read(padded_reads(llm.model, prompts, token_text=llm.tokenizer.token_text), layer=1)
"""
BLOCKS = f"""
import sys
sys.path.append({str(ROOT / "tests" / "widgets")!r})
from blocks_cases import chapter, forks, large_run
from kvlab.widgets import block_table

block_table(chapter())
"""
BLOCK_SHOTS = (  # view, stop, how often the arrow down
    *((0, 3, 0), (0, 12, 1), (0, 15, 0), (0, 24, 0), (1, 12, 3), (2, 420, 0), (2, 700, 6)),
)
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
        expect(view).to_contain_class("kv-large")
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


def take_layouts(lab: Lab, browser: Browser, theme: str, folder: Path) -> None:
    """Three requests in two layouts at three stops, then eight; both in large type as well."""
    lab.write("layouts.ipynb", [LAYOUTS, MANY_LAYOUTS])
    for width, height in SIZES:
        page = browser.new_page(viewport={"width": width, "height": height})
        lab.open(page, "layouts.ipynb")
        lab.run_all(page)
        views = page.locator(".kv[data-view=cache_layouts][data-stop]")
        expect(views).to_have_count(2, timeout=90_000)
        for index, stop, large in (
            *((0, 1, False), (0, 2, False), (0, 6, False), (1, 8, False)),
            *((0, 2, True), (1, 8, True)),
        ):
            view = views.nth(index)
            view.focus()
            page.keyboard.press("Home")
            for _ in range(stop):
                page.keyboard.press("ArrowRight")
            if large != ("kv-large" in view.get_attribute("class")):
                page.keyboard.press("p")
            view.scroll_into_view_if_needed()
            shot = f"layouts-{index}-{stop}-{'large' if large else 'small'}-{theme}-{width}.png"
            page.screenshot(animations="disabled", path=folder / shot)
        page.close()


def take_wrong_cache(lab: Lab, browser: Browser, theme: str, folder: Path) -> None:
    """The wrong-cache laboratory with some damages, and one of them in large type."""
    lab.write("wrong.ipynb", [WRONG])
    for width, height in SIZES:
        page = browser.new_page(viewport={"width": width, "height": height})
        lab.open(page, "wrong.ipynb")
        lab.run_all(page)
        editor = page.locator(".kv[data-view=editor]")
        expect(editor).to_have_count(1, timeout=90_000)
        choice = editor.locator("select")
        for name in WRONG_SHOTS:
            choice.select_option(name)
            expect(editor).not_to_have_attribute("data-busy", "", timeout=60_000)
            editor.scroll_into_view_if_needed()
            shot = f"wrong-{name.replace(' ', '-')}-{theme}-{width}.png"
            page.screenshot(animations="disabled", path=folder / shot)
        editor.locator("[data-do=presenter]").first.click()
        page.screenshot(animations="disabled", path=folder / f"wrong-large-{theme}-{width}.png")
        page.close()


def take_sizes(lab: Lab, browser: Browser, theme: str, folder: Path) -> None:
    """The editor "grow a cache" at small and large sizes, and the overview of the start page."""
    source = ROOT / "notebooks" / "21_6_growth.ipynb"
    if source.exists():
        shutil.copy(source, lab.folder)  # so that one panel has a notebook to open
    lab.write("sizes.ipynb", [OVERVIEW, GROW_CACHE])
    for width, height in SIZES:
        page = browser.new_page(viewport={"width": width, "height": height})
        lab.open(page, "sizes.ipynb")
        lab.run_all_and_wait(page)
        figure, editor = page.locator(".kvo"), page.locator(".kv[data-view=editor]")
        expect(editor).to_be_visible(timeout=60_000)
        figure.evaluate("element => element.scrollIntoView()")
        page.screenshot(animations="disabled", path=folder / f"overview-{theme}-{width}.png")
        editor.evaluate("element => element.scrollIntoView({ block: 'end' })")
        page.screenshot(animations="disabled", path=folder / f"grow-{theme}-{width}.png")
        editor.locator("[data-control=presets] select").select_option(index=6)
        expect(editor).to_have_attribute("data-updates", "1")
        page.screenshot(animations="disabled", path=folder / f"grow-large-{theme}-{width}.png")
        editor.locator(".kv-head [data-do=presenter]").first.click()
        editor.evaluate("element => element.scrollIntoView()")
        page.screenshot(animations="disabled", path=folder / f"grow-presenter-{theme}-{width}.png")
        page.close()


def take_attention_reads(lab: Lab, browser: Browser, theme: str, folder: Path) -> None:
    """What a query reads, in a trace and in a padded batch; then both in large type."""
    lab.write("reads.ipynb", [READS, PADDED_READS])
    for width, height in SIZES:
        page = browser.new_page(viewport={"width": width, "height": height})
        lab.open(page, "reads.ipynb")
        lab.run_all(page)
        views = page.locator(".kv[data-view=attention_read][data-stop]")
        expect(views).to_have_count(2, timeout=90_000)
        for size in ("", "-large"):
            for view, name in ((views.first, "read"), (views.last, "padded")):
                view.scroll_into_view_if_needed()
                view.focus()
                page.keyboard.press("End")
                page.keyboard.press("ArrowDown")
                shot = f"{name}{size}-{theme}-{width}.png"
                page.screenshot(animations="disabled", path=folder / shot)
            page.keyboard.press("p")
        page.close()


def take_blocks(lab: Lab, browser: Browser, theme: str, folder: Path) -> None:
    """Section 21.5's example, continuations, and 200 blocks of 20 requests; also in large type."""
    lab.write("blocks.ipynb", [BLOCKS, "block_table(forks())", "block_table(large_run())"])
    for width, height in SIZES:
        page = browser.new_page(viewport={"width": width, "height": height})
        lab.open(page, "blocks.ipynb")
        lab.run_all(page)
        views = page.locator(".kv[data-view=block_table][data-stop]")
        expect(views).to_have_count(3, timeout=90_000)
        for size in ("", "-large"):
            for index, stop, downs in BLOCK_SHOTS:
                view = views.nth(index)
                view.evaluate("element => element.scrollIntoView({ block: 'center' })")
                view.focus()
                page.keyboard.press("Home")
                for _ in range(stop):
                    page.keyboard.press("ArrowRight")
                for _ in range(downs):
                    page.keyboard.press("ArrowDown")
                shot = f"blocks-{index}-{stop}{size}-{theme}-{width}.png"
                page.screenshot(animations="disabled", path=folder / shot)
                page.keyboard.press("Escape")
            page.keyboard.press("p")
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
                take_attention_reads(lab, browser, theme.lower(), folder)
                take_sizes(lab, browser, theme.lower(), folder)
                take_layouts(lab, browser, theme.lower(), folder)
                take_wrong_cache(lab, browser, theme.lower(), folder)
                take_blocks(lab, browser, theme.lower(), folder)


if __name__ == "__main__":
    main()
