"""The wrong-cache laboratory: real runs, their sentence, and the strip of tokens below."""

import re
from dataclasses import replace

import comm
import pytest
import torch
from comm.base_comm import BaseComm

from kvlab import LLM
from kvlab.tiny.wrong_cache import DAMAGES, asked_cases, count_answers
from kvlab.widgets import LiveEditor, wrong_cache_lab
from kvlab.widgets.wrong_cache_strip import runs, strip_content, strip_payload, where

COUNT = 6
HOSTILE = "<img src=x onerror=alert(1)>"


class SilentComm(BaseComm):
    """Sends nothing anywhere."""

    def publish_msg(self, msg_type: str, data: dict | None = None, **_: object) -> None:
        pass


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny", device="cpu")


@pytest.fixture
def lab(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> LiveEditor:
    monkeypatch.setattr(comm, "create_comm", SilentComm)
    return wrong_cache_lab(llm, case=2, count=COUNT)


def texts(lab: LiveEditor) -> dict[str, str]:
    return {label: text for label, text, _ in lab.result["lines"]}


def test_the_lines_tell_question_both_answers_and_the_count(lab: LiveEditor) -> None:
    case = asked_cases(COUNT)[1]
    said = texts(lab)
    assert list(said) == ["Question", "Intact cache", "Damaged cache", f"All {COUNT} cases"]
    assert said["Question"] == f"{case.question}  The notes say: {case.statement}"
    assert said["Intact cache"] == f"{case.answer}  ✓ right"
    assert said["Damaged cache"].endswith("✗ the other request's answer")
    assert said[f"All {COUNT} cases"].startswith(f"0 right · {COUNT} the other request's answer")


def test_the_sentence_alone_tells_the_story(lab: LiveEditor) -> None:
    sentence = lab.result["view"]["sentence"]
    assert sentence.startswith("The table names another request's blocks in place of the fact's")
    for part in (
        "Changed: positions ",
        "The model says “",
        "Logits moved by up to ",
        "probability",
    ):
        assert part in sentence
    assert sentence.endswith(
        "a wrong entry in the block table, or two prompts taken for the same prefix."
    )
    lab.set(damage="slots turned by one")
    assert "No logit moved by 0.01 or more" in lab.result["view"]["sentence"]


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_every_damage_runs_and_marks_its_positions(llm: LLM, lab: LiveEditor, damage: str) -> None:
    lab.set(damage=damage, case=3)
    lab.check()
    view, case = lab.result["view"], asked_cases(COUNT)[2]
    marked = [p for start, end in view["changed"] for p in range(start, end)]
    assert marked == DAMAGES[damage].positions(llm, case)
    assert view["tokens"][slice(*view["fact"])] == case.statement.replace(".", " .").split()
    assert len(view["tokens"]) == len(llm.encode(case.prompt))
    assert view["padding"] == (16 if damage == "padding read" else 0)


def test_the_same_inputs_give_the_same_result_and_the_readers_engine_is_left_alone(
    llm: LLM, lab: LiveEditor
) -> None:
    (request,) = llm.engine.add_request([1, 2, 3])
    before = lab.result
    lab.set(damage="fact hidden", case=5)
    lab.set(damage="fact exchanged", case=2)
    lab.check()
    assert (lab.result["lines"], lab.result["view"]) == (before["lines"], before["view"])
    assert llm.engine.scheduler.step_index == 0
    llm.engine.abort(request.request_id)


def test_counts_made_before_are_shown(llm: LLM) -> None:
    table = count_answers(llm, ["fact hidden"], COUNT)
    row = replace(table["fact hidden"], num_made_up=77)  # so that one sees where it comes from
    lab = wrong_cache_lab(llm, "fact hidden", count=COUNT, table=replace(table, rows=(row,)))
    assert texts(lab)[f"All {COUNT} cases"].startswith(f"{row.num_right} right · ")
    assert "77 made up" in texts(lab)[f"All {COUNT} cases"]


def test_counts_of_something_else_are_refused(llm: LLM) -> None:
    """Another count, seed or block size, or other weights: not the numbers of these cases."""
    fits = count_answers(llm, ["nothing"], 2).setting
    assert (fits.block_size, fits.seed, fits.num_cases) == (16, 6, 2)
    assert re.fullmatch("tiny [0-9a-f]{8}", fits.model)
    small = LLM("tiny", block_size=4, device="cpu")
    half = LLM("tiny", dtype=torch.bfloat16, device="cpu")
    for table in (
        count_answers(llm, ["nothing"], 3),
        count_answers(llm, ["nothing"], 2, seed=99),
        count_answers(small, ["nothing"], 2),
        count_answers(half, ["nothing"], 2),
    ):
        message = (
            f"table counts {table.setting}, and the laboratory asks {fits}; give count_answers"
        )
        with pytest.raises(ValueError, match=re.escape(message)):
            wrong_cache_lab(llm, "nothing", count=2, table=table)
    with pytest.raises(ValueError, match=r"3 cases of seed 6 in blocks of 16 .* asks 2 cases of"):
        wrong_cache_lab(llm, "nothing", count=2, table=count_answers(llm, ["nothing"], 3))
    with pytest.raises(ValueError, match=r"table is \[1\]; give what count_answers returns"):
        wrong_cache_lab(llm, "nothing", count=2, table=[1])


def test_a_damage_or_case_that_does_not_exist_is_refused(llm: LLM) -> None:
    with pytest.raises(ValueError, match="damage is 'fact lost'; choose one of nothing"):
        wrong_cache_lab(llm, "fact lost")
    with pytest.raises(ValueError, match="case is 7; give a whole number from 1 to 6"):
        wrong_cache_lab(llm, case=7, count=COUNT)
    with pytest.raises(ValueError, match=r"damage is \['nothing'\]; choose one of"):
        wrong_cache_lab(llm, ["nothing"], count=1)
    with pytest.raises(ValueError, match="llm has type NoneType; give an LLM"):
        wrong_cache_lab(None, count=1)


@pytest.mark.parametrize("count", [0, -1, 1.5, "3", None, True])
def test_a_count_that_cannot_be_is_refused(llm: LLM, count: object) -> None:
    with pytest.raises(ValueError, match=r"count is .*; give a whole number of at least 1"):
        wrong_cache_lab(llm, count=count)


def test_the_html_form_has_the_lines_and_one_row_a_block(lab: LiveEditor) -> None:
    page, view = lab.html(), lab.result["view"]
    assert page.count("<table>") == 2
    assert page.count('<tr><th scope="row">') == 2 + 4 + -(-len(view["tokens"]) // 16)
    assert "<td>foreign: positions " in page and view["sentence"].split("“")[0] in page.replace(
        "&#x27;", "'"
    )


@pytest.mark.parametrize(
    ("positions", "found", "words"),
    [
        ([], [], ""),
        ([6], [(6, 7)], "position 6 (block 1)"),
        ([4, 5, 6, 7], [(4, 8)], "positions 4 to 7 (block 1)"),
        ([6, 7, 8, 9], [(6, 10)], "positions 6 to 9 (blocks 1 to 2)"),
        ([0, 1, 8, 9], [(0, 2), (8, 10)], "positions 0 to 1 and 8 to 9 (2 blocks)"),
    ],
)
def test_positions_in_words(positions: list[int], found: list, words: str) -> None:
    assert runs(positions) == found
    assert where(positions, 4) == words


def test_texts_are_escaped_without_scripts() -> None:
    payload = strip_payload([HOSTILE, "b", "c"], 2, 2, [1], range(0, 1), HOSTILE, HOSTILE)
    page = strip_content(payload)
    assert "<img" not in page and page.count("&lt;img src=x onerror=alert(1)&gt;") == 3
