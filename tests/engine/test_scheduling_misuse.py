"""Nonsense given to the scheduler's parts, the workloads and the play: refused with the value and
what to give instead, at once, and nothing is changed."""

import pytest
from history_runner import StepClock, alone, make_engine

from kvlab.core.arrivals import AtOnce, OnOff, Poisson
from kvlab.core.lengths import Fixed, Uniform
from kvlab.core.offload_tier import CPUTier
from kvlab.core.public_trace import read_public_trace
from kvlab.core.request import SamplingParams
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.simulator import SimulatedRunner, VirtualClock
from kvlab.core.step_cost import CostModel
from kvlab.core.workload import Arrival, SharedPrefix, Workload, generate
from kvlab.engine import LLMEngine
from kvlab.playing import play
from kvlab.simulated_engine import SimulatedEngine

DRAWN = {"arrivals": AtOnce(), "prompt_tokens": 4, "output_tokens": 2, "vocab_size": 10}
LINE = '{"timestamp": 0, "input_length": 600, "output_length": 3'


def draw(count=3, **changes):
    return generate(count, **DRAWN | changes)


def refused(act):
    """What the ValueError says."""
    with pytest.raises(ValueError) as raised:
        act()
    return str(raised.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrivals": Poisson}, "arrivals is <class 'kvlab.core.arrivals.Poisson'>; give AtOnce()"),
        ({"arrivals": [0, 1]}, "arrivals is [0, 1]; give AtOnce()"),
        ({"shared": 0.5}, "shared is 0.5; give a SharedPrefix, or None"),
        ({"priorities": 3}, "priorities is 3; give integers in parentheses"),
        ({"priorities": {1, 2}}, "priorities is {1, 2}; give integers in parentheses"),
        ({"priorities": ()}, "priorities is empty; give (0,)"),
        ({"priorities": (1.5,)}, "r1: priority is 1.5; give an integer"),
        ({"seed": None}, "seed is None; give an integer"),
        ({"seed": "8"}, "seed is '8'; give an integer"),
        ({"vocab_size": 10**30}, "vocab_size is 1000000000000000000000000000000; give an integer"),
        ({"prompt_tokens": 10**12}, "prompt_tokens is 1000000000000; give an integer from 1 to"),
        ({"prompt_tokens": 10**9}, "have up to 3,000,000,000 tokens together"),
        ({"shared": SharedPrefix(0.5, 10**12)}, "give fewer requests, or shorter prompts"),
        ({"shared": SharedPrefix(0.5, 3, 10**12)}, "give fewer requests, or shorter prompts"),
        ({"arrivals": OnOff(1, 5e-324, 1)}, "r1: time is nan; give a finite number"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_a_token_is_made(changes, message):
    assert message in refused(lambda: draw(**changes))


def test_counts_without_measure_are_refused():
    assert "num_requests is 1000000000000; give an integer from 1 to 1000000" in refused(
        lambda: draw(10**12)
    )
    assert "give an integer from 1 to" in refused(lambda: Uniform(1, 10**400))
    assert "a number of thousands of digits; give an integer" in refused(lambda: Fixed(-(10**5000)))
    assert "max_num_seqs is a number of thousands" in refused(lambda: SchedulerConfig(-(10**5000)))
    assert "the CPU tier has 1000000000 blocks; give an integer" in refused(lambda: CPUTier(10**9))


@pytest.mark.parametrize("given", [None, 5, (1,), "ab"])
def test_a_workload_is_made_of_arrivals(given):
    assert f"arrivals are {given!r}; give Arrival objects" in refused(lambda: Workload(given))


@pytest.mark.parametrize("given", [None, 5, b"{}", [LINE]])
def test_a_file_is_given_as_its_text(given):
    assert f"the workload is {given!r}" in refused(lambda: Workload.from_jsonl(given))
    assert f"the trace is {given!r}" in refused(lambda: read_public_trace(given, vocab_size=9))


def test_a_trace_line_asks_for_more_than_a_machine_holds():
    huge = LINE.replace("600", "9" * 11) + "}"
    assert "the trace, line 1: the prompts have up to 99,999,999,999 tokens" in refused(
        lambda: read(huge)
    )
    assert "block_tokens is 1000000000000; give an integer from 1 to" in refused(
        lambda: read(LINE, 10**12)
    )


def read(text, block_tokens=512):
    return read_public_trace(text, vocab_size=9, block_tokens=block_tokens)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt_token_ids": "abc"}, "prompt_token_ids is 'abc'; give a list of token ids"),
        ({"prompt_token_ids": None}, "prompt_token_ids is None; give a list of token ids"),
        ({"prompt_token_ids": [1, "b"]}, "prompt_token_ids: a token id is 'b'; give an integer"),
        ({"prompt_token_ids": [True]}, "prompt_token_ids: a token id is True; give an integer"),
        ({"arrival_time": "8"}, "arrival_time is '8'; give a finite number"),
        ({"arrival_time": float("nan")}, "arrival_time is nan; give a finite number"),
        ({"arrival_time": 10**400}, "give a finite number, or None for now"),
        ({"request_id": ""}, "request_id is ''; give a text that is not empty"),
        ({"priority": 1.5}, "priority is 1.5; give an integer"),
        ({"cache_salt": ""}, "cache_salt is ''; give a text that is not empty"),
    ],
)
def test_the_engine_takes_no_request_that_a_step_would_choke_on(arguments, message):
    engine = make_engine()
    assert message in refused(lambda: engine.add_request(**{"prompt_token_ids": [1]} | arguments))
    assert not engine.requests and not engine.scheduler.waiting
    (next_one,) = engine.add_request([1, 2], SamplingParams(2))
    engine.run()
    assert (next_one.request_id, next_one.output_token_ids) == ("r1", alone([1, 2], 2))


