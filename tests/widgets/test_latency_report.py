"""The latency report's payload, figures of each filter, and three forms (section 21.2)."""

import json
import random
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parents[1] / "engine"))

from latency_cases import HOSTILE, four, heavy, record
from policy_cases import engine_with
from schedule_cases import TWO_SLOTS

from kvlab.core.goodput import Targets
from kvlab.core.latency_record import LatencyRecord, records_of
from kvlab.core.latency_summary import summarize
from kvlab.playing import play
from kvlab.widgets import latency_html, latency_payload, latency_report, module_source
from kvlab.widgets.latency_figures import three
from kvlab.widgets.latency_filters import length_choices

GOALS = Targets(ttft=3.0, itl=0.3)


def figures(payload: dict, metric: str, label: int = 0, length: int = 0) -> dict:
    return payload["subsets"][label][length]["metrics"][metric]


# ---- worked examples


def test_four_requests_by_hand() -> None:
    payload = latency_payload(four(), Targets(ttft=3.0))
    assert [(m["short"], m["unit"]) for m in payload["metrics"]] == [
        *(("TTFT", "s"), ("TPOT", "ms"), ("ITL", "ms"), ("E2EL", "s")),
    ]
    whole = payload["subsets"][0][0]
    assert [whole[k] for k in ("done", "failed", "estimated", "good")] == [3, 1, 0, 2]
    ttft = figures(payload, "ttft")
    # 0.2, 0.4 and 4 s: p90 is 0.4 + 0.8 * 3.6, p99 0.4 + 0.98 * 3.6
    assert [ttft[k] for k in ("mean", "p50", "p90", "p99", "max")] == [1.53, 0.4, 3.28, 3.93, 4]
    assert ttft["kept"] == ["mean", "p50"] and ttft["misses"] == 1
    assert ttft["said"] == (
        "TTFT of 3 requests: mean 1.53 s keeps the target of 3 s, p99 3.93 s does not. "
        "1 of 3 requests (33.3%) misses it. "
        "Of fewer than 100 values, p99 lies between the two longest. "
        "Outside these figures: 1 failed."
    )
    tpot = figures(payload, "tpot")  # B gave one token: undefined, never 0
    assert [tpot[k] for k in ("count", "undefined", "mean", "misses")] == [2, 1, 100, None]
    assert figures(payload, "itl")["count"] == 3  # gaps, in two requests
    assert figures(payload, "itl")["said"].startswith("ITL of 3 gaps in 2 requests: mean 100 ms")


def test_a_record_is_a_dot_with_what_is_told_of_it() -> None:
    records = latency_payload(four(), Targets(ttft=3.0))["records"]
    assert records[1] == [
        *("B", 1, 64, 1, 48, None, 0, [1], 1),
        *([0.4, None, None, 0.4], [1, None, None, None]),
    ]
    assert records[2][9] == [4, 100, 100, 4.1] and records[2][10][0] == 0
    assert records[3][5] == "connection reset" and records[3][9] == [None] * 4


def test_labels_and_lengths_are_filters() -> None:
    payload = latency_payload(four(), Targets(ttft=3.0))
    assert payload["labels"] == ["any", "kind: chat", "kind: document"]
    assert payload["lengths"] == ["any", "64 tokens", "6,000 tokens"]
    assert figures(payload, "ttft", label=1)["max"] == 0.4
    assert figures(payload, "ttft", label=2)["mean"] == 4
    assert payload["subsets"][1][2]["done"] == 0  # no chat is long
    empty = figures(payload, "ttft", label=1, length=2)
    assert empty["p99"] is None and empty["said"] == "TTFT: nobody has a value here."


def test_conditions_are_told_and_those_that_nobody_stated_are_named() -> None:
    payload = latency_payload(four(), conditions={"model": "tiny", "cache": "on"})
    assert dict(map(tuple, payload["conditions"])) == {
        "model": "tiny",
        "cache": "on",
        "prompts": "64 to 6,000 tokens, median 64",
        "outputs": "1 to 3 tokens, median 2",
        "cached": "48 of 64 prompt tokens (75%)",
        "observed": "6.1 s, 0.492 requests/s, 0.984 output tokens/s",
        "not stated": "hardware, arrivals, concurrency",
    }


