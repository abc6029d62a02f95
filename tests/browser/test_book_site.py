"""The built book in a browser, from its files alone: no server, no kernel, no network."""

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")

from axe_playwright_python.sync_playwright import Axe
from lab_server import Watch
from playwright.sync_api import Page, expect
from stillness import resize, wait_until_still

from kvlab.book.build import build
from kvlab.book.checks import Page as ParsedPage
from kvlab.book.manifest import read

ROOT = Path(__file__).parents[2]
PAGES = [section.notebook for section in read(ROOT).written]
WIDTHS = (390, 1280, 1920)
# mdBook's frames that hold the text: one that is wider inside than outside scrolls sideways.
WIDER = """[...document.querySelectorAll("html, .page, .content, main")]
  .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.className || one.tagName)"""
WIDE_TABLES = """[...document.querySelectorAll("main .table-wrapper")]
  .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent.trim())"""
CUT_ON_PAPER = """[...document.querySelectorAll("main :is(.table-wrapper, .kvlab-view, pre)")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.className)"""
# Words of the views that end at an edge, without a way to scroll to the rest.
WORDS = (
    *(".kv-title", ".kv-hint", ".kvr-share", ".kvf-caption", ".kvs-sum", ".kvs-legend"),
    *(".kvs-count", ".kvl-about > *", ".kvl-shares li", ".kvb-cap", ".kvk-cap", ".kvq-card"),
    *(".kvy-caption", ".kvy-part > *"),
)
CUT_WORDS = f"""[...document.querySelectorAll(".kv :is({", ".join(WORDS)})")]
  .filter((e) => e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 6)
  .map((e) => `${{e.className}}: ${{e.textContent}}`)"""
OVERLAPS = """(() => {
  const all = [...document.querySelectorAll(".kvf-roof :is([data-placed], .kvf-dot)")];
  const shown = all.filter((e) => e.style.visibility !== "hidden");
  const found = shown.map((e) => [e.textContent, e.getBoundingClientRect()]);
  const within = (a, b, low, high) => a[low] < b[high] - 1 && b[low] < a[high] - 1;
  const meet = (a, b) => within(a, b, "left", "right") && within(a, b, "top", "bottom");
  const words = (one, other) => one.length + other.length > 2; // two dots may touch
  return found.flatMap(([one, a], i) => found.slice(i + 1)
    .filter(([other, b]) => words(one, other) && meet(a, b)).map(([other]) => [one, other]));
})()"""
# Sizes of the roofline that stand nearer to another dot than to their own, without a line to it.
STRAY = """(() => {
  const roof = document.querySelector(".kvf-roof"), box = (e) => e.getBoundingClientRect();
  const [dots, labels, lines] = [".kvf-dot", "[data-label]", ".kvf-leader"]
    .map((kind) => [...roof.querySelectorAll(kind)]);
  const away = (a, x, y) =>
    Math.hypot(Math.max(a.left - x, x - a.right, 0), Math.max(a.top - y, y - a.bottom, 0));
  const middle = (e) => [(box(e).left + box(e).right) / 2, (box(e).top + box(e).bottom) / 2];
  const end = (line, far) => {
    const { x, y } = line.getPointAtLength(far).matrixTransform(line.getScreenCTM());
    return [x, y];
  };
  return labels.map((label, i) => {
    const ways = dots.map((dot) => away(box(label), ...middle(dot)));
    const led = lines[i].getAttribute("d") && away(box(dots[i]), ...end(lines[i], 0)) < 1
      && away(box(label), ...end(lines[i], lines[i].getTotalLength())) < 2;
    const own = led || ways.every((way, k) => k === i || way > 1.2 * ways[i]);
    const shown = label.style.visibility !== "hidden";
    return { shown, stray: shown && !own ? `${label.textContent}: ${ways}` : null };
  });
})()"""
# Marks the first box of a kind that scrolls sideways and the first one that has no need to.
SAMPLES = """(kind) => {
  document.querySelectorAll("[data-sample]").forEach((e) => delete e.dataset.sample);
  const all = [...document.querySelectorAll(`main ${kind}`)].filter((e) => e.checkVisibility());
  const more = (e) => e.scrollWidth - e.clientWidth;
  const found = { scrolls: all.find((e) => more(e) > 20), fits: all.find((e) => more(e) === 0) };
  for (const [name, e] of Object.entries(found)) if (e) e.dataset.sample = name;
}"""
RUNS = "details.kvlab-run"  # what the run found, folded below a prediction
UNFOLD = f"document.querySelectorAll('{RUNS}').forEach((run) => {{ run.open = true; }})"
MOUNTED = 120_000  # ms at most; the print page holds every view and formula of the book
NO_CHAPTERS = ("index", "print", "404", "toc")
IN_THE_DARK = ("21_1_reuse", "21_6_growth")
# axe takes up to 15 s a page: these always, all of them at each width in `make soak`
QUICK = {
    *(("21_0_start", "light", 1280), ("21_7_checkpoint", "light", 390)),
    *(("21_6_growth", "dark", 1280), ("21_4_prefix", "light", 1920)),
}
AXE = {"resultTypes": ["violations"], "preload": False}  # preloading would fetch the style sheets


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("book") / "site")


