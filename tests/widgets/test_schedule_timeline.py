"""The schedule timeline: who waits how long, told and counted from real runs of the scheduler."""

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "engine"))

from policy_cases import ask, engine_with
from schedule_cases import HOSTILE, TWO_SLOTS, hundred, preempted, twelve_beside_two, two_slots
from tiered_runner import make_tiered

from kvlab.core.schedule_log import ScheduleLog
from kvlab.core.schedule_spans import Schedule
from kvlab.playing import play
from kvlab.widgets import (
    ScheduleTimeline,
    module_source,
    schedule_html,
    schedule_payload,
    schedule_steps,
    schedule_timeline,
)
from kvlab.widgets.schedule_words import short_names, spans_text


def run_of(log: Schedule) -> dict:
    return schedule_payload(log)["runs"][0]


def ways(log: Schedule) -> dict[str, str]:
    return {r["name"]: spans_text(r["spans"]) for r in run_of(log)["requests"]}


def delays(log: Schedule) -> dict[str, list]:
    return {r["name"]: r["delays"] for r in run_of(log)["requests"]}


# ---- worked examples


def test_static_batching_keeps_c_waiting_beside_an_empty_seat() -> None:
    log = two_slots("static")
    assert ways(log) == {"A": "P3 D", "B": "P3 D4", "C": "w4 P3 D2"}
    # wait, TTFT, longest gap, end-to-end, in steps
    assert delays(log) == {"A": [0, 1, 1, 2], "B": [0, 1, 1, 5], "C": [4, 5, 1, 7]}
    assert schedule_steps(log) == ["P3+P3", "D", "D", "D", "D", "P3", "D", "D"]
    assert run_of(log)["summary"] == (
        "8 steps · longest wait 4 (C) · longest gap 1 (A and others) · mean TTFT 2.3 · "
        "0 preemptions"
    )
    assert run_of(log)["said"] == [
        "P3 of A and P3 of B (first outputs); nobody waits; 14 free blocks.",
        "decode of A and B; A ends; C arrives and waits; 15 free blocks.",
        "decode of B; C waits, 1 of 2 seats empty; 14 free blocks.",
        "decode of B; C waits, 1 of 2 seats empty; 14 free blocks.",
        "decode of B; B ends; C waits, 1 of 2 seats empty; 16 free blocks.",
        "P3 of C (admitted, positions 0 to 2, first output); nobody waits; 15 free blocks.",
        "decode of C; nobody waits; 15 free blocks.",
        "decode of C; C ends; nobody waits; 16 free blocks.",
    ]


def test_continuous_batching_takes_c_as_soon_as_a_has_ended() -> None:
    log = two_slots("continuous")
    assert ways(log) == {"A": "P3 D", "B": "P3 D i D3", "C": "w P3 D2"}
    assert delays(log) == {"A": [0, 1, 1, 2], "B": [0, 1, 2, 6], "C": [1, 2, 1, 4]}
    assert schedule_steps(log) == ["P3+P3", "D", "P3", "D", "D", "D"]
    assert run_of(log)["said"][2] == (
        "P3 of C (admitted, positions 0 to 2, first output); B misses this step; nobody waits; "
        "14 free blocks."
    )


def test_a_prompt_of_twelve_in_chunks_of_four() -> None:
    log = twelve_beside_two(policy="alternating", prefill_chunk=4)
    assert schedule_steps(log)[1:6] == ["P4", "D", "P4", "D", "P4"]
    assert ways(log)["C"] == "P4 i P4 i P4 D3"
    assert ways(log)["A"] == "P3 i D i D i D6"
    assert delays(log) == {"A": [0, 1, 2, 12], "B": [0, 1, 2, 12], "C": [0, 5, 1, 8]}
    assert [s for s in run_of(log)["said"] if s.startswith("P4")] == [
        "P4 of C (new, positions 0 to 3); A and B miss this step; nobody waits; 13 free blocks.",
        "P4 of C (positions 4 to 7); A and B miss this step; nobody waits; 12 free blocks.",
        "P4 of C (positions 8 to 11, first output); A and B miss this step; nobody waits; "
        "9 free blocks.",
    ]


