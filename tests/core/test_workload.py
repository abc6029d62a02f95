"""Workloads: drawn from a seed, written, read back; and what a bad line is told."""

import hashlib
import json
import math
import random
import statistics
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.arrivals import AtOnce, Gamma, OnOff, Poisson, Regular, in_words
from kvlab.core.lengths import Fixed, LogNormal, Uniform, Zipf
from kvlab.core.workload import Arrival, SharedPrefix, Workload, generate, stream


def drawn(num_requests=20, seed=0, **changes):
    arguments = {
        "arrivals": Poisson(10),
        "prompt_tokens": Uniform(3, 9),
        "output_tokens": Zipf(1, 20),
        "vocab_size": 50,
        **changes,
    }
    return generate(num_requests, seed=seed, **arguments)


def times(process, count, seed=0):
    return list(islice(process.times(random.Random(seed).random), count))


# ---- drawing


def test_a_regular_workload_in_full():
    two = generate(2, arrivals=Regular(10), prompt_tokens=3, output_tokens=5, vocab_size=50, seed=7)
    assert two.to_jsonl() == (
        '{"request_id":"r1","time":0.0,"prompt_token_ids":[4,9,31],"max_tokens":5,'
        '"priority":0,"group":null}\n'
        '{"request_id":"r2","time":0.1,"prompt_token_ids":[5,30,9],"max_tokens":5,'
        '"priority":0,"group":null}\n'
    )
    assert repr(two) == "Workload(2 requests within 0.1, 6 prompt and 10 new tokens)"


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others():
    assert drawn(seed=3).to_jsonl() == drawn(seed=3).to_jsonl()
    assert drawn(seed=3).to_jsonl() != drawn(seed=4).to_jsonl()


@pytest.mark.parametrize(
    "arrivals, first, digest",
    [
        (Poisson(10), [0.073765, 0.306907, 0.429871], "f473763b"),
        (Gamma(10, 0.5), [0.490451, 0.733082, 0.742349], "064c8e3a"),
        (OnOff(10, 1, 1), [0.073765, 0.306907, 0.429871], "eb7a6b09"),
    ],
)
def test_every_python_draws_this(arrivals, first, digest):
    load = drawn(
        200,
        seed=5,
        arrivals=arrivals,
        prompt_tokens=LogNormal(40, 0.7, 4, 200),
        output_tokens=Zipf(1, 50),
        vocab_size=958,
        shared=SharedPrefix(0.4, 16, 3),
        priorities=(0, 1),
    )
    assert [a.time for a in load][:3] == first
    assert [len(a.prompt_token_ids) for a in load][:5] == [15, 75, 16, 43, 60]
    assert [a.max_tokens for a in load][:5] == [23, 1, 9, 4, 2]
    assert hashlib.sha256(load.to_jsonl().encode()).hexdigest()[:8] == digest


def test_other_output_lengths_leave_arrivals_and_prompts_alone():
    one, other = drawn(output_tokens=5), drawn(output_tokens=Uniform(1, 99))
    assert [a.time for a in one] == [a.time for a in other]
    assert [a.prompt_token_ids for a in one] == [a.prompt_token_ids for a in other]
    assert [a.max_tokens for a in one] != [a.max_tokens for a in other]


def test_requests_of_a_group_begin_with_the_same_tokens():
    load = drawn(400, shared=SharedPrefix(0.5, 8, groups=2), vocab_size=900)
    groups = {name: [a for a in load if a.group == name] for name in ("p1", "p2", None)}
    assert sum(map(len, groups.values())) == 400
    assert 150 < len(groups["p1"]) + len(groups["p2"]) < 250
    assert {len({a.prompt_token_ids[:8] for a in groups[g]}) for g in ("p1", "p2")} == {1}
    assert len({a.prompt_token_ids[:8] for a in groups[None]}) == len(groups[None])
    assert all(11 <= len(a.prompt_token_ids) <= 17 for a in groups["p1"])


