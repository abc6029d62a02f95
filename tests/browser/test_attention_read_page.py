"""The view "attention read" on a plain page and in JupyterLab: choosing, scrubbing, the words."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")

from lab_server import Lab, Watch
from plain_page import plain_page
from playwright.sync_api import Locator, Page, expect
from stillness import resize, wait_until_still

from kvlab import LLM, Decoder, ModelConfig, SamplingParams, tiny
from kvlab.tensors.reads import padded_reads
from kvlab.widgets import attention_html, attention_payload
from kvlab.widgets.attention_words import decimal, sentence

HOSTILE = "</script><img src=x onerror=alert(1)>"
# How many columns are seen whole, and how many in part, between the labels and the right edge.
COLUMNS = """(() => {
  const scroll = document.querySelector(".kvg-scroll");
  const labels = scroll.querySelector(".kvg-labels");
  const px = (text) => Math.max(parseFloat(text) || 0, 0), look = getComputedStyle(scroll);
  const start = labels.getBoundingClientRect().right + px(look.getPropertyValue("--cover"));
  const end = scroll.getBoundingClientRect().right - px(look.clipPath.split(" ")[1]);
  const boxes = [...scroll.querySelectorAll(".kvg-col")].map((c) => c.getBoundingClientRect());
  const seen = boxes.filter(({ left, right }) => right > start + 0.6 && left < end - 0.6);
  const whole = seen.filter(({ left, right }) => left >= start - 0.6 && right <= end + 4);
  return [whole.length, seen.length - whole.length];
})()"""
CUT_LABELS = """[...document.querySelectorAll(".kvg-labels :is(div, b, i, .kvr-heads > span)")]
  .filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1)
  .map((e) => `${e.textContent}: ${e.scrollWidth} > ${e.clientWidth}`)"""
LAB = """
from kvlab import LLM, SamplingParams, tiny
from kvlab.tensors.reads import padded_reads
from kvlab.widgets import attention_read

llm = LLM("tiny", block_size=4)
llm.start_trace(attention_layers=range(4))
llm.generate(tiny.prompt("Ada likes soup.", "What does Ada like?"), SamplingParams(max_tokens=4))
trace = llm.stop_trace()
"""


def run(prompt: str = "Ada likes soup. The key is red.") -> dict:
    """A run of the tiny model, all layers; token 2 of its prompt is hostile text."""
    llm = LLM("tiny", block_size=4)
    llm.start_trace(attention_layers=range(4))
    text = tiny.prompt(prompt, "What colour is the key?", rules="")
    llm.generate(text, SamplingParams(max_tokens=8))
    payload = attention_payload(llm.stop_trace())
    payload["columns"][2][2] = HOSTILE
    return payload


def padded() -> dict:
    llm = LLM("tiny")
    prompts = [
        llm.encode(tiny.prompt(notes, "What does Ada like?", rules=""))
        for notes in (
            "Ada likes soup. The key is red.",
            "Ada likes soup.",
            "The key is red.",
        )
    ]
    reads = padded_reads(llm.model, prompts, token_text=llm.tokenizer.token_text, passes=2)
    return attention_payload(reads, layer=1)


def many_heads(query: int = 32, kv: int = 8) -> dict:
    shape = dict(vocab_size=64, hidden_size=64, intermediate_size=32, num_layers=12, head_dim=2)
    config = ModelConfig(num_query_heads=query, num_kv_heads=kv, max_model_len=64, **shape)
    llm = LLM(Decoder.random(config), block_size=4, num_blocks=12)
    llm.start_trace(attention_layers=range(12))
    llm.generate([[5, 6, 7]], SamplingParams(max_tokens=2))
    return attention_payload(llm.stop_trace())


def with_nan() -> dict:
    """Padded reads in which weights are NaN: all of layer 0 in the last stop, one head before."""
    payload = padded()
    last, before = payload["stops"][-1]["weights"], payload["stops"][-2]["weights"]
    last["0"] = [[None] * len(row) for row in last["0"]]
    before["0"][1] = [None] * len(before["0"][1])
    return {**payload, "layer": 0}


@pytest.fixture(scope="module")
def payloads() -> dict[str, dict]:
    return {"run": run(), "padded": padded(), "many": many_heads(), "nan": with_nan()}


@pytest.fixture
def opened(browser, tmp_path: Path):
    """open(payload) shows a page with the view, focused at its first stop, watched to the end."""
    watches = []

    def open_page(payload: dict, exports: str = "", **options: object) -> Page:
        path = tmp_path / f"{len(watches)}.html"
        page = plain_page(attention_html(payload), "attention_read", exports)
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


def say(page: Page) -> Locator:
    return page.locator("[data-say]")


def weights(page: Page, head: int) -> list[str]:
    """What the cells of a head's row show."""
    cells = page.locator(f".kvr-c[data-head='{head}']")
    return cells.evaluate_all("cs => cs.map(c => c.textContent)")