def test_the_mean_looks_fine_and_p99_does_not() -> None:
    said = figures(latency_payload(heavy(400), GOALS), "ttft")["said"]
    assert re.match(r"TTFT of 393 requests: mean 0\.\d+ s keeps the target of 3 s, p99 4", said)
    assert "10 of 393 requests (2.54%) miss it." in said
    plain = figures(latency_payload(heavy(400)), "ttft")["said"]
    assert re.search(r"99 in a hundred are at most 4\.\d+ s, \d+ times the mean\.", plain)


def test_the_verdict_has_a_word_for_each_case() -> None:
    records = four()
    for target, told in (
        (9.0, "keep the target of 9 s. No request misses it."),
        (0.1, "both miss the target of 0.1 s. 3 of 3 requests (100%) miss it."),
    ):
        said = figures(latency_payload(records, Targets(ttft=target)), "ttft")["said"]
        assert said.startswith(f"TTFT of 3 requests: mean 1.53 s and p99 3.93 s {told}")
    gaps = figures(latency_payload(records, Targets(itl=0.05)), "itl")["said"]
    assert "2 of 2 requests (100%) have a longer gap." in gaps


def test_targets_are_judged_on_the_exact_values() -> None:
    """3.0004 s is shown as 3 s, and misses a target of 3 s all the same."""
    payload = latency_payload([record("A", 0.0, 3.0004)], Targets(ttft=3.0))
    assert figures(payload, "ttft")["mean"] == 3 and figures(payload, "ttft")["kept"] == []
    assert payload["records"][0][10][0] == 0 and figures(payload, "ttft")["misses"] == 1
    assert figures(payload, "ttft")["said"] == (
        "TTFT of 1 request: mean 3 s (rounded) and p99 3 s (rounded) both miss the target of 3 s. "
        "1 of 1 request (100%) misses it. Of one value alone, every percentile is that value."
    )


def test_what_is_said_of_p99_holds_for_equal_and_for_far_values() -> None:
    """No value of 150 equal ones is longer than p99; with 60, p99 is far below the longest."""
    equal = latency_payload([record(str(i), 0.0, 1.5) for i in range(150)])
    assert figures(equal, "ttft")["said"] == (
        "TTFT of 150 requests: mean 1,500 ms; half are at most 1,500 ms; "
        "99 in a hundred are at most 1,500 ms."
    )
    far = figures(latency_payload([record(str(i), 0.0, 9 ** (i == 7)) for i in range(60)]), "ttft")
    assert far["p99"] == 4.28 and far["max"] == 9
    assert far["said"].endswith("p99 lies between the two longest.")


def test_no_range_of_prompt_lengths_is_empty() -> None:
    """The median lies between 1 and 100, where no prompt is: a range ends at a length that is."""
    lengths = [1, 1, 1, 1, 1, 100, 200, 300, 400, 500]
    payload = latency_payload(
        [record(str(i), i, i + 1.0, num_prompt_tokens=n) for i, n in enumerate(lengths)]
    )
    assert payload["lengths"] == ["any", "1 token", "100 to 200 tokens", "300 to 500 tokens"]
    assert [subset["done"] for subset in payload["subsets"][0]] == [10, 5, 2, 3]


@given(st.lists(st.integers(0, 400), min_size=1, max_size=30))
def test_ranges_of_prompt_lengths_hold_every_prompt_once(lengths: list[int]) -> None:
    records = [record(str(i), 0.0, 1.0, num_prompt_tokens=n) for i, n in enumerate(lengths)]
    every, *ranges = length_choices(records)
    assert all(map(every.keeps, records)) and len(ranges) <= 4
    kept = [sum(map(choice.keeps, records)) for choice in ranges]
    assert min(kept, default=1) > 0 and sum(kept) in (0, len(records))


