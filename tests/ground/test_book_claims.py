"""The project's own list of claims, held against the notebooks, and `kvlab book claims`."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvlab import cli
from kvlab.book import claims, manifest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "notebooks"
KINDS = {"definition", "equation", "example", "experiment", "figure", "caution", "question"}


@pytest.fixture(scope="module")
def found() -> dict[str, claims.Claim]:
    return {claim.id: claim for claim in claims.claims(ROOT, PAGES)}


def test_the_list_is_the_manifests_in_its_order() -> None:
    listed = [claim for section in manifest.read(ROOT).sections for claim in section.claims]
    assert list(claims.statements()) == listed
    assert len(listed) == 66


def test_each_claim_has_a_kind_and_a_sentence_of_its_own() -> None:
    stated = claims.statements()
    assert {kind for kind, _ in stated.values()} == KINDS
    assert len({shows for _, shows in stated.values()}) == 66
    assert all(len(shows) > 40 and shows.endswith(".") for _, shows in stated.values())


def test_each_claim_has_one_cell_of_its_section_and_that_cell_printed_something(found) -> None:
    notebooks = {section.id: section.notebook for section in manifest.read(ROOT).sections}
    for name, claim in found.items():
        assert claim.notebook == notebooks[name.rpartition("-")[0]]
        assert claim.printed and claim.cell_id
        cell = json.loads((PAGES / f"{claim.notebook}.ipynb").read_text("utf-8"))["cells"][
            claim.cell - 1
        ]
        assert f"claim-{name}" in cell["metadata"]["tags"]


def test_what_the_checkpoint_printed_stands_in_the_report(found) -> None:
    assert found["21.7-a"].printed[0].split() == [
        *("passes", "tokens", "of", "the", "text", "positions", "in", "the", "cache"),
    ]


def test_each_section_is_guarded_by_cuts(found) -> None:
    guarded = {name.rpartition("-")[0] for name, claim in found.items() if claim.cuts}
    assert guarded == {f"21.{number}" for number in range(8)}
    assert "positions go to the next slot" in found["21.6-c"].cuts


def test_without_the_tests_of_a_clone_no_cuts_are_named(tmp_path: Path) -> None:
    shown = claims.render(claims.claims(tmp_path, PAGES))
    assert "  cut  " not in shown
    assert shown.endswith("66 claims, each computed in one cell.")


def changed(folder: Path, name: str, old: str, new: str) -> Path:
    pages = folder / "notebooks"
    shutil.copytree(PAGES, pages, ignore=shutil.ignore_patterns("source", "images"))
    path = pages / f"{name}.ipynb"
    text = path.read_text("utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), "utf-8")
    return pages


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ('"claim-21.6-b"', r"claim 21\.6-a must have one cell tagged claim-21\.6-a, not \[\]"),
        ('"claim-21.6-a", "claim-21.9-z"', r"claims that are in no list: 21\.9-z"),
    ],
)
def test_a_claim_without_its_cell_and_a_tag_without_a_claim_are_named(
    tmp_path: Path, new: str, said: str
) -> None:
    pages = changed(tmp_path, "21_6_growth", '"claim-21.6-a"', new)
    with pytest.raises(ValueError, match=said):
        claims.claims(tmp_path, pages)


def test_the_command_prints_both_forms(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    text = CliRunner().invoke(cli.app, ["book", "claims"])
    assert text.exit_code == 0
    assert "21.6-a  example  21_6_growth, cell" in text.output
    rows = json.loads(CliRunner().invoke(cli.app, ["book", "claims", "--json"]).output)
    assert [row["id"] for row in rows] == list(claims.statements())
