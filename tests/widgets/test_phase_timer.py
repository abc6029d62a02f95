"""The timer, seen from the kernel: passes of a real model; a comm stands in for the browser."""

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace

import comm
import pytest
import torch
from comm.base_comm import BaseComm
from phases_cases import rate

from kvlab import LLM
from kvlab.measure.ceilings import measure_ceilings
from kvlab.measure.roofline_records import Ceilings, Phases
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.model import Decoder
from kvlab.widgets import PhaseTimer, phase_timer
from kvlab.widgets.timer_inputs import cases, sizes


class RecordingComm(BaseComm):
    """Keeps what would go to the browser, and who sent it."""

    def publish_msg(self, msg_type: str, data: dict | None = None, **_: object) -> None:
        sent = self.__dict__.setdefault("sent", [])
        sent.append((threading.get_ident(), data or {}))


@pytest.fixture(autouse=True)
def recording(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(comm, "create_comm", RecordingComm)
    yield


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny")


@pytest.fixture(scope="module")
def roof() -> Ceilings:
    return measure_ceilings(seconds=0.5, quick=True)


def small(llm: LLM, ceilings: Ceilings | None = None, **given: object) -> PhaseTimer:
    first = {"lengths": (4, 16), "batches": (1, 2), "context": 16, "seconds": 10, "quick": True}
    return phase_timer(llm, ceilings=ceilings, **{**first, **given})


def send(timer: PhaseTimer, **content: object) -> None:
    """As a browser does."""
    timer._handle_msg(
        {"content": {"data": {"method": "custom", "content": content}}, "buffers": []}
    )


def states(timer: PhaseTimer) -> list[dict]:
    updates = [data.get("state", {}) for _, data in timer.comm.sent]
    return [update["state"] for update in updates if "state" in update]


def test_before_the_first_run_the_output_is_the_same_on_every_machine(llm: LLM) -> None:
    timer = small(llm)
    assert repr(timer) == "PhaseTimer(nothing measured)" and timer.result is None
    html = timer.html()
    assert html == small(llm).html()
    assert "a device of this machine" in html and '"cpu"' not in html and "<td>cpu" not in html
    assert "press Run" in html and timer.state["view"]["roof"] is None
    timer.check()


def test_run_measures_every_case_and_returns_the_records(llm: LLM) -> None:
    timer = small(llm)
    phases, ceilings = timer.run()
    assert isinstance(phases, Phases) and isinstance(ceilings, Ceilings)
    assert [str(p.case) for p in phases.points] == [
        *("prefill 1 x 4", "decode 1 x 16", "prefill 1 x 16", "decode 2 x 16")
    ]
    assert phases.num_parameters == llm.model.num_parameters and phases.model.startswith("yours")
    assert all(point.seconds.median > 0 for point in phases.points)
    assert timer.result == (phases, ceilings) and not timer.running
    assert repr(timer) == "PhaseTimer(2 prefills, 2 decodes)"
    assert timer.state["now"].startswith("4 of 4 passes measured in ")
    labels = [p["label"] for p in timer.state["view"]["points"]]
    assert labels == ["1 x 4", "1 x 16", "1 x 16", "2 x 16"]
    assert '"cpu"' in timer.html() and phases.name in timer.html()


def test_inputs_of_a_run_stay_in_the_fields(llm: LLM, roof: Ceilings) -> None:
    timer = small(llm, roof)
    phases, _ = timer.run(lengths=[8], batches="", seconds=10)
    assert [str(p.case) for p in phases.points] == ["prefill 1 x 8"]
    assert timer.inputs["lengths"] == "8" and timer.inputs["seconds"] == 10
    assert timer.inputs["batches"] == "" and phases.budget <= 10


def test_known_ceilings_are_not_measured_again(llm: LLM, roof: Ceilings) -> None:
    timer = small(llm, roof)
    assert timer.state["view"]["roof"] is not None and timer.state["view"]["points"] == []
    assert timer.run(lengths=[4], batches=[])[1] is roof
    told = [state["now"] for state in states(timer)]
    assert "pass 1 of 1: prefill 1 x 4" in told
    assert not any(text.startswith("ceiling ") for text in told)
    shown = small(llm, result=timer.result)
    assert repr(shown) == "PhaseTimer(1 prefill, 0 decodes)"
    assert len(shown.state["view"]["points"]) == 1


def test_ceilings_of_another_number_of_threads_are_measured_again(llm: LLM, roof: Ceilings) -> None:
    timer = small(llm, replace(roof, threads=roof.threads + 1))
    phases, after = timer.run(lengths=[4], batches=[], seconds=5)
    assert after.threads == phases.threads == roof.threads == torch.get_num_threads()


def test_ceilings_that_a_pass_exceeds_are_measured_again_by_the_next_run(
    llm: LLM, roof: Ceilings
) -> None:
    slow = replace(roof, matmul=rate("FLOP/s", 1e3, "64 x 64", "product"), cache_nbytes=None)
    timer = small(llm, slow)
    _, before = timer.run(lengths=[4], batches=[])
    assert before is slow and "measure both again" in timer.state["view"]["said"][1]
    _, after = timer.run(lengths=[4], batches=[], seconds=5)
    assert after is not slow and after.matmul.median > 1e6


def test_the_button_measures_aside_and_points_appear_one_by_one(llm: LLM) -> None:
    timer = small(llm)
    send(timer, kind="run", inputs=timer.inputs)
    assert timer.wait(120) and timer.error is None
    points = [len(state["view"]["points"]) for state in states(timer)]
    assert [n for i, n in enumerate(points) if n not in points[:i]] == [0, 1, 2, 3, 4]
    parts = [state["part"] for state in states(timer) if state["running"]]
    assert parts == sorted(parts) and 0 <= parts[0] < parts[-1] <= 1
    told = [state["now"] for state in states(timer)]
    assert any(text.startswith("ceiling 1 of ") for text in told)
    assert "pass 2 of 4: decode 1 x 16" in told
    assert {who for who, _ in timer.comm.sent[-3:]} != {threading.get_ident()}  # another thread
    assert states(timer)[-1]["running"] is False and states(timer)[-1]["runs"] == 1


def test_stop_keeps_what_was_measured(llm: LLM, roof: Ceilings) -> None:
    timer = small(llm, roof)
    seen = timer._progress

    def stop_after_two(part: float, now: str, phases: object, ceilings: object) -> None:
        seen(part, now, phases, ceilings)
        if phases is not None and len(phases.points) == 2:
            send(timer, kind="stop")

    timer._progress = stop_after_two
    phases, _ = timer.run()
    assert [str(p.case) for p in phases.points][:2] == ["prefill 1 x 4", "decode 1 x 16"]
    assert len(phases.points) < 4 and phases.why_left_out == "stopped"
    assert "then it was stopped" in timer.state["now"] and not timer.running
    timer.check()


def test_stop_while_the_ceilings_are_measured_ends_without_a_result(llm: LLM) -> None:
    timer = small(llm)
    seen = timer._progress

    def stop_at_once(part: float, now: str, phases: object, ceilings: object) -> None:
        seen(part, now, phases, ceilings)
        timer.stop()

    timer._progress = stop_at_once
    assert timer.run() is None and timer.result is None
    assert timer.state["now"].startswith("stopped before both ceilings were measured")
    timer._progress = seen
    phases, _ = timer.run()
    assert len(phases.points) == 4


def test_an_interrupt_of_the_kernel_keeps_what_was_measured(llm: LLM, roof: Ceilings) -> None:
    timer = small(llm, roof)
    seen = timer._progress

    def interrupt(part: float, now: str, phases: object, ceilings: object) -> None:
        seen(part, now, phases, ceilings)
        if phases is not None and len(phases.points) == 1:
            raise KeyboardInterrupt

    timer._progress = interrupt
    phases, _ = timer.run()
    assert phases.interrupted and [str(p.case) for p in phases.points] == ["prefill 1 x 4"]
    assert "then it was interrupted" in timer.state["now"]
    timer._progress = seen
    timer.stop()  # nothing runs: nothing happens
    assert timer.state["now"].endswith("then it was interrupted")


def test_an_error_is_shown_keeps_the_last_good_result_and_is_raised_again(
    llm: LLM, roof: Ceilings, caplog: pytest.LogCaptureFixture
) -> None:
    timer = small(llm, roof)
    good = timer.run(lengths=[4], batches=[])
    with caplog.at_level(logging.ERROR, "kvlab.widgets"):
        send(timer, kind="run", inputs={**timer.inputs, "lengths": "16, 5000"})
        assert timer.wait(120)
    message = "prefill 1 x 5000 needs 5,000 positions and this model has 1,024; give a shorter"
    assert message in timer.state["error"] and "the timer failed" in caplog.text
    assert timer.result == good and len(timer.state["view"]["points"]) == 1
    assert repr(timer) == "PhaseTimer(error)" and message in timer.html()
    with pytest.raises(ValueError, match="give a shorter length"):
        timer.check()
    with pytest.raises(ValueError, match="give a shorter length"):
        timer.run()
    assert timer.run(lengths=[8]) and timer.state["error"] is None
    timer.check()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"lengths": "16, x"}, "lengths has 'x'; give whole numbers from 1"),
        ({"lengths": [0]}, "lengths has '0'; give whole numbers from 1"),
        ({"batches": list(range(1, 20))}, "batches has 19 sizes; give at most 12"),
        ({"lengths": "", "batches": ""}, "no lengths and no batches; give at least one"),
        ({"device": "abacus"}, "device is 'abacus'; choose one of"),
        ({"model": "gpt"}, "model is 'gpt'; choose one of yours"),
        ({"seconds": 7}, "seconds is 7; give one of"),
        ({"colour": 1}, "the timer has no 'colour'; it has device, model, lengths"),
    ],
)
def test_wrong_inputs_are_refused_by_name(
    llm: LLM, roof: Ceilings, inputs: dict, message: str
) -> None:
    timer = small(llm, roof)
    with pytest.raises(ValueError, match=message):
        timer.run(**inputs)
    assert message.split(";")[0] in timer.state["error"] and not timer.running
    send(timer, kind="run", inputs=inputs)
    assert timer.wait(60) and timer.error is not None


