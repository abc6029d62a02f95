"""The pages for teachers and readers in Markdown: what they point at is there, and says so."""

import json
import re
from dataclasses import fields
from inspect import signature
from pathlib import Path

import pytest

from kvlab import LLM
from kvlab.book.manifest import read
from kvlab.core.scheduler_config import SchedulerConfig

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "notebooks"
CONSTRAINTS = (PAGES / "when_a_constraint_moves.md").read_text(encoding="utf-8")
REFERENCES = (PAGES / "references.md").read_text(encoding="utf-8")
CLASS = (PAGES / "running_a_class.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| (.+) \| \[(21\.\d)&#8209;(\w)\]\((\w+)\.ipynb#(\S+)\) \|$", CONSTRAINTS, re.M
)
GPU_FILE = {"benchmarks/results/gpu.json"}  # what a command on the page writes
CITED = re.compile(r"\b([A-Z][a-z]+)(?: et al\.,?| and [A-Z][a-z]+),? \(?(\d{4})\b")


def claims_under(notebook: str, heading: str) -> set[str]:
    """The claims that are tagged on cells between this heading and the next."""
    cells = json.loads((PAGES / f"{notebook}.ipynb").read_text(encoding="utf-8"))["cells"]
    found, here = set(), ""
    for cell in cells:
        if cell["cell_type"] == "markdown":
            titles = re.findall(r"^#+ (.*)$", "".join(cell["source"]), flags=re.MULTILINE)
            here = titles[-1].replace(" ", "-") if titles else here
        elif here == heading:
            found |= set(cell["metadata"].get("tags", []))
    return {tag.removeprefix("claim-") for tag in found}


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[1]}-{row[2]} {row[0][:30]}" for row in ROWS])
def test_a_constraint_leads_to_the_part_with_its_claims_cell(row: tuple[str, ...]) -> None:
    _, section, letter, notebook, heading = row
    assert f"{section}-{letter}" in claims_under(notebook, heading)


def test_every_row_of_constraints_was_read() -> None:
    lines = [line for line in CONSTRAINTS.splitlines() if line.startswith("| ")][1:]
    assert len(lines) == len(ROWS) >= 15
    assert all(line.count(" | ") == 3 for line in lines)


def test_what_a_constraint_tells_to_change_has_that_name() -> None:
    known = {*signature(LLM).parameters, *signature(LLM.generate).parameters}
    known |= {field.name for field in fields(SchedulerConfig)}
    known |= {"load_adapter", "mean_pool_kv_heads", "Targets", "retain_freed", "config.json"}
    names = {name.split("=")[0] for name in re.findall(r"`([^`]+)`", CONSTRAINTS)}
    assert len(names) > 10
    assert names - known == set()


def works() -> list[tuple[str, str, list[str]]]:
    """(first author, year, files) of each paper."""
    row = re.compile(r"^\| (\w+), \w.*?\((\d{4})\)\. .*\| (.*) \|$", re.MULTILINE)
    return [(w, y, re.findall(r"`(kvlab/\S+)`", where)) for w, y, where in row.findall(REFERENCES)]


def test_papers_stand_in_the_order_of_the_alphabet() -> None:
    names = [(author, year) for author, year, _ in works()]
    assert len(names) == REFERENCES.split("## Documentation")[0].count("\n| ") - 1 >= 15
    assert names == sorted(names)


def test_a_file_that_is_named_for_a_paper_cites_it() -> None:
    missing = [
        (author, file)
        for author, _, files in works()
        for file in files
        if author not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_every_file_of_the_references_is_there() -> None:
    files = re.findall(r"`(kvlab/\S+)`", REFERENCES)
    assert len(files) > 15
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_whatever_code_and_pages_cite_is_among_the_references() -> None:
    sources = [*(ROOT / "kvlab").rglob("*.py"), *(PAGES / "source").glob("*.py")]
    texts = (path.read_text(encoding="utf-8").replace("\n#", " ") for path in sources)
    cited = {pair for text in texts for pair in CITED.findall(" ".join(text.split()))}
    assert {("Kwon", "2023"), ("Dao", "2022"), ("Milakov", "2018")} <= cited
    assert cited - {(author, year) for author, year, _ in works()} == set()


def test_the_class_page_gives_each_section_its_minutes() -> None:
    found = re.findall(r"^\| (21\.\w+) \| (\d+) \|", CLASS, flags=re.MULTILINE)
    assert found == [(section.id, str(section.minutes)) for section in read(ROOT).written]


@pytest.mark.parametrize("page", [CONSTRAINTS, REFERENCES, CLASS], ids=["moves", "refs", "class"])
def test_links_lead_to_headings_that_are_there(page: str) -> None:
    links = re.findall(r"\]\((\w+)\.ipynb#(\S+)\)[ ,:;|]", page)
    assert len(links) > 10
    for notebook, heading in links:
        text = (PAGES / f"{notebook}.ipynb").read_text(encoding="utf-8").replace(" ", "-")
        assert re.search(rf"#-{re.escape(heading)}(\\n)?\"", text), f"{notebook}#{heading}"


def test_the_readmes_comparison_is_the_one_of_the_file_that_it_names() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (name,) = set(re.findall(r"`(benchmarks/results/\S+\.json)`", readme)) - GPU_FILE
    measured = json.loads((ROOT / name).read_text(encoding="utf-8"))["generation"]
    rates = [[e["tokens_per_second"] for e in g["engines"].values()] for g in measured]
    rows = re.findall(r"^\| (?:random|tiny).*?: (\d+) \| (.*) \|$", readme, flags=re.MULTILINE)
    assert [int(batch) for batch, _ in rows] == [g["batch"] for g in measured]
    shown = [[f"{rate['median']:,.0f}" for rate in row] for row in rates]
    assert [cells.split(" | ") for _, cells in rows] == shown