@pytest.fixture
def leaf(browser: object, site: Path) -> Iterator[Callable[..., Page]]:
    """leaf(name) opens a page of the book, everything mounted; watched to the end."""
    watches = []

    def open_page(name: str, **options: object) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        context.add_init_script(
            "window.print = () => { window.printed = document.documentElement.dataset.kvlab; }"
        )
        watches.append(Watch(context.new_page()))
        page = watches[-1].page
        page.goto((site / f"{name}.html").as_uri())
        if options.get("java_script_enabled", True):
            page.locator("html[data-kvlab=ready]").wait_for(state="attached", timeout=MOUNTED)
        return page

    yield open_page
    for watch in watches:
        watch.page.context.close()
        assert watch.wrong == []


@pytest.mark.parametrize("name", PAGES)
def test_each_view_of_a_page_scrubs_by_keyboard_and_the_page_fits_its_window(
    leaf: Callable[..., Page], name: str
) -> None:
    page = leaf(name, viewport={"width": WIDTHS[0], "height": 800})
    page.evaluate(UNFOLD)
    for width in WIDTHS:  # growing: a phone has no open sidebar
        resize(page, width, 800)
        assert page.evaluate(WIDER) == [], f"at {width} pixels"
        assert page.evaluate(CUT_WORDS) == [], f"at {width} pixels"
    assert page.evaluate(WIDE_TABLES) == []  # a phone scrolls in a table, a laptop sees it whole
    forms = page.locator(".kvlab-view")
    assert page.locator(".kvlab-view > .kv").count() == forms.count()
    for view in page.locator(".kv[data-total]").all():
        last = int(view.get_attribute("data-total") or 0)
        view.focus()
        for key, stop in (("End", last), ("Home", 0), ("ArrowRight", min(1, last))):
            view.press(key)
            expect(view).to_have_attribute("data-stop", str(stop))
    assert page.url.endswith(f"/{name}.html")  # the arrows turned no page of the book


@pytest.mark.parametrize("width", WIDTHS)
def test_words_in_the_roofline_cover_neither_dots_nor_each_other(
    leaf: Callable[..., Page], width: int
) -> None:
    page = leaf("21_2_latency", viewport={"width": width, "height": 800})
    page.evaluate(UNFOLD)
    roof = page.locator(".kvlab-view > .kv[data-view=phases] .kvf-roof")
    if (
        width > 390
    ):  # on a phone a word without room is left out: the dots lie where they were measured
        expect(roof.get_by_text("arithmetic: ")).to_be_visible()
        expect(roof.get_by_text("memory: ")).to_be_visible()
    expect(page.locator("[data-label][style*=left]").first).to_be_attached()  # placed by its size
    assert page.evaluate(OVERLAPS) == []
    labels = page.evaluate(STRAY)
    assert [label["stray"] for label in labels if label["stray"]] == []
    assert sum(label["shown"] for label in labels) >= 5  # of seven passes


def test_what_is_not_chosen_keeps_its_contrast(leaf: Callable[..., Page]) -> None:
    page = leaf("21_2_latency")
    view = page.locator(".kv[data-view=ttft_parts]")
    view.press("ArrowRight")
    far = view.locator(".kvt-row[data-far], .kvt-row[data-far] .kvt-piece")
    looks = far.evaluate_all("all => all.map((e) => getComputedStyle(e).opacity)")
    assert len(looks) > 4 and set(looks) == {"1"}