def test_messages_that_say_nothing_are_ignored(llm: LLM) -> None:
    timer = small(llm)
    for content in ("run", {"kind": "walk"}, {"kind": "stop"}):
        timer._handle_msg(
            {"content": {"data": {"method": "custom", "content": content}}, "buffers": []}
        )
    assert timer.state["runs"] == 0 and timer.error is None
    send(timer, kind="run", inputs="soup")
    assert "the timer has no 'inputs'" in timer.state["error"]


def test_one_run_at_a_time(llm: LLM, roof: Ceilings) -> None:
    timer = small(llm, roof)
    found = []

    def again(*told: object) -> None:
        send(timer, kind="run", inputs=timer.inputs)  # a second press does nothing
        try:
            timer.start()
        except ValueError as error:
            found.append(str(error))

    timer._progress = again
    assert timer.run(lengths=[4], batches=[]) is not None
    assert set(found) == {"a run is under way; stop() it, or wait() for it"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "tiny"}, "model has type str; give a Decoder"),
        ({"device": "abacus"}, "device is 'abacus'; here there is cpu"),
        ({"seconds": 0}, "seconds is 0; give a whole number from 1 to 3600"),
        ({"result": 5}, r"result has type int; give \(phases, ceilings\)"),
        ({"result": ({}, None)}, "phases has type dict; give Phases"),
        ({"ceilings": 3}, "ceilings has type int; give Ceilings"),
        ({"lengths": "a few"}, "lengths has 'a'; give whole numbers"),
    ],
)
def test_wrong_arguments_are_refused_at_once(given: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        phase_timer(**given)


def test_a_decoder_without_weights_is_refused() -> None:
    config = ModelConfig(16, 8, 16, 1, 1, 1, 8, 32)
    with pytest.raises(ValueError, match="this Decoder has no weights"):
        phase_timer(Decoder(config))


def test_sizes_are_read_in_any_order_and_cases_alternate() -> None:
    assert sizes("batches", " 16,4; 1 4") == [1, 4, 16] and sizes("batches", "") == []
    found = cases({"lengths": "8, 64", "batches": "1", "context": "32, 16"})
    assert [str(case) for case in found] == [
        *("prefill 1 x 8", "decode 1 x 16", "prefill 1 x 64", "decode 1 x 32")
    ]
