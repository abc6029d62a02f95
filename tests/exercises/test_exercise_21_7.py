"""Section 21.7: the score, its file, and what the section's runs say."""

import json
import os

import pytest
from full_disk import files_end_at

from kvlab.exercises import predict, reveal, score
from kvlab.exercises.errors_21_7 import RELEASING, frees_with_the_last
from kvlab.exercises.predicting import forget
from kvlab.exercises.runs_21_7 import blocks_and_positions, released_by_a_real_pool
from kvlab.exercises.solutions.s21_7 import waits_for_the_last

DEEP = "[" * 200_000  # json gives up on it


@pytest.fixture(autouse=True)
def new_kernel():
    forget()
    yield
    forget()


def test_nothing_answered_is_no_score_and_writes_nothing(tmp_path):
    found = score("21.7", save=tmp_path / "mine.json")
    assert found.state == "open" and "16 questions wait" in repr(found)
    assert list(tmp_path.iterdir()) == []
    reveal("21.7-p1", 5)  # a run that nobody predicted
    assert score("21.7").state == "open"


def test_what_was_said_before_the_run_counts():
    predict({"21.7-p1": 5, "21.7-p2": "yes", "21.7-p3": 2})
    reveal({"21.7-p1": 5, "21.7-p2": False})
    predict("21.7-p2", "no")  # a change after the run
    found = score("21.7")
    assert found.facts == (
        ("as you said", "1 of the 2 that you answered and ran"),
        ("answered, not run yet", "1"),
        ("not answered", "13"),
    )
    assert found.lines[0] == "Not as you said: 21.7-p2. The boxes above say why."
    assert found.lines[1].startswith("Answered, and not run yet: 21.7-p3.")
    assert found.lines[2].startswith("Not answered: 21.7-p4, 21.7-p5,")
    assert repr(score("21.7")) == repr(found)


def test_the_last_run_counts_where_a_cell_was_run_again():
    predict("21.7-p3", 2)
    reveal("21.7-p3", 1)
    assert repr(score("21.7")).splitlines()[:2] == [
        "• score: 21.7",
        "  as you said: 0 of the 1 that you answered   not answered: 15",
    ]
    reveal("21.7-p3", 2)
    assert score("21.7").facts[0] == ("as you said", "1 of the 1 that you answered")


def test_other_sections_have_a_score_of_their_own():
    predict("21.6-p2", 4)
    reveal("21.6-p2", 4)
    assert score("21.7").state == "open"
    assert score("21.6").facts == (
        ("as you said", "1 of the 1 that you answered"),
        ("not answered", "2"),
    )


def test_the_file_is_the_reader_s_and_says_how_to_delete_it(tmp_path):
    predict({"21.7-p1": 6, "21.7-p4": "b"})
    reveal({"21.7-p1": 5, "21.7-p4": "b"})
    place = tmp_path / "my score.json"
    found = score("21.7", save=str(place))
    assert f"Written to {str(place)!r}. It is on this machine alone." in found.lines[-1]
    assert found.lines[-1].endswith(f"To delete it: import os; os.remove({str(place)!r})")
    assert json.loads(place.read_text(encoding="utf-8")) == {
        "kind": "kvlab score",
        "section": "21.7",
        "questions": 16,
        "answers": {
            "21.7-p1": {"said": 6, "run": 5, "as_predicted": False},
            "21.7-p4": {"said": "b", "run": "b", "as_predicted": True},
        },
    }
    predict("21.7-p3", 2)
    reveal("21.7-p3", 2)
    score("21.7", save=place)  # over its own file
    assert len(json.loads(place.read_text(encoding="utf-8"))["answers"]) == 3


def test_a_name_alone_lies_where_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    predict("21.7-p1", 5)
    reveal("21.7-p1", 5)
    told = score("21.7", save="mine.json").lines[-1]
    assert told.startswith("Written to 'mine.json', in the folder that this notebook runs in.")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]


@pytest.mark.parametrize("text", ["", "my notes", "[1, 2]", '{"kind": "other"}', "null", DEEP])
def test_no_other_file_is_written_over(tmp_path, text):
    place = tmp_path / "notes.json"
    place.write_text(text, encoding="utf-8")
    predict("21.7-p1", 5)
    reveal("21.7-p1", 5)
    with pytest.raises(ValueError, match="which is there and no score; name another file"):
        score("21.7", save=place)
    assert place.read_text(encoding="utf-8") == text


