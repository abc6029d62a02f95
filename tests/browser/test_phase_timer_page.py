"""Prefill against decode on a plain page, and its timer in JupyterLab: Run, progress, Stop."""

import itertools
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")
sys.path.append(str(Path(__file__).parents[1] / "widgets"))

from lab_server import Lab, Watch
from phases_cases import HOSTILE, ceilings, phases, point
from plain_page import plain_page
from playwright.sync_api import Locator, Page, expect

from kvlab.widgets import phase_timer, phases_html, phases_payload

# make test looks at this width in test_presenter_page and test_book_site
WIDE = pytest.param(1920, marks=pytest.mark.soak)

CELLS = [
    """
from kvlab import LLM
from kvlab.widgets import phase_timer

sizes = {"lengths": (4, 8, 16, 32), "batches": (1, 2, 4), "context": 16}
timer = phase_timer(LLM("tiny"), **sizes, seconds=10, quick=True)
_ = timer.add_class("t-timer")
""",
    "timer",
    "'timer' + ' done'",
]


@pytest.fixture
def opened(browser, tmp_path: Path):
    """open(html, view) shows a page with the view, watched to the end."""
    watches = []

    def open_page(html: str, view: str = "phases", **options: object) -> Page:
        path = tmp_path / f"{len(watches)}.html"
        path.write_text(plain_page(html, view), encoding="utf-8")
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 720}, **options})
        watches.append(Watch(context.new_page()))
        page = watches[-1].page
        page.goto(path.as_uri())
        expect(page.locator(".kv").first).to_be_visible()
        return page

    yield open_page
    for watch in watches:
        watch.page.context.close()
        assert watch.wrong == []


def example(**changes: object) -> str:
    return phases_html(phases_payload(phases(**changes), ceilings()))


def middle(locator: Locator) -> tuple[float, float]:
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def dot(page: Page, index: int) -> Locator:
    return page.locator(f".kvf-roof [data-point='{index}']")


# ---- the view


def test_dots_stand_where_their_numbers_say(opened) -> None:
    """Points 1 (20 FLOPs a byte, 50 GFLOP/s) and 4 (1 FLOP a byte, 8 GFLOP/s)."""
    page = opened(example())
    box = page.locator(".kvf-roof .kvf-box").bounding_box()
    marks = {axis: page.locator(f".kvf-roof [data-axis={axis}]").all() for axis in "xy"}
    ticks = {axis: {t.text_content(): middle(t) for t in marks[axis]} for axis in "xy"}
    prefill, decode = middle(dot(page, 1)), middle(dot(page, 4))
    one, ten = ticks["x"]["1"][0], ticks["x"]["10"][0]
    assert abs(decode[0] - one) < 3
    assert abs(prefill[0] - (ten + (ten - one) * 0.30103)) < 3  # lg 20 = 1.30103
    decade = ticks["y"]["10"][1] - ticks["y"]["100"][1]
    assert decade > 20
    assert abs(prefill[1] - (ticks["y"]["100"][1] + decade * 0.30103)) < 3
    assert abs(decode[1] - (ticks["y"]["10"][1] + decade * 0.09691)) < 3  # lg 8 = 0.90309
    assert box["y"] < prefill[1] < decode[1] < box["y"] + box["height"]
    expect(dot(page, 1)).to_have_text("P")
    expect(dot(page, 4)).to_have_text("D")
    look = "e => [getComputedStyle(e).backgroundColor, getComputedStyle(e).borderRadius]"
    shapes = [dot(page, i).evaluate(look) for i in (1, 4)]
    assert shapes == [["rgb(0, 114, 178)", "0px"], ["rgb(230, 159, 0)", "50%"]]


def test_the_ring_of_a_chosen_dot_covers_no_part_of_its_name(opened) -> None:
    page = opened(example())
    page.locator(".kv[data-stop]").press("p")
    page.locator(".kv[data-stop]").press("Home")
    covered = """([ring]) => {
      const label = document.querySelectorAll(".kvf-roof [data-label]")[ring.dataset.point];
      const [a, b] = [ring, label].map((e) => e.getBoundingClientRect()), wide = 6; // its shadow
      const aside = a.left - wide >= b.right || b.left >= a.right + wide;
      const over = a.top - wide >= b.bottom || b.top >= a.bottom + wide;
      return label.style.visibility !== "hidden" && !aside && !over;
    }"""
    found = []
    for _ in range(5):
        page.keyboard.press("ArrowRight")
        found.append(page.locator(".kvf-roof .kvf-dot[data-near]").evaluate_all(covered))
    assert found == [False] * 5


