"""Playing a workload: at which step or moment each request comes, and what is noted of it."""

import pytest
from history_runner import alone, make_engine
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.arrivals import Poisson, Regular
from kvlab.core.lengths import Uniform
from kvlab.core.played import median_error, relative_errors
from kvlab.core.request import SamplingParams
from kvlab.core.step_cost import StepWork
from kvlab.core.workload import Arrival, Workload, generate
from kvlab.engine import LLMEngine
from kvlab.playing import play


def load(*arrivals):
    """(time, prompt length, max_tokens) of r1, r2, ..."""
    return Workload(
        tuple(
            Arrival(f"r{i}", time, tuple(range(i, i + length)), new)
            for i, (time, length, new) in enumerate(arrivals, 1)
        )
    )


def test_two_requests_on_a_step_clock():
    """Prefill is step 0, so the first output is there after 1 step; r2 comes before step 2.

    step    0   1   2   3   4
    r1      P   D   D
    r2              P   D
    """
    engine = make_engine()
    played = play(engine, load((0, 4, 3), (2, 4, 2)), mode="step")
    assert repr(played) == "Played(2 requests, 4 steps)"
    assert played.unit == "steps" and not played.simulated
    r1, r2 = played.requests
    assert (r1.times.arrival, r1.times.token_times, r1.times.finished) == (0, [1, 2, 3], 3)
    assert (r2.times.arrival, r2.times.token_times, r2.times.finished) == (2, [3, 4], 4)
    assert played.latencies("ttft") == {"r1": 1, "r2": 1}
    assert played.latencies("queue_time") == {"r1": 0, "r2": 0}
    assert played.gaps() == {"r1": [1, 1], "r2": [1]}
    assert [s.work.tokens for s in played.steps] == [4, 1, 5, 1]
    assert [(s.begin, s.end) for s in played.steps] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert r1.output_token_ids == tuple(alone(range(1, 5), 3))


def test_an_arrival_between_two_steps_comes_before_the_next():
    played = play(make_engine(), load((0.5, 4, 1)), mode="step")
    assert played["r1"].times.first_scheduled == 1
    assert played.latencies("queue_time") == {"r1": 0.5}


def test_idle_steps_are_counted_by_the_scheduler_too():
    engine = make_engine()
    played = play(engine, load((0, 4, 1), (10, 4, 1)), mode="step")
    assert [(s.begin, s.end) for s in played.steps] == [(0, 1), (10, 11)]
    assert engine.scheduler.step_index == 11


def test_stretch_moves_the_arrivals_apart():
    played = play(make_engine(), load((0, 4, 1), (10, 4, 1)), mode="step", stretch=0.5)
    assert [r.times.arrival for r in played.requests] == [0, 5]


def test_a_second_play_begins_at_0_again():
    engine, two = make_engine(), load((0, 4, 2), (1, 4, 2))
    assert play(engine, two, mode="step").requests == play(engine, two, mode="step").requests


def test_the_engine_has_its_own_runner_and_clock_back():
    engine = make_engine()
    before = engine.runner, engine.clock
    play(engine, load((0, 4, 1)), mode="step")
    assert (engine.runner, engine.clock) == before


def test_on_a_real_clock_times_are_the_clocks():
    """The engine's own clock here moves by one at each reading, so nobody has to wait."""
    played = play(make_engine(), load((0, 4, 2), (30, 4, 1)))
    assert played.unit == "s"
    assert played["r2"].times.arrival == 30 and played["r2"].times.first_scheduled > 30
    assert all(s.begin < s.end for s in played.steps)


def test_a_request_that_can_never_run_is_noted_and_the_others_run():
    """S01: 40 tokens are 10 blocks of 4, and the pool has 8."""
    engine = make_engine(num_blocks=8)
    played = play(engine, load((0, 40, 1), (0, 4, 1)), mode="step")
    assert "needs 10 blocks of 4 tokens and the whole pool has 8" in played["r1"].refused
    assert (played["r1"].finish_reason, played["r1"].times.ttft) == (None, None)
    assert (played["r2"].finish_reason, played["r2"].refused) == ("length", None)
    assert repr(played) == "Played(2 requests, 1 steps, 1 refused)"
    assert played.latencies("e2el") == {"r2": 1}


def test_an_abort_while_it_plays():
    engine = make_engine()
    played = play(
        engine, load((0, 4, 50)), mode="step", on_step=lambda n: n == 3 and engine.abort("r1")
    )
    assert played["r1"].finish_reason == "abort" and len(played["r1"].output_token_ids) == 3


def test_an_error_of_the_runner_ends_the_play_and_leaves_no_request():
    engine = make_engine()
    engine.runner.fail_next = True
    runner = engine.runner
    with pytest.raises(RuntimeError, match="the model pass failed"):
        play(engine, load((0, 4, 2), (0, 4, 2)), mode="step")
    assert not engine.has_unfinished_requests() and engine.runner is runner
    assert engine.scheduler.manager.pool.num_free_blocks == 64