@pytest.mark.parametrize("name", ["run", "padded", "many", "nan"])
def test_the_sentences_are_pythons_at_every_stop_layer_and_head(opened, payloads, name) -> None:
    payload = payloads[name]
    page = opened(payload, exports="\nexport { readSentence };")
    choices = [(n, h) for n in payload["layers"] for h in (None, *range(payload["heads"][0]))]
    asked = [[i, n, h] for i in range(len(payload["stops"])) for n, h in choices]
    told = page.evaluate(
        "([p, asked]) => asked.map(([i, layer, head]) =>"
        " kvlab.readSentence(p, p.stops[i], { layer, head }))",
        [payload, asked],
    )
    assert told == [sentence(payload, payload["stops"][i], n, h) for i, n, h in asked]


def test_keys_choose_stop_layer_and_head_and_the_sentence_follows(opened, payloads) -> None:
    payload = payloads["run"]
    page = opened(payload)
    view = page.locator(".kv[data-stop]")

    def at(stop: int, layer: int, head: int | None) -> None:
        expect(view).to_have_attribute("data-stop", str(stop))
        expect(say(page)).to_have_text(sentence(payload, payload["stops"][stop], layer, head))
        pressed = page.locator(".kvr-pick button[aria-pressed=true]")
        expect(pressed).to_have_text([str(layer), "all" if head is None else str(head)])

    at(0, 0, None)
    page.keyboard.press("ArrowRight")
    at(1, 0, None)
    page.keyboard.press("l")
    page.keyboard.press("l")
    at(1, 2, None)
    page.keyboard.press("Shift+L")
    at(1, 1, None)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    at(1, 1, 1)
    for _ in range(9):
        page.keyboard.press("ArrowDown")
    at(1, 1, 3)  # the last one
    page.keyboard.press("ArrowUp")
    at(1, 1, 2)
    page.locator("[data-pick=Layer] button", has_text="3").click()
    at(1, 3, 2)
    page.locator("[data-pick='Query head'] button", has_text="all").click()
    page.keyboard.press("End")
    at(len(payload["stops"]) - 1, 3, None)
    page.keyboard.press("l")
    at(len(payload["stops"]) - 1, 0, None)  # after the last layer the first


def test_the_picture_shows_the_weights_of_the_chosen_layer_under_their_keys(
    opened, payloads
) -> None:
    payload = payloads["run"]
    page = opened(payload)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("l")
    stop = payload["stops"][1]
    for head, row in enumerate(stop["weights"]["1"]):
        top = row.index(max(row))
        shown = weights(page, head)
        for p, weight in enumerate(row):
            assert shown[p] == (decimal(weight) if weight >= 50 or p == top else "")
        assert shown[len(row) :] == [""] * (len(payload["columns"]) - len(row))
        label = page.locator(f".kvr-l[data-head='{head}']")
        expect(label.locator("[data-number=sum]")).to_have_text(decimal(sum(row)))
    rows = page.locator(".kvr-l").evaluate_all(
        "ls => ls.map(l => l.dataset.kv ?? 'q' + l.dataset.head)"
    )
    assert rows == ["0", "q0", "q1", "1", "q2", "q3"]  # heads 0 and 1 read KV head 0
    kinds = page.locator(".kvg-col").evaluate_all("cs => cs.map(c => c.dataset.read)")
    assert kinds == ["P"] * 21 + ["O"] + ["slot"] * 2 + ["future"] * (len(kinds) - 24)
    keys = page.locator(".kvr-c[data-kv='0']").evaluate_all("cs => cs.map(c => c.textContent)")
    assert keys == ["K V"] * 22 + [""] * (len(kinds) - 22)
    expect(page.locator(".kvr-own")).to_have_attribute("data-pos", "21")
    expect(page.get_by_text("grouped-query attention: 4 heads, 2 KV heads")).to_be_visible()


