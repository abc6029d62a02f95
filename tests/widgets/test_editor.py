"""Live editors, seen from the kernel: a recording comm stands in for the browser."""

import logging
from collections.abc import Iterator

import comm
import pytest
from comm.base_comm import BaseComm
from growth_cases import example

from kvlab import LLM
from kvlab.widgets import Choice, LiveEditor, Slider, TextArea, growth_editor, growth_payload

HOSTILE = "<img src=x onerror=alert(1)>"


class RecordingComm(BaseComm):
    """Keeps what would go to the browser."""

    sent: list[dict]

    def publish_msg(self, msg_type: str, data: dict | None = None, **_: object) -> None:
        self.__dict__.setdefault("sent", []).append(data or {})


@pytest.fixture(autouse=True)
def recording(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(comm, "create_comm", RecordingComm)
    yield


def doubling(count: int, word: str, colour: str) -> dict:
    if word == "boom":
        raise RuntimeError("no such word")
    if word == "stop":
        raise KeyboardInterrupt  # as the kernel does when its reader interrupts it
    return {"lines": [["Twice", f"{word} {colour} {2 * count}", "answer"]], "view": None}


def editor() -> LiveEditor:
    controls = [
        Slider("count", "How many", 3, 1, 10),
        TextArea("word", "Word", "soup"),
        Choice("colour", "Colour", "red", ("red", "blue")),
    ]
    return LiveEditor(doubling, controls, "Double")


def from_browser(widget: LiveEditor, number: int, **inputs: object) -> list[dict]:
    """Send inputs as a browser does; returns the states that went back."""
    before = len(widget.comm.sent)
    content = {"kind": "inputs", "inputs": inputs, "from": ["me", number]}
    message = {"content": {"data": {"method": "custom", "content": content}}, "buffers": []}
    widget._handle_msg(message)
    return [
        m["state"]["result"] for m in widget.comm.sent[before:] if "result" in m.get("state", {})
    ]


def test_inputs_of_the_browser_are_computed_and_answered_with_their_number() -> None:
    widget = editor()
    (answer,) = from_browser(widget, 7, count=5, word="key", colour="blue")
    assert answer["lines"] == [["Twice", "key blue 10", "answer"]]
    assert answer["answers"] == ["me", 7] and answer["updates"] == 1 and answer["error"] is None
    assert widget.inputs == {"count": 5, "word": "key", "colour": "blue"}
    widget.check()


def test_an_exception_is_shown_keeps_the_last_good_result_and_is_raised_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """W02: the message stands in the widget, the state before it is kept, check() fails the run."""
    widget = editor()
    with caplog.at_level(logging.ERROR, "kvlab.widgets"):
        (answer,) = from_browser(widget, 1, count=5, word="boom", colour="red")
    assert answer["error"] == "RuntimeError: no such word"
    assert (
        answer["lines"] == [["Twice", "soup red 6", "answer"]]
        and answer["inputs"]["word"] == "soup"
    )
    assert "could not update" in caplog.text and "no such word" in caplog.text
    assert isinstance(widget.error, RuntimeError) and repr(widget).endswith("error)")
    assert "RuntimeError: no such word" in widget.html()
    with pytest.raises(RuntimeError, match="no such word"):
        widget.check()


def test_the_next_good_inputs_clear_the_error() -> None:
    widget = editor()
    from_browser(widget, 1, count=5, word="boom", colour="red")
    (answer,) = from_browser(widget, 2, count=5, word="soup", colour="red")
    assert answer["error"] is None and widget.error is None and answer["updates"] == 2


def test_an_interrupted_update_is_answered_told_and_raised_on() -> None:
    """The browser waits for an answer to its number: without one it would never send again."""
    widget = editor()
    with pytest.raises(KeyboardInterrupt):
        from_browser(widget, 3, count=5, word="stop", colour="red")
    answer = widget.comm.sent[-1]["state"]["result"]
    assert answer["answers"] == ["me", 3] and answer["updates"] == 1
    assert answer["error"] == "interrupted; change an input to compute again"
    assert answer["lines"] == [["Twice", "soup red 6", "answer"]]
    assert repr(widget).endswith("error)")
    with pytest.raises(RuntimeError, match="'Double' was interrupted; change an input"):
        widget.check()
    (answer,) = from_browser(widget, 4, count=5, word="key", colour="red")
    assert answer["answers"] == ["me", 4] and answer["error"] is None
    assert answer["lines"] == [["Twice", "key red 10", "answer"]]
    widget.check()


def test_an_interrupt_reaches_the_cell_that_changed_the_inputs() -> None:
    widget = editor()
    with pytest.raises(KeyboardInterrupt):
        widget.set(word="stop")
    assert widget.result["error"].startswith("interrupted") and widget.inputs["word"] == "soup"
    widget.set(word="key")
    assert widget.result["error"] is None


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            {"count": 11, "word": "a", "colour": "red"},
            "count is 11; give a whole number from 1 to 10",
        ),
        ({"count": True, "word": "a", "colour": "red"}, "count is True; give a whole number"),
        (
            {"count": 1, "word": 5, "colour": "red"},
            "word is 5; give a text of at most 20,000 characters",
        ),
        ({"count": 1, "word": "a" * 20_001, "colour": "red"}, "word is 20,001 characters"),
        (
            {"count": 1, "word": "a", "colour": "green"},
            "colour is 'green'; choose one of red, blue",
        ),
        ({"count": 1}, "do not match the controls count, word, colour"),
    ],
)
def test_what_does_not_fit_a_control_is_an_error_of_the_widget(inputs: dict, message: str) -> None:
    widget = editor()
    (answer,) = from_browser(widget, 1, **inputs)
    assert message in answer["error"] and answer["lines"] == [["Twice", "soup red 6", "answer"]]


