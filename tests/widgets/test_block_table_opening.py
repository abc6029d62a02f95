"""The stop with which the view "block table" opens: a number, or words of its sentence."""

import pytest
from blocks_cases import chapter, forks

from kvlab.widgets import block_table, block_table_payload


def test_words_name_the_first_stop_whose_sentence_has_them() -> None:
    payload = block_table_payload(chapter(), at="C is admitted")
    assert payload["at"] == 15 and payload["stops"][15][3].startswith("C is admitted")
    copies = block_table_payload(forks(), at="Copy-on-write")
    told = [sentence for *_, sentence, _, _ in copies["stops"]]
    assert "Copy-on-write" in told[copies["at"]]
    assert not any("Copy-on-write" in sentence for sentence in told[: copies["at"]])


def test_a_number_names_itself_and_nothing_else_of_the_payload_changes() -> None:
    plain = block_table_payload(chapter())
    last = len(plain["stops"]) - 1
    for at in (0, 7, last):
        assert block_table_payload(chapter(), at=at) == plain | {"at": at}
    assert "at" not in plain
    assert block_table(chapter(), at=7).payload["at"] == 7
    assert block_table(chapter(), ["A"], "A ends").payload["at"] < last


def test_a_page_without_scripts_shows_the_stop_that_it_opens_with() -> None:
    html = block_table(chapter(), at="A ends").html()
    assert "Stop 24 of 25, where it opens: physical blocks.</caption>" in html
    assert '<tr><th scope="row">7</th><td>1</td><td>C</td>' in html  # A and C held it before
    for at in (None, 0):
        html = block_table(chapter(), at=at).html()
        assert "Stop 15 of 25, with most blocks in use: physical blocks.</caption>" in html
        assert '<tr><th scope="row">7</th><td>2</td><td>A, C</td>' in html


@pytest.mark.parametrize("at", [-1, 99, True, 1.0, "", "Z ends", ["A"]])
def test_a_stop_that_is_not_there_is_refused(at: object) -> None:
    with pytest.raises(
        ValueError, match=r"at is .*; give the number of a stop, 0 to \d+, or words"
    ):
        block_table(chapter(), at=at)