def test_mixed_steps_carry_a_chunk_and_the_decodes() -> None:
    log = twelve_beside_two(policy="mixed", prefill_chunk=4)
    assert schedule_steps(log)[1:5] == ["D+P4", "D+P4", "D+P4", "D"]
    assert delays(log)["A"] == [0, 1, 1, 9]
    assert run_of(log)["said"][2] == (
        "P4 of C (positions 4 to 7), decode of A and B; nobody waits; 10 free blocks."
    )


def test_a_preempted_request_says_so_and_computes_again() -> None:
    log = preempted()
    assert ways(log) == {"A": "P2 D3", "B": "P2 x3 P3"}
    assert "1 preemption" in run_of(log)["summary"]
    said = run_of(log)["said"]
    assert said[1].startswith("decode of A; B loses its blocks and waits again; B waits")
    assert said[4].startswith("P3 of B (positions 0 to 2, up to 1 again); B ends; nobody waits")


def test_an_abort_and_an_unfinished_request() -> None:
    engine = engine_with(policy="mixed")
    with ScheduleLog(engine.scheduler) as log:
        ask(engine, range(3), 9, "A")
        ask(engine, range(9), 9, "B")
        engine.step()
        engine.step()
        engine.abort("A")
        engine.step()
    requests = {r["name"]: r for r in run_of(log)["requests"]}
    assert requests["A"]["ended"] == "abort" and "A ends (aborted)" in run_of(log)["said"][1]
    assert requests["B"]["ended"] is None and requests["B"]["delays"] == [0, 1, 1, None]
    assert "not ended" in schedule_html(schedule_payload(log))


def test_who_is_aborted_in_the_queue_waits_first_and_ends_then() -> None:
    engine = engine_with(max_num_seqs=1)
    with ScheduleLog(engine.scheduler) as log:
        ask(engine, range(3), 3, "A")
        ask(engine, range(10, 12), 3, "B")
        engine.step()
        engine.abort("B")
        engine.run()
    assert run_of(log)["said"][:2] == [
        "P3 of A (new, positions 0 to 2, first output); B arrives and waits, then B ends "
        "(aborted); 63 free blocks.",
        "decode of A; nobody waits; 63 free blocks.",
    ]


def test_who_ends_in_the_queue_for_want_of_blocks_does_not_wait() -> None:
    engine = engine_with(num_blocks=3, block_size=2, caching=False)
    with ScheduleLog(engine.scheduler) as log:
        ask(engine, range(6), 4, "A")
        engine.step()
        engine.suspend("A")
        engine.step()
        engine.resume("A")
        engine.run()  # seven positions need four blocks
    assert run_of(log)["said"][1:] == [
        "nothing is computed; A is put aside; nobody waits; 3 free blocks.",
        "nothing is computed; A ends (no block is left); nobody waits; 3 free blocks.",
    ]
    assert run_of(log)["waiting"] == [[0, 3]]


@pytest.mark.parametrize("act", ["suspend", "fail"])
def test_blocks_that_are_gone_already_are_not_lost_again(act: str) -> None:
    engine = make_tiered(5, 8, 2, prefix_caching=False, max_num_seqs=2)
    with ScheduleLog(engine.scheduler) as log:
        ask(engine, range(4), 4, "A")
        engine.step()
        if act == "fail":
            engine.runner.fail_next = True
            with pytest.raises(RuntimeError, match="model pass failed"):
                engine.step()
        engine.suspend("A")
        for name in "BC":
            ask(engine, range(10, 13), 2, name)
        engine.step()
        engine.resume("A")
        engine.run()
    assert any(span.kind in ("offloaded", "preempted") for span in log.requests["A"].spans)
    run = run_of(log)
    assert "0 preemptions" in run["summary"]
    assert not any("loses its blocks" in sentence for sentence in run["said"])