def test_a_chosen_head_stands_out_and_tells_each_weight(opened, payloads) -> None:
    payload = payloads["run"]
    page = opened(payload)
    expect(page.locator(".kvr-row")).to_be_hidden()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".kvr-row")).to_be_visible()
    dim = page.locator(".kvr-l").evaluate_all("ls => ls.map(l => l.hasAttribute('data-dim'))")
    assert dim == [False, False, True, True, True, True]
    weight = payload["stops"][0]["weights"]["0"][0][4] / 10_000
    column = page.locator("[data-pos='4']")
    expect(column).to_have_attribute(
        "aria-label", re.compile(f"key of the prompt, weight {weight:.4f}$")
    )
    own = page.locator("[data-pos='20']")
    expect(own).to_have_attribute("title", re.compile("assistant.*the query's own key"))
    later = page.locator("[data-pos='24']")
    expect(later).to_have_attribute("title", "position 24, not there yet: later than the query")
    slot = page.locator("[data-pos='21']")
    expect(slot).to_have_attribute("title", "position 21, empty slot, not read")


def test_padding_is_hatched_gets_nothing_when_masked_and_leaks_without(opened, payloads) -> None:
    payload = payloads["padded"]
    page = opened(payload)
    pads = [p for p, column in enumerate(payload["columns"]) if column[0] is None]
    assert len(pads) == 5
    columns = page.locator(".kvg-col")
    expect(page.locator("[data-layer]").first).to_have_attribute("data-layer", "1")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("✓ padding masked")).to_be_visible()
    assert [weights(page, 0)[p] for p in pads] == ["0"] * 5
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("✗ mask taken away")).to_be_visible()
    row = payload["stops"][2]["weights"]["1"][0]
    assert [weights(page, 0)[p] for p in pads] == [decimal(row[p]) for p in pads]
    lost = sum(row[p] for p in pads)
    assert lost > 500
    expect(page.locator(".kvr-l[data-head='0'] [data-number=pad]")).to_have_text(decimal(lost))
    for p in pads:
        expect(columns.nth(p)).to_have_attribute("data-read", "padopen")
        expect(columns.nth(p).locator("[data-kv='0']")).to_have_text("pad")
    fills = page.locator("[data-other='2'].kvr-c").evaluate_all(
        "cs => cs.map(c => c.dataset.fill[0])"
    )
    prompt = max(payload["lengths"])
    short = payload["lengths"][2]
    assert fills[: prompt + 1] == ["t"] * short + ["p"] * (prompt - short) + ["t"]
    expect(say(page)).to_contain_text("the mask taken away")


def test_nan_stands_in_the_cells_and_in_the_sums(opened, payloads) -> None:
    payload = payloads["nan"]
    page = opened(payload)
    own = payload["stops"][-1]["own"]
    page.keyboard.press("End")
    for head in range(4):
        assert weights(page, head)[: own + 1] == ["NaN"] * (own + 1)
        for number in ("sum", "pad"):
            cell = page.locator(f".kvr-l[data-head='{head}'] [data-number={number}]")
            expect(cell).to_have_text("NaN")
    expect(say(page)).to_contain_text("The weights of every head are NaN, not a number")
    page.keyboard.press("ArrowDown")
    expect(page.locator("[data-pos='0']")).to_have_attribute("title", re.compile("weight NaN$"))
    page.keyboard.press("ArrowLeft")
    assert weights(page, 1)[:3] == ["NaN"] * 3
    assert "NaN" not in weights(page, 0)
    resize(page, 700, 800)
    hidden = page.locator(".kvr-l[data-head='1'] [data-number=hidden]")
    expect(hidden).to_have_text("◂NaN")


@pytest.mark.parametrize("name", ["run", "padded", "many"])
@pytest.mark.parametrize("width", [1100, 1280])
def test_the_hint_with_the_keys_is_not_cut(opened, payloads, name: str, width: int) -> None:
    """In JupyterLab at 1280 a view is about 1100 wide."""
    page = opened(payloads[name], viewport={"width": width, "height": 800})
    hint = page.locator(".kv-hint")
    expect(hint).to_contain_text("L layer")
    assert hint.evaluate("e => e.scrollWidth <= e.clientWidth")
    if width == 1280:
        page.keyboard.press("p")
        expect(page.locator(".kv")).to_have_class(re.compile("kv-large"))
        assert hint.evaluate("e => e.scrollWidth <= e.clientWidth")


