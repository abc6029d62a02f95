"""The schedule knobs: a picture is a run of the real engine, and the same knobs give the same."""

import copy
import re
import time
from functools import partial

import comm
import pytest
from comm.base_comm import BaseComm

from kvlab import LLM
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.widgets import LiveEditor, schedule_knobs
from kvlab.widgets.nested import nested_content
from kvlab.widgets.schedule_live import FIRST, PRESETS, knobs_result, run_once
from kvlab.widgets.schedule_words import schedule_steps, spans_text
from kvlab.widgets.schedule_workloads import WORKLOADS, workload


class SilentComm(BaseComm):
    def publish_msg(self, msg_type: str, data: dict | None = None, **_: object) -> None:
        pass


@pytest.fixture
def knobs(monkeypatch: pytest.MonkeyPatch) -> LiveEditor:
    monkeypatch.setattr(comm, "create_comm", SilentComm)
    return schedule_knobs()


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny", num_blocks=16)


def figures(widget: LiveEditor) -> dict[str, str]:
    return {label: text for label, text, _ in widget.result["lines"] if label != "About"}


def ways(result: dict, run: int = 0) -> dict[str, str]:
    requests = result["view"]["runs"][run]["requests"]
    return {r["name"]: spans_text(r["spans"]) for r in requests}


def log_of(preset: str, **changes: object):
    settings = {k: v for k, v in {**PRESETS[preset], **changes}.items() if k != "compare"}
    return run_once(None, 4, **settings)


def longest_gap(preset: str, name: str, **changes: object) -> int:
    return max(log_of(preset, **changes).requests[name].step_gaps)


# ---- worked examples


def test_it_opens_on_the_chapter_s_two_seats(knobs: LiveEditor) -> None:
    assert figures(knobs) == {
        "static": "7 steps · longest wait 4 (C) · longest gap 1 (A and others) · "
        "mean TTFT 2.3 · 0 preemptions",
        "continuous": "5 steps · longest wait 2 (C) · longest gap 2 (B) · mean TTFT 1.7 · "
        "0 preemptions",
    }
    assert ways(knobs.result) == {"A": "P3 D", "B": "P3 D3", "C": "w4 P3 D2"}
    assert ways(knobs.result, 1) == {"A": "P3 D", "B": "P3 D i D2", "C": "w2 P3 D2"}


def test_twelve_tokens_whole_or_in_chunks() -> None:
    preset = "P12, or P4 D P4 D P4"
    assert schedule_steps(log_of(preset))[1:3] == ["P12", "D"]
    chunked = log_of(preset, policy="alternating")
    assert schedule_steps(chunked)[1:6] == ["P4", "D", "P4", "D", "P4"]
    assert schedule_steps(log_of(preset, policy="mixed"))[1:4] == ["D+P4"] * 3


def test_the_chat_s_gap_grows_with_the_prompts_unless_steps_are_shared() -> None:
    preset = "chat and long prompts"
    assert longest_gap(preset, "chat", policy="continuous") == 5  # four prompts came at once
    assert longest_gap(preset, "chat", policy="mixed") == 1
    assert longest_gap(preset, "chat", policy="alternating") == 2


def test_reserved_admission_preempts_nobody_and_takes_longer() -> None:
    preset = "a burst in a small pool"
    current, reserved = log_of(preset), log_of(preset, admission="reserved")
    lost = [
        sum(r.steps_in("preempted") for r in log.requests.values()) for log in (current, reserved)
    ]
    assert lost[0] > 0 and lost[1] == 0 and len(reserved.steps) > len(current.steps)


def test_a_shared_prefix_is_computed_once() -> None:
    log = log_of("one prefix for eight")
    computed = {
        name: sum(s.tokens for s in r.spans if s.kind == "prefill")
        for name, r in log.requests.items()
    }
    assert computed == {"A": 19, **dict.fromkeys("BCDEFGH", 3)}
    assert [r.num_cached_tokens for r in log.requests.values()] == [0] + [16] * 7


def test_one_seat_serves_one_after_the_other(knobs: LiveEditor) -> None:
    knobs.set(seats=1, compare="nothing")
    knobs.check()
    assert list(figures(knobs)) == ["static"]
    runs = knobs.result["view"]["runs"]
    assert len(runs) == 1 and max(value for value, _ in runs[0]["waiting"]) == 2


def runs_of(preset: str, **changed: object) -> list[dict]:
    return knobs_result(None, 4, **{**PRESETS[preset], **changed})["view"]["runs"]


def test_the_answers_that_section_21_3_gives() -> None:
    for run in runs_of("an empty seat; C waits", seats=3):
        assert run["summary"].startswith("4 steps")
    found = {}
    for policy in ("static", "continuous", "mixed"):
        requests = runs_of("chat and long prompts", policy=policy)[0]["requests"]
        chat, *long = (request["delays"] for request in requests)
        waits, ttfts, _, _ = zip(*long, strict=True)
        found[policy] = (chat[2], min(waits), max(waits), min(ttfts), max(ttfts))
    assert found["static"][:3] == (1, 11, 14)
    assert found["mixed"][0] == 1 and found["mixed"][3:] == (3, 6)
    assert found["continuous"][0] == 5 and found["continuous"][3:] == (1, 4)
    pools = [runs_of("a burst in a small pool", pool=pool) for pool in (12, 16, 20, 24)]
    lost = [[sum("loses its" in said for said in run["said"]) for run in pool] for pool in pools]
    assert lost == [[1, 0], [0, 0], [2, 0], [0, 0]]