def test_an_idle_request_that_is_put_aside_was_idle_in_the_step_before() -> None:
    engine = make_tiered(8, 8, 2, prefix_caching=False, policy="alternating", max_num_seqs=2)
    with ScheduleLog(engine.scheduler) as log:
        ask(engine, [1, 2], 4, "A")
        engine.step()
        ask(engine, [3, 4, 5], 4, "B")
        engine.step()
        engine.suspend("A")
        engine.step()
    assert run_of(log)["said"][1:] == [
        "P3 of B (new, positions 0 to 2, first output); A misses this step; nobody waits; "
        "5 free blocks.",
        "decode of B; A is put aside; nobody waits; 6 free blocks.",
    ]


def test_a_log_that_begins_midway_says_nothing_of_the_step_before() -> None:
    engine = engine_with(caching=False, max_num_batched_tokens=4)
    ask(engine, range(8), 2, "A")
    engine.step()
    engine.suspend("A")
    with ScheduleLog(engine.scheduler) as log:
        engine.resume("A")
        engine.step()
    assert run_of(log)["said"] == ["P4 of A (new, positions 0 to 3); nobody waits; 63 free blocks."]
    assert run_of(log)["summary"].startswith("1 step · ")


def test_counts_below_are_the_pool_s_and_the_queue_s() -> None:
    log = two_slots("static")
    run = run_of(log)
    assert run["waiting"] == [[0, 1], [1, 4], [0, 3]]  # value, steps
    free = [value for value, times in run["free"] for _ in range(times)]
    assert free == [step.free_blocks for step in log.steps] == [14, 15, 14, 14, 16, 15, 15, 16]


def test_the_same_steps_come_back_from_plain_data() -> None:
    log = two_slots("continuous")
    again = Schedule.from_dict(json.loads(json.dumps(log.to_dict())))
    assert schedule_payload(again) == schedule_payload(log)
    with pytest.raises(ValueError, match="not a schedule as to_dict"):
        Schedule.from_dict({"steps": [[1]]})


# ---- clocks


def test_measured_times_stand_beside_the_steps() -> None:
    log = two_slots("static", mode="real")
    payload = schedule_payload(log, clock="time")
    run = payload["runs"][0]
    assert payload["unit"] in ("ms", "µs", "s") and len(run["times"]) == len(log.steps)
    assert all(begin <= end for begin, end in run["times"])
    assert all(a[1] <= b[0] + 0.002 for a, b in pairwise(run["times"]))
    for request in run["requests"]:
        wait, first, gap, end = request["times"]
        assert 0 <= wait <= first <= end and gap <= end
    assert f"TTFT, {payload['unit']}" in schedule_html(payload)


def test_a_log_of_steps_has_no_times() -> None:
    payload = schedule_payload(two_slots("static"))
    assert payload["unit"] is None and "times" not in payload["runs"][0]
    with pytest.raises(ValueError, match=r"a log counts steps only; record it with a clock"):
        schedule_payload(two_slots("static"), clock="time")


def test_simulated_runs_say_so() -> None:
    log = two_slots("static", meta={"simulated": True})
    assert run_of(log)["title"] == "static (simulated)"


# ---- forms


def test_three_forms_and_a_short_text() -> None:
    widget = schedule_timeline(two_slots("static"), two_slots("continuous"))
    data, _ = widget._repr_mimebundle_()
    assert (
        data["text/plain"] == "ScheduleTimeline(3 requests; static: 8 steps, continuous: 6 steps)"
    )
    assert '<div class="kvlab-view" data-view="schedule">' in data["text/html"]
    assert widget.get_state()["_esm"] == module_source("schedule")
    again = ScheduleTimeline(two_slots("static"), two_slots("continuous"))
    assert again.html() == widget.html() and repr(again) == repr(widget)


