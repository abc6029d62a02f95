"""Large type for the presenter: every view whole in a frame of 16:9, and still while scrubbed."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")
sys.path.append(str(Path(__file__).parents[1] / "widgets"))

from axe_playwright_python.sync_playwright import Axe
from growth_cases import small_llm
from playwright.sync_api import Locator, Page, expect
from stillness import resize, wait_until_still

from kvlab import SamplingParams
from kvlab.widgets import module_source, overview
from kvlab.widgets.modules import FOLDER, PARTS

ROOT = Path(__file__).parents[2]
FORM = re.compile(r'<div class="kvlab-view" data-view="(\w+)">\n<script [^>]*>(.*?)</script>')
SCREENS = ({"width": 1900, "height": 985}, {"width": 1280, "height": 640})
MOUNT = """
<script type="module">
const sources = JSON.parse(document.getElementById("modules").textContent), modules = {};
for (const name in sources) {
  const file = new Blob([sources[name]], { type: "text/javascript" });
  modules[name] = await import(URL.createObjectURL(file));
}
for (const form of document.querySelectorAll(".kvlab-view"))
  modules[form.dataset.view].mount(form, JSON.parse(form.querySelector("script").textContent));
document.documentElement.dataset.ready = "";
</script>
"""
FITS = """[...document.querySelectorAll(".kv-framed .kv-body")]
  .every((body) => body.scrollHeight <= body.clientHeight + 1)"""
RESIZED = """[...document.querySelectorAll(".kv-framed")].every(
  (frame) => frame.offsetHeight > innerHeight - 30 && frame.offsetHeight <= innerHeight - 12)"""
READ = """(frame) => [...frame.querySelectorAll(".kv-title,.kve-field select,.kvp-row *,.kvo p")]
  .map((part) => parseFloat(getComputedStyle(part).fontSize))"""
OUTSIDE = """(frame) => {
  const box = frame.getBoundingClientRect();
  const scrolls = (part) => {
    for (let p = part.parentElement; p !== frame; p = p.parentElement) {
      const wide = p.scrollWidth > p.clientWidth, high = p.scrollHeight > p.clientHeight;
      const cuts = getComputedStyle(p).overflow !== "visible" && p.clientWidth;
      if (cuts && (wide || high)) return true;
    }
    return false;
  };
  return [...frame.querySelectorAll("*")].filter((part) => {
    const { left, right, top, bottom, width, height } = part.getBoundingClientRect();
    const after = right > box.right + 1 || bottom > box.bottom + 1;
    const out = after || left < box.left - 1 || top < box.top - 1;
    return width && height && out && !scrolls(part);
  }).map((part) => part.outerHTML.slice(0, 80));
}"""


def drawn_by(view: str, payload: dict) -> set[str]:
    """The names in VIEWS that draw a form: its own, and that of a view inside it."""
    inside = (payload.get("result") or {}).get("view") or payload.get("state", {}).get("view") or {}
    return {view, *filter(None, [inside.get("view")])}


def shipped() -> dict[str, list[tuple[str, set[str]]]]:
    """notebook -> (HTML form, its views): of each kind of view the first in the notebooks."""
    found: dict[str, list[tuple[str, set[str]]]] = {}
    known: list[set[str]] = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", ()):
                html = "".join(output.get("data", {}).get("text/html", ""))
                form = FORM.search(html)
                views = drawn_by(form[1], json.loads(form[2])) if form else set()
                if views and views not in known and views != {"overview"}:
                    known.append(views)
                    found.setdefault(path.stem, []).append((html, views))
    return found


def the_map() -> str:
    llm = small_llm(num_blocks=12, max_num_seqs=2, max_num_batched_tokens=8)
    llm.start_trace()
    for prompt in ([5, 6, 7, 8, 9], [11, 12, 13], [21, 22, 23, 24, 25, 26]):
        llm.engine.add_request(prompt, SamplingParams(max_tokens=4, ignore_eos=True))
        llm.engine.step()
    llm.engine.run()
    return overview(llm.stop_trace(), ROOT / "notebooks").html()


FORMS = {**shipped(), "21_0_start": [(the_map(), {"overview"})]}


@pytest.fixture
def show(browser: object, tmp_path: Path) -> Callable[..., Page]:
    """show(section) opens a page with the section's views, as the static book mounts them."""
    contexts = []

    def open_page(section: str, **options: object) -> Page:
        forms = "".join(html for html, _ in FORMS[section])
        names = sorted({FORM.search(html)[1] for html, _ in FORMS[section]})
        sources = json.dumps({name: module_source(name) for name in names}).replace("</", "<\\/")
        modules = f'<script type="text/plain" id="modules">{sources}</script>'
        path = tmp_path / f"{section}.html"
        path.write_text(f'<!doctype html><meta charset="utf-8">{forms}{modules}{MOUNT}')
        contexts.append(browser.new_context(**{"viewport": SCREENS[0], **options}))
        page = contexts[-1].new_page()
        page.goto(path.as_uri())
        page.locator("html[data-ready]").wait_for(state="attached")
        wait_until_still(page)
        return page

    yield open_page
    for context in contexts:
        context.close()


def switch(page: Page) -> Locator:
    return page.locator(".kvlab-view > .kv > .kv-head [data-do=presenter]").first


def test_every_view_that_there_is_is_looked_at() -> None:
    source = "".join(path.read_text("utf-8") for path in FOLDER.glob("*.js"))
    there = set(re.findall(r"^VIEWS\.(\w+) = ", source, re.MULTILINE))
    assert there == set().union(*(views for forms in FORMS.values() for _, views in forms))
    assert set(PARTS) <= there


