"""The prefix-block editor in JupyterLab by keyboard, and on a page without a kernel."""

import pytest

pytest.importorskip("playwright", reason="the browser tests need the extra dev")

from lab_server import Lab, Watch
from plain_page import plain_page
from playwright.sync_api import Locator, Page, expect

from kvlab import LLM
from kvlab.widgets import prefix_blocks

HOSTILE = "<img src=x onerror=alert(1)>"
SCRIPT = "</script><img src=x onerror=alert(1)>"
CELLS = [
    """
from kvlab import LLM
from kvlab.widgets import prefix_blocks

editor = prefix_blocks(LLM("tiny"))
_ = editor.add_class("t-prefix")
""",
    "editor",
    "'all' + ' done'",
]
BOTH = "an edit in block 3 (B) and in block 2 (C)"


@pytest.fixture(scope="module")
def page(watch: Watch, lab: Lab) -> Page:
    lab.write("prefix.ipynb", CELLS)
    lab.open(watch.page, "prefix.ipynb")
    lab.run_all(watch.page)
    expect(watch.page.get_by_text("'all done'", exact=True)).to_be_visible(timeout=60_000)
    return watch.page


@pytest.fixture
def editor(page: Page) -> Locator:
    """Back to the first preset."""
    found = page.locator(".t-prefix .kv[data-view=editor]")
    choose(found, BOTH)
    expect(block(found, "C", 3)).to_have_attribute("data-kind", "other identity")
    return found


def choose(editor: Locator, preset: str) -> None:
    editor.locator("[data-control=presets] select").select_option(preset)


def field(editor: Locator, name: str) -> Locator:
    return editor.locator(f"[data-control={name}] :is(textarea,input)")


def block(editor: Locator, row: str, number: int) -> Locator:
    return editor.locator(f"[data-row={row}] [data-number='{number}']")


def cached(editor: Locator, row: str) -> Locator:
    return editor.locator(f"[data-row={row}] [data-cached]")


def test_the_first_picture_shows_chain_hits_difference_and_measured_values(
    watch: Watch, editor: Locator
) -> None:
    for row, found in (("A", "0 of 14"), ("B", "8 of 14"), ("C", "4 of 14")):
        expect(cached(editor, row)).to_have_text(found)
    kinds = [block(editor, "B", n).get_attribute("data-kind") for n in (1, 2, 3, 4)]
    assert kinds == ["reused", "reused", "computed", "partly filled"]
    expect(editor.locator("[data-row=B] [data-difference]")).to_have_text(" garden")
    expect(editor.locator("[data-row=C] [data-difference]")).to_have_text(" clever")
    expect(block(editor, "B", 1).locator(".kvx-note")).to_have_text(
        "physical 0 · = A h1: ΔK 0 ΔV 0"
    )
    expect(block(editor, "C", 3).locator(".kvx-note")).to_contain_text("≠ A h3: ΔK 0.7")
    roots = {cell.get_attribute("data-root") for cell in editor.locator(".kvx-root").all()}
    assert len(roots) == 1
    assert watch.wrong == []


def test_typing_one_token_changes_its_identity_and_all_after_it(
    watch: Watch, page: Page, editor: Locator
) -> None:
    before = [block(editor, "B", n).get_attribute("data-identity") for n in (1, 2, 3)]
    field(editor, "prompt_b").fill(
        "A gentle pony walked and the sleepy child laughed in the garden again."
    )
    expect(cached(editor, "B")).to_have_text("4 of 14")
    after = [block(editor, "B", n).get_attribute("data-identity") for n in (1, 2, 3)]
    assert [a == b for a, b in zip(after, before, strict=True)] == [True, False, False]
    expect(editor.locator(".kvx-card[data-changed]")).to_have_count(2)
    expect(editor.locator("[data-row=B] [data-difference]")).to_have_text(" sleepy")
    expect(editor.locator("[data-say]")).to_contain_text("in block 2 (“sleepy”, not “young”)")
    expect(editor.locator("[data-control=presets] select")).to_have_value("your own numbers")
    field(editor, "prompt_a").focus()
    page.keyboard.press("End")
    page.keyboard.type(" The end")
    expect(editor.locator("[data-row=A] .kvx-text").last).to_contain_text("e")
    assert watch.wrong == []


def test_a_salt_keeps_two_prompts_apart(watch: Watch, page: Page, editor: Locator) -> None:
    field(editor, "salt_b").focus()
    page.keyboard.type("mine")
    expect(cached(editor, "B")).to_have_text("0 of 14")
    expect(editor.locator("[data-row=B] .kvx-who")).to_contain_text("salt: mine")
    expect(editor.locator("[data-say]")).to_contain_text("B has the salt “mine”, A no salt.")
    field(editor, "salt_b").fill("a\u202eb")
    expect(editor.locator("[data-row=B] .kvx-who")).to_contain_text("salt: a\\u202eb")
    expect(editor.locator("[data-say]")).to_contain_text("B has the salt “a\\u202eb”, A no salt.")
    choose(editor, "two groups (salts)")
    expect(cached(editor, "C")).to_have_text("12 of 14")
    expect(block(editor, "B", 1).locator(".kvx-note")).to_contain_text("≠ A h1: ΔK ≈0 ΔV ≈0")
    assert watch.wrong == []


