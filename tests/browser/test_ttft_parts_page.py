"""TTFT taken apart, on a plain page: bars in place, keys, the line, no jumps, hostile names."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")
sys.path.append(str(Path(__file__).parents[1] / "widgets"))
sys.path.append(str(Path(__file__).parents[1] / "engine"))

from playwright.sync_api import expect
from test_ttft_parts import HOSTILE, WHOLE

from kvlab.core.ttft import FirstTokenStamps
from kvlab.widgets import ttft_html, ttft_payload

# make test looks at this width in test_presenter_page and test_book_site
WIDE = pytest.param(1920, marks=pytest.mark.soak)


@pytest.fixture
def opened(open_view):
    """opened(payload) shows a page with the view, focused, watched to the end."""
    return lambda payload, **options: open_view(ttft_html(payload), "ttft_parts", **options)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pieces_stand_on_one_axis_and_have_their_length(opened, scheme: str) -> None:
    payload = ttft_payload(WHOLE)
    page = opened(payload, color_scheme=scheme)
    row = page.locator("[data-boundary=client].kvt-row").bounding_box()
    pixels = row["width"] / payload["length"]
    for boundary in payload["rows"]:
        pieces = page.locator(f".kvt-row[data-boundary={boundary['boundary']}] .kvt-piece")
        expect(pieces).to_have_count(boundary["last"] - boundary["first"] + 1)
        for i in range(pieces.count()):
            part = payload["parts"][boundary["first"] + i]
            box = pieces.nth(i).bounding_box()
            assert abs(box["x"] - (row["x"] + part["begin"] * pixels)) < 1.5
            assert abs(box["width"] - (part["end"] - part["begin"]) * pixels) < 1.5
        total = page.locator(f"[data-total={boundary['boundary']}]")
        expect(total).to_have_text(boundary["text"])
    colours = page.locator("thead .kvt-chip").evaluate_all(
        "all => all.map((c) => [c.textContent, getComputedStyle(c).backgroundColor])"
    )
    assert [letter for letter, _ in colours] == list("TIQPSDB")
    assert len({colour for _, colour in colours}) == 6  # both ways share one


def test_keys_go_through_boundaries_and_parts(opened) -> None:
    payload = ttft_payload(WHOLE)
    page = opened(payload)
    said = page.locator("[data-say]")
    for stop, sentence in enumerate(payload["said"]):
        expect(said).to_have_text(sentence)
        far = page.locator(".kvt-row[data-far]").count()
        near = page.locator(".kvt-piece[data-near]").count()
        if stop == 0:
            assert (far, near) == (0, 0)
        elif stop <= 3:
            assert (far, near) == (2, 0)
        else:
            holders = [r for r in payload["rows"] if r["first"] <= stop - 4 <= r["last"]]
            assert (far, near) == (0, len(holders))
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Home")
    expect(said).to_have_text(payload["said"][0])
    page.locator(".kvt-row[data-boundary=server] [data-part='3']").click()
    expect(said).to_contain_text("Prefill, 20.00 ms")
    page.keyboard.press("p")
    expect(page.locator(".kv[data-stop]")).to_contain_class("kv-large")


def test_the_table_says_what_each_boundary_includes(opened) -> None:
    page = opened(ttft_payload(WHOLE))
    cells = page.locator("tr[data-boundary=engine] td")
    expect(cells).to_have_text(["–", "–", "8.00", "20.00", "0.40", "–", "–", "0.00", "28.40"])
    expect(page.get_by_role("columnheader", name="equation 21.4")).to_have_attribute("colspan", "4")
    whole = page.locator("tr.kvt-equation td")
    expect(whole).to_have_text(["–", "–", "8.00", "20.00", "0.40", "0.60", "–", "–", "29.00"])
    names = page.locator("thead .kvt-chip + span")
    terms = ["queue", "prefill", "selection", "delivery"]
    expect(names).to_have_text(["way there (T)", "preparation (I)", *terms, "way back (B)"])
    marks = ["0 ms", "10 ms", "20 ms", "30 ms"]
    expect(page.locator(".kvt-scale span")).to_have_text(marks)


@pytest.mark.parametrize("width", [700, 1280, WIDE])
def test_a_letter_that_does_not_fit_is_not_drawn(opened, width: int) -> None:
    page = opened(ttft_payload(WHOLE), viewport={"width": width, "height": 720})
    for large in (False, True):
        sizes = page.locator(".kvt-piece").evaluate_all(
            """all => all.map((p) => {
          const one = (e) => e.getBoundingClientRect().width;
          return [p.firstElementChild.textContent, one(p), one(p.firstElementChild)];
        })"""
        )
        assert all(text <= piece for letter, piece, text in sizes if len(letter) == 1), sizes
        drawn = any(text > 0 for letter, _, text in sizes if len(letter) == 1)
        assert drawn or large or width == 700  # large type needs more room for a letter
        if not large:
            page.locator("[data-do=presenter]").click()


@pytest.mark.parametrize("width", [700, 1280, WIDE])
def test_nothing_moves_while_scrubbing_and_all_fits(opened, width: int) -> None:
    payload = ttft_payload(WHOLE, num_prompt_tokens=512)
    page = opened(payload, viewport={"width": width, "height": 720})
    boxes = []
    for stop in range(len(payload["said"])):
        page.evaluate("i => views[0].show(i)", stop)
        boxes.append(page.get_by_text("end", exact=True).last.bounding_box())
    assert all(box == boxes[0] for box in boxes)
    assert page.evaluate("[document.documentElement.scrollWidth, scrollY]") == [width, 0]
    page.locator("[data-do=presenter]").click()
    assert page.locator(".kv[data-stop]").bounding_box()["height"] <= 708 or width == 700
    cut = "all => all.filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.textContent)"
    assert page.locator(".kvt :is(th, td, th > span)").evaluate_all(cut) == []


def test_a_phone_shows_every_label_whole_and_the_numbers_scroll_by_keyboard(opened) -> None:
    page = opened(ttft_payload(WHOLE), viewport={"width": 390, "height": 800})
    marks = [m.bounding_box() for m in page.locator(".kvt-scale span:visible").all()]
    assert len(marks) >= 2
    assert all(a["x"] + a["width"] < b["x"] for a, b in pairwise(marks))
    assert all(m["x"] > 0 and m["x"] + m["width"] < 390 for m in marks)
    cut = """all => all.filter((e) => e.offsetWidth && e.scrollWidth > e.clientWidth)
      .map((e) => e.textContent)"""
    cells = page.locator(".kvt :is(th, td, th > span, .kvt-name, .kvt-total, .kvt-piece)")
    assert cells.evaluate_all(cut) == []
    for row in ("engine", "server", "client"):  # the name and the total stand over their bar
        name, bar, total = (
            page.locator(f"{kind}[data-boundary={row}], {kind}[data-total={row}]").bounding_box()
            if kind != ".kvt-name"
            else page.locator(kind, has_text=row).bounding_box()
            for kind in (".kvt-name", ".kvt-row", ".kvt-total")
        )
        assert max(name["y"] + name["height"], total["y"] + total["height"]) <= bar["y"] + 1
        assert abs(name["y"] + name["height"] / 2 - total["y"] - total["height"] / 2) < 6
    numbers = page.get_by_role("region", name="The same in numbers.")
    numbers.focus()
    page.keyboard.press("Shift+ArrowRight")
    assert numbers.evaluate("e => e.scrollLeft") > 50
    expect(page.locator(".kv[data-stop]")).to_have_attribute("data-stop", "0")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".kv[data-stop]")).to_have_attribute("data-stop", "1")


def test_parts_that_nobody_told_apart_and_hostile_names(opened) -> None:
    stamps = FirstTokenStamps(3.0, 11.0, 32.0, client_sent=0.0, client_received=39.0)
    page = opened(ttft_payload(stamps, title=HOSTILE, request_id=HOSTILE))
    expect(page.locator("thead .kvt-chip")).to_have_text(["TI", "Q", "PS", "DB"])
    expect(page.locator(".kv-title")).to_have_text(HOSTILE)
    expect(page.locator(".kv-hint")).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 0


def test_a_token_in_no_time_is_drawn(opened) -> None:
    page = opened(ttft_payload(FirstTokenStamps(1.0, 1.0, 1.0)))
    expect(page.locator("[data-total=engine]")).to_have_text("0.00")