def test_without_scripts_ways_delays_and_a_grid_are_there() -> None:
    page = schedule_html(schedule_payload(two_slots("static")))
    assert (
        '<tr><th scope="row">C</th><td>3</td><td>w4 P3 D2</td><td>4</td><td>5</td><td>1</td>'
        "<td>7</td><td>3</td><td>length</td></tr>"
    ) in page
    cells = "".join(f"<td>{c}</td>" for c in ("", "w", "w", "w", "w", "P3", "D", "D"))
    assert f'<tr><th scope="row">C</th>{cells}</tr>' in page
    assert (
        "<li>Step 2: decode of A and B; A ends; C arrives and waits; 15 free blocks.</li>" in page
    )
    assert all(line.strip() for line in page.splitlines())


def test_a_hundred_requests_over_a_thousand_steps_stay_below_400_kb() -> None:
    one, other = hundred("mixed"), hundred("continuous")
    assert len(one.steps) > 900 and len(one.requests) == 100
    sizes = [len(schedule_timeline(*logs).html().encode()) for logs in ((one,), (one, other))]
    print(f"100 requests, {len(one.steps)} steps: {sizes[0]:,} bytes; two policies {sizes[1]:,}")
    assert sizes[0] < 200_000 and sizes[1] < 400_000


def test_hostile_names_stay_text_and_alike_ones_are_told_apart() -> None:
    engine = engine_with()
    with ScheduleLog(engine.scheduler) as log:
        for name in (HOSTILE, "</script><b>", "a-very-long-name-1", "a-very-long-name-2"):
            ask(engine, range(3), 2, name)
        engine.run()
    page = schedule_html(schedule_payload(log))
    assert "<img" not in page and "<b>" not in page and page.count("</script>") == 1
    assert short_names(["a-very-long-name-1", "a-very-long-name-2", "B"]) == [
        "a-very-long…#1",
        "a-very-long…#2",
        "B",
    ]


def test_titles_are_the_policies_or_one_s_own() -> None:
    logs = two_slots("mixed"), two_slots("mixed")
    assert [r["title"] for r in schedule_payload(*logs)["runs"]] == ["mixed (1)", "mixed (2)"]
    named = schedule_payload(*logs, titles=("ours", "theirs"))
    assert [r["title"] for r in named["runs"]] == ["ours", "theirs"]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda log: schedule_payload(log, clock="days"),
            "clock is 'days'; give one of steps, tim",
        ),
        (lambda log: schedule_payload(log, titles=("a", "b")), "2 titles for 1 log; give one each"),
        (lambda log: schedule_payload(log, *[log] * 4), "5 logs; the view draws 4 at most"),
        (lambda log: schedule_payload({}), "a log has type dict; give a ScheduleLog"),
        (lambda log: schedule_payload(Schedule({}, [], {})), "a log has no steps; run the engine"),
    ],
)
def test_what_cannot_be_drawn_is_named(make, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        make(two_slots("static"))


def test_the_view_needs_neither_torch_nor_the_engine() -> None:
    code = (
        "import sys, kvlab.widgets.schedule_view\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'numpy')"
        " or m in ('kvlab.llm', 'kvlab.engine', 'kvlab.tensors')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_module_is_one_file_without_imports_or_network() -> None:
    source = module_source("schedule")
    assert not re.search(r"^\s*import\b|\bimport\s*\(|https?:|url\(|fetch\(", source, re.M)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", source)


def test_a_play_is_logged_as_it_was_asked() -> None:
    """The view's TTFT is the play's: from the step before which the request came."""
    engine = engine_with(policy="static", max_num_seqs=2)
    with ScheduleLog(engine.scheduler) as log:
        played = play(engine, TWO_SLOTS, mode="step")
    firsts = {r.request_id: r.times.ttft for r in played.requests}
    assert {name: d[1] for name, d in delays(log).items()} == firsts
