"""Ceilings and phases on a CUDA device, timed by device events."""

import json

import pytest
import torch

from kvlab.measure import devices
from kvlab.measure.ceilings import measure_ceilings
from kvlab.measure.phases import measure_phases
from kvlab.measure.random_decoder import random_50m
from kvlab.measure.roofline import place
from kvlab.measure.roofline_records import Case, Ceilings, Phases
from kvlab.measure.step_parts import step_parts

CASES = (Case("prefill", 1, 512), Case("decode", 1, 512), Case("decode", 16, 512))


@pytest.fixture(scope="module")
def model():
    return random_50m(device="cuda")


@pytest.fixture(scope="module")
def ceilings():
    return measure_ceilings("cuda", seconds=4.0)


def test_ceilings_in_half_precision(ceilings):
    assert ceilings.dtype in ("bfloat16", "float16") and ceilings.threads is None
    assert ceilings.copy.median > 1e10 and ceilings.matmul.median > 1e12
    assert Ceilings.from_dict(json.loads(json.dumps(ceilings.to_dict()))) == ceilings


def test_phases_stand_below_the_roof(model, ceilings):
    assert model.device.type == "cuda" and model.dtype in devices.HALF
    found = measure_phases(model, CASES, repetitions=5)
    assert [p.case for p in found.points] == list(CASES)
    assert Phases.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    for point in found.points:
        placed = place(point, ceilings)
        assert placed.share > 0
        assert placed.share <= 1 or placed.fits_cache


def test_events_see_the_work_and_not_the_call(model):
    big = torch.randn(8192, 8192, device="cuda", dtype=model.dtype)
    product = devices.elapsed(model.device, lambda: big @ big)
    assert product > 2 * 8192**3 / 1e16  # faster than any GPU: the call alone would be


def test_parts_of_a_step(model):
    found = step_parts(model, CASES[1])
    assert found.parts["matrix products"] > 0
    assert sum(found.parts.values()) == pytest.approx(found.seconds)


def test_more_than_the_memory_is_refused_before_it_is_allocated(model):
    before = torch.cuda.memory_allocated()
    with pytest.raises(ValueError, match="give shorter prompts or smaller batches"):
        measure_phases(model, [Case("decode", 1 << 17, 4000)])
    assert torch.cuda.memory_allocated() == before
