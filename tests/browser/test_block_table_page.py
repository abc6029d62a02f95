"""The view "block table" on a plain page and in JupyterLab: states, paths, keys, pointer, size."""

import json
import re
import sys
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")
sys.path.append(str(Path(__file__).parents[1] / "widgets"))

from blocks_cases import PROMPT_A, chapter, forks, large_run, named, random_run
from history_runner import make_engine
from lab_server import Lab, Watch
from plain_page import plain_page
from playwright.sync_api import Locator, Page, expect

from kvlab import SamplingParams, Trace
from kvlab.widgets import block_table_html, block_table_payload

HOSTILE = "</script><img src=x onerror=alert(1)>"
DRAWN = """() => ({
  blocks: Object.fromEntries([...document.querySelectorAll(".kvb-card")].map((c) => {
    const { block, refs, filled, identity, kind, owners } = c.dataset;
    const slots = [...c.querySelectorAll(".kvb-s")].map((s) => s.textContent).join(" ").trim();
    return [block, { refs: +refs, filled: +filled, identity, kind, owners, slots }];
  })),
  requests: Object.fromEntries([...document.querySelectorAll("[data-request]")].map((r) => {
    const { request, table, stored, status } = r.dataset;
    return [request, { table, stored: +stored, status }];
  })),
  free: [...document.querySelectorAll("[data-free]")].map((b) => +b.dataset.free),
})"""
LAB = """
from kvlab import LLM, SamplingParams, tiny
from kvlab.widgets import block_table

llm = LLM("tiny", block_size=4, num_blocks=30)
llm.start_trace()
notes = ("Ada likes soup.", "Ada likes soup. Bob sings.")
prompts = [tiny.prompt(note, "What does Ada like?", rules="") for note in notes]
llm.generate(prompts, SamplingParams(max_tokens=3))
trace = llm.stop_trace()
"""


@pytest.fixture
def opened(browser, tmp_path: Path):
    """open(payload) shows a page with the view, focused at its first stop, watched to the end."""
    watches = []

    def open_page(payload: dict, exports: str = "", **options: object) -> Page:
        path = tmp_path / f"{len(watches)}.html"
        page = plain_page(block_table_html(payload), "block_table", exports)
        path.write_text(page, encoding="utf-8")
        watches.append(
            Watch(browser.new_page(**{"viewport": {"width": 1280, "height": 800}, **options}))
        )
        page = watches[-1].page
        page.goto(path.as_uri())
        page.locator(".kv[data-stop]").focus()
        return page

    yield open_page
    for watch in watches:
        watch.page.close()
        assert watch.wrong == []


def show(page: Page, stop: int) -> None:
    page.evaluate("i => views[0].show(i)", stop)


def stop_of(payload: dict, beginning: str) -> int:
    """The number of the stop whose sentence begins so."""
    (number,) = [i for i, stop in enumerate(payload["stops"]) if stop[3].startswith(beginning)]
    return number


def expected(payload: dict, state: dict) -> dict:
    """What a frame of the trace has to look like."""
    size, letters = payload["trace"]["meta"]["block_size"], dict(payload["requests"])
    blocks = {}
    for block_id in payload["blocks"]:
        block = state["blocks"].get(str(block_id), {"ref_cnt": 0, "identity": None, "filled": 0})
        holders = [
            (letters[name], r["block_table"].index(block_id))
            for name, _ in payload["requests"]
            if (r := state["requests"].get(name)) and block_id in r["block_table"]
        ]
        kind = "used" if block["ref_cnt"] else "kept" if block["identity"] else "free"
        blocks[str(block_id)] = {
            "refs": block["ref_cnt"],
            "filled": block["filled"],
            "identity": block["identity"] or "",
            "kind": kind,
            "owners": " ".join(letter for letter, _ in holders),
        }
        if holders:
            first = holders[0][1] * size
            blocks[str(block_id)]["slots"] = " ".join(
                str(first + s) for s in range(block["filled"])
            )
    requests = {}
    for name, letter in payload["requests"]:
        r = state["requests"].get(name)
        table = r["block_table"] if r else []
        requests[letter] = {
            "table": " ".join(map(str, table)),
            "stored": r["num_computed_tokens"] if table else 0,
            "status": r["status"] if r else "",
        }
    return {"blocks": blocks, "requests": requests, "free": state["free"][:24]}


LONG = pytest.param("random 1", marks=pytest.mark.soak)


