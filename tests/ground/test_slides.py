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
    paragraph = "word " * 150  # 7 lines, 196 pixels
    long = f"## A\n\n{paragraph}\n\n{paragraph}\n\n{paragraph}\n\n{paragraph}\n\n## B\n\nEnd.\n"
    parts = list(slides.pieces(markdown(long)))
    assert [part["id"] for part in parts] == ["m", "m-2", "m-3"]
    texts = ["".join(part["source"]) for part in parts]
    assert [text.count("word") for text in texts] == [450, 150, 0]
    assert texts[2] == "## B\n\nEnd." and "".join("".join(texts).split()) == "".join(long.split())
    assert all(slides.height(part) <= slides.ROOM for part in parts)


def test_formulas_code_and_html_are_not_cut() -> None:
    for inside in ("$$\nx\n\n$$", "```python\na\n\nb\n```", "<details>\n\nx\n\n</details>"):
        text = "\n\n".join(["word " * 400, inside, "word " * 400])
        assert len(list(slides.pieces(markdown(text)))) == 1


def test_a_cell_that_does_not_fit_below_the_others_begins_a_slide() -> None:
    half = code(18)  # 12 + 18 x 17.2 = 321.6 of 690 pixels
    assert round(slides.height(half), 1) == 321.6
    assert kinds(markdown("## A\n"), half, half, code(20), code(1)) == [
        *("slide", None, "subslide", None, "subslide")
    ]
    assert kinds(markdown("## A\n"), code(60), markdown("x")) == ["slide", "subslide", "subslide"]


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
    (rule,) = made["@deathbeds/jupyterlab-fonts"]["styles"]
    assert ".jp-Deck" in rule