def places(player: Locator) -> list:
    """Where the view, its picture, its text line and its bar are."""
    return player.evaluate(
        """(e) => [e, ...e.children].filter((part) => part.localName !== "style")
          .map((part) => part.getBoundingClientRect().toJSON())"""
    )


@pytest.mark.parametrize("section", FORMS)
def test_a_view_has_a_frame_that_holds_all_of_it_and_nothing_moves_while_it_is_scrubbed(
    show: Callable[..., Page], section: str
) -> None:
    page = show(section)
    frames = page.locator(".kvlab-view > .kv")
    small = [(frame.bounding_box()["height"], frame.evaluate(READ)) for frame in frames.all()]
    switch(page).click()
    for screen in SCREENS:
        resize(page, **screen)
        page.wait_for_function(f"{RESIZED} && {FITS}")
        expect(page.locator("[data-crowded=yes]")).to_have_count(0)  # a schedule's rows have names
        for frame, (_, usual) in zip(frames.all(), small, strict=True):
            now = frame.evaluate(READ)
            assert all(large >= least - 0.01 for large, least in zip(now, usual, strict=True))
            width, height = frame.evaluate("e => [e.offsetWidth, e.offsetHeight]")
            assert abs(width - height * 16 / 9) <= 1
            assert frame.evaluate(OUTSIDE) == []
    for player in page.locator(".kv[data-total]:not([data-total='0'])").all():
        player.focus()
        page.keyboard.press("Home")
        before = places(player)
        for keys in (("ArrowRight", "ArrowRight", "ArrowRight"), ("End",)):
            for key in keys:
                page.keyboard.press(key)
            assert places(player) == before
        assert player.get_attribute("data-stop") == player.get_attribute("data-total")
    assert page.evaluate(FITS)
    switch(page).click()
    expect(page.locator(".kv-large, .kv-framed")).to_have_count(0)
    resize(page, **SCREENS[0])
    heights = [height for height, _ in small]
    assert [frame.bounding_box()["height"] for frame in frames.all()] == heights


def test_a_frame_shows_every_block_of_a_table_and_the_name_of_every_row(
    show: Callable[..., Page],
) -> None:
    page = show("21_4_prefix")
    switch(page).click()
    table = page.locator(".kv-framed[data-view=block_table]")
    hidden = """(e) => [...e.querySelectorAll(".kvb-scroll")]
      .map((part) => part.scrollHeight - part.clientHeight)"""
    for screen in SCREENS:
        resize(page, **screen)
        page.wait_for_function(RESIZED)
        expect(table.locator(".kvb")).to_have_attribute("data-crowded", "no")
        assert max(table.evaluate(hidden)) <= 1
    page = show("21_3_scheduling")
    switch(page).click()
    names = page.locator(".kv-framed[data-view=schedule] .kvs-name").first
    expect(names).to_be_visible()


def test_a_narrow_page_has_large_type_and_no_frame(show: Callable[..., Page]) -> None:
    page = show("21_6_growth", viewport={"width": 390, "height": 800})
    switch(page).click()
    expect(page.locator(".kvlab-view > .kv.kv-large").first).to_be_visible()
    assert page.locator(".kv-framed").count() == 0


def test_the_key_works_on_an_editors_own_switch_and_once_in_the_view_inside(
    show: Callable[..., Page],
) -> None:
    page = show("21_3_scheduling")
    editor = page.locator(".kvlab-view > .kv[data-view=editor]")
    for place in (".kv-head [data-do=presenter]", ".kv[data-total]"):
        for on in (True, False):
            editor.locator(place).first.press("p")
            assert ("kv-large" in editor.get_attribute("class").split()) == on


def test_the_map_has_the_switch_and_its_key(show: Callable[..., Page]) -> None:
    page = show("21_0_start", color_scheme="dark")
    view = page.locator(".kv[data-view=overview]")
    assert view.locator(".kvo-panel").count() == 4 and view.locator("a.kvo-open").count() == 4
    for on in (False, True):
        assert ("kv-framed" in view.get_attribute("class").split()) == on
        found = Axe().run(page, ".kv", options={"runOnly": ["color-contrast", "aria-valid-attr"]})
        assert found.response["violations"] == []
        view.focus()
        page.keyboard.press("p")
    expect(view).to_have_class("kv")


def test_the_map_fits_a_phone(show: Callable[..., Page]) -> None:
    page = show("21_0_start", viewport={"width": 390, "height": 800})
    cut = "all => all.filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.textContent)"
    assert page.locator(":is(.kvo-panel, .kvo-panel :is(tr, td, th)):visible").count() > 50
    assert page.locator(".kvo-panel, .kvo-panel :is(tr, td, th)").evaluate_all(cut) == []


def test_a_live_map_draws_from_its_payload_and_leaves_out_what_is_no_part_of_one(
    show: Callable[..., Page],
) -> None:
    page = show("21_0_start")
    evil = ["a", {"href": "javascript:alert(1)", "onclick": "alert(1)", "class": "kvo-open"}, ["x"]]
    page.evaluate(
        """async (panels) => {
          const source = JSON.parse(document.getElementById("modules").textContent).overview;
          const file = new Blob([source], { type: "text/javascript" });
          const module = await import(URL.createObjectURL(file));
          const payload = { view: "overview", title: "A map", panels };
          document.body.append(Object.assign(document.createElement("main"), { id: "live" }));
          module.mount(document.getElementById("live"), payload);
        }""",
        [["p", {}, ["<b>text</b>"]], ["script", {}, ["alert(1)"]], evil],
    )
    live = page.locator("#live .kvo")
    assert (
        live.evaluate("e => e.innerHTML")
        == '<p>&lt;b&gt;text&lt;/b&gt;</p><a class="kvo-open">x</a>'
    )
