"""The schedule timeline on a plain page: where it opens, keys, drag, zoom, both themes."""

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")
sys.path.append(str(Path(__file__).parents[1] / "widgets"))
sys.path.append(str(Path(__file__).parents[1] / "engine"))

from playwright.sync_api import Locator, Page, expect
from policy_cases import ask, engine_with
from schedule_cases import HOSTILE, hundred, preempted, twelve_beside_two, two_slots

from kvlab.core.schedule_log import ScheduleLog
from kvlab.widgets import schedule_html, schedule_payload

# make test looks at this width in test_presenter_page and test_book_site
WIDE = pytest.param(1920, marks=pytest.mark.soak)


@pytest.fixture
def opened(open_view):
    """opened(payload) shows a page with the view, focused, watched to the end."""
    return lambda payload, **options: open_view(schedule_html(payload), "schedule", **options)


def said(page: Page) -> Locator:
    return page.locator("[data-say]")


def show(page: Page, stop: int) -> None:
    page.evaluate("i => views[0].show(i)", stop)


def bar(page: Page) -> list[dict]:
    """Where each part of the bar below the picture stands."""
    return page.locator(".kv-bar > *").evaluate_all(
        "all => all.map((e) => e.getBoundingClientRect().toJSON())"
    )


def letters(page: Page, run: str) -> dict[tuple[int, int], str]:
    """What is written in the cells of a run: {(row, first step): text}."""
    found = page.locator(f"[data-run='{run}'] text").evaluate_all(
        "all => all.map((t) => [+t.dataset.row, +t.dataset.step, t.textContent])"
    )
    return {(row, step): text for row, step, text in found}


def expected(run: dict) -> dict[tuple[int, int], str]:
    """What has to be written: waiting and the like once a span, work once a step."""
    words = {"w": "waiting", "x": "preempted"}
    cells = {}
    for row, request in enumerate(run["requests"]):
        for letter, first, count, tokens in request["spans"]:
            if letter in words:
                cells[row, first] = words[letter] if count > 1 else letter
                continue
            text = f"P{tokens}" if letter == "P" else letter
            cells |= {(row, step): text for step in range(first, first + count)}
    return cells


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_cell_is_what_the_log_says(opened, scheme: str) -> None:
    for logs in (
        (two_slots("static"), two_slots("continuous")),
        (twelve_beside_two(policy="alternating", prefill_chunk=4),),
        (preempted(),),
    ):
        payload = schedule_payload(*logs)
        page = opened(payload, color_scheme=scheme)
        for run in payload["runs"]:
            assert letters(page, run["title"]) == expected(run)
        fills = page.locator(".kvs-scroll path.kvs-c").evaluate_all(
            "all => all.map((p) => [p.dataset.k, getComputedStyle(p).fill])"
        )
        colours = dict(map(tuple, fills))
        assert len(set(colours.values())) == len(colours)  # no two kinds look alike
        assert colours["P"] == "rgb(0, 114, 178)" and colours["D"] == "rgb(230, 159, 0)"