def test_the_share_is_all_or_nothing_at_its_ends():
    assert all(a.group is None for a in drawn(shared=SharedPrefix(0, 8)))
    assert all(a.group == "p1" for a in drawn(shared=SharedPrefix(1, 8)))


def test_each_priority_is_taken():
    assert {a.priority for a in drawn(50, priorities=(0, 1, 5))} == {0, 1, 5}


# ---- arrival processes


def test_regular_and_at_once():
    assert times(Regular(4), 3) == [0.0, 0.25, 0.5]
    assert times(AtOnce(), 3) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "process, deviation",
    [(Poisson(5), 0.2), (Gamma(5, 1), 0.2), (Gamma(5, 0.25), 0.4), (Gamma(5, 4), 0.1)],
)
def test_gaps_have_the_mean_and_the_deviation_that_they_should(process, deviation):
    """Mean 1 / rate; deviation 1 / (rate * sqrt(burstiness)). 200 seeds of 100 gaps each."""
    gaps = []
    for seed in range(200):
        found = [0.0, *times(process, 100, seed)]
        gaps += [b - a for a, b in pairwise(found)]
    assert statistics.mean(gaps) == pytest.approx(0.2, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(deviation, rel=0.05)


def test_bursts_stay_within_their_phases():
    found = times(OnOff(50, on=1.0, off=3.0), 500)
    assert all(t % 4.0 < 1.0 for t in found)
    assert found == sorted(found)
    assert 500 / found[-1] == pytest.approx(50 * 1 / 4, rel=0.2)


# ---- lengths


def test_each_distribution_keeps_its_range_and_its_shape():
    uniform = stream(0, "lengths")
    even = [Uniform(3, 6).draw(uniform) for _ in range(4000)]
    assert [round(even.count(n) / 100) for n in (2, 3, 4, 5, 6, 7)] == [0, 10, 10, 10, 10, 0]
    long = sorted(LogNormal(100, 1.0, 10, 1000).draw(uniform) for _ in range(4001))
    assert long[0] == 10 and long[-1] == 1000
    assert 92 < long[2000] < 108  # half lie below the median
    assert long[round(0.84 * 4000)] == pytest.approx(100 * math.e, rel=0.1)  # one deviation above
    rare = [Zipf(5, 7, 1.0).draw(uniform) for _ in range(6600)]  # weights 1, 1/2, 1/3
    assert [round(rare.count(n) / 600) for n in (5, 6, 7)] == [6, 3, 2]
    assert Fixed(9).draw(uniform) == 9


def test_an_enormous_tail_ends_at_high():
    uniform = stream(0, "tail")
    assert {LogNormal(100, 1e9, 1, 500).draw(uniform) for _ in range(20)} == {1, 500}


# ---- files


@st.composite
def workloads(draw):
    count = draw(st.integers(1, 8))
    when = sorted(draw(st.lists(st.floats(0, 1e6), min_size=count, max_size=count)))
    names = draw(st.lists(st.text(min_size=1), min_size=count, max_size=count, unique=True))
    return Workload(
        tuple(
            Arrival(
                name,
                time,
                tuple(draw(st.lists(st.integers(0, 10**6), min_size=1, max_size=5))),
                draw(st.integers(1, 1000)),
                draw(st.integers(-3, 3)),
                draw(st.none() | st.text()),
            )
            for name, time in zip(names, when, strict=True)
        )
    )


@given(workloads())
def test_a_workload_is_read_back_as_it_was_written(load):
    assert Workload.from_jsonl(load.to_jsonl()) == load


def test_a_file_keeps_it_too(tmp_path):
    load = drawn(shared=SharedPrefix(0.5, 4))
    load.save(tmp_path / "load.jsonl")
    assert Workload.load(tmp_path / "load.jsonl") == load
    assert b"\r" not in (tmp_path / "load.jsonl").read_bytes()


GOOD = {"request_id": "a", "time": 1.0, "prompt_token_ids": [1, 2], "max_tokens": 3}


def lines(*changes):
    return "\n".join(c if isinstance(c, str) else json.dumps({**GOOD, **c}) for c in changes)


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "load.jsonl has no line; give one JSON object a line"),
        ("\n \n", "has no line"),
        (lines({}, "{oops"), "line 2: '{oops' is no JSON object"),
        (lines("[1, 2]"), r"line 1: '\[1, 2\]' is no JSON object; write one in braces"),
        (lines({}, "", {"request_id": "b", "time": 0.5}), "line 3: b arrives at 0.5, after a at 1"),
        (lines({}, {}), "line 2: .*'a' stands "),
        (lines({}, {"request_id": "b"}, {}), "line 3: .*'a' stands in load.jsonl, line 1 already"),
        (lines({"time": -1}), "a: time is -1; give a finite number of at least 0"),
        (lines({"time": float("nan")}), "line 1: .*NaN is no number of JSON"),
        (lines({"time": "1"}), "time is '1'; give"),
        (lines({"time": True}), "time is True; give"),
        (lines({}).replace("1.0", "1e999"), "time is inf; give"),
        (lines({}).replace("1.0", "1" + "0" * 400), "time is 1000"),
        (lines({"prompt_token_ids": []}), r"prompt_token_ids is \[\]; give at least one"),
        (lines({"prompt_token_ids": [1, -1]}), "a prompt token is -1; give an integer"),
        (lines({"prompt_token_ids": [1.0]}), "a prompt token is 1.0; give an integer"),
        (lines({"max_tokens": 0}), "max_tokens is 0; give an integer of at least 1"),
        (lines({"request_id": ""}), "request_id is ''; give a text"),
        (lines({"priority": 1.5}), "priority is 1.5; give an integer"),
        (lines({"colour": 1}), "'colour' is no part of a request; it has request_id, time"),
        ('{"time": 1.0}', "request_id is missing"),
        ('{"time": 1.0, "time": 2.0}', "the name 'time' stands there twice"),
        ("[" * 100_000, "line 1: .* is no JSON object"),
    ],
)
def test_a_bad_line_is_named_with_its_value_and_the_remedy(text, said):
    with pytest.raises(ValueError, match=said):
        Workload.from_jsonl(text, "load.jsonl")


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "load.jsonl.gz").write_bytes(b"\x1f\x8b\x08\x00")
    with pytest.raises(ValueError, match=r"load.jsonl.gz is no UTF-8 text .* unpack"):
        Workload.load(tmp_path / "load.jsonl.gz")


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: drawn(0), "num_requests is 0"),
        (lambda: drawn(vocab_size=0), "vocab_size is 0"),
        (lambda: drawn(prompt_tokens=0), "prompt_tokens is 0"),
        (lambda: drawn(prompt_tokens=2.5), "prompt_tokens is 2.5; give a number of tokens, or Fix"),
        (lambda: drawn(output_tokens=Uniform), "output_tokens is <class"),
        (lambda: drawn(priorities=()), "priorities is empty"),
        (lambda: Poisson(0), "request_rate is 0; give a finite number above 0"),
        (lambda: Gamma(1, -1), "burstiness is -1"),
        (lambda: OnOff(1, 0, 1), "OnOff: on is 0"),
        (lambda: Regular(float("inf")), "request_rate is inf"),
        (lambda: Uniform(5, 4), "low 5 is above high 4; swap"),
        (lambda: LogNormal(0, 1), "median is 0"),
        (lambda: Zipf(1, 10**7), "more than 1,048,576 lengths; narrow"),
        (lambda: SharedPrefix(1.1, 4), "share is 1.1"),
        (lambda: SharedPrefix(0.5, 4, 0), "groups is 0"),
        (lambda: Workload(()), "has no arrivals"),
    ],
)
def test_values_outside_their_range_are_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_a_process_in_words_for_a_report() -> None:
    told = {"kind": "OnOff", "request_rate": 4.0, "on": 5.0, "off": 2.5}
    assert in_words(told) == "OnOff, 4 a second, on 5, off 2.5"
    assert in_words({"kind": "AtOnce"}) == "AtOnce"
    assert in_words("closed loop") == "closed loop"
