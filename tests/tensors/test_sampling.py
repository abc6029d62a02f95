"""From logits to a token, with literal probabilities."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.request import Request, SamplingParams
from kvlab.tensors.sampling import draw, probabilities, sample, uniform

LOGITS = torch.log(torch.tensor([0.1, 0.4, 0.2, 0.3]))


def probs(**params):
    values = probabilities(LOGITS, SamplingParams(**{"temperature": 1.0, **params}))
    return [round(p, 4) for p in values.tolist()]


def test_temperature_one_is_softmax():
    assert probs() == [0.1, 0.4, 0.2, 0.3]


def test_low_temperature_sharpens_and_zero_is_greedy():
    assert probs(temperature=0.5) == [0.0333, 0.5333, 0.1333, 0.3]
    assert probs(temperature=0) == [0, 1, 0, 0]


def test_top_k_keeps_the_largest_and_renormalises():
    assert probs(top_k=2) == [0, 0.5714, 0, 0.4286]
    assert probs(top_k=1) == [0, 1, 0, 0]
    assert probs(top_k=9) == [0.1, 0.4, 0.2, 0.3]


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    assert probs(top_p=0.4) == [0, 1, 0, 0]
    assert probs(top_p=0.41) == [0, 0.5714, 0, 0.4286]
    assert probs(top_p=0.8) == [0, 0.4444, 0.2222, 0.3333]


def test_top_p_applies_to_what_top_k_left():
    assert probs(top_k=2, top_p=0.5) == [0, 1, 0, 0]
    assert probs(top_k=2, top_p=0.6) == [0, 0.5714, 0, 0.4286]


def test_equal_logits_greedy_takes_the_first():
    assert probabilities(torch.zeros(3), SamplingParams()).tolist() == [1, 0, 0]


def test_a_draw_is_the_place_where_the_running_sum_passes_u():
    p = torch.tensor([0.1, 0.4, 0.2, 0.3], dtype=torch.float64)
    assert [draw(p, u) for u in (0.0, 0.09, 0.11, 0.49, 0.51, 0.71, 0.999999)] == [
        0,
        0,
        1,
        1,
        2,
        3,
        3,
    ]


def test_a_filtered_token_is_never_drawn():
    p = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0], dtype=torch.float64)
    assert {draw(p, u / 1000) for u in range(1000)} == {1, 3}


def test_the_stream_of_a_request_is_fixed():
    assert [round(uniform(7, 0, i), 6) for i in range(3)] == STREAM
    assert uniform(7, 1, 0) != uniform(7, 0, 0) != uniform(8, 0, 0)


STREAM = [0.785615, 0.900586, 0.291066]


@given(st.integers(), st.integers(0, 9), st.integers(0, 999))
def test_uniform_is_in_the_half_open_unit_interval(seed, sample_index, output_index):
    assert 0 <= uniform(seed, sample_index, output_index) < 1


def test_draws_have_the_right_frequencies():
    p = probabilities(LOGITS, SamplingParams(temperature=1.0))
    counts = torch.zeros(4)
    for i in range(20000):
        counts[draw(p, uniform(1, 0, i))] += 1
    assert (counts / 20000 - torch.tensor([0.1, 0.4, 0.2, 0.3])).abs().max() < 0.015


def test_logprobs_are_of_the_unfiltered_logits():
    request = Request("A", [1], SamplingParams(temperature=0.5, top_k=1, seed=0, logprobs=2))
    (token,) = sample(LOGITS[None], [request])
    assert token.token_id == 1
    assert {k: round(v, 4) for k, v in token.logprobs.items()} == {1: -0.9163, 3: -1.204}


@pytest.mark.parametrize("asked", [None, 0])
def test_logprobs_only_where_asked(asked):
    (token,) = sample(LOGITS[None], [Request("A", [1], SamplingParams(logprobs=asked))])
    assert token.logprobs is None if asked is None else list(token.logprobs) == [1]