def test_keys_walk_through_the_steps_and_the_line_tells_the_story(opened) -> None:
    page = opened(schedule_payload(two_slots("static"), two_slots("continuous")))
    view = page.locator(".kv[data-stop]")
    expect(view).to_have_attribute("data-stop", "3")  # where C waits and the runs differ
    page.keyboard.press("Home")
    expect(said(page)).to_contain_text("static, before step 1: 3 requests will share 2 seats")
    expect(page.locator(".kvs-cursor")).to_be_hidden()
    expect(page.locator(".kvs-here")).to_be_hidden()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(view).to_have_attribute("data-stop", "3")
    expect(page.locator(".kv-count")).to_have_text("step 3 of 8")
    expect(page.locator(".kvs-scale span:visible")).to_have_text([*"1245678", "3"])  # its own
    assert said(page).text_content().split("\n") == [
        "static, step 3: decode of B; C waits, 1 of 2 seats empty; 14 free blocks.",
        "continuous, step 3: P3 of C (admitted, positions 0 to 2, first output); "
        "B misses this step; nobody waits; 14 free blocks.",
    ]
    expect(page.locator("[data-count=waiting]")).to_have_text(["1 waiting", "0 waiting"])
    expect(page.locator("[data-count=free]")).to_have_text(["14 of 16", "14 of 16"])
    page.keyboard.press("End")
    expect(said(page)).to_contain_text("continuous: all is over since step 6.")
    expect(said(page)).to_contain_text("C ends")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".kv-count")).to_have_text("step 7 of 8")
    page.keyboard.press("Home")
    expect(page.locator(".kv-count")).to_have_text("before the start")
    page.keyboard.press(" ")
    expect(view).to_have_attribute("data-playing", "")
    expect(view).to_have_attribute("data-stop", "1")
    page.keyboard.press(" ")
    page.keyboard.press("p")
    expect(view).to_contain_class("kv-large")


def test_it_opens_where_somebody_is_delayed_and_else_at_the_first_step(opened) -> None:
    page = opened(schedule_payload(twelve_beside_two(policy="alternating", prefill_chunk=4)))
    expect(page.locator(".kv-count")).to_have_text("step 2 of 12")  # A and B miss it
    page = opened(schedule_payload(preempted()))
    expect(page.locator(".kvs-cursor")).to_be_visible()
    expect(said(page)).to_contain_text("loses its blocks and waits again")
    engine = engine_with()
    with ScheduleLog(engine.scheduler) as log:
        ask(engine, range(3), 2, "A")
        engine.run()
    expect(opened(schedule_payload(log)).locator(".kv-count")).to_have_text("step 1 of 2")


def test_strips_say_their_scale_and_nothing_lies_over_the_legend(opened) -> None:
    page = opened(schedule_payload(two_slots("static"), two_slots("continuous")))
    names = [".kvs-count:first-child", "[data-run=static] ~ .kvs-line .kvs-count:first-child"]
    expect(page.locator(names[0])).to_have_text(["queue, 0–1", "free, 0–16"] * 2)
    assert page.locator(names[1]).evaluate_all(
        "all => all.every((e) => e.scrollWidth <= e.clientWidth)"
    )
    show(page, 7)
    for key in page.locator(".kvs-key").all():
        box = key.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        assert key.evaluate(
            "(key, [x, y]) => key.contains(document.elementFromPoint(x, y))", [x, y]
        )


def test_one_cursor_stands_over_the_same_step_of_both_runs(opened) -> None:
    page = opened(schedule_payload(two_slots("static"), two_slots("continuous")))
    for stop in (1, 3, 6):
        show(page, stop)
        cursor = page.locator(".kvs-cursor").bounding_box()
        for run, row in (("static", 2 if stop == 6 else 1), ("continuous", 1)):
            if stop == 1:
                row = 0
            text = page.locator(f"[data-run={run}] text[data-step='{stop}'][data-row='{row}']")
            box = text.bounding_box()
            assert (
                cursor["x"] <= box["x"] and box["x"] + box["width"] <= cursor["x"] + cursor["width"]
            )
            assert (
                cursor["y"] <= box["y"]
                and box["y"] + box["height"] <= cursor["y"] + cursor["height"]
            )


def test_delays_stand_beside_each_row(opened) -> None:
    page = opened(schedule_payload(two_slots("static"), two_slots("continuous")))
    for run, want in (("static", ["4", "5", "1", "7"]), ("continuous", ["1", "2", "1", "4"])):
        row = page.locator(f"[data-run={run}] [data-delays=C]")
        expect(row.locator("span")).to_have_text(want)
        name = page.locator(f"[data-run={run}] .kvs-name").nth(2).bounding_box()
        cell = page.locator(f"[data-run={run}] text[data-row='2']").first.bounding_box()
        middles = [box["y"] + box["height"] / 2 for box in (name, cell, row.bounding_box())]
        assert max(middles) - min(middles) < 3  # on one line