def test_a_disk_without_room_leaves_the_earlier_score(tmp_path):
    predict("21.7-p1", 5)
    reveal("21.7-p1", 5)
    place = tmp_path / "mine.json"
    score("21.7", save=place)
    before = place.read_bytes()
    predict("21.7-p3", 2)
    reveal("21.7-p3", 2)
    with files_end_at(100), pytest.raises(OSError, match=r"mine\.json"):
        score("21.7", save=place)
    assert place.read_bytes() == before and list(tmp_path.iterdir()) == [place]
    score("21.7", save=place)
    assert len(json.loads(place.read_bytes())["answers"]) == 2


@pytest.mark.skipif(os.name != "posix", reason="Windows does not replace a file that is open")
def test_who_reads_a_score_while_it_is_saved_finds_one(tmp_path):
    """As another kernel does, that saves to the same file."""
    predict("21.7-p1", 5)
    reveal("21.7-p1", 5)
    place = tmp_path / "mine.json"
    score("21.7", save=place)
    with place.open(encoding="utf-8") as reading:
        predict("21.7-p3", 2)
        reveal("21.7-p3", 2)
        score("21.7", save=place)
        assert list(json.load(reading)["answers"]) == ["21.7-p1"]
    assert len(json.loads(place.read_bytes())["answers"]) == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_a_pipe_is_no_score_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "mine.json")
    predict("21.7-p1", 5)
    with pytest.raises(ValueError, match="which is there and no score"):
        score("21.7", save=tmp_path / "mine.json")


@pytest.mark.parametrize("save", ["", "  ", 7, True])
def test_what_is_no_name_of_a_file_is_refused(save):
    with pytest.raises(ValueError, match="give the name of a file"):
        score("21.7", save=save)


def test_a_folder_that_is_not_there_and_one_in_the_file_s_place(tmp_path):
    predict("21.7-p1", 5)
    with pytest.raises(ValueError, match="there is no folder"):
        score("21.7", save=tmp_path / "none" / "mine.json")
    with pytest.raises(ValueError, match="which is there and no score"):
        score("21.7", save=tmp_path)


def test_an_unknown_section_is_refused():
    with pytest.raises(ValueError, match=r"there is no section '21\.9'"):
        score("21.9")
    for odd in ([], {}, 21.7, None):
        with pytest.raises(ValueError, match=r"a section is a text such as '21\.7', not"):
            score(odd)


@pytest.mark.parametrize(
    ("name", "answer", "actual", "said"),
    [
        ("21.7-p1", 6, 5, "a later pass will read it"),
        ("21.7-p2", "yes", False, "how many of the 40 are its own is not said"),
        ("21.7-p3", 0, 2, "Nothing before block 3 has changed"),
        ("21.7-p4", "a", "b", "one of two"),
        ("21.7-p6", "a", "c", "Each of the 8 query heads still scores"),
        ("21.7-p8", 2, 1, "no keys and values yet"),
        ("21.7-p9", 64, 48, "the last one is computed again"),
        ("21.7-p9", 63, 48, "15 neighbours"),
        ("21.7-p13", 2, 0, "These two are full"),
        ("21.7-p10", "yes", False, "selected by the model, or cut on its own"),
        ("21.7-p15", "a", "c", "another setting, max_model_len"),
        ("21.7-p16", "a", "b", "B has 100 of the 101 gaps"),
    ],
)
def test_a_known_mistake_is_named(name, answer, actual, said):
    predict(name, answer)
    assert said in repr(reveal(name, actual))


def test_the_monitor_of_exercise_1_shows_nine_blocks():
    assert blocks_and_positions() == (9, 32)


def test_a_shared_block_is_released_by_its_last_request():
    assert released_by_a_real_pool([[7, 2], [7, 5]], [0, 1]) == [[2], [5, 7]]
    assert released_by_a_real_pool([[7, 2], [7, 5]], [0]) == [[2]]


def test_one_allocator_is_right_and_each_wrong_one_is_caught():
    assert [frees_with_the_last(kind) for kind in RELEASING] == [True, False, False, False, False]
    verdicts = []
    for kind in RELEASING:
        try:
            verdicts.append(waits_for_the_last(kind))
        except AssertionError:
            verdicts.append(False)
    assert verdicts == [True, False, False, False, False]
