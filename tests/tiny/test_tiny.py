"""The tiny model reads facts from its notes: its words, the cases it is asked, its answers."""

import subprocess
import sys

import pytest

from kvlab import tiny
from kvlab.core.request import SamplingParams
from kvlab.llm import LLM
from kvlab.tiny import corpus
from kvlab.tiny import evaluate as tiny_evaluate
from kvlab.tiny.corpus import Case, cases, other_request


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny", device="cpu")


ADA = "Ada likes soup."
EXAMPLE = Case(
    prompt=tiny.prompt(f"Ben likes cake. {ADA}", "What does Ada like?"),
    answer=ADA,
    statement=ADA,
    question="What does Ada like?",
    subject="Ada",
    value="soup",
    notes=f"Ben likes cake. {ADA}",
)

# ---- words and layout


def test_a_prompt_has_one_id_for_each_word_sign_and_tag(llm: LLM) -> None:
    ids = llm.encode(tiny.prompt(ADA, "What does Ada like?", rules=""))
    assert [llm.tokenizer.token_text(i).strip() for i in ids] == [
        *("<|endoftext|>", "<|system|>", "Ada", "likes", "soup", ".", "<|end|>"),
        *("<|user|>", "What", "does", "Ada", "like", "?", "<|end|>", "<|assistant|>"),
    ]


def test_without_notes_and_rules_there_is_no_system_turn() -> None:
    bare = "<|endoftext|><|user|> What does Ada like?<|end|><|assistant|>"
    assert tiny.prompt("", "What does Ada like?", rules="") == bare
    assert tiny.as_prompt("What does Ada like?") == bare
    assert tiny.as_prompt(bare) == bare


def test_every_listed_word_is_one_token(llm: LLM) -> None:
    assert len(tiny.words()) == 697
    assert list(tiny.words()) == sorted(set(tiny.words()))
    assert len(llm.encode(" ".join(tiny.words()))) == 697


def test_an_unknown_word_is_noticed_and_a_near_one_offered(llm: LLM) -> None:
    assert tiny.unknown_words("Ada likes soups. Soups!") == ["soups", "Soups!"]
    assert "'soups' (try 'soup')" in tiny.notice("Ada likes soups.")
    (output,) = llm.generate(tiny.prompt("Ada likes soups.", "What does Ada like?"))
    assert "'soups' (try 'soup')" in output.notice


def test_known_words_and_tags_bring_no_notice() -> None:
    assert tiny.notice(EXAMPLE.prompt) is None
    assert tiny.notice("") is None


@pytest.mark.parametrize(
    "text",
    ["<script>alert('x')</script>", "\x00\x1b[31m", "\U0001f600 {0} %s", "<|", "z" * 5000],
    ids=["markup", "control", "format", "half a tag", "long"],
)
def test_hostile_text_is_noticed_and_answered_without_an_error(llm: LLM, text: str) -> None:
    prompt = tiny.prompt(text[:200], "What does Ada like?")
    (output,) = llm.generate(prompt, SamplingParams(max_tokens=4))
    assert output.notice.startswith("The tiny model never learned ")
    assert "\x00" not in output.notice and "\x1b" not in output.notice
    assert tiny.notice(text) is not None


# ---- cases


def test_a_case_is_the_same_each_time_and_for_each_count() -> None:
    (case,) = cases(1, 2, seed=0, num_sentences=1, num_rules=(1, 1), in_question=0)
    rule, story = "Use only the notes and nothing else.", "One hot day Edith went to the kitchen."
    notes = f"The mirror costs 68 coins. George plays hockey. {story}"
    assert case == Case(
        prompt=tiny.prompt(notes, "How much is the mirror?", rule),
        answer="The mirror costs 68 coins.",
        statement="The mirror costs 68 coins.",
        question="How much is the mirror?",
        subject="mirror",
        value="68",
        notes=notes,
    )
    assert cases(3, 4, seed=7) == cases(5, 4, seed=7)[:3]
    assert cases(3, 4, seed=7) != cases(3, 4, seed=8)