def test_keys_walk_through_the_passes_and_the_line_tells_the_story(opened) -> None:
    page = opened(example())
    view = page.locator(".kv[data-stop]")
    view.focus()
    expect(page.locator("[data-say]")).to_contain_text("The roof of this machine")
    expect(page.locator("[data-near]")).to_have_count(0)
    expect(page.locator("[data-share]")).to_be_hidden()
    page.keyboard.press("End")
    expect(page.locator("[data-say]")).to_contain_text("decode 4 x 512 (4 requests")
    expect(page.locator("[data-share]")).to_have_text("at least 20.0 ms of 25.0 ms: 80 %")
    near = page.locator(".kvf-dot[data-near]")
    expect(near).to_have_count(3)  # in the roofline and in both curves of its phase
    assert near.evaluate_all("all => all.map((e) => e.dataset.point)") == ["4", "4", "4"]
    page.keyboard.press("Home")
    dot(page, 0).click()
    expect(view).to_have_attribute("data-stop", "1")
    expect(page.locator("[data-say]")).to_contain_text("prefill 1 x 64")
    page.keyboard.press("p")
    expect(view).to_contain_class("kv-large")


TWINS = (
    point("prefill", 1, 16, 40.0, 1600, 400_000),  # 4 FLOPs a byte, 40 GFLOP/s
    point("decode", 16, 512, 41.0, 1640, 410_000),  # 4 FLOPs a byte, 40 GFLOP/s
    point("decode", 1, 512, 40.0, 2, 200_000),  # its FLOPs need 0.02 ms of 40
)


@pytest.mark.parametrize("width", [1280, WIDE])
def test_dots_at_one_place_stand_side_by_side(opened, width: int) -> None:
    page = opened(example(points=TWINS), viewport={"width": width, "height": 720})
    boxes = sorted((dot(page, i).bounding_box() for i in (0, 2)), key=lambda box: box["x"])
    assert boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]
    exact = page.locator(".kvf-roof .kvf-exact")
    expect(exact).to_have_count(2)
    for i in (0, 1):  # both at 4 FLOPs a byte, in the middle between the dots
        assert abs(middle(exact.nth(i))[0] - (boxes[0]["x"] + boxes[1]["x"] + 17) / 2) < 4
    assert dot(page, 1).evaluate("e => e.style.getPropertyValue('--shift')") == ""


def test_axes_say_that_they_are_logarithmic(opened) -> None:
    page = opened(example())
    names = page.locator(".kvf-roof [data-name]")
    expect(names).to_have_text(
        [
            "GFLOP/s; each step is a factor of three",
            "FLOPs a byte (intensity); each step is a factor of three",
        ]
    )
    for axis, factors in (("y", (3, 10 / 3)), ("x", (3, 10 / 3))):
        marks = page.locator(f".kvf-roof [data-axis={axis}]").all_text_contents()
        values = [float(mark.replace(",", "")) for mark in marks]
        steps = [after / before for before, after in itertools.pairwise(values)]
        assert steps and all(factors[0] - 0.01 <= step <= factors[1] + 0.01 for step in steps)
    expect(page.locator(".kvf-caption").last).to_contain_text("logarithmic axes")


def test_an_axis_of_powers_of_ten_says_so(opened) -> None:
    page = opened(example(points=TWINS))
    expect(page.locator(".kvf-roof [data-name=x]")).to_have_text(
        "FLOPs a byte (intensity); each step is a factor of ten"
    )
    marks = page.locator(".kvf-roof [data-axis=x]")
    expect(marks).to_have_text(["0.01", "0.1", "1", "10"])