@pytest.mark.parametrize("odd", [None, 5, True, [], {}, "nobody", ""])
def test_nobody_has_an_odd_id(odd):
    engine = make_engine()
    engine.add_request([1], request_id="A")
    assert not engine.abort(odd)
    assert not engine.suspend(odd)
    assert not engine.resume(odd)
    assert list(engine.requests) == ["A"]


def test_a_request_ends_for_a_reason_of_the_list_or_not_at_all():
    engine = make_engine()
    (a,) = engine.add_request([1], SamplingParams(2), request_id="A")
    assert "reason is 'stop'; give a FinishReason" in refused(lambda: engine.finish("A", "stop"))
    engine.run()
    assert a.output_token_ids == alone([1], 2)


def test_an_engine_needs_a_seed_and_a_clock():
    old = make_engine()
    build = lambda **more: LLMEngine(old.scheduler, old.runner, **more)  # noqa: E731
    assert "seed is None; give an integer" in refused(lambda: build(seed=None))
    assert "clock is 5; give a function" in refused(lambda: build(clock=5))
    assert "eos_token_ids is 3; give a list of token ids" in refused(lambda: build(eos_token_ids=3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workload": [Arrival("a", 0, (1,), 1)]}, "give a Workload"),
        ({"sampling_params": None}, "sampling_params is None; give a function of an Arrival"),
        ({"sampling_params": lambda a: 3}, "r1: sampling_params gives 3; let it give"),
        ({"on_step": 5}, "on_step is 5; give a function, or None"),
        ({"stretch": float("nan")}, "stretch is nan; give a finite number above 0"),
        ({"mode": "steps"}, "mode is 'steps'; give one of"),
    ],
)
def test_a_play_is_refused_with_nothing_left_behind(arguments, message):
    engine = make_engine()
    before = engine.runner, engine.clock
    assert message in refused(
        lambda: play(engine, **{"workload": draw(), "mode": "step"} | arguments)
    )
    assert not engine.requests and (engine.runner, engine.clock) == before
    assert engine.scheduler.manager.pool.num_free_blocks == 64


def test_a_play_whose_last_arrival_never_comes_is_refused():
    engine = make_engine()
    far = Workload((Arrival("a", 0, (1,), 1), Arrival("b", 1e6, (1,), 1)))
    assert "stretched, is inf; give a finite" in refused(
        lambda: play(engine, far, mode="real", stretch=1e308)
    )
    assert not engine.requests
    assert "play: engine is None; give an LLMEngine" in refused(lambda: play(None, far))


def test_a_simulation_needs_a_cost_and_a_virtual_clock():
    clock = VirtualClock(2)
    assert "cost is 3; give a CostModel" in refused(lambda: SimulatedRunner(3, clock))
    assert "give a VirtualClock" in refused(lambda: SimulatedRunner(CostModel(), StepClock()))
    assert "None is no engine; give llm.engine" in refused(
        lambda: SimulatedEngine.like(None, CostModel())
    )
    assert "time is nan; give a finite number" in refused(lambda: clock.wait_until(float("nan")))
    assert clock() == 2