def test_options_are_not_broken_and_long_printed_lines_are(leaf: Callable[..., Page]) -> None:
    page = leaf("21_5_paging", viewport={"width": 390, "height": 800})
    options = page.locator(".table-wrapper code").filter(has_text="--")
    assert options.count() > 10
    for width in (390, 1280):
        resize(page, width, 800)
        heights = options.evaluate_all(
            "all => all.map((one) => one.getBoundingClientRect().height)"
        )
        assert max(heights) < 30, f"at {width} pixels"
    printed = leaf("21_0_start", viewport={"width": 390, "height": 800}).locator(".kvlab-sentence")
    box = printed.first.bounding_box()
    assert box is not None and box["x"] + box["width"] <= 390 and box["height"] > 40


def test_on_a_phone_a_shade_shows_at_the_edge_behind_which_there_is_more(
    leaf: Callable[..., Page],
) -> None:
    page = leaf("21_4_prefix", viewport={"width": 390, "height": 800})
    page.evaluate(UNFOLD)
    looks = []
    for kind in (".table-wrapper", "pre > code.hljs", ".kvlab-stdout pre", ".kvlab-picture"):
        page.evaluate(SAMPLES, kind)
        for box in page.locator("[data-sample]").all():
            box.evaluate("e => scrollBy(0, e.getBoundingClientRect().top - 200)")
            place = box.bounding_box()
            at = {"y": round(place["y"]) + 3, "width": 3, "height": 1}  # above the words
            middle, last = (round(place["x"] + place["width"] * part) for part in (0.5, 1))
            found = []
            for far in (0, 10_000):
                box.evaluate("(e, x) => { e.scrollLeft = x; }", far)
                plain, edge = (page.screenshot(clip={"x": x, **at}) for x in (middle, last - 5))
                found.append(edge != plain)
            looks.append((kind, box.get_attribute("data-sample"), found))
    assert all(found == [more == "scrolls", False] for _, more, found in looks), looks
    assert [more for _, more, _ in looks].count("scrolls") == 4
    assert [more for _, more, _ in looks].count("fits") >= 2


def test_the_table_of_other_engines_is_seen_whole(leaf: Callable[..., Page]) -> None:
    page = leaf("reading_the_engine")
    assert page.locator(".table-wrapper code.kvlab-long").count() > 20
    assert page.evaluate(WIDE_TABLES) == []


def test_search_finds_copy_on_write(leaf: Callable[..., Page]) -> None:
    page = leaf("21_0_start")
    page.locator("#mdbook-search-toggle").click()
    page.locator("#mdbook-searchbar").press_sequentially("copy-on-write")
    found = page.locator("#mdbook-searchresults a")
    expect(found.first).to_be_visible()
    assert any("21_5" in (link.get_attribute("href") or "") for link in found.all())


def test_the_print_page_is_whole_before_it_prints(leaf: Callable[..., Page], site: Path) -> None:
    page = leaf("print")
    page.wait_for_function("window.printed")
    assert page.evaluate("window.printed") == "ready"  # drawn and mounted first
    pages = [ParsedPage(path) for path in site.glob("*.html") if path.stem not in NO_CHAPTERS]
    mounted = page.locator(".kvlab-view > .kv").count()
    drawn = page.locator(".kvlab-math > :is(.katex, .katex-display)").count()
    code = page.locator("main pre > code.language-python").count()
    assert mounted == sum(one.views for one in pages) > 20
    assert drawn == sum(one.formulas for one in pages) > 50
    stops = page.locator(".kvlab-view > .kv[data-stop]")
    assert stops.count() > 10
    assert all(int(one.get_attribute("data-stop") or 0) > 0 for one in stops.all())
    tables = page.locator(".kvlab-view table").count()
    assert tables >= mounted  # paper cannot be stepped through: the tables stand below the pictures
    resize(page, 760, 1000)
    page.emulate_media(media="print")
    wait_until_still(page)
    assert page.evaluate(CUT_ON_PAPER) == []  # a sheet cannot be scrolled
    assert code == sum(one.code for one in pages) > 200
    assert page.locator(f"{RUNS}[open]").count() == page.locator(RUNS).count() > 20