# ---- the real engine


def test_a_model_computes_the_same_order_of_steps(llm: LLM) -> None:
    before = copy.deepcopy(llm.cache.key_cache)
    for name in ("an empty seat; C waits", "P12, or P4 D P4 D P4"):
        with_model = knobs_result(llm, 4, **PRESETS[name])
        without = knobs_result(None, 4, **PRESETS[name])
        assert with_model["view"] == without["view"]
        assert "Run by the model 'tiny' on random prompts." in with_model["lines"][-1][1]
        assert "no model" in without["lines"][-1][1]
    assert (llm.cache.key_cache == before).all()  # its own cache is left alone
    assert not llm.engine.requests


@pytest.mark.parametrize("name", PRESETS)
def test_every_lesson_runs_to_its_end_and_is_pure(name: str) -> None:
    one, other = (knobs_result(None, 4, **PRESETS[name]) for _ in range(2))
    assert one == other
    for run in one["view"]["runs"]:
        assert {r["ended"] for r in run["requests"]} == {"length"}
        assert len(run["said"]) == sum(count for _, count in run["steps"])
    assert "<table>" in nested_content(one["view"])


@pytest.mark.parametrize("arrivals", WORKLOADS)
@pytest.mark.parametrize("policy", ["static", "continuous", "alternating", "mixed"])
def test_every_arrival_and_policy_together(arrivals: str, policy: str) -> None:
    changes = {"arrivals": arrivals, "policy": policy, "compare": "nothing", "order": "priority"}
    result = knobs_result(None, 4, **{**FIRST, **changes, "budget": 32, "pool": 32})
    (run,) = result["view"]["runs"]
    asked = workload(arrivals, 512)
    assert [r["outputs"] for r in run["requests"]] == [a.max_tokens for a in asked]


def test_an_update_s_time_is_told(llm: LLM, capsys: pytest.CaptureFixture) -> None:
    times = {}
    for name in PRESETS:
        knobs_result(llm, 4, **PRESETS[name])
        start = time.perf_counter()
        result = knobs_result(llm, 4, **PRESETS[name])
        times[name] = time.perf_counter() - start
        assert result["view"]["runs"]
    with capsys.disabled():
        told = ", ".join(f"{name}: {1000 * t:.0f} ms" for name, t in times.items())
        print(f"\nknobs on the embedded model: {told}")


# ---- errors


def test_a_prompt_that_never_fits_stands_in_the_widget_with_its_remedy(knobs: LiveEditor) -> None:
    before = knobs.result["view"]
    knobs.set(arrivals="long prompts, a chat", policy="continuous")
    assert knobs.result["error"] == (
        "ValueError: continuous: request 'long 1': the prompt has 24 tokens and a step computes "
        "at most 12; use another policy than 'continuous' or raise max_num_batched_tokens"
    )
    assert knobs.result["view"] == before and knobs.inputs["policy"] == "static"
    with pytest.raises(ValueError, match="raise max_num_batched_tokens"):
        knobs.check()
    knobs.set(arrivals="long prompts, a chat", policy="continuous", budget=24, pool=32)
    knobs.check()
    assert knobs.result["view"] != before


def test_a_prompt_larger_than_the_pool_is_named(knobs: LiveEditor) -> None:
    knobs.set(arrivals="one shared prefix", policy="mixed", compare="nothing", pool=4)
    assert "the prompt needs 5 blocks of 4 tokens and the whole pool has 4" in knobs.result["error"]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (partial(schedule_knobs, seats=5), "seats is 5; give one of 1, 2, 3, 4, 6, 8, 12, 20"),
        (partial(schedule_knobs, policy="best"), "policy is 'best'; choose one of static"),
        (partial(schedule_knobs, speed=2), "there is no knob 'speed'; there are arrivals, policy"),
        (partial(schedule_knobs, "tiny"), "llm has type str; give an LLM, or None"),
    ],
)
def test_first_values_that_no_knob_has_are_named(make, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        make()


def test_the_knobs_offer_what_the_scheduler_knows() -> None:
    for policy in ("static", "continuous", "alternating", "mixed"):
        assert SchedulerConfig(policy=policy).policy == policy
    assert set(PRESETS["chat and long prompts"]) == set(FIRST)


def test_html_and_text_are_the_same_each_time(knobs: LiveEditor) -> None:
    again = schedule_knobs()
    assert again.html() == knobs.html()
    assert repr(knobs) == (
        "LiveEditor('Schedule knobs', arrivals, policy, compare, admission, order, seats, "
        "budget, chunk, pool: ok)"
    )
    assert len(knobs.html()) < 40_000 and "w4 P3 D2" in knobs.html()