def test_block_size_and_presets_redraw_the_chain(watch: Watch, page: Page, editor: Locator) -> None:
    field(editor, "block_size").focus()
    page.keyboard.press("ArrowRight")
    expect(cached(editor, "B")).to_have_text("8 of 14")
    expect(cached(editor, "C")).to_have_text("0 of 14")
    choose(editor, "timestamp first")
    expect(cached(editor, "B")).to_have_text("0 of 19")
    expect(editor.get_by_text("The empty prompt is left out.")).to_be_visible()
    choose(editor, "timestamp last")
    expect(cached(editor, "B")).to_have_text("16 of 19")
    choose(editor, "the whole prompt again (B), and a longer one (C)")
    expect(block(editor, "B", 3)).to_have_attribute("data-kind", "last")
    assert watch.wrong == []


def test_keys_walk_over_the_blocks_and_each_is_told(
    watch: Watch, page: Page, editor: Locator
) -> None:
    say, story = editor.locator("[data-say]"), "A is served first, into an empty cache"
    expect(say).to_contain_text(story)
    editor.locator("[data-row=A] .kvx-root").focus()
    expect(say).to_contain_text("is the hash of the configuration")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    expect(block(editor, "C", 3)).to_be_focused()
    expect(say).to_contain_text("Block 3 of C, “laughed in the meadow”: h3 = hash(h2 ")
    expect(say).to_contain_text("another parent, so another identity: not shared")
    expect(editor.locator("[data-row=C] [data-chain]")).to_have_count(4)
    expect(block(editor, "A", 3)).to_have_attribute("data-twin", "")
    page.keyboard.press("Home")
    expect(editor.locator("[data-row=C] .kvx-root")).to_be_focused()
    page.keyboard.press("End")
    expect(say).to_contain_text("no identity and is never shared")
    page.keyboard.press("p")
    expect(editor).to_contain_class("kv-large")
    page.keyboard.press("p")
    block(editor, "B", 1).hover()
    expect(say).to_contain_text("The identity of block 1 of A: reused")
    page.locator(".jp-NotebookPanel-toolbar").hover()
    expect(say).to_contain_text("Block 4 of C")
    page.keyboard.press("Tab")
    expect(say).to_contain_text(story)
    assert watch.wrong == []


def test_mistakes_and_markup_are_shown_as_text(watch: Watch, page: Page, editor: Locator) -> None:
    field(editor, "prompt_b").fill("")
    expect(editor.locator("[role=alert]")).to_contain_text("prompt B is empty; type a few words")
    expect(cached(editor, "B")).to_have_text("8 of 14")
    field(editor, "prompt_b").fill("the " * 400)
    expect(editor.locator("[role=alert]")).to_contain_text("shorten it to 256 at most")
    field(editor, "prompt_b").fill(HOSTILE)
    field(editor, "salt_b").fill(HOSTILE)
    expect(editor.locator("[role=alert]")).to_have_count(0)
    salt = editor.locator("[data-row=B] [data-salt]")
    expect(salt).to_have_text("salt: <img␣…t(1)>")
    expect(salt).to_have_attribute("title", HOSTILE.replace(" ", "␣"))
    joined = "".join(editor.locator("[data-row=B] .kvx-t").all_text_contents())
    assert joined.replace("␣", " ").strip() == HOSTILE
    assert page.locator(".t-prefix img").count() == 0
    assert watch.wrong == []


def test_nothing_moves_while_typing(page: Page, editor: Locator) -> None:
    heights = set()
    for text in ("a", "A gentle pony", "words outside the vocabulary, in many pieces " * 3):
        field(editor, "prompt_b").fill(text)
        expect(editor.locator("[data-row=B] .kvx-t").first).to_contain_text(text[0])
        expect(editor).not_to_have_attribute("data-busy", "")
        heights.add(round(editor.bounding_box()["height"]))
    width = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    field(editor, "prompt_c").fill("")
    expect(editor.get_by_text("The empty prompt is left out.")).to_be_visible()
    heights.add(round(editor.bounding_box()["height"]))
    assert len(heights) == 1 and width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_without_a_kernel_the_same_picture_is_drawn_and_text_stays_text(
    browser, tmp_path, scheme: str
) -> None:
    shown = prefix_blocks(LLM("tiny"), [f"a pony {SCRIPT}", f"a pony {SCRIPT}"], [SCRIPT, ""])
    path = tmp_path / "page.html"
    path.write_text(plain_page(shown.html(), "editor"), encoding="utf-8")
    watch = Watch(browser.new_page(color_scheme=scheme))
    watch.page.goto(path.as_uri())
    watch.page.wait_for_function("window.kvlab")
    blocks = sum(len(row["blocks"]) for row in shown.result["view"]["rows"])
    expect(watch.page.locator(".kvx-card[data-number]")).to_have_count(blocks)
    expect(watch.page.locator("[data-say]")).to_have_text(shown.result["view"]["sentence"])
    expect(watch.page.locator("img")).to_have_count(0)
    expect(watch.page.locator("select")).to_be_disabled()
    ink = watch.page.locator(".kvx-text").first.evaluate("e => getComputedStyle(e).color")
    watch.page.close()
    assert ink == ("rgb(27, 31, 36)" if scheme == "light" else "rgb(232, 234, 237)")
    assert watch.wrong == []
