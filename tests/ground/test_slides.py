"""Cells as slides: long text is cut between paragraphs, and what does not fit begins another."""

from kvlab.book import slides


def markdown(text: str, name: str = "m") -> dict:
    source = text.splitlines(keepends=True)
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}


def code(lines: int, *outputs: dict, name: str = "c") -> dict:
    source = [f"x{i} = 0\n" for i in range(lines)]
    found = {"cell_type": "code", "id": name, "metadata": {}, "source": source}
    return found | {"outputs": list(outputs)}


def kinds(*cells: dict) -> list[str | None]:
    placed = slides.on_slides(list(cells))
    return [cell["metadata"].get("slideshow", {}).get("slide_type") for cell in placed]


def test_text_is_cut_before_headings_and_where_a_slide_is_full() -> None:
    paragraph = "word " * 120  # 7 lines, 233 pixels
    long = f"## A\n\n{paragraph}\n\n{paragraph}\n\n{paragraph}\n\n{paragraph}\n\n## B\n\nEnd.\n"
    parts = list(slides.pieces(markdown(long)))
    assert [part["id"] for part in parts] == ["m", "m-2", "m-3"]
    texts = ["".join(part["source"]) for part in parts]
    assert [text.count("word") for text in texts] == [240, 240, 0]
    assert texts[2] == "## B\n\nEnd." and "".join("".join(texts).split()) == "".join(long.split())
    assert all(slides.height(part) <= slides.ROOM for part in parts)


def test_formulas_code_and_html_are_not_cut() -> None:
    for inside in ("$$\nx\n\n$$", "```python\na\n\nb\n```", "<table>\n\nx\n\n</table>"):
        text = "\n\n".join(["word " * 400, inside, "word " * 400])
        assert len(list(slides.pieces(markdown(text)))) == 1


def test_a_fold_is_a_line_until_it_is_opened_and_is_not_cut_itself() -> None:
    fold = "<details><summary>Answers</summary>\n\n" + "word\n\n" * 40 + "</details>"
    parts = [
        "".join(part["source"])
        for part in slides.pieces(markdown("\n\n".join(["word " * 300, fold, "word " * 300])))
    ]
    assert [part.count("<details>") for part in parts] == [1, 0]
    assert [part.count("</details>") for part in parts] == [1, 0]


def test_a_cell_that_does_not_fit_below_the_others_begins_a_slide() -> None:
    half = code(15)  # 12 + 15 x 20.2 = 315 of 690 pixels
    assert round(slides.height(half), 1) == 315
    assert kinds(markdown("## A\n"), half, half, code(17), code(1)) == [
        *("slide", None, "subslide", None, "subslide")
    ]
    assert kinds(markdown("## A\n"), code(60), markdown("x")) == ["slide", "subslide", "subslide"]


def test_a_table_that_is_shown_takes_its_rows() -> None:
    table = "| a |\n| --- |\n" + "| x |\n" * 18  # 20 lines of 37 pixels
    shown = {"output_type": "display_data", "data": {"text/markdown": [table], "text/plain": "T"}}
    assert kinds(markdown("## A\n"), code(1, shown)) == ["slide", "subslide"]


def test_views_and_questions_have_a_slide_of_their_own_and_the_setup_none() -> None:
    html = '<div class="kvlab-view" data-view="overview">'
    view = code(1, {"output_type": "display_data", "data": {"text/html": [html]}})
    asked = code(0) | {"source": ['check({"21.6-1": None})']}
    setup = code(40) | {"metadata": {"tags": ["setup"]}}
    assert slides.shown(view) == ["overview"] and slides.asks(asked)
    assert kinds(markdown("# T\n"), setup, code(1), view, markdown("x"), asked) == [
        *("slide", "skip", None, "subslide", "subslide", "subslide")
    ]


def test_the_type_of_slides_is_the_notebooks_and_of_slides_alone() -> None:
    made = slides.notebook_metadata({"kernelspec": {"name": "python3"}})
    assert made["kernelspec"] == {"name": "python3"}
    rules = made["@deathbeds/jupyterlab-fonts"]["styles"]
    assert len(rules) == 4 and all(".jp-Deck" in rule for rule in rules)


def hidden(cell: dict) -> bool:
    (placed,) = slides.on_slides([cell])
    return placed["metadata"].get("jupyter", {}).get("source_hidden", False)


def test_code_that_would_push_what_it_shows_off_the_slide_is_collapsed() -> None:
    printed = {"output_type": "stream", "name": "stdout", "text": ["a line\n"] * 6}
    html = '<div class="kvlab-view" data-view="overview">'
    view = {"output_type": "display_data", "data": {"text/html": [html]}}
    assert hidden(code(30, printed)) and not hidden(code(10, printed))
    assert hidden(code(9, view)) and not hidden(code(6, view))
    assert not hidden(code(60))  # a long function is what the slide is about, and scrolls
    asked = code(60, printed)
    asked["source"].append('check({"21.6-1": None})')  # an answer is typed here
    setup = code(60, printed) | {"metadata": {"tags": ["setup"]}}
    assert not hidden(asked) and not hidden(setup)


def test_a_hint_is_not_on_the_slide_that_asks_and_what_a_run_shows_is_open() -> None:
    asked = code(0) | {"source": ['predict("21.6-p1", None)']}
    checked = code(0) | {"source": ["editor.check()  # raises what went wrong"]}
    leaks = code(0) | {"source": ["assert free\n", 'print("nothing leaked: all is free")']}
    hint = markdown("<details><summary>A hint</summary>\n\nCount.\n\n</details>")
    found = kinds(asked, checked, hint, hint, leaks)
    assert found == ["subslide", "skip", "subslide", None, "skip"]
    told = markdown("<details><summary>What the run shows</summary>\n\nx\n\n</details>")
    texts = ["".join(cell["source"])[:14] for cell in slides.on_slides([hint, told])]
    assert texts == ["<details><summ", "<details open>"]
