"""Predict, then run: what is kept, what counts, and what is said beside the run's value."""

import numpy as np
import pytest
import torch

from kvlab.exercises import predict, predicting, reveal

TOTALS = [1536, 1792, 2048]


@pytest.fixture(autouse=True)
def a_new_kernel():
    predicting.forget()
    yield
    predicting.forget()


def test_none_shows_the_question_and_how_to_answer():
    for nothing in (None, ..., [None, None, None]):
        shown = predict("21.6-p1", nothing)
        assert shown.state == "question" and "after passes 1, 2 and 3" in shown.lines[0]
        assert "a list of 3 numbers (bytes), […, …, …]" in shown.lines[1]


def test_an_answer_is_kept_and_not_judged():
    right, wrong = predict("21.6-p2", 4), predict("21.6-p2", 3)
    assert right.state == wrong.state == "kept" and right.lines == wrong.lines
    assert wrong.facts == (("you say", "3 outputs"),)
    assert wrong.lines[0] == predict("21.6-p2", None).lines[0]  # the question, beside the answer


def test_the_run_is_set_beside_the_prediction():
    predict("21.6-p2", 4)
    shown = reveal("21.6-p2", 4)
    assert shown.facts == (("you said", "4 outputs"), ("the run gives", "4 outputs"))
    assert shown.is_right and shown.lines == (
        "Every pass ends in logits, and the prompt's is no exception.",
    )


@pytest.mark.parametrize(
    ("name", "answer", "actual", "said"),
    [
        ("21.6-p1", [1792, 2048, 2304], TOTALS, "every selection fill the cache"),
        ("21.6-p1", [1280, 1536, 1792], TOTALS, "before each of these passes"),
        ("21.6-p1", [1280, 1280, 1280], TOTALS, "does grow"),
        ("21.6-p1", [256, 256, 256], TOTALS, "what a pass adds"),
        ("21.6-p1", [1408, 1536, 1664], TOTALS, "half the growth"),
        ("21.6-p2", 3, 4, "prompt's own pass selects one"),
        ("21.6-p3", 4, 3, "read by no pass"),
        ("21.6-p3", 2, 3, "has read one"),
        ("21.1-p1", 14, 1, "the others look back"),
        ("21.1-p1", 0, 1, "that position has a row"),
        ("21.1-p2", 32, 24, "once token four has been processed"),
        ("21.1-p2", 12, 24, "keys only"),
        ("21.1-p3", "yes", False, "makes another model"),
        ("21.1-p4", 0.25, 4.0, "smaller part"),
        ("21.1-p4", 16, 4.0, "by the same factor"),
    ],
)
def test_a_known_mistake_is_named(name, answer, actual, said):
    predict(name, answer)
    shown = reveal(name, actual)
    assert shown.state == "other" and not shown.is_right
    assert said in " ".join(shown.lines)


def test_without_a_prediction_one_line_says_what_the_run_gives():
    shown = reveal("21.1-p2", 24)
    assert repr(shown) == "• no prediction: 21.1-p2\n  the run gives: 24 bytes"


def test_values_of_a_run_may_be_tensors_and_arrays():
    predict("21.6-p1", TOTALS)
    assert reveal("21.6-p1", torch.tensor(TOTALS)).is_right
    assert reveal("21.6-p1", np.array(TOTALS)).is_right
    predict("21.1-p3", False)
    assert reveal("21.1-p3", torch.tensor(1.0) > 2).is_right


def test_every_cell_twice_changes_nothing():
    for answer in (None, 4, 3):
        predicting.forget()
        one = predict("21.6-p2", answer)
        assert predict("21.6-p2", answer) == one
        run = reveal("21.6-p2", 4)
        assert reveal("21.6-p2", 4) == run
        shown = predict("21.6-p2", answer)
        assert (shown.state, shown.facts) == (one.state, one.facts)
        assert predict("21.6-p2", answer) == shown and reveal("21.6-p2", 4) == run


def test_after_the_run_nothing_is_promised_any_more():
    assert predict("21.6-p2", 3).lines[1:] == ("The run will show whether it is so.",)
    reveal("21.6-p2", 4)
    said = "The run has shown whether it is so. Your answer is unchanged."
    assert predict("21.6-p2", 3).lines[1:] == (said,)
    predict("21.6-p2", 4)
    assert predict("21.6-p2", 3).lines[1:] == (said,)


@pytest.mark.parametrize(("actual", "shown_as"), [(0, "0"), (1e300, "1e+300")])
def test_a_run_for_which_a_mistake_has_no_value(actual, shown_as):
    """1 / 0 is nothing, and 1e300 ** 2 is too large."""
    predict("21.1-p4", 4)
    shown = reveal("21.1-p4", actual)
    assert shown.state == "other" and shown.facts[1] == ("the run gives", shown_as)


def test_the_engine_need_not_compute_every_row_of_logits():
    question = predict("21.1-p1", None).lines[0]
    assert "can give a row of logits for each position" in question and "ends in" not in question