def test_an_engine_that_does_nothing_is_not_waited_for():
    class Stuck(LLMEngine):
        def step(self):
            return []

    made = make_engine()
    engine = Stuck(made.scheduler, made.runner)
    with pytest.raises(RuntimeError, match="10001 steps in a row did nothing; unfinished: r1"):
        play(engine, load((0, 4, 1)), mode="step")


def test_plays_that_cannot_be_are_refused_with_nothing_submitted():
    engine, one = make_engine(), load((0, 4, 1))
    for arguments, said in (
        ({"mode": "fast"}, "mode is 'fast'; give one of real, virtual, step"),
        ({"mode": "virtual"}, "the engine's clock is not a VirtualClock"),
        ({"stretch": 0}, "stretch is 0; give a finite number above 0"),
        ({"mode": "step", "sampling_params": lambda _: SamplingParams(n=2)}, "r1: n is 2"),
    ):
        with pytest.raises(ValueError, match=said):
            play(engine, one, **arguments)
    with pytest.raises(ValueError, match=r"arrives at step 2,000,000, .* at most 1,000,000; give"):
        play(engine, load((2e6, 4, 1)), mode="step")
    assert not engine.has_unfinished_requests()
    engine.add_request([1, 2])
    with pytest.raises(ValueError, match="unfinished requests; run them"):
        play(engine, one)


def test_the_record_as_plain_data():
    found = play(make_engine(), load((0, 4, 3)), mode="step")["r1"].to_dict()
    assert found == {
        "request_id": "r1",
        "num_prompt_tokens": 4,
        "num_output_tokens": 3,
        "num_cached_tokens": 0,
        "num_preemptions": 0,
        "finish_reason": "length",
        "refused": None,
        "simulated": False,
        "arrival": 0,
        "finished": 3,
        "queue_time": 0,
        "ttft": 1,
        "tpot": 1.0,
        "e2el": 3,
        "itl": [1, 1],
    }


def test_errors_of_one_play_against_another():
    slow = play(make_engine(), load((0, 4, 2), (0, 4, 4)), mode="step")
    fast = play(make_engine(), load((0, 4, 1), (0, 4, 4)), mode="step")
    assert relative_errors(slow, fast) == {"r1": 0.5, "r2": 0.0}
    assert median_error(slow, fast) == 0.25
    with pytest.raises(ValueError, match="no queue_time in common"):
        relative_errors(slow, fast, "queue_time")  # all 0: nothing to be relative to
    with pytest.raises(ValueError, match="latency is 'speed'; give one of"):
        slow.latencies("speed")
    with pytest.raises(KeyError):
        slow["r9"]


@given(
    st.integers(0, 1000),
    st.integers(4, 12),
    st.integers(1, 4),
    st.sampled_from(["fcfs", "priority"]),
)
def test_every_request_ends_once_with_the_tokens_of_an_undisturbed_run(seed, blocks, seats, order):
    work = generate(
        12,
        arrivals=Poisson(0.7),
        prompt_tokens=Uniform(1, 20),
        output_tokens=Uniform(1, 12),
        vocab_size=40,
        priorities=(0, 1),
        seed=seed,
    )
    engine = make_engine(blocks, max_num_seqs=seats, max_num_batched_tokens=16, order=order)
    played = play(engine, work, mode="step")
    assert [r.request_id for r in played.requests] == [a.request_id for a in work]
    for arrival, record in zip(work, played.requests, strict=True):
        wanted = alone(arrival.prompt_token_ids, arrival.max_tokens)
        got = list(record.output_token_ids)
        if record.finish_reason == "length":
            assert got == wanted
        else:
            assert record.refused or record.finish_reason == "capacity"
            assert got == wanted[: len(got)]
    assert engine.scheduler.manager.pool.num_free_blocks == blocks


def test_work_is_counted_off_the_schedulers_message():
    """A prompt of 10 in chunks of 6, then a decode: pairs 21 + 34, then 11; keys 6, 10, 11."""
    engine = make_engine(max_num_batched_tokens=6)
    played = play(engine, load((0, 10, 2)), mode="step")
    assert [s.work for s in played.steps] == [
        StepWork(rows=1, tokens=6, pairs=21, keys=6),
        StepWork(rows=1, tokens=4, pairs=34, keys=10),
        StepWork(rows=1, tokens=1, pairs=11, keys=11),
    ]


def test_the_same_arrivals_for_every_seat_count():
    """Six steps each. One seat: request k waits 5 k steps. Two: 4 more every second request."""
    work = generate(
        10, arrivals=Regular(1), prompt_tokens=4, output_tokens=6, vocab_size=40, seed=1
    )
    waits = [
        sum(play(make_engine(max_num_seqs=n), work, mode="step").latencies("queue_time").values())
        for n in (1, 2, 8)
    ]
    assert waits == [225, 80, 0]
