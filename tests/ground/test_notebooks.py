"""The notebooks: written from their sources, and committed as they were written."""

import json
from pathlib import Path

import pytest

from kvlab.book import notebooks

FOLDER = Path(__file__).parents[2] / "notebooks"

SOURCE = """\
# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: tags,slideshow,-all
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A small notebook

# %% tags=["claim-1"]
import anywidget


class View(anywidget.AnyWidget):
    _esm = "export default { render() {} }"

    def _repr_mimebundle_(self, **kwargs):
        data = dict(super()._repr_mimebundle_(**kwargs)[0])
        return data | {"text/plain": "View()", "text/html": "<p>View</p>"}, {}


View()

# %% tags=["nbval-ignore-output"]
print("first")
print("second")

# %% tags=["setup"]
from kvlab.exercises import predict, reveal

# %%
predict("21.6-p2", None)

# %%
print("the run, which tells the answer")

# %%
reveal("21.6-p2", 4)
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one notebook, executed once for all tests here; they work on copies."""
    folder = tmp_path_factory.mktemp("notebooks")
    (folder / "source").mkdir()
    (folder / "source/small.py").write_text(SOURCE, encoding="utf-8")
    notebooks.build("small", folder)
    return folder


@pytest.fixture
def copy(written: Path, tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    for name in ("source/small.py", "small.ipynb"):
        (tmp_path / name).write_bytes((written / name).read_bytes())
    return tmp_path


def load(folder: Path) -> dict:
    return json.loads((folder / "small.ipynb").read_text(encoding="utf-8"))


def store(folder: Path, content: dict) -> None:
    (folder / "small.ipynb").write_text(json.dumps(content), encoding="utf-8")


def test_what_is_written_passes_the_check(written: Path) -> None:
    assert notebooks.names(written) == ["small"]
    assert list(notebooks.problems("small", written)) == []


def test_outputs_counts_and_tags_are_kept_and_widgets_are_not(written: Path) -> None:
    notebook = load(written)
    _, view, prints, *_ = notebook["cells"]
    assert [cell.get("execution_count") for cell in notebook["cells"]] == [None, *range(1, 7)]
    assert view["metadata"] == {"tags": ["claim-1"]}
    assert set(view["outputs"][0]["data"]) == {"text/html", "text/plain"}
    assert prints["outputs"][0]["text"] == ["first\n", "second\n"]
    assert set(notebook["metadata"]) == {"jupytext", "kernelspec"}


def test_answers_and_the_setup_s_source_are_collapsed_and_nothing_else(written: Path) -> None:
    hidden = [cell["metadata"].get("jupyter") for cell in load(written)["cells"]]
    answers = {"outputs_hidden": True}
    assert hidden == [None, None, None, {"source_hidden": True}, None, answers, answers]


def test_an_output_that_somebody_collapsed_is_found_and_opened_again(copy: Path) -> None:
    before, notebook = (copy / "small.ipynb").read_bytes(), load(copy)
    notebook["cells"][2]["metadata"]["jupyter"] = {"outputs_hidden": True}
    store(copy, notebook)
    assert "cell 3 is not the source's" in "\n".join(notebooks.problems("small", copy))
    notebooks.build("small", copy)
    assert (copy / "small.ipynb").read_bytes() == before


def test_writing_again_gives_the_same_bytes(copy: Path) -> None:
    before = (copy / "small.ipynb").read_bytes()
    notebooks.build("small", copy)
    assert (copy / "small.ipynb").read_bytes() == before


def test_an_edited_source_is_found(copy: Path) -> None:
    source = copy / "source/small.py"
    source.write_text(SOURCE.replace('"second"', '"third"'), encoding="utf-8")
    assert list(notebooks.problems("small", copy)) == [
        "small: cell 3 is not the source's; run make notebooks"
    ]


def test_a_changed_tag_is_found(copy: Path) -> None:
    source = copy / "source/small.py"
    source.write_text(SOURCE.replace("claim-1", "claim-2"), encoding="utf-8")
    assert "cell 2 is not the source's" in "\n".join(notebooks.problems("small", copy))


def test_a_cell_without_a_count_is_found(copy: Path) -> None:
    notebook = load(copy)
    notebook["cells"][1]["execution_count"] = None
    store(copy, notebook)
    assert list(notebooks.problems("small", copy)) == [
        "small: cell 2 was not executed: run make notebooks"
    ]


def test_widget_state_is_found(copy: Path) -> None:
    notebook = load(copy)
    notebook["metadata"]["widgets"] = {}
    store(copy, notebook)
    assert "widget state" in "\n".join(notebooks.problems("small", copy))


def test_an_error_that_nobody_asked_for_is_found(copy: Path) -> None:
    notebook = load(copy)
    error = {"output_type": "error", "ename": "E", "evalue": "", "traceback": []}
    notebook["cells"][2]["outputs"] = [error]
    store(copy, notebook)
    assert list(notebooks.problems("small", copy)) == [
        "small: cell 3 ended in an error: mend it, or tag it raises-exception"
    ]


def test_a_file_that_is_cut_off_is_named(copy: Path) -> None:
    (copy / "small.ipynb").write_text('{"cells": [', encoding="utf-8")
    with pytest.raises(ValueError, match=r"small\.ipynb is no notebook of nbformat 4"):
        list(notebooks.problems("small", copy))


def test_a_large_file_is_found(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebooks, "MAX_BYTES", 100)
    assert "bytes are more than 100" in "\n".join(notebooks.problems("small", copy))


def test_a_failing_cell_writes_nothing(copy: Path, monkeypatch, capsys) -> None:
    before = (copy / "small.ipynb").read_bytes()
    source = SOURCE.replace("import anywidget", "1 / 0")
    (copy / "source/small.py").write_text(source, encoding="utf-8")
    assert notebooks._build_all(["small"], copy) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert (copy / "small.ipynb").read_bytes() == before


def test_an_unknown_name_is_one_line(monkeypatch, capsys) -> None:
    assert notebooks.main(["no_such_notebook"]) == 2
    assert "no_such_notebook.py does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("name", notebooks.names(FOLDER))
def test_committed_notebook_is_as_its_source_says(name: str) -> None:
    assert list(notebooks.problems(name, FOLDER)) == []