@pytest.mark.parametrize("name", ["run", "padded", "many"])
@pytest.mark.parametrize("width", [700, 1280, 1900])
def test_nothing_moves_whatever_is_chosen(opened, payloads, name: str, width: int) -> None:
    page = opened(payloads[name], viewport={"width": width, "height": 800})
    boxes = []
    for key in (
        "Home",
        *["ArrowRight"] * 4,
        "End",
        "ArrowDown",
        "l",
        "ArrowDown",
        "Home",
        "l",
        "End",
    ):
        page.keyboard.press(key)
        boxes.append(page.get_by_text("end", exact=True).last.bounding_box())
    assert all(box == boxes[0] for box in boxes)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_query_stays_in_sight(opened, payloads) -> None:
    page = opened(payloads["run"], viewport={"width": 700, "height": 800})
    for _ in range(6):
        own, frame = (
            page.locator(".kvr-own").bounding_box(),
            page.locator(".kvg-scroll").bounding_box(),
        )
        side = page.locator(".kvg-labels").bounding_box()
        assert side["x"] + side["width"] <= own["x"] + 1
        assert own["x"] + own["width"] <= frame["x"] + frame["width"]
        cut = page.locator(".kvg-scroll").evaluate(
            "e => parseFloat(getComputedStyle(e).clipPath.split(' ')[1])"
        )
        ring = page.locator(".kvg-ring").bounding_box()
        assert ring["x"] + ring["width"] <= frame["x"] + frame["width"] - cut + 0.5
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Home")
    expect(page.locator(".kvg-more [data-do=left]")).to_have_text(re.compile(r"◂ \d+ more"))


def test_a_phone_shows_four_whole_columns_and_short_names(opened, payloads) -> None:
    page = opened(payloads["padded"], viewport={"width": 360, "height": 800})
    for key in ("ArrowRight", "End", "p"):
        page.keyboard.press(key)
        wait_until_still(page)
        in_sight, in_part = page.evaluate(COLUMNS)
        assert (in_sight >= 4, in_part) == (True, 0), key
        assert page.evaluate(CUT_LABELS) == [], key
    expect(page.locator(".kvr-l[data-head='0'] > b")).to_have_text("q 0", use_inner_text=True)
    expect(page.locator("[data-entry=short]")).to_have_text("KV, qKV head, query head")
    page.locator(".kvg-scroll").evaluate("e => { e.scrollLeft = 55; }")
    wait_until_still(page)
    assert page.evaluate(COLUMNS)[1] == 0
    resize(page, 900, 800)
    expect(page.locator(".kvr-l[data-head='0'] > b")).to_have_text(
        "query head 0", use_inner_text=True
    )


def test_weight_out_of_sight_is_told_beside_its_row(opened, payloads) -> None:
    payload = payloads["run"]
    page = opened(payload, viewport={"width": 700, "height": 800})
    page.keyboard.press("End")
    row = payload["stops"][-1]["weights"]["0"][0]
    unseen = page.locator(".kvr-l[data-head='0'] [data-number=hidden]")

    def expected() -> str:
        side, frame = (page.locator(s).bounding_box() for s in (".kvg-labels", ".kvg-scroll"))
        boxes = [column.bounding_box() for column in page.locator(".kvg-col").all()]
        start, end = side["x"] + side["width"], frame["x"] + frame["width"] + 4
        keys = list(zip(row, boxes[: len(row)], strict=True))  # those seen in part are covered
        left = sum(w for w, box in keys if box["x"] < start)
        right = sum(w for w, box in keys if box["x"] + box["width"] > end)
        number = decimal(left + right)
        return "" if left + right < 50 else f"◂{number}" if left >= right else f"{number}▸"

    seen = []
    for place in (10_000, 120, 0):
        page.locator(".kvg-scroll").evaluate("(e, x) => { e.scrollLeft = x; }", place)
        expect(unseen).to_have_text(expected())
        seen.append(unseen.text_content())
    assert len(set(seen)) > 1  # it follows the scrolling
    legend = page.get_by_text("unseen: weight on keys out of sight")
    expect(legend).to_be_visible()
    resize(page, 1900, 800)
    expect(unseen).to_be_hidden()  # all columns fit
    expect(legend).to_be_hidden()


