"""The overview: four panels of one real run, their numbers, and the ways to the sections."""

import json
import re
import subprocess
import sys
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from growth_cases import example, small_llm

from kvlab import SamplingParams, Trace
from kvlab.book.manifest import read
from kvlab.widgets import overview
from kvlab.widgets.overview_figure import PANELS, Figure
from kvlab.widgets.overview_read import letter_of
from kvlab.widgets.overview_story import overview_story

ROOT = Path(__file__).parents[2]
HOSTILE = "<img src=x onerror=alert(1)>"


def run(*prompts: list[int], seats: int = 2, blocks: int = 12, **options: object) -> Trace:
    """A request arrives before each of the first steps; then all run to their ends."""
    llm = small_llm(num_blocks=blocks, max_num_seqs=seats, max_num_batched_tokens=8, **options)
    llm.start_trace()
    for prompt in prompts:
        llm.engine.add_request(prompt, SamplingParams(max_tokens=4, ignore_eos=True))
        llm.engine.step()
    llm.engine.run()
    return llm.stop_trace()


THREE = ([5, 6, 7, 8, 9], [11, 12, 13], [21, 22, 23, 24, 25, 26])


@pytest.fixture(scope="module")
def three() -> Trace:
    return run(*THREE)


class Panels(HTMLParser):
    """Of each panel: its text, its links, and the cells of its tables by row."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.panels: dict[str, dict] = {}
        self._now: dict | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        if "data-section" in given:
            self._now = {"text": "", "links": [], "rows": []}
            self.panels[given["data-section"]] = self._now
        elif tag == "a":
            self._now["links"].append(given["href"])
        elif tag == "tr":
            self._now["rows"].append([])
        elif tag in ("td", "th"):
            self._now["rows"][-1].append("")

    def handle_data(self, data: str) -> None:
        if self._now is not None:
            self._now["text"] += data
            if self._now["rows"] and self._now["rows"][-1]:
                self._now["rows"][-1][-1] += data.strip("\n")


def drawn(trace: Trace, folder: str | Path = ".") -> dict[str, dict]:
    return Panels(overview(trace, folder).html()).panels


def test_prefill_fills_every_layer_and_position(three: Trace) -> None:
    panel = drawn(three)["21.1"]
    assert panel["rows"] == [
        ["position", "0", "1", "2", "3", "4"],
        ["layer 0", "KV", "KV", "KV", "KV", "KV"],
        ["layer 1", "KV", "KV", "KV", "KV", "KV"],
        ["logits", panel["rows"][3][1], "▲"],
    ]
    chosen = overview_story(three).shown.token_ids[5]
    assert panel["rows"][3][1] == f"logits of position 4 select token {chosen} →"
    assert "One pass takes A's prompt: 5 positions side by side, 2 layers" in panel["text"]
    assert "1,280 bytes measured" in panel["text"]


def test_decode_adds_the_same_bytes_in_every_pass(three: Trace) -> None:
    panel = drawn(three)["21.6"]
    rows = {row[0]: row[1:] for row in panel["rows"]}
    assert rows["pass"] == ["prompt", "pass 1", "pass 2", "pass 3"]
    assert rows["cache"] == ["5 P", "5 P O", "5 P O O", "5 P O O O"]
    assert rows["bytes"] == ["1,280", "1,536", "1,792", "2,048"]
    assert rows["adds"] == ["", "+256", "+256", "+256"]
    assert rows["reads"][1:] == rows["selects"][:-1]  # what a pass selects, the next one reads
    assert "256 bytes each time: from 1,280 to 2,048 bytes in 3 passes" in panel["text"]


def test_scheduling_shows_who_runs_and_who_waits(three: Trace) -> None:
    panel = drawn(three)["21.3"]
    assert panel["rows"] == [
        ["step", "1", "2", "3", "4", "5", "6", "7", "8"],
        ["A", "P 5", "d", "d", "d", "", "", "", ""],
        ["B", "", "P 3", "d", "d", "d", "", "", ""],
        ["C", "", "", "waits", "waits", "P 6", "d", "d", "d"],
        ["positions", "5", "4", "2", "2", "7", "1", "1", "1"],
    ]
    assert "C waits 2 steps." in panel["text"]
    assert "step 2 runs A and B in one pass, 4 positions in all" in panel["text"]


def test_blocks_have_owners_tables_and_a_free_queue() -> None:
    panel = drawn(run(*THREE, seats=3, blocks=9))["21.5"]
    moment = overview_story(run(*THREE, seats=3, blocks=9)).busiest
    assert (moment.step, moment.tables) == (4, {"A": (0, 1), "B": (2, 5), "C": (3, 4)})
    assert (
        "In the pass of step 4, 3 requests hold blocks; no pass has more. 6 of 9 blocks are held: "
        "A 2, B 2 and C 2. 20 of their 24 slots" in panel["text"]
    )
    rows = panel["rows"]
    assert rows[1:4] == [["0", "A", "■■■■"], ["1", "A", "■■■■"], ["2", "B", "■■■■"]]
    assert ["5", "B", "■□□□"] in rows and ["6", "free", "□□□□"] in rows
    assert ["B", "2 → 5"] in rows and rows[-1] == ["next free", "6, 7, 8"]
    assert "not drawn" not in panel["text"]
    larger = drawn(run(*THREE, seats=3, blocks=14))["21.5"]
    assert larger["rows"][-1] == ["next free", "6, 7, 8, 9, 10, 11, …"]
    assert "2 more free blocks are not drawn." in larger["text"]


def test_another_run_gives_another_picture_and_the_same_run_the_same(three: Trace) -> None:
    again, other = run(*THREE), run([5, 6], [7], seats=2)
    assert overview(three).html() == overview(again).html()
    panels = drawn(other)
    assert "2 positions side by side" in panels["21.1"]["text"]
    assert panels["21.3"]["rows"][1][:2] == ["A", "P 2"]
    assert repr(overview(three)) == (
        "Overview(3 requests, 8 steps; sections 21.1, 21.6, 21.3, 21.5)"
    )
    assert repr(overview(other)) == "Overview(2 requests, 5 steps; sections 21.1, 21.6, 21.3, 21.5)"


def test_a_prompt_in_parts_is_told_and_the_longest_runs_leave_something_out() -> None:
    long = run(list(range(1, 31)), list(range(1, 31)), blocks=24)
    panels = drawn(long)
    assert "4 passes take A's prompt: 30 positions" in panels["21.1"]["text"]
    assert len(panels["21.1"]["rows"][0]) == 25 and "…" in panels["21.1"]["rows"][0]
    assert panels["21.3"]["rows"][1][1:5] == ["P 8", "P 8", "P 8", "P 6"]


def test_a_one_token_prompt_has_its_picture() -> None:
    assert drawn(run([5], [6]))["21.1"]["rows"][-1] == ["logits", "▲"]


def test_panels_open_notebooks_that_are_there_and_no_others(three: Trace, tmp_path: Path) -> None:
    panels = drawn(three, tmp_path)
    assert all(panel["links"] == [] for panel in panels.values())
    assert "section 21.3, not in this folder" in panels["21.3"]["text"]
    (tmp_path / "21_3_scheduling.ipynb").write_text("{}")
    panels = drawn(three, tmp_path)
    assert panels["21.3"]["links"] == ["21_3_scheduling.ipynb"]
    assert "not in this folder" not in panels["21.3"]["text"] and panels["21.5"]["links"] == []


def test_the_panels_sections_are_those_of_the_manifest() -> None:
    known = {s.id: f"{s.notebook}.ipynb" for s in read(ROOT).sections}
    assert len(PANELS) == 4
    for _, _, section, notebook in PANELS:
        assert known[section] == notebook


def changed(trace: Trace, change: object) -> Trace:
    document = json.loads(trace.to_json())
    change(document)
    return Trace.from_dict(document)


def without_bytes(document: dict) -> None:
    for event in document["events"]:
        event["data"].pop("nbytes", None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["meta"].pop("num_layers"), "the trace does not say num_layers; record it"),
        (lambda d: d["meta"].update(clock="real"), "runs on the real clock; the overview counts"),
        (lambda d: d["events"].clear(), "no request of the trace goes from its prompt's first"),
        (without_bytes, "does not say how many bytes a pass left in the tensors"),
    ],
)
def test_a_trace_that_lacks_a_part_is_refused(three: Trace, change: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        overview(changed(three, change))


def test_one_request_alone_shows_no_scheduling() -> None:
    with pytest.raises(ValueError, match="the trace has one request; scheduling needs at least"):
        overview(example())


def test_hostile_text_stays_text(three: Trace) -> None:
    chosen = str(overview_story(three).shown.token_ids[5])
    document = changed(three, lambda d: d["meta"]["vocab"].update({chosen: HOSTILE}))
    page = overview(document).html()
    assert "&lt;img src=x" in page and "img" not in Panels(page).tags


def test_the_page_runs_no_script_and_has_no_address_and_no_blank_line(three: Trace) -> None:
    data, _ = overview(three)._repr_mimebundle_()
    assert set(data) == {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    page = data["text/html"]
    assert page.startswith('<div class="kvlab-view" data-view="overview">')
    assert re.findall(r"<script[^>]*>", page) == ['<script type="application/json">']
    assert not re.search(r"https?:|url\(|@import| on[a-z]+=", page)
    assert all(line.strip() for line in page.splitlines())
    assert 'style="' not in page  # what strips styles leaves headings, sentences and tables


def test_the_live_view_draws_the_same_elements_as_the_page(three: Trace, tmp_path: Path) -> None:
    (tmp_path / "21_3_scheduling.ipynb").write_text("{}")
    figure = Figure(three, tmp_path)

    def written(node: object) -> str:
        if isinstance(node, str):
            return escape(node)
        tag, attributes, children = node
        named = "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())
        return f"<{tag}{named}>{''.join(map(written, children))}</{tag}>"

    payload = overview(three, tmp_path).payload
    assert payload == figure.payload() and payload["title"] == "The map of the chapter"
    drawn_again = "".join(map(written, payload["panels"]))
    assert drawn_again == figure.panels().replace("\n", "")
    assert 'href="21_3_scheduling.ipynb"' in drawn_again


def test_letters_go_on_after_z() -> None:
    assert [letter_of(i) for i in (0, 2, 25, 26, 27)] == ["A", "C", "Z", "A1", "B1"]


def test_the_overview_imports_neither_torch_nor_a_widget_library() -> None:
    code = (
        "import sys, kvlab.widgets.overview_figure\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('torch', 'numpy', 'anywidget')]\n"
        "assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60)
    assert done.returncode == 0