def test_dragging_in_the_plot_and_on_the_track_scrubs(opened) -> None:
    page = opened(schedule_payload(twelve_beside_two(policy="alternating", prefill_chunk=4)))
    first = page.locator("text[data-step='2']").first.bounding_box()
    last = page.locator("text[data-step='6']").first.bounding_box()
    page.mouse.move(first["x"] + 3, first["y"] + 3)
    page.mouse.down()
    expect(page.locator(".kv-count")).to_have_text("step 2 of 12")
    page.mouse.move(last["x"] + 3, last["y"] + 3, steps=8)
    expect(page.locator(".kv-count")).to_have_text("step 6 of 12")
    page.mouse.up()
    page.mouse.move(first["x"], first["y"])
    expect(said(page)).to_have_text(
        "Step 6: P4 of C (positions 8 to 11, first output); A and B miss this step; "
        "nobody waits; 9 free blocks."
    )
    track = page.locator(".kv-track").bounding_box()
    page.mouse.click(track["x"] + track["width"] - 1, track["y"] + track["height"] / 2)
    expect(page.locator(".kv-count")).to_have_text("step 12 of 12")


def test_measured_times_and_steps_change_places(opened) -> None:
    payload = schedule_payload(two_slots("static", mode="real"), clock="time")
    page = opened(payload)
    steps = len(payload["runs"][0]["said"])
    show(page, 1)
    expect(page.locator(".kv-count")).to_have_text(re.compile(r"^at [0-9.]+ (ms|µs|s)$"))
    widths = page.evaluate("document.querySelector('.kvs-cursor').offsetWidth")
    assert widths >= 3
    page.locator("[data-do=clock]").click()
    show(page, 3)
    expect(page.locator(".kv-count")).to_have_text(f"step 3 of {steps}")
    request = payload["runs"][0]["requests"][2]
    expect(page.locator("[data-delays=C] span")).to_have_text([str(d) for d in request["delays"]])
    assert letters(page, "static") == expected(payload["runs"][0])
    page.locator("[data-do=clock]").click()
    expect(page.locator(".kvs-axis")).to_contain_text("time, ")