def test_no_line_leaves_its_plot(opened) -> None:
    page = opened(example(points=TWINS))
    paths = page.locator(".kvf-box > svg path").evaluate_all(
        "all => all.map((p) => [p.getAttribute('class'), p.getAttribute('d')])"
    )
    lines = [d for kind, d in paths if kind in ("kvf-M", "kvf-A", "kvf-P", "kvf-D") and d]
    assert len(lines) == 2 + 6  # the roof; of the prefill alone there is no line
    for d in lines:
        numbers = [float(number) for number in re.findall(r"-?[0-9.]+", d)]
        assert min(numbers) >= 0 and max(numbers) <= 100, d


def test_the_small_plots_can_be_read(opened) -> None:
    page = opened(example())
    size = "e => parseFloat(getComputedStyle(e).fontSize)"
    tag = page.locator(".kvf-curves .kvf-tag").first
    assert tag.evaluate(size) > 13
    page.locator("[data-do=presenter]").click()
    assert tag.evaluate(size) > 15


def test_what_fits_into_the_cache_is_marked(opened) -> None:
    page = opened(example())
    expect(page.locator(".kvf-roof [data-cached]")).to_have_count(1)
    expect(page.locator(".kvf-caption").first).to_contain_text("dashed ring: fits into the cache")
    expect(dot(page, 2)).to_have_attribute(
        "title", "decode 1 x 8: 200 % of the time it took; fits into the cache"
    )


def test_curves_show_both_phases_with_their_bounds_and_units(opened) -> None:
    page = opened(example())
    names = page.locator(".kvf-curves [data-name]").all_text_contents()
    assert [name for name in names if "pass" in name or "tokens/s" in name] == [
        *("ms a pass", "ms a pass, 1 token each", "tokens/s", "tokens/s")
    ]
    assert {"prompt length, tokens", "batch size, requests"} < set(names)
    plots = page.locator(".kvf-curves .kvf-plot")
    for at, count in ((0, 2), (1, 3), (2, 2), (3, 3)):
        expect(plots.nth(at).locator(".kvf-dot")).to_have_count(count)
        assert plots.nth(at).locator("path.kvf-M").count() == (1 if count == 2 else 2)
    short, long = (middle(plots.first.locator(f"[data-point='{i}']")) for i in (0, 1))
    assert long[0] > short[0] and long[1] < short[1]  # the longer prompt takes longer


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [700, 1280, WIDE])
def test_nothing_moves_while_scrubbing_and_all_fits(opened, width: int, scheme: str) -> None:
    page = opened(example(), viewport={"width": width, "height": 720}, color_scheme=scheme)
    boxes = []
    for stop in (0, 1, 3, 5, 2):
        page.evaluate("i => views[0].show(i)", stop)
        boxes.append(page.get_by_text("end", exact=True).last.bounding_box())
    assert all(box == boxes[0] for box in boxes)
    assert page.evaluate("[document.documentElement.scrollWidth, scrollY]") == [width, 0]
    page.locator("[data-do=presenter]").click()
    assert page.locator(".kv").bounding_box()["height"] <= 708 or width == 700


def test_hostile_names_are_text(opened) -> None:
    page = opened(phases_html(phases_payload(phases(model=HOSTILE), ceilings(), title=HOSTILE)))
    expect(page.locator(".kv-title")).to_have_text(HOSTILE)
    expect(page.locator(".kv-hint")).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 0