def test_restart_and_run_all_says_the_same():
    before = predict("21.6-p2", 3), reveal("21.6-p2", 4)
    predicting.forget()
    assert (predict("21.6-p2", 3), reveal("21.6-p2", 4)) == before


def test_an_answer_may_change_until_the_run():
    predict("21.6-p2", 5)
    assert predict("21.6-p2", 4).state == "kept"
    assert reveal("21.6-p2", 4).is_right


def test_a_change_after_the_run_shows_and_the_first_answer_counts():
    predict("21.6-p2", 5)
    reveal("21.6-p2", 4)
    shown = predict("21.6-p2", 4)
    sentence = "You first said 5 outputs; changed after the run to 4 outputs."
    assert shown.state == "changed" and shown.lines == (sentence,)
    again = reveal("21.6-p2", 4)
    assert again.state == "other" and again.lines[0] == sentence
    assert again.facts[0] == ("you said", "5 outputs")
    assert predict("21.6-p2", 5).state == "kept"  # as it was
    assert reveal("21.6-p2", 4).lines[0] == "One a pass: the prompt's, and three more."


def test_a_prediction_that_is_taken_away():
    predict("21.6-p2", 5)
    assert len(predict("21.6-p2", None).lines) == 2
    assert reveal("21.6-p2", 4).state == "run"  # withdrawn in time
    predict("21.6-p2", 5)
    reveal("21.6-p2", 4)
    assert predict("21.6-p2", None).lines[-1] == "Before the run you said 5 outputs."


def test_a_first_answer_after_run_all_counts():
    """The page is run as a whole first; the reader comes to the question later."""
    predict("21.6-p2", None)
    reveal("21.6-p2", 4)
    assert predict("21.6-p2", 3).state == "kept"
    assert reveal("21.6-p2", 4).state == "other"


@pytest.mark.parametrize(
    ("name", "answer", "said"),
    [
        ("21.6-p2", "four", "You gave a text, 'four'; give one number (outputs)"),
        ("21.6-p1", [1536, 1792], "You gave a list of 2; give a list of 3 numbers (bytes)"),
        ("21.6-p1", 1536, "You gave 1536 alone"),
        ("21.1-p3", 1, 'You gave 1; give "yes" or "no".'),
        ("21.1-p3", "perhaps", "You gave 'perhaps'"),
        ("21.1-p2", object(), "You gave an object of type object"),
    ],
)
def test_a_wrongly_typed_answer_is_not_kept(name, answer, said):
    shown = predict(name, answer)
    assert shown.state == "unreadable" and said in shown.lines[0]
    assert shown.lines[1] == "It has not been kept."
    actual = {"21.6-p1": TOTALS, "21.1-p3": False}.get(name, 4)
    assert reveal(name, actual).state == "run"


def test_a_wrongly_typed_answer_leaves_the_earlier_one():
    predict("21.6-p2", 5)
    predict("21.6-p2", "four")
    assert reveal("21.6-p2", 4).facts[0] == ("you said", "5 outputs")


@pytest.mark.parametrize("word", ["yes", " Yes ", "TRUE", True, np.bool_(True), torch.tensor(True)])
def test_yes_may_be_written_in_many_ways(word):
    assert predict("21.1-p3", word).facts == (("you say", "yes"),)


def test_several_questions_in_one_cell():
    shown = predict({"21.6-p1": None, "21.6-p2": 4, "21.6-p3": 4})
    assert [box.state for box in shown.boxes] == ["question", "kept", "kept"]
    told = reveal({"21.6-p1": TOTALS, "21.6-p2": 4, "21.6-p3": 3})
    assert [box.state for box in told.boxes] == ["run", "as predicted", "other"]
    assert repr(told).count("\n") > 3 and told._repr_html_().count('class="kvlab-box"') == 3


def test_an_unknown_question_among_several_keeps_none_of_them():
    with pytest.raises(ValueError, match=r"there is no exercise '21\.6-p999'"):
        predict({"21.6-p2": 3, "21.6-p999": 1})
    assert predicting.commitments("21.6") == {}
    predict("21.6-p2", 3)
    for wrong in ({"21.6-p999": 1}, {"21.6-p3": "four"}):  # no such question; no value of the run
        with pytest.raises(ValueError):
            reveal({"21.6-p2": 4} | wrong)
        assert not predicting.commitments("21.6")["21.6-p2"].is_revealed


def test_the_first_line_of_what_a_run_gives_does_not_tell_it():
    first = reveal({"21.6-p2": 4, "21.6-p3": 3})._repr_html_().split("\n")[0]
    assert first == "<!-- what the run found -->"


@pytest.mark.parametrize("actual", [None, "4", [4, 5], float("nan")])
def test_a_run_that_gives_no_value_is_the_page_s_mistake(actual):
    with pytest.raises(ValueError, match=r"reveal\('21.6-p2', ...\) got no value of the run"):
        reveal("21.6-p2", actual)