def test_a_reader_predicts_before_the_page_shows_the_run(leaf: Callable[..., Page]) -> None:
    page = leaf("21_2_latency", viewport={"width": 390, "height": 800})
    box, run = page.locator("[data-state=run]").first, page.locator(RUNS)
    asked = page.locator("[data-state=question]")
    assert asked.count() == 6 and run.count() >= 4
    assert not any(one.is_visible() for one in page.locator("[data-state=run]").all())
    view = run.locator(".kv")
    expect(view).not_to_be_visible()
    run.locator("summary").first.press("Enter")
    for summary in page.locator(f"{RUNS}:not([open]) > summary").all()[::-1]:
        summary.click()
    expect(view).to_be_visible()
    expect(box).to_be_visible()
    assert page.evaluate(WIDER) == []


@pytest.mark.parametrize("name", ["print", "21_7_checkpoint"])
def test_on_paper_nothing_is_folded_even_without_scripts(
    leaf: Callable[..., Page], name: str
) -> None:
    page = leaf(name, java_script_enabled=False)
    found = page.locator(f"{RUNS} [data-state=run]").last
    check = page.locator("details.kvlab-check code").last
    for one in (found, check):
        expect(one).not_to_be_visible()
    page.emulate_media(media="print")
    for one in (found, check):
        expect(one).to_be_visible()


def test_the_dark_theme_reaches_the_views_and_the_next_page(leaf: Callable[..., Page]) -> None:
    page = leaf("21_6_growth")
    view = page.locator(".kvlab-view > .kv").first
    expect(view).to_have_css("background-color", "rgb(255, 255, 255)")
    page.locator("#mdbook-theme-toggle").click()
    page.locator("#mdbook-theme-navy").click()
    expect(page.locator("html")).to_contain_class("navy")
    expect(view).to_have_css("background-color", "rgb(20, 23, 27)")
    page.goto(page.url.replace("21_6_growth", "21_1_reuse"))
    expect(page.locator("html")).to_contain_class("navy")


def test_a_system_in_the_dark_gets_the_dark_theme(leaf: Callable[..., Page]) -> None:
    page = leaf("21_0_start", color_scheme="dark")
    expect(page.locator("html")).to_contain_class("navy")


def test_without_scripts_every_formula_picture_and_table_shows(leaf: Callable[..., Page]) -> None:
    page = leaf("21_1_reuse", java_script_enabled=False)
    formulas, views = page.locator("main math"), page.locator(".kvlab-view")
    assert formulas.count() == page.locator(".kvlab-math").count() > 10
    assert all((box.bounding_box() or {"width": 0})["width"] > 3 for box in formulas.all()[:10])
    for view in views.all():
        expect(view.locator("table").first).to_be_visible()
    for picture in page.locator("main img").all():
        expect(picture).to_be_visible()


def test_a_number_in_the_text_leads_to_its_equation(leaf: Callable[..., Page]) -> None:
    page = leaf("21_2_latency")
    page.get_by_role("link", name="equation 21.4").first.click()
    equation = page.locator("#eq-21\\.4")
    expect(equation).to_be_in_viewport()
    expect(equation).to_contain_text("(21.4)")


@pytest.mark.parametrize(
    ("name", "scheme", "width"),
    [
        pytest.param(*look, marks=[] if look in QUICK else pytest.mark.soak)
        for scheme, names in (("light", PAGES), ("dark", IN_THE_DARK))
        for look in product(names, [scheme], WIDTHS)
    ],
)
def test_axe_finds_nothing_serious_in_the_text_and_the_views(
    leaf: Callable[..., Page], name: str, scheme: str, width: int
) -> None:
    page = leaf(name, color_scheme=scheme, viewport={"width": width, "height": 800})
    page.evaluate(UNFOLD)
    found = Axe().run(page, context={"include": ["main"]}, options=AXE)
    serious = [v for v in found.response["violations"] if v["impact"] in ("serious", "critical")]
    assert [(v["id"], [node["target"] for node in v["nodes"]]) for v in serious] == []