def test_an_error_of_the_first_computation_is_raised_at_once() -> None:
    with pytest.raises(RuntimeError, match="no such word"):
        LiveEditor(
            doubling,
            [
                Slider("count", "", 1, 1, 2),
                TextArea("word", "", "boom"),
                TextArea("colour", "", ""),
            ],
            "x",
        )


def test_a_cell_can_change_the_inputs() -> None:
    widget = editor()
    widget.set(count=4)
    assert widget.result["lines"][0][1] == "soup red 8"
    widget.set(count=99)
    with pytest.raises(ValueError, match="count is 99"):
        widget.check()


def test_messages_of_another_kind_are_left_alone() -> None:
    widget = editor()
    widget._received(widget, {"kind": "other"}, [])
    widget._received(widget, None, [])
    assert widget.updates == 0


def test_the_html_form_holds_inputs_result_and_the_view_s_table() -> None:
    payload = growth_payload(example())
    widget = LiveEditor(
        lambda note: {"lines": [["Answer", note, "answer"]], "view": payload},
        [TextArea("note", "Note", HOSTILE)],
        "Editor",
    )
    page = widget.html()
    assert page.startswith('<div class="kvlab-view" data-view="editor">')
    assert "<img" not in page and "&lt;img src=x onerror=alert(1)&gt;" in page
    assert page.count("<table>") == 2
    before = page
    widget.set(note=HOSTILE)
    assert widget.html() == before  # the same inputs, the same page


@pytest.fixture(scope="module")
def tiny_llm() -> LLM:
    return LLM("tiny", block_size=4)


def test_the_growth_editor_runs_the_engine_and_warns_of_unknown_words(tiny_llm: LLM) -> None:
    widget = growth_editor(tiny_llm)
    assert widget.result["lines"] == [["Answer", "The key is red.", "answer"]]
    assert widget.result["view"]["view"] == "cache_growth"
    widget.set(question=f"What is {HOSTILE}?")
    (_, answer), (label, notice, kind) = (
        (line[0], line[1]) if i == 0 else line for i, line in enumerate(widget.result["lines"])
    )
    assert answer and (label, kind) == ("Please note", "notice") and "never learned" in notice
    widget.check()


def test_the_growth_editor_gives_the_same_picture_for_the_same_inputs(tiny_llm: LLM) -> None:
    widget = growth_editor(tiny_llm)
    before, blocks = widget.result["view"], tiny_llm.engine.scheduler.manager.pool.num_free_blocks
    widget.set(max_tokens=3)
    widget.set(max_tokens=8)
    assert widget.result["view"] == before
    assert tiny_llm.engine.scheduler.manager.pool.num_free_blocks == blocks


def test_a_prompt_beyond_the_context_is_an_error_with_both_numbers(tiny_llm: LLM) -> None:
    widget = growth_editor(tiny_llm)
    widget.set(notes="soup " * 3000)
    assert "the prompt has" in widget.result["error"]
    assert widget.result["lines"] == [["Answer", "The key is red.", "answer"]]