def test_where_all_took_no_time_the_target_sets_the_unit() -> None:
    payload = latency_payload([record("A", 0.0, 0.0)], Targets(ttft=3.0))
    assert payload["metrics"][0] == {"name": "ttft", "short": "TTFT", "unit": "s", "target": 3}


def test_requests_that_look_alike_do_not_lengthen_the_table() -> None:
    page = latency_html(latency_payload([record("A", 0.0, 1.0)] * 300))
    assert "40 of 300 requests" in page and page.count("<td>completed</td>") == 40


def test_a_label_with_many_values_has_no_filter_and_says_so() -> None:
    records = [
        record(str(i), i, i + 1.0, labels={"session": str(i), "k": "ab"[i % 2], "run": "warm"})
        for i in range(20)
    ]
    payload = latency_payload(records, conditions={"hardware": None})
    assert payload["labels"] == ["any", "k: a", "k: b"]
    assert ["run", "warm"] in payload["conditions"]  # alike for all: a condition, no filter
    assert "hardware" in dict(map(tuple, payload["conditions"]))["not stated"]
    assert ["no filter for", "session: too many values"] in payload["conditions"]


# ---- every filter's figures against another way to compute them


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 60))
def test_each_subset_s_figures_are_those_of_its_requests(seed: int, count: int) -> None:
    rng = random.Random(seed)
    records = rng.sample(heavy(80, seed % 7), count)
    payload = latency_payload(records, GOALS)
    scale = {m["name"]: {"s": 1, "ms": 1e3, "µs": 1e6}[m["unit"]] for m in payload["metrics"]}
    label = rng.randrange(len(payload["labels"]))
    length = rng.randrange(len(payload["lengths"]))
    inside = [
        original
        for original, dot in zip(_by_arrival(records), payload["records"], strict=True)
        if (not label or label in dot[7]) and length in (0, dot[8])
    ]
    done = [r for r in inside if r.error is None]
    subset = payload["subsets"][label][length]
    assert (subset["done"], subset["failed"]) == (len(done), len(inside) - len(done))
    assert subset["good"] == sum(map(GOALS.met_by, done))
    for metric, factor in scale.items():
        values = [getattr(r.times, metric) for r in done]
        values = [v for one in values for v in (one if metric == "itl" else [one]) if v is not None]
        shown = subset["metrics"][metric]
        assert shown["count"] == len(values)
        if len(values) > 1:
            cuts = statistics.quantiles(values, n=100, method="inclusive")
            wanted = [statistics.fmean(values), *(cuts[p - 1] for p in (50, 90, 99)), max(values)]
            got = [shown[k] for k in ("mean", "p50", "p90", "p99", "max")]
            assert got == pytest.approx([factor * w for w in wanted], rel=6e-3)


def _by_arrival(records: list[LatencyRecord]) -> list[LatencyRecord]:
    return sorted(records, key=lambda r: r.times.arrival)


def test_the_figures_of_all_requests_are_the_summary_s() -> None:
    records = heavy(200)
    payload, summary = latency_payload(records, GOALS), summarize(records, targets=GOALS)
    assert payload["subsets"][0][0]["good"] == summary.good
    assert figures(payload, "ttft")["p99"] == three(summary.ttft.p99)
    assert figures(payload, "itl")["mean"] == three(summary.itl.mean * 1000)
    assert figures(payload, "tpot")["undefined"] == summary.tpot.undefined
    length_counts = [subset["done"] for subset in payload["subsets"][0]]
    assert length_counts[0] == sum(length_counts[1:])  # the ranges cover each length once


# ---- a real run, on a step clock


