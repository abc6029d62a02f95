"""The latency report on a plain page and in JupyterLab: dots, figures, filters, keys, pointer."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")
sys.path.append(str(Path(__file__).parents[1] / "widgets"))

from lab_server import Lab, Watch
from latency_cases import HOSTILE, four, heavy, record
from playwright.sync_api import Locator, Page, expect

from kvlab.core.goodput import Targets
from kvlab.widgets import latency_html, latency_payload
from kvlab.widgets.latency_figures import shown

# make test looks at this width in test_presenter_page and test_book_site
WIDE = pytest.param(1920, marks=pytest.mark.soak)

GOALS = Targets(ttft=3.0, itl=0.3)
CELLS = [
    """
from kvlab import LLM, SamplingParams
from kvlab.core.goodput import Targets
from kvlab.core.latency_record import LatencyRecord
from kvlab.widgets import latency_report

engine = LLM("tiny").engine
asked = [
    request
    for i in range(4)
    for request in engine.add_request(list(range(5, 9 + i)), SamplingParams(max_tokens=3))
]
engine.run()
start = asked[0].times.arrival
records = [LatencyRecord(str(i), one.times.since(start)) for i, one in enumerate(asked)]
report = latency_report(records, Targets(ttft=60.0))
_ = report.add_class("t-report")
""",
    "report",
    "'report' + ' done'",
]


@pytest.fixture
def opened(open_view):
    """opened(payload) shows a page with the view, focused, watched to the end."""
    return lambda payload, **options: open_view(
        latency_html(payload), "latency_report", focus=".kv[data-metric]", **options
    )


def said(page: Page) -> Locator:
    return page.locator("[data-say]")


def row(page: Page, metric: str) -> list[str]:
    return page.locator(f"tr[data-row={metric}] td").all_text_contents()


def dots(page: Page) -> dict[str, int]:
    """How many marks of each kind are drawn."""
    paths = page.locator(".kvq-d").evaluate_all(
        "all => all.map((p) => [p.dataset.k, p.getAttribute('d')])"
    )
    starts = {"bad": 2}  # a cross has two strokes
    return {kind: d.count("M") // starts.get(kind, 1) for kind, d in paths}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_cards_and_dots_say_that_the_mean_is_fine_and_p99_is_not(opened, scheme: str) -> None:
    payload = latency_payload(heavy(400), GOALS, metric="ttft")
    page = opened(payload, color_scheme=scheme)
    ttft = payload["subsets"][0][0]["metrics"]["ttft"]
    for key, sign in (("mean", "✓"), ("p50", "✓"), ("p90", "✓"), ("p99", "✗")):
        card = page.locator(f".kvq-card[data-k={key}]")
        expect(card).to_have_text(f"{key}, s{shown(ttft[key])} {sign}")
        expect(card).to_have_attribute("data-kept", "1" if sign == "✓" else "0")
    expect(page.locator(".kvq-card[data-k=misses]")).to_contain_text("10 of 393")
    assert dots(page) == {"away": 0, "none": 0, "ok": 383, "bad": 7, "miss": 10}
    expect(said(page)).to_contain_text("mean 0.4")
    expect(said(page)).to_contain_text("s does not. 10 of 393 requests (2.54%) miss it.")
    facts = page.locator(".kvq-facts:not([aria-hidden])")
    expect(facts.locator("[data-missing]")).to_contain_text("not stated: model, hardware")
    card_sizes = page.locator(".kvq-card b").evaluate_all(
        "all => all.map((b) => parseFloat(getComputedStyle(b).fontSize))"
    )
    assert min(card_sizes) > 20  # pixels


def test_every_filter_and_metric_shows_python_s_figures(opened) -> None:
    payload = latency_payload(heavy(120), GOALS, metric="ttft")
    page = opened(payload)
    for label in range(len(payload["labels"])):
        for length in range(len(payload["lengths"])):
            page.locator("[data-filter=label]").select_option(str(label))
            page.locator("[data-filter=length]").select_option(str(length))
            subset = payload["subsets"][label][length]
            for metric in payload["metrics"]:
                figures = subset["metrics"][metric["name"]]
                wanted = [shown(figures[k]) for k in ("mean", "p50", "p90", "p99", "max")]
                assert row(page, metric["name"]) == wanted
            expect(said(page)).to_have_text(subset["metrics"]["ttft"]["said"])
            drawn = dots(page)
            assert drawn["ok"] + drawn["miss"] + drawn["none"] == subset["done"]
            assert drawn["bad"] == subset["failed"]
    for metric in payload["metrics"]:
        page.locator(f"[data-metric={metric['name']}]").last.click()
        expect(page.locator("tr[aria-current]")).to_have_attribute("data-row", metric["name"])
        expect(page.locator(".kvq-card[data-k=mean] small")).to_have_text(f"mean, {metric['unit']}")


def test_it_opens_on_the_metric_that_is_missed_most(opened) -> None:
    page = opened(latency_payload(four(), Targets(ttft=3.0, itl=0.05)))
    expect(page.locator(".kv[data-metric]").first).to_have_attribute("data-metric", "itl")
    expect(page.locator(".kvq-card[data-k=misses]")).to_contain_text("2 of 2")
    expect(page.locator(".kv-hint")).to_have_text(
        "timed at the client, from the intended start · one dot a request · ◆ misses the target"
    )


@pytest.mark.parametrize("width", [1280, WIDE])
@pytest.mark.parametrize("many", [0, 60])
def test_conditions_are_whole_lines_and_all_can_be_reached(opened, width: int, many: int) -> None:
    conditions = {f"condition {i}": "as it was, in some words" for i in range(many)}
    conditions |= {"arrivals": {"kind": "Poisson", "request_rate": 20}, "model": "tiny"}
    payload = latency_payload(heavy(400), GOALS, conditions=conditions)
    page = opened(payload, viewport={"width": width, "height": 720})
    facts = page.locator(".kvq-facts:not([aria-hidden]) li")
    expect(facts).to_have_count(1 + len(payload["conditions"]))
    expect(facts.filter(has_text="arrivals: ")).to_have_text("arrivals: Poisson, 20 a second")
    box = page.locator(".kvq-conditions")
    line, shown, whole = box.evaluate(
        "e => [parseFloat(getComputedStyle(e).lineHeight), e.clientHeight, e.scrollHeight]"
    )
    lines = shown / line
    assert abs(lines - round(lines)) < 0.15 and (whole > shown + 1) == bool(many)
    box.evaluate("e => e.scrollTo(0, e.scrollHeight)")
    last, frame = facts.last.bounding_box(), box.bounding_box()
    assert last["y"] + last["height"] <= frame["y"] + frame["height"] + 2


def test_keys_go_by_arrival_and_by_value(opened) -> None:
    page = opened(latency_payload(four(), Targets(ttft=3.0)))
    page.keyboard.press("ArrowRight")
    expect(said(page)).to_have_text(
        "Request A (kind: chat), came at 0 s: prompt of 64 tokens, 3 output tokens. "
        "TTFT 0.2 s ✓, TPOT 100 ms, longest gap 100 ms, E2EL 0.4 s."
    )
    page.keyboard.press("ArrowRight")
    expect(said(page)).to_have_text(
        "Request B (kind: chat), came at 1 s: prompt of 64 tokens, 48 of them cached, "
        "1 output token. TTFT 0.4 s ✓, TPOT undefined, no gap, E2EL 0.4 s."
    )
    page.keyboard.press("ArrowUp")
    expect(said(page)).to_contain_text("Request C (kind: document)")
    expect(said(page)).to_contain_text("TTFT 4 s ✗ (target 3 s)")
    page.keyboard.press("End")
    expect(said(page)).to_have_text(
        "Request D, came at 3 s: prompt of 64 tokens, 1 output token (estimated). "
        "Failed: connection reset. It is counted, and in no figure."
    )
    page.keyboard.press("Escape")
    expect(said(page)).to_contain_text("TTFT of 3 requests")
    page.keyboard.press("ArrowUp")
    expect(said(page)).to_contain_text("Request C")  # from the figures: the longest first
    page.keyboard.press("ArrowDown")
    expect(said(page)).to_contain_text("Request B")
    page.keyboard.press("3")
    expect(said(page)).to_contain_text("Request B")  # the request stays chosen
    page.keyboard.press("Escape")
    expect(said(page)).to_contain_text("Lines: all gaps; a dot: a request's longest.")
    page.keyboard.press("p")
    expect(page.locator(".kv[data-metric]")).to_contain_class("kv-large")


def test_a_dot_under_the_pointer_tells_its_request(opened) -> None:
    page = opened(latency_payload(four(), Targets(ttft=3.0)))
    page.keyboard.press("ArrowUp")  # C, the slowest: where its ring is drawn
    ring = page.locator(".kvq-ring").bounding_box()
    page.keyboard.press("Escape")
    middle = ring["x"] + ring["width"] / 2, ring["y"] + ring["height"] / 2
    page.mouse.move(*middle)
    expect(said(page)).to_contain_text("Request C")
    page.mouse.move(middle[0] + 90, middle[1] + 60)
    expect(said(page)).to_contain_text("TTFT of 3 requests")
    page.mouse.click(*middle)
    page.mouse.move(middle[0] + 90, middle[1] + 60)
    expect(said(page)).to_contain_text("Request C")  # a press keeps it
    page.locator("[data-filter=label]").select_option("1")  # chats: C is not among them
    expect(said(page)).to_contain_text("TTFT of 2 requests")
    assert dots(page)["away"] == 1


def test_arrows_in_a_filter_change_the_filter(opened) -> None:
    page = opened(latency_payload(four(), Targets(ttft=3.0)))
    page.locator("[data-filter=label]").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("[data-filter=label]")).to_have_value("1")
    expect(said(page)).to_contain_text("TTFT of 2 requests")


def test_dots_and_lines_stand_where_the_axis_says(opened) -> None:
    page = opened(latency_payload([record("A", 0.0, 1.0), record("B", 5.0, 9.0)]))
    heights = page.locator(".kvq-plot").evaluate(
        """plot => {
      const y = (p) => Number(p.getAttribute("d").match(/M[0-9.]+ ([0-9.]+)/)[1]);
      const dots = plot.querySelector(".kvq-d[data-k=ok]").getAttribute("d");
      const line = (k) => y(plot.querySelector(`.kvq-m[data-k=${k}]`));
      return [[...dots.matchAll(/M[0-9.]+ ([0-9.]+)/g)].map((m) => Number(m[1])),
              line("mean"), line("p50"), line("p99")];
    }"""
    )
    (low, high), mean, middle, late = heights  # 1 and 4 s; mean and median 2.5, p99 3.97
    assert mean == middle == pytest.approx((low + high) / 2, abs=0.2)
    assert late == pytest.approx(high + 0.01 * (low - high), abs=0.2)


@pytest.mark.parametrize("width", [700, 1280, WIDE])
def test_nothing_moves_and_all_fits(opened, width: int) -> None:
    payload = latency_payload(heavy(150), GOALS)
    page = opened(payload, viewport={"width": width, "height": 720})
    boxes, scrolled = [], page.evaluate("scrollY")
    for metric in range(4):
        page.evaluate("i => views[0].choose(i)", metric)
        for i in (0, 9, 17, 60, 999):
            page.evaluate("i => views[0].show(i)", i)
            boxes.append(page.get_by_text("end", exact=True).last.bounding_box())
        page.evaluate("i => views[0].filter('label', i)", metric % 3)
        boxes.append(page.get_by_text("end", exact=True).last.bounding_box())
    assert all(box == boxes[0] for box in boxes)
    assert page.evaluate("[document.documentElement.scrollWidth, scrollY]") == [width, scrolled]
    page.locator("[data-do=presenter]").click()
    assert page.locator(".kv[data-metric]").bounding_box()["height"] <= 708 or width == 700


def test_2000_records_stay_smooth(opened, capsys) -> None:
    page = opened(latency_payload(heavy(2000), GOALS))
    assert page.locator(".kvq-plot *").count() < 80  # a path for each kind of dot
    times = page.evaluate(
        """() => {
      const times = [];
      for (let i = 0; i < 60; i++) {
        const start = performance.now();
        views[0].choose(i % 4);
        views[0].filter("label", i % 3);
        views[0].show(i * 30);
        document.body.getBoundingClientRect();
        times.push(performance.now() - start);
      }
      return times.sort((a, b) => a - b);
    }"""
    )
    with capsys.disabled():
        print(f"\n2,000 dots drawn anew twice: {times[30]:.0f} ms (median), {times[-1]:.0f} worst")
    page.evaluate("views[0].choose(0); views[0].filter('label', 0)")
    assert sum(dots(page).values()) == 2000


def test_hostile_names_are_text(opened) -> None:
    records = [
        record(HOSTILE, 0.0, 1.0, labels={"kind": HOSTILE}),
        record("B", 1.0, error=HOSTILE),
    ]
    page = opened(latency_payload(records, title=HOSTILE, conditions={HOSTILE: HOSTILE}))
    page.keyboard.press("Home")
    expect(said(page)).to_contain_text(f"Request {HOSTILE} (kind: {HOSTILE})")
    page.keyboard.press("End")
    expect(said(page)).to_contain_text(f"Failed: {HOSTILE}.")
    expect(page.locator("[data-filter=label] option")).to_have_text(["any", f"kind: {HOSTILE}"])
    assert page.locator("img").count() == 0


def test_without_scripts_the_tables_are_there(browser, tmp_path: Path) -> None:
    path = tmp_path / "plain.html"
    html = latency_html(latency_payload(four(), GOALS))
    path.write_text(f'<!doctype html><meta charset="utf-8">{html}', encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    expect(page.get_by_role("cell", name="connection reset")).to_be_visible()
    expect(page.get_by_role("table")).to_have_count(2)
    context.close()


def test_a_real_run_in_jupyterlab(watch: Watch, lab: Lab) -> None:
    page = watch.page
    page.set_viewport_size({"width": 1280, "height": 720})
    lab.write("report.ipynb", CELLS)
    lab.open(page, "report.ipynb")
    lab.run_all(page)
    expect(page.get_by_text("'report done'", exact=True)).to_be_visible(timeout=60_000)
    view = page.locator(".t-report .kv[data-view=latency_report]")
    expect(view.locator("[data-say]")).to_contain_text("TTFT of 4 requests: mean")
    view.focus()
    page.keyboard.press("Home")
    expect(view.locator("[data-say]")).to_contain_text("Request 0, came at 0 ")
    before = page.locator(".jp-Cell").count()
    for key in ("a", "b", "d", "d", "2"):
        page.keyboard.press(key)  # Lab's shortcuts would add and delete cells
    expect(view).to_have_attribute("data-metric", "tpot")
    assert page.locator(".jp-Cell").count() == before
    assert watch.wrong == []