def test_100_requests_over_1000_steps_scrub_smoothly_and_zoom(opened, capsys) -> None:
    payload = schedule_payload(hundred("mixed"), hundred("continuous"))
    page = opened(payload)
    elements = page.locator(".kvs *").count()
    assert elements < 400  # merged spans: a path for each kind
    page.evaluate("document.querySelectorAll('.kvs-svg').forEach((s) => { s.mine = true; })")
    times = page.evaluate(
        """async (last) => {
      const times = [], frames = [];
      let before = performance.now();
      for (let i = 1; i <= last; i++) {
        const start = performance.now();
        views[0].show(i);
        document.body.getBoundingClientRect();
        times.push(performance.now() - start);
        if (i % 10) continue;
        await new Promise(requestAnimationFrame);
        frames.push(performance.now() - before);
        before = performance.now();
      }
      const sorted = (all) => all.sort((a, b) => a - b);
      return [sorted(times), sorted(frames)];
    }""",
        1000,
    )
    assert page.evaluate("[...document.querySelectorAll('.kvs-svg')].every((s) => s.mine)")
    with capsys.disabled():
        for name, all_ in zip(("a step", "ten steps and a frame"), times, strict=True):
            middle, late, worst = all_[len(all_) // 2], all_[int(0.95 * len(all_))], all_[-1]
            print(f"\n2 x 100 requests, 1,000 steps: {name} takes {middle:.1f} ms (median), "
                  f"{late:.1f} ms (95%), {worst:.1f} ms (worst)", end="")  # fmt: skip
        print()
    assert letters(page, "mixed") == {}
    height = page.locator(".kv[data-stop]").bounding_box()["height"]
    bars = []
    for stop in (0, 1, 10, 1000, 500):
        show(page, stop)
        bars.append(bar(page))
    assert len(bars[0]) == 9 and all(boxes == bars[0] for boxes in bars)  # with - and +
    marks = page.locator(".kvs-scale span:visible").all_text_contents()
    assert marks[-1] == "500" and "500" not in marks[:-1]  # no number under the cursor's own
    for _ in range(5):
        page.keyboard.press("+")
    expect(page.locator(".kvs")).to_have_attribute("data-zoom", "5")
    cells = letters(page, "mixed")
    names = [request["name"] for request in payload["runs"][0]["requests"]]
    busy = [row for (row, step), text in cells.items() if step == 500 and text == "D"]
    assert len(busy) == 8 and "decode of 8 requests" in said(page).text_content()
    expect(page.locator("[data-run=mixed] .kvs-name").nth(busy[0])).to_have_text(names[busy[0]])
    scroll = page.locator("[data-run=mixed]").bounding_box()
    row = page.locator(f"[data-run=mixed] text[data-row='{busy[0]}']").first.bounding_box()
    assert scroll["y"] <= row["y"] <= scroll["y"] + scroll["height"]  # who works is in sight
    assert page.locator(".kv[data-stop]").bounding_box()["height"] == height
    page.locator("[data-do=zoom-out]").click()
    expect(page.locator(".kvs")).to_have_attribute("data-zoom", "4")
    page.keyboard.press("End")
    cursor, plot = (page.locator(css).bounding_box() for css in (".kvs-cursor", ".kvs-scale"))
    assert plot["x"] <= cursor["x"] <= plot["x"] + plot["width"]


@pytest.mark.parametrize("width", [700, 1280, WIDE])
def test_nothing_moves_while_scrubbing_and_all_fits(opened, width: int) -> None:
    logs = two_slots("static"), two_slots("continuous")
    page = opened(schedule_payload(*logs), viewport={"width": width, "height": 720})
    boxes, bars = [], []
    for stop in (*range(9), 2):
        show(page, stop)
        boxes.append(page.get_by_text("end", exact=True).last.bounding_box())
        bars.append(bar(page))
    assert all(box == boxes[0] for box in boxes)
    assert len(bars[0]) == 7 and all(boxes == bars[0] for boxes in bars)
    assert page.evaluate("[document.documentElement.scrollWidth, scrollY]") == [width, 0]
    page.locator("[data-do=presenter]").click()
    assert page.locator(".kv[data-stop]").bounding_box()["height"] <= 708 or width == 700
    assert letters(page, "static")  # the hall reads them as well


def test_hostile_names_are_text(opened) -> None:
    engine = engine_with()
    with ScheduleLog(engine.scheduler) as log:
        for name in (HOSTILE, "__proto__"):
            ask(engine, range(3), 2, name)
        engine.run()
    page = opened(schedule_payload(log, titles=(HOSTILE,)))
    show(page, 2)
    expect(said(page)).to_contain_text("decode of <img src=x … and __proto__")
    expect(page.locator(".kvs-name").first).to_have_text("<img src=x …")
    expect(page.locator(".kvs-name").first).to_have_attribute(
        "title", f"{HOSTILE}: prompt of 3 tokens"
    )
    assert page.locator("img").count() == 0


def test_without_scripts_the_tables_are_there(browser, tmp_path: Path) -> None:
    path = tmp_path / "plain.html"
    html = schedule_html(schedule_payload(two_slots("static")))
    path.write_text(f'<!doctype html><meta charset="utf-8">{html}', encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    expect(page.get_by_role("cell", name="w4 P3 D2")).to_be_visible()
    expect(page.get_by_role("listitem")).to_have_count(8)
    context.close()
