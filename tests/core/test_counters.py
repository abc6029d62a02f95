"""Queries and hits of the prefix cache between two readings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.counters import PrefixCacheCount, count_of, read_prometheus
from kvlab.core.prefix_cache import PrefixCacheStats

PAGE = """\
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="a {b} c"} 1.5e+03
vllm:prefix_cache_queries_total{engine="1",model_name="a"} 500.0 1700000000000
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{engine="0",model_name="a"} 1.7e+09
vllm:prefix_cache_hits_total{engine="0",model_name="a"} 320.0
vllm:prefix_cache_hits_total{engine="1",model_name="a"} 80.0

vllm:kv_cache_usage_perc{engine="0"} NaN
process_start_time_seconds 1.7e+09
"""


def test_a_run_is_the_difference_of_two_readings():
    before, after = PrefixCacheCount(1000, 600), PrefixCacheCount(1400, 900)
    assert after - before == PrefixCacheCount(400, 300)
    assert (after - before).hit_rate == 0.75
    assert (before - before).hit_rate is None


def test_our_own_counters():
    stats = PrefixCacheStats()
    stats.record(64, 48, preempted=False)
    before = count_of(stats)
    stats.record(32, 16, preempted=False)
    stats.record(90, 80, preempted=True)  # comes back and finds its own blocks: counted apart
    assert count_of(stats) - before == PrefixCacheCount(32, 16)
    assert before == PrefixCacheCount(64, 48)


def test_a_metrics_page_summed_over_engines():
    assert read_prometheus(PAGE) == PrefixCacheCount(2000.0, 400.0, created=1.7e9)


def test_an_exemplar_behind_a_value_is_no_value():
    page = 'q_total{e="0"} 30 1.7 # {trace_id="x"} 0.5 1.7\nh_total 3 # {id="y"} 1.0\n'
    assert read_prometheus(page, (("q", "h"),)) == PrefixCacheCount(30.0, 3.0)


def test_one_engine_of_two_that_began_anew_is_seen():
    page = 'q_total{e="0"} 30\nq_created{e="0"} 1e9\nq_created{e="1"} 2e9\nh_total{e="0"} 3\n'
    before = read_prometheus(page, (("q", "h"),))
    after = read_prometheus(page.replace("2e9", "3e9"), (("q", "h"),))
    assert (before.created, after.created) == (2e9, 3e9)
    with pytest.raises(ValueError, match="began anew"):
        _ = after - before


def test_signs_in_quoted_labels_belong_to_them():
    page = r'q_total{a="} 7 # {",b="\"} 8"} 30' + '\nh_total{a="{"}3\n'
    assert read_prometheus(page, (("q", "h"),)) == PrefixCacheCount(30.0, 3.0)


def test_older_and_other_names():
    old = "vllm:gpu_prefix_cache_queries_total 10\nvllm:gpu_prefix_cache_hits_total 4\n"
    assert read_prometheus(old) == PrefixCacheCount(10.0, 4.0)
    other = 'asked{x="1"} 10\nfound{x="1"} 5\n'
    assert read_prometheus(other, (("asked", "found"),)) == PrefixCacheCount(10.0, 5.0)


def test_a_page_without_the_counters_is_refused():
    for page in ("", "vllm:prefix_cache_queries_total 10\n"):
        with pytest.raises(ValueError, match="no counters named vllm:prefix_cache_queries and"):
            read_prometheus(page)


@pytest.mark.parametrize("line", ["<html>", 'a{b="c"}', 'a{b="c"} x', "a", "vllm:up{"])
def test_a_page_that_is_no_metrics_page_is_refused(line):
    with pytest.raises(ValueError, match=r"line 2 of the page is .*; give the text of a /metrics"):
        read_prometheus(f"a 1\n{line}\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (PrefixCacheCount(100, 50), PrefixCacheCount(90, 60)),
        (PrefixCacheCount(100, 50), PrefixCacheCount(200, 40)),
        (PrefixCacheCount(100, 50, created=1.0), PrefixCacheCount(200, 60, created=2.0)),
    ],
)
def test_counters_that_began_anew_are_refused(before, after):
    with pytest.raises(ValueError, match=r"counters began anew: queries 100 then .*measure again"):
        _ = after - before


@pytest.mark.parametrize(
    ("queries", "hits", "message"),
    [
        (-1, 0, "queries is -1; give a finite number"),
        (float("nan"), 0, "queries is nan"),
        (3, 4, "hits are 4 of 3 queries; read both counters in one scrape"),
    ],
)
def test_counts_that_cannot_be_are_refused(queries, hits, message):
    with pytest.raises(ValueError, match=message):
        PrefixCacheCount(queries, hits)


counts = st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)).map(sorted)


@given(counts, counts)
def test_what_was_counted_in_between_comes_back(first, second):
    (hits, queries), (more_hits, more_queries) = first, second
    before = PrefixCacheCount(queries, hits)
    after = PrefixCacheCount(queries + more_queries, hits + more_hits)
    assert after - before == PrefixCacheCount(more_queries, more_hits)


@given(st.text())
def test_any_text_is_read_or_refused_clearly(text):
    with pytest.raises(ValueError, match=r"the page (is|has no)"):
        read_prometheus(text, (("vllm:prefix_cache_queries_x", "vllm:prefix_cache_hits_x"),))
