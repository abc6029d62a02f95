"""The API reference in a browser: it fits its window, search finds it, axe has no complaint."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")

from axe_playwright_python.sync_playwright import Axe
from lab_server import Watch
from playwright.sync_api import Page, expect
from stillness import resize

from kvlab.book.build import build

ROOT = Path(__file__).parents[2]
# mdBook's frames that hold the text: one that is wider inside than outside scrolls sideways.
WIDER = """[...document.querySelectorAll("html, .page, .content, main")]
  .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.className || one.tagName)"""
AXE = {"resultTypes": ["violations"], "preload": False}  # preloading would fetch the style sheets
QUICK = ("api_engine", "dark")  # axe takes up to 20 s a page: this always, all in `make soak`
NAMES = {
    "BlockPool": "kvlab.core.block_pool.BlockPool",
    "allocate_slots": "kvlab.core.kv_cache_manager.KVCacheManager.allocate_slots",
    "kv_cache_gib": "kvlab.core.memory.kv_cache_gib",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("book") / "site")


@pytest.fixture
def page(browser: object) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    watch = Watch(context.new_page())
    yield watch.page
    context.close()
    assert watch.wrong == []


def visit(page: Page, site: Path, name: str) -> None:
    page.goto((site / f"{name}.html").as_uri())
    page.locator("html[data-kvlab=ready]").wait_for(state="attached")


def test_each_page_fits_its_window(page: Page, site: Path) -> None:
    names = [path.stem for path in sorted(site.glob("api_*.html"))]
    assert len(names) == 10
    for width in (390, 1920):
        resize(page, width, 844)
        for name in names:
            visit(page, site, name)
            assert page.evaluate(WIDER) == [], f"{name} at {width} pixels"


def test_search_leads_to_each_name(page: Page, site: Path) -> None:
    visit(page, site, "21_0_start")
    page.locator("#mdbook-search-toggle").click()
    for name, anchor in NAMES.items():
        page.locator("#mdbook-searchbar").fill("")
        page.locator("#mdbook-searchbar").press_sequentially(name)
        found = page.locator(f'#mdbook-searchresults a[href$="#{anchor}"]')
        expect(found).to_be_visible()
    found.click()
    expect(page.locator(f'[id="{anchor}"]')).to_be_in_viewport()


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        pytest.param(name, scheme, marks=[] if (name, scheme) == QUICK else pytest.mark.soak)
        for name in ("api_reference", "api_core", "api_engine", "api_tensors", "api_widgets")
        for scheme in ("light", "dark")
    ],
)
def test_axe_finds_nothing_serious(page: Page, site: Path, name: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    visit(page, site, name)
    found = Axe().run(page, context={"include": ["main"]}, options=AXE)
    serious = [v for v in found.response["violations"] if v["impact"] in ("serious", "critical")]
    assert [(v["id"], [node["target"] for node in v["nodes"]]) for v in serious] == []