def test_held_out_pairs_are_those_the_training_left_out() -> None:
    assert [v for v in corpus.FOODS if corpus.is_held_out("Edith", v)] == ["soup", "tomatoes"]


@pytest.mark.parametrize("gap", [0, 100])
def test_cases_are_in_the_models_language_and_hold_their_fact_once(llm: LLM, gap: int) -> None:
    for case in cases(20, 8, seed=3, gap=gap, reworded=0.5):
        assert corpus.is_held_out(case.subject, case.value)
        assert case.notes in case.prompt and case.prompt.count(case.statement) == 1
        assert tiny.unknown_words(case.prompt) == []
        assert len(llm.encode(case.prompt)) == corpus.num_tokens(case.prompt)
        between = case.prompt.split(case.notes)[1].split(case.question)[0]
        assert corpus.num_tokens(between) >= gap


def test_another_request_differs_in_one_token(llm: LLM) -> None:
    for case in cases(20, 6, seed=3, reworded=0.5):
        other = other_request(case)
        pairs = zip(llm.encode(case.prompt), llm.encode(other.prompt), strict=True)
        (changed,) = [pair for pair in pairs if pair[0] != pair[1]]
        assert llm.tokenizer.decode(changed).split() == [case.value, other.value]
        assert other == other_request(case)
    with pytest.raises(ValueError, match="no fact of RELATIONS"):
        other_request(Case("Ada sings.", "", "Ada sings.", "Why?", "Ada", "sings", ""))


def test_counts_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="num_facts is 0; give 1 to 64"):
        cases(1, 0, seed=0)
    with pytest.raises(ValueError, match="gap is -1"):
        cases(1, 1, seed=0, gap=-1)


def test_the_corpus_needs_the_standard_library_alone() -> None:
    code = "import sys, kvlab.tiny.corpus; print({'torch', 'numpy', 'tokenizers'} & {*sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


# ---- answers


def test_the_answer_is_the_fact_in_the_notes(llm: LLM) -> None:
    assert tiny_evaluate.answer(llm, EXAMPLE) == "Ada likes soup."


@pytest.mark.parametrize(("count", "num_facts", "gap"), [(12, 4, 0), (4, 6, 300)])
def test_every_answer_is_right(llm: LLM, count: int, num_facts: int, gap: int) -> None:
    several = cases(count, num_facts, seed=1, gap=gap)
    outputs = llm.generate([case.prompt for case in several], SamplingParams(max_tokens=24))
    assert [o.outputs[0].text.strip() for o in outputs] == [case.answer for case in several]
    assert {o.outputs[0].finish_reason for o in outputs} == {"stop"}


def test_the_command_prints_both_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["evaluate", "--cases", "1"])
    tiny_evaluate.main()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[3][:4] == ["4", "facts", "1", "1"]
    exchanged = next(row for row in rows if row[:2] == ["fact", "exchanged"])
    assert exchanged[2:5] == ["1", "0", "1"]  # cases, right, the other request's


def test_every_trained_form_is_taken_for_one() -> None:
    examples = tiny.examples()
    assert len(examples) == 15
    assert ("Ada likes soup.", "What does Ada like?") in examples
    for fact, question in examples:
        assert tiny.notice(tiny.prompt(fact, question)) is None
    assert tiny.notice(tiny.prompt("", "Tell me a story about Ada and a red kite.")) is None
    assert tiny.notice(tiny.as_prompt("Ada likes soup. What does Ada like?")) is None


@pytest.mark.parametrize("question", ["What does Ada eat?", "Who likes soup?", "Ada"])
def test_a_question_of_no_trained_form_is_told(question: str) -> None:
    assert "none of the forms" in tiny.notice(tiny.prompt("Ada likes soup.", question))


def test_white_space_of_notes_and_question_is_evened_out() -> None:
    even = tiny.prompt("Ada likes soup. The key is red.", "What does Ada like?")
    assert tiny.prompt("Ada likes  soup.\nThe key is red. ", " What does Ada like? ") == even
    with pytest.raises(ValueError, match="question is empty"):
        tiny.prompt("Ada likes soup.", "  ")
