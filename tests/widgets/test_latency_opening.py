"""What a latency report shows first, what its times start from, and conditions in words."""

import pytest
from latency_cases import four, record

from kvlab.core.goodput import Targets
from kvlab.widgets import latency_html, latency_payload, latency_report


@pytest.mark.parametrize(
    ("targets", "metric", "opens"),
    [
        (None, None, "ttft"),
        (Targets(ttft=9.0, itl=1.0), None, "ttft"),  # nobody misses any
        (Targets(ttft=3.0), None, "ttft"),
        (Targets(ttft=3.0, itl=0.05), None, "itl"),  # 1 of 3 against 2 of 2
        (Targets(ttft=0.3, itl=0.05), None, "ttft"),  # 2 and 2
        (Targets(ttft=9.0, e2el=1.0), None, "e2el"),
        (Targets(ttft=3.0, itl=0.05), "tpot", "tpot"),
    ],
)
def test_it_opens_on_the_target_that_most_requests_miss(targets, metric, opens) -> None:
    assert latency_payload(four(), targets, metric=metric)["opens"] == opens
    assert latency_report(four(), targets, metric=metric).payload["opens"] == opens


def test_a_metric_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="metric is 'TTFT'; give one of ttft, tpot, itl, e2el"):
        latency_report(four(), metric="TTFT")


@pytest.mark.parametrize(
    ("boundary", "said"),
    [
        ("client", "timed at the client, from the intended start: 1 completed"),
        ("server", "timed at the server, from the request's arrival: 1 completed"),
        ("engine", "timed at the engine, from the request's arrival: 1 completed"),
    ],
)
def test_it_says_what_the_times_start_from(boundary: str, said: str) -> None:
    page = latency_html(latency_payload([record("A", 0.0, 1.0, boundary=boundary)]))
    assert said in page.replace("&#x27;", "'")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"kind": "Poisson", "request_rate": 20}, "Poisson, 20 a second"),
        ({"kind": "Gamma", "request_rate": 2.5, "burstiness": 0.5},
         "Gamma, 2.5 a second, burstiness 0.5"),
        ({"kind": "Regular", "request_rate": None}, "Regular"),
        ({"kind": "on and off", "note": "at night"}, "kind on and off, note at night"),
        ({"cores": 2, "gpu": {"name": "none"}}, "cores 2, gpu name none"),
        ("Poisson, 20 a second", "Poisson, 20 a second"),
        (8, "8"),
    ],
)  # fmt: skip
def test_conditions_are_in_words(given: object, text: str) -> None:
    stated = dict(latency_payload(four(), conditions={"arrivals": given})["conditions"])
    assert stated["arrivals"] == text