@pytest.mark.parametrize("name", ["chapter", "forks", LONG, "random 5", "random 8"])
def test_at_every_stop_the_page_shows_the_trace_s_frame(opened, name: str) -> None:
    makes = {"chapter": chapter, "forks": forks}
    trace = makes[name]() if name in makes else random_run(int(name.split()[1]))
    payload = block_table_payload(trace)
    page = opened(payload)
    frames = [frame.state for frame in trace.frames()]
    order = [*range(len(payload["stops"])), *range(len(payload["stops"]) - 1, -1, -7)]
    for stop in order:  # forwards, then back in leaps
        show(page, stop)
        drawn, want = page.evaluate(DRAWN), expected(payload, frames[payload["stops"][stop][0]])
        for block_id, block in want["blocks"].items():
            if "slots" not in block:
                drawn["blocks"][block_id].pop("slots")
        assert drawn == want


@pytest.mark.parametrize("name", ["chapter", "random 3"])
def test_each_position_s_path_is_its_request_s_table(opened, name: str) -> None:
    trace = chapter() if name == "chapter" else random_run(3)
    payload = block_table_payload(trace)
    page = opened(payload, exports="\nexport { blocksRecords, blocksPath };")
    paths = page.evaluate(
        """payload => kvlab.blocksRecords(payload).map((s) => payload.requests.map(([id], who) =>
        Array.from({ length: s.state.requests[id]?.num_computed_tokens ?? 0 }, (_, t) => {
          const p = kvlab.blocksPath(payload, s, who, t);
          return [p.logical, p.slot, p.block ?? null, p.state];
        })))""",
        payload,
    )
    size, frames = trace.meta["block_size"], [frame.state for frame in trace.frames()]
    for stop, of_stop in zip(payload["stops"], paths, strict=True):
        for (name, _), of_request in zip(payload["requests"], of_stop, strict=True):
            request = frames[stop[0]]["requests"].get(name)
            if request and request["block_table"]:
                table = request["block_table"]
                assert of_request == [
                    [t // size, t % size, table[t // size], "stored"]
                    for t in range(request["num_computed_tokens"])
                ]


def words(page: Page) -> Locator:
    return page.locator("[data-path-words]")


def test_keys_walk_through_stops_and_follow_a_read(opened) -> None:
    payload = block_table_payload(chapter())
    page = opened(payload)
    view = page.locator(".kv[data-stop]")
    grown = stop_of(payload, "A processes position 8.")
    for _ in range(grown):
        page.keyboard.press("ArrowRight")
    expect(view).to_have_attribute("data-stop", str(grown))
    expect(page.locator("[data-say]")).to_have_text(
        "A processes position 8. Logical block 2 does not exist yet, so the pool gives block 5, "
        "and slot 0 is written. Three slots of it stay unused."
    )
    expect(page.locator(".kvb-card[data-ring]")).to_have_attribute("data-block", "5")
    expect(page.locator(".kvb-row[data-ring] .kvb-to")).to_have_text("→ 5")
    expect(page.locator(".kvb-arrow")).to_be_hidden()
    page.keyboard.press("ArrowDown")  # begins at what the stop has written
    expect(words(page)).to_have_text(
        "A, position 8 ' w46'▸logical block 2 = ⌊8/4⌋▸slot 0 = 8 mod 4▸"
        "entry 2 of A's table is block 5▸reads block 5, slot 0"
    )
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    expect(words(page)).to_contain_text("A, position 5 ' w15'")
    expect(words(page)).to_contain_text("entry 1 of A's table is block 2")
    marked = page.locator(".kvb-s[data-path]")
    expect(marked).to_have_count(2)
    expect(marked).to_have_text(["5", "5"])
    expect(page.locator(".kvb-card[data-path]")).to_have_attribute("data-block", "2")
    expect(page.locator(".kvb-arrow")).to_be_visible()
    page.keyboard.press("ArrowRight")  # the cursor stays with its token
    expect(words(page)).to_contain_text("A, position 5")
    show(page, stop_of(payload, "C is admitted."))
    page.keyboard.press("Shift+ArrowDown")
    expect(words(page)).to_contain_text("C, position 0")
    expect(words(page)).to_contain_text("reads block 7, slot 0, as A does")
    page.keyboard.press("Escape")
    expect(page.locator(".kvb-arrow")).to_be_hidden()
    expect(words(page)).to_contain_text("Point at a token")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    expect(words(page)).to_have_text("No token is stored at this stop.")


def test_tab_reaches_the_requests_and_starts_at_a_token(opened) -> None:
    payload = block_table_payload(chapter())
    page = opened(payload)
    show(page, stop_of(payload, "A processes position 6"))
    for _ in range(2):
        page.keyboard.press("Tab")  # the presenter's switch, then the requests
    expect(page.locator("[data-half=rows]")).to_be_focused()
    expect(words(page)).to_contain_text("A, position 6")


def test_the_pointer_follows_a_token_on_either_side(opened) -> None:
    payload = block_table_payload(chapter())
    page = opened(payload)
    show(page, stop_of(payload, "C is admitted."))
    page.locator("[data-request=A] [data-logical='1'] .kvb-s").nth(2).hover()
    expect(words(page)).to_contain_text("A, position 6 ' w0'")
    expect(words(page)).to_contain_text("reads block 2, slot 2")
    page.locator("[data-block='7'] .kvb-s").nth(3).hover()
    expect(words(page)).to_contain_text("A, position 3")
    expect(words(page)).to_contain_text("reads block 7, slot 3, as C does")
    expect(page.locator(".kvb-arrow")).to_be_visible()
    page.locator(".kv-title").hover()
    expect(page.locator(".kvb-arrow")).to_be_hidden()
    show(page, stop_of(payload, "A ends"))
    kept = page.locator("[data-block='2']")
    expect(kept).to_have_attribute("data-kind", "kept")
    kept.locator(".kvb-s").nth(1).hover()
    expect(words(page)).to_contain_text(
        re.compile("Block 2, slot 1: position 5, written by A.*Kept under identity [0-9a-f]{8}")
    )
    expect(page.locator(".kvb-arrow")).to_be_hidden()


def test_cards_say_who_holds_them_and_copies_are_marked(opened) -> None:
    payload = block_table_payload(forks())
    page = opened(payload)
    show(page, stop_of(payload, "C (request r.2)"))
    shared = page.locator("[data-block='0']")
    expect(shared.locator(".kvb-chip")).to_have_text(["A", "B", "C"])
    expect(shared.locator(".kvb-refs")).to_contain_text("3 refs")
    expect(page.locator("em")).to_have_count(0)
    show(page, stop_of(payload, "C is about to write"))
    expect(page.locator("em")).to_have_text(["copy of 1", "copy of 1"])
    label = page.locator("[data-block='3']").get_attribute("aria-label")
    assert label == (
        "block 3: 1 reference, held by C; 2 of 4 slots filled, positions 4 to 5; "
        "no identity; a copy of block 1"
    )


SHOWN = [("chapter", 700), ("forks", 1280), ("random", 700), ("large", 1280), ("large", 1900)]
ALL_SHOWN = [*product(("chapter", "forks", "random", "large"), (700, 1280, 1900))]


@pytest.mark.parametrize(
    ("name", "width"),
    [pytest.param(*p, marks=[] if p in SHOWN else pytest.mark.soak) for p in ALL_SHOWN],
)
def test_nothing_moves_whatever_is_shown(opened, name: str, width: int) -> None:
    makes = {
        "chapter": chapter,
        "forks": forks,
        "random": lambda: random_run(1),
        "large": large_run,
    }
    payload = block_table_payload(makes[name]())
    page = opened(payload, viewport={"width": width, "height": 800})
    last, boxes = len(payload["stops"]) - 1, []
    for stop in sorted({0, 1, 3, last // 4, last // 2, last - 1, last}):
        show(page, stop)
        for key in ("ArrowDown", "ArrowDown", "Shift+ArrowDown", "Escape"):
            page.keyboard.press(key)
            boxes.append(page.get_by_text("end", exact=True).last.bounding_box())
    assert all(box == boxes[0] for box in boxes)
    assert page.evaluate("[document.documentElement.scrollWidth, scrollY]") == [width, 0]


def test_200_blocks_and_20_requests_scrub_and_what_changes_is_in_sight(opened, capsys) -> None:
    payload = block_table_payload(large_run())
    page = opened(payload)
    expect(page.locator(".kvb-card")).to_have_count(200)
    assert page.locator("[data-request]").count() == 20
    times = page.evaluate(
        """async (count) => {
      const times = [];
      for (let i = 1; i < count; i++) {
        const start = performance.now();
        views[0].show(i);
        document.body.getBoundingClientRect();
        times.push(performance.now() - start);
        if (i % 20 === 0) await new Promise(requestAnimationFrame);
      }
      return times.sort((a, b) => a - b);
    }""",
        len(payload["stops"]),
    )
    middle, worst = times[len(times) // 2], times[-1]
    with capsys.disabled():
        print(
            f"\n200 blocks, 20 requests, {len(times)} stops: draw and layout of a stop takes "
            f"{middle:.1f} ms (median), {times[int(0.95 * len(times))]:.1f} ms (95%), "
            f"{worst:.1f} ms (worst)"
        )
    assert len(times) == len(payload["stops"]) - 1
    for stop in range(5, len(payload["stops"]), 97):
        show(page, stop)
        rings = page.locator(".kvb-card[data-ring]")
        if rings.count():
            frame, ring = (
                page.locator("[data-half=memory]").bounding_box(),
                rings.first.bounding_box(),
            )
            assert (
                frame["y"] <= ring["y"]
                and ring["y"] + ring["height"] <= frame["y"] + frame["height"]
            )
    size = page.locator(".kvb-card .kvb-top").first.evaluate(
        "e => parseFloat(getComputedStyle(e).fontSize)"
    )
    assert size >= 11  # legible


def test_hostile_text_is_text(opened) -> None:
    engine = make_engine(8, 4)
    engine.start_trace()
    for name in (HOSTILE, "__proto__", "constructor"):
        engine.add_request(PROMPT_A, SamplingParams(max_tokens=2), request_id=name)
    engine.run()
    trace = named(engine.stop_trace())
    vocab = {token: HOSTILE for token in trace.meta["vocab"]}
    payload = block_table_payload(
        Trace({**trace.meta, "vocab": vocab}, trace.initial, trace.events)
    )
    page = opened(payload)
    show(page, 1)
    expect(page.locator("[data-say]")).to_contain_text(f"A (request {HOSTILE}) arrives"[:40])
    show(page, stop_of(payload, "A is admitted"))
    page.keyboard.press("ArrowDown")
    expect(page.locator(".kvb-token")).to_have_text(f"'{HOSTILE}'")
    expect(page.locator("[data-request=C]")).to_have_attribute(
        "aria-label", re.compile(r"^C \(request constructor\): block table")
    )
    assert page.locator("img").count() == 0


def test_unknown_events_do_not_break_the_view(opened) -> None:
    document = json.loads(forks().to_json())
    extra = {"kind": "moved", "request": None, "clock": 3, "data": {"a": [1]}, "patch": {}}
    document["events"].insert(5, extra)
    document["initial"]["novel"] = {"x": 1}
    payload = block_table_payload(Trace.from_dict(document))
    page = opened(payload)
    show(page, stop_of(payload, "The engine notes an event: moved."))
    page.keyboard.press("End")
    expect(page.locator("[data-say]")).to_contain_text("ends (length)")


def test_without_scripts_the_tables_are_there(browser, tmp_path: Path) -> None:
    payload = block_table_payload(chapter())
    path = tmp_path / "plain.html"
    path.write_text(f'<!doctype html><meta charset="utf-8">{block_table_html(payload)}')
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    expect(page.get_by_role("listitem")).to_have_count(len(payload["stops"]))
    expect(page.get_by_role("row")).to_have_count(4 + 5)
    expect(page.get_by_role("cell", name="0 → 7, 1 → 2, 2 → 5")).to_be_visible()
    context.close()


def test_in_jupyterlab_keys_stay_in_the_view_and_ask_the_kernel_nothing(browser, lab: Lab) -> None:
    lab.write("blocks.ipynb", [LAB, "block_table(trace)", "'all' + ' done'"])
    watch = Watch(browser.new_page(viewport={"width": 1280, "height": 720}))
    page = watch.page
    try:
        lab.open(page, "blocks.ipynb")
        lab.run_all(page)
        expect(page.get_by_text("'all done'", exact=True)).to_be_visible(timeout=60_000)
        view = page.locator(".kv[data-view=block_table][data-stop]")
        view.scroll_into_view_if_needed()
        view.focus()
        cells, sent = page.locator(".jp-Cell").count(), len(watch.sent)
        before = view.bounding_box()
        for key in ("ArrowRight", "ArrowRight", "ArrowRight", "d", "d", "a", "b", "ArrowDown"):
            page.keyboard.press(key)
        expect(view).to_have_attribute("data-stop", "3")
        expect(words(page)).to_contain_text("entry")
        expect(view).to_be_focused()
        page.keyboard.press("End")
        assert (view.bounding_box(), page.locator(".jp-Cell").count()) == (before, cells)
        assert len(watch.sent) == sent
        page.keyboard.press("p")
        expect(view).to_have_class(re.compile("kv-large"))
        shown = page.locator(".jp-WindowedPanel-outer").first.bounding_box()["height"]
        assert view.bounding_box()["height"] <= shown  # the hall sees all of it
        assert watch.wrong == []
    finally:
        page.close()
