"""The same load with prompts that share a beginning and with prompts that do not."""

from itertools import pairwise

from kvlab import LLM
from kvlab.measure.load_requests import words_of
from kvlab.measure.other_engine import NAMES, measure_both, recorded_both, workloads
from kvlab.serve import Server


def test_both_loads_have_the_same_lengths() -> None:
    shared, apart = workloads(6).values()
    assert [len(a.prompt_token_ids) for a in shared] == [704] * 6
    assert [len(a.prompt_token_ids) for a in apart] == [704] * 6
    assert {a.max_tokens for a in (*shared, *apart)} == {24}


def test_one_begins_alike_and_the_other_does_not() -> None:
    shared, apart = workloads(6).values()
    heads = [words_of(a.prompt_token_ids[:640]) for a in shared]
    assert len(set(heads)) == 1 and len({a.prompt_token_ids[640:] for a in shared}) == 6
    for one, other in pairwise(apart):
        assert one.prompt_token_ids[:16] != other.prompt_token_ids[:16]


def test_a_prefix_cache_shows_in_what_a_server_counts() -> None:
    with Server(LLM("tiny", num_blocks=512)) as server:
        runs = measure_both(server.url, 3, rate=20.0, warmups=0)
    shared, apart = runs.values()
    assert [r.error for run in runs.values() for r in run.records] == [None] * 6
    assert [r.num_prompt_tokens for r in shared.records] == [704] * 3
    assert shared.prefix_cache.hits >= 2 * 624 and apart.prefix_cache.hits < 100


def test_the_recorded_runs_say_where_they_come_from() -> None:
    runs = recorded_both()
    assert tuple(runs) == NAMES
    for run in runs.values():
        assert len(run.records) == 40 and not run.failures()
        assert run.setting["arrivals"] == {"kind": "Poisson", "request_rate": 4.0}
        assert run.conditions["arrivals"] == "Poisson, 4 a second"
        assert "transformers serve" in run.setting["server"] and run.setting["date"]
        assert run.summary().completed == 40
    shared, apart = (run.summary() for run in runs.values())
    assert shared.ttft.p50 < apart.ttft.p50  # as it was recorded