def test_a_view_that_is_made_before_it_is_on_the_page_works(opened, payloads) -> None:
    """JupyterLab may do so."""
    page = opened(payloads["run"])
    page.evaluate(
        """p => {
      const element = document.createElement("div");
      kvlab.mount(element, p);
      document.body.replaceChildren(element);
    }""",
        payloads["run"],
    )
    page.locator(".kv[data-stop]").focus()
    page.keyboard.press("End")
    page.keyboard.press("l")
    want = sentence(payloads["run"], payloads["run"]["stops"][-1], 1, None)
    expect(say(page)).to_have_text(want)
    expect(page.locator(".kvr-own")).to_be_in_viewport()


def test_many_heads_are_drawn_page_by_page(opened, payloads) -> None:
    """32 query heads on 8 KV heads: two groups of five rows fit."""
    page = opened(payloads["many"])
    expect(page.get_by_text("Query heads 0 to 7 of 32 are drawn")).to_be_visible()
    assert page.locator(".kvr-l").count() == 10
    page.locator("[data-pick='Query head'] select").select_option("30")
    expect(page.get_by_text("Query heads 24 to 31 of 32 are drawn")).to_be_visible()
    expect(say(page)).to_contain_text("query head 29 (reads KV head 7 together with 3 other")
    page.locator("[data-pick='Query head'] select").press("ArrowDown")
    expect(say(page)).to_contain_text("query head 30 (")
    expect(page.locator(".kv[data-stop]")).to_have_attribute("data-stop", "0")


def test_hostile_text_is_text(opened, payloads) -> None:
    page = opened(payloads["run"], viewport={"width": 1900, "height": 800})
    column = page.locator("[data-pos='2']")
    expect(column.locator(".kvg-t")).to_have_text(HOSTILE)
    assert HOSTILE in column.get_attribute("title")
    assert page.locator("img").count() == 0


def test_without_scripts_the_table_is_there(browser, tmp_path: Path, payloads) -> None:
    path = tmp_path / "plain.html"
    path.write_text(f'<!doctype html><meta charset="utf-8">{attention_html(payloads["run"])}')
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    own = payloads["run"]["stops"][-1]["own"]
    expect(page.get_by_role("row")).to_have_count(own + 3)  # heading, keys, sums
    expect(page.get_by_role("listitem")).to_have_count(6)
    context.close()


def test_in_jupyterlab_keys_stay_in_the_view_and_ask_the_kernel_nothing(browser, lab: Lab) -> None:
    lab.write("reads.ipynb", [LAB, "attention_read(trace)", "'all' + ' done'"])
    watch = Watch(browser.new_page(viewport={"width": 1280, "height": 720}))
    page = watch.page
    try:
        lab.open(page, "reads.ipynb")
        lab.run_all(page)
        expect(page.get_by_text("'all done'", exact=True)).to_be_visible(timeout=60_000)
        view = page.locator(".kv[data-view=attention_read][data-stop]")
        view.scroll_into_view_if_needed()
        view.focus()
        payload = json.loads(json.dumps(run_like_the_notebook()))
        cells, sent = page.locator(".jp-Cell").count(), len(watch.sent)
        before = view.bounding_box()
        for key in ("ArrowRight", "ArrowDown", "l", "d", "d", "a", "b", "ArrowDown"):
            page.keyboard.press(key)
        expect(say(page)).to_have_text(sentence(payload, payload["stops"][1], 1, 1))
        expect(view).to_be_focused()
        assert (view.bounding_box(), page.locator(".jp-Cell").count()) == (before, cells)
        assert len(watch.sent) == sent
        page.keyboard.press("p")
        expect(view).to_have_class(re.compile("kv-large"))
        code = page.locator(".jp-CodeCell", has=view).locator(".jp-Cell-inputWrapper")
        expect(code).to_be_hidden()
        assert view.bounding_box()["height"] < 660  # the hall sees all of it
        assert watch.wrong == []
    finally:
        page.close()


def run_like_the_notebook() -> dict:
    found: dict = {}
    exec(LAB, found)  # the same cell, so the same weights
    return attention_payload(found["trace"])