def test_an_engine_s_play_in_steps() -> None:
    played = play(engine_with(policy="static", max_num_seqs=2), TWO_SLOTS, mode="step")
    report = latency_report(records_of(played), Targets(ttft=4.0))
    payload = report.payload
    assert payload["boundary"] == "engine" and payload["clock"] == "steps"
    assert {m["unit"] for m in payload["metrics"]} == {"steps"}
    assert {dot[0]: dot[9][0] for dot in payload["records"]} == {"A": 1, "B": 1, "C": 5}
    assert figures(payload, "ttft")["said"] == (
        "TTFT of 3 requests: mean 2.33 steps keeps the target of 4 steps, p99 4.92 steps does not. "
        "1 of 3 requests (33.3%) misses it. "
        "Of fewer than 100 values, p99 lies between the two longest."
    )
    assert repr(report) == "LatencyReport(3 completed, 0 failed; TTFT mean 2.33, p99 4.92 steps)"


# ---- three forms


def test_three_forms_alike_in_two_runs() -> None:
    one, other = (latency_report(four(), GOALS, title="chat and a document") for _ in range(2))
    data, _ = one._repr_mimebundle_()
    assert set(data) == {
        *("text/plain", "text/html"),
        "application/vnd.jupyter.widget-view+json",
    }
    assert data["text/plain"] == "LatencyReport(3 completed, 1 failed; TTFT mean 1.53, p99 3.93 s)"
    assert one.html() == other.html() and one.model_id not in one.html()
    page = one.html()
    assert "chat and a document" in page and "<caption>" in page
    assert '<th scope="row">kind: chat</th><td>TTFT, s</td>' in page
    assert "connection reset" in page and "p99 3.93 s does not" in page
    script = re.search(r"<script[^>]*>(.*?)</script>", page, re.S)[1]
    assert json.loads(script) == one.payload
    assert all(line.strip() for line in page.splitlines())


def test_1000_records_stay_below_200_kb(capsys) -> None:
    sizes = [len(latency_html(latency_payload(heavy(n), GOALS)).encode()) for n in (1000, 2000)]
    with capsys.disabled():
        print(f"\n1,000 records: {sizes[0]:,} bytes; 2,000: {sizes[1]:,}")
    assert sizes[0] < 200_000 and sizes[1] < 400_000
    assert "of 1,000 requests: the failed and the slowest" in latency_html(
        latency_payload(heavy(1000))
    )


def test_hostile_names_stay_text() -> None:
    records = [record(HOSTILE, 0.0, 1.0, labels={"kind": HOSTILE, "</script>": "<b>"})]
    records.append(record("B", 1.0, error=HOSTILE))
    page = latency_html(latency_payload(records, title=HOSTILE, conditions={HOSTILE: HOSTILE}))
    assert "<img" not in page and "<b>" not in page and page.count("</script>") == 1
    assert f"kind: {HOSTILE}" in latency_payload(records)["labels"]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: latency_payload([]), "there are no records; a report needs one request"),
        (lambda: latency_payload([{}]), "a record has type dict; give LatencyRecords"),
        (lambda: latency_payload(four(), unit="ms"), "unit is 'ms'; give one of s, steps"),
        (lambda: latency_payload(four() * 501), "2,004 records; the view draws 2,000 at most"),
        (
            lambda: latency_payload([*four(), record("E", 0.0, 1.0, boundary="engine")]),
            "the records were timed at client and engine; summarise each boundary alone",
        ),
        (lambda: latency_payload([record("E", 0.0)]), "request 'E' has no end and no error"),
    ],
)
def test_what_cannot_be_reported_is_named(make, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        make()


def test_all_failed_still_makes_a_report() -> None:
    payload = latency_payload([record("A", 0.0, error="refused")], GOALS)
    assert figures(payload, "ttft")["said"] == (
        "TTFT: nobody has a value here. Outside these figures: 1 failed."
    )
    assert "–" in latency_html(payload)


def test_the_view_needs_neither_torch_nor_the_engine() -> None:
    code = (
        "import sys, kvlab.widgets.latency_view, kvlab.widgets.ttft_view\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'numpy')"
        " or m in ('kvlab.llm', 'kvlab.engine', 'kvlab.tensors')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
    assert "innerHTML" not in module_source("latency_report")