def test_without_scripts_the_tables_are_there(browser, tmp_path: Path) -> None:
    path = tmp_path / "plain.html"
    path.write_text(f'<!doctype html><meta charset="utf-8">{example()}', encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    expect(page.get_by_role("rowheader", name="decode 4 x 512")).to_be_visible()
    expect(page.get_by_role("listitem")).to_have_count(6)
    context.close()


def test_the_timer_without_a_kernel_shows_its_fields_and_an_empty_roof(opened) -> None:
    page = opened(phase_timer(seconds=10).html(), "phase_timer")
    expect(page.locator("[data-empty]")).to_have_text("press Run")
    expect(page.locator("[data-do=run]")).to_be_disabled()
    expect(page.locator(".kvm-now")).to_have_text(
        "With a running kernel these passes can be timed."
    )
    expect(page.locator("[data-control=lengths] input")).to_have_value("16, 64, 256, 512")
    expect(page.locator("[data-control=device] select")).to_have_value("a device of this machine")


# ---- the timer in JupyterLab


@pytest.fixture(scope="module")
def page(watch: Watch, lab: Lab) -> Page:
    watch.page.set_viewport_size({"width": 1280, "height": 720})
    lab.write("timer.ipynb", CELLS)
    lab.open(watch.page, "timer.ipynb")
    lab.run_all(watch.page)
    expect(watch.page.get_by_text("'timer done'", exact=True)).to_be_visible(timeout=60_000)
    return watch.page


@pytest.fixture
def timer(page: Page) -> Locator:
    timer = page.locator(".t-timer .kv[data-view=phase_timer]")
    timer.evaluate("element => element.scrollIntoView()")
    return timer


def points(timer: Locator) -> Locator:
    return timer.locator(".kvf-roof [data-point]")


def press(timer: Locator, name: str) -> None:
    timer.locator(f"[data-do={name}]").press("Enter")


def test_run_shows_progress_and_points_as_they_come(
    watch: Watch, page: Page, timer: Locator
) -> None:
    expect(timer.locator("[data-empty]")).to_have_text("press Run")
    expect(timer.locator("[data-do=stop]")).to_be_disabled()
    height = timer.bounding_box()["height"]
    press(timer, "run")
    expect(timer).to_have_attribute("data-running", "")
    expect(timer.locator("[data-do=stop]")).to_be_focused()  # the keyboard stays at the buttons
    expect(timer.locator(".kvm-now")).to_have_text(re.compile("^ceiling "), timeout=30_000)
    expect(timer.locator("[data-empty]")).to_have_text("measuring …")
    expect(timer.get_by_role("progressbar")).to_have_attribute(
        "aria-valuetext", re.compile(r"^\d+ %: ")
    )
    expect(points(timer)).to_have_count(7, timeout=60_000)
    expect(timer).not_to_have_attribute("data-running", "", timeout=30_000)
    expect(timer.locator(".kvm-now")).to_have_text(re.compile("^7 of 7 passes measured in "))
    expect(timer.locator("[data-do=run]")).to_be_focused()
    expect(timer.locator("[data-say]")).to_contain_text("prefill 1 x 32")  # measured last
    assert timer.bounding_box()["height"] == height
    assert watch.wrong == []


def test_stop_comes_through_and_keeps_the_points(watch: Watch, page: Page, timer: Locator) -> None:
    timer.locator("[data-control=model] select").select_option("random, 50M weights")
    timer.locator("[data-control=lengths] input").fill("16, 32, 256, 1024, 2048, 3072, 4096")
    seconds = timer.locator("[data-control=seconds] input")
    seconds.focus()
    page.keyboard.press("End")  # 120 seconds, longer than any of the waits below
    press(timer, "run")
    expect(timer.locator(".kvm-now")).to_have_text(re.compile(r"^pass [3-9] of 10"), timeout=45_000)
    press(timer, "stop")
    expect(timer).not_to_have_attribute("data-running", "", timeout=45_000)
    said = timer.locator(".kvm-now").text_content()
    found = re.fullmatch(r"(\d+) of 10 passes measured in \d+ s; then it was stopped", said)
    assert found and 2 <= int(found[1]) < 10
    expect(points(timer)).to_have_count(int(found[1]))
    page.locator(".t-timer .kv[data-view=phases]").focus()
    page.keyboard.press("Home")
    expect(timer.locator("[data-say]")).to_contain_text("Not measured, it was stopped: ")
    assert watch.wrong == []


def test_an_error_is_shown_and_the_points_stay(watch: Watch, page: Page, timer: Locator) -> None:
    before = points(timer).count()
    timer.locator("[data-control=lengths] input").fill("16, 9000")
    press(timer, "run")
    expect(timer.get_by_role("alert")).to_contain_text(
        "prefill 1 x 9000 needs 9,000 positions and this model has 4,096; give a shorter length"
    )
    expect(points(timer)).to_have_count(before)
    timer.locator("[data-control=lengths] input").fill("16")
    timer.locator("[data-control=batches] input").fill("")
    timer.locator("[data-control=batches] input").press("Enter")
    expect(points(timer)).to_have_count(1, timeout=45_000)
    expect(timer.locator(".kv-hint").first).to_contain_text("float32, random, 50M weights")
    expect(timer.get_by_role("alert")).to_have_count(0)
    assert watch.wrong == []
