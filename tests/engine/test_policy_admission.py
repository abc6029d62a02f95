"""Who may begin: priority and ageing, bypass, reserved growth, the watermark (block size 4)."""

import pytest
from history_runner import alone, run_checked
from policy_cases import POLICIES, ask, engine_with, members

from kvlab.core.request import FinishReason


def first_steps(engine):
    """The step in which each request first took part."""
    found = {}
    for i, step in enumerate(engine.runner.steps):
        for name in step:
            found.setdefault(name, i)
    return found


# ---- order


def test_priority_decides_who_is_admitted_and_arrival_breaks_ties():
    engine = engine_with(order="priority", max_num_seqs=1)
    for name, priority in (("A", 0), ("B", 5), ("C", 1), ("D", 1), ("E", -2)):
        ask(engine, [ord(name)], 2, name, priority=priority)
    run_checked(engine)
    assert members(engine) == list("EEAACCDDBB")


def test_first_come_first_served_knows_no_priority():
    engine = engine_with(max_num_seqs=1)
    ask(engine, [1], 1, "A", priority=9)
    ask(engine, [2], 1, "B", priority=-9)
    run_checked(engine)
    assert members(engine) == ["A", "B"]


@pytest.mark.parametrize(("order", "victim"), [("fcfs", "C"), ("priority", "A")])
def test_priority_decides_who_loses_its_blocks(order, victim):
    """Pool of 6 blocks, three requests of two blocks each, A admitted first; one needs a third."""
    engine = engine_with(num_blocks=6, order=order)
    group = []
    for name, t, priority in (("A", 0, 3), ("B", 20, 1), ("C", 40, 2)):
        group += ask(engine, range(t, t + 6), 5, name, priority=priority)
        engine.step()
    assert [r.request_id for r in engine.scheduler.running] == ["A", "B", "C"]
    run_checked(engine)
    assert [r.request_id for r in group if r.num_preemptions] == [victim]
    assert [r.output_token_ids for r in group] == [alone(r.prompt_token_ids, 5) for r in group]


def waits_of_a_low_priority(ageing, urgent=60):
    """One slot; a request of priority 3 beside an urgent one that arrives in every step."""
    engine = engine_with(order="priority", priority_ageing=ageing, max_num_seqs=1)
    ask(engine, [1], 1, "low", priority=3)
    for i in range(urgent):
        ask(engine, [2, i], 1, f"urgent{i}", priority=0)
        engine.step()
        engine.scheduler.check_invariants()
    run_checked(engine)
    return first_steps(engine)["low"]


@pytest.mark.parametrize("ageing", [1, 4, 10])
def test_with_ageing_a_low_priority_waits_three_levels_of_it(ageing):
    """One level weighs as much as `ageing` steps: only those overtake that come before."""
    assert waits_of_a_low_priority(ageing) == 3 * ageing


def test_without_ageing_it_waits_for_the_last_urgent_one():
    assert [waits_of_a_low_priority(None, n) for n in (20, 40)] == [20, 40]


def test_a_priority_that_is_no_integer_is_refused():
    engine = engine_with()
    with pytest.raises(ValueError, match="priority is 'high'; give an integer"):
        ask(engine, [1], 1, "A", priority="high")
    assert not engine.has_unfinished_requests()


# ---- bypass


def small_ones_behind_a_large_one(max_bypass, count=6):
    """Pool of 8 blocks: R runs in 4 of them, L needs 5, and the small ones one each."""
    engine = engine_with(num_blocks=8, max_bypass=max_bypass)
    ask(engine, range(13), 4, "R")
    engine.step()
    (large,) = ask(engine, range(100, 120), 1, "L")
    for i in range(count):
        ask(engine, range(200 + 10 * i, 203 + 10 * i), 1, "abcdefgh"[i])
    run_checked(engine)
    return engine, large


@pytest.mark.parametrize(
    ("max_bypass", "schedule"),
    [
        (0, ["R", "R", "R", "R", "Labc"]),
        (2, ["R", "Rab", "R", "R"]),
        (8, ["R", "Rabcd", "Ref", "R", "L"]),
    ],
)
def test_a_request_that_does_not_fit_is_overtaken_so_often_and_no_more(max_bypass, schedule):
    engine, large = small_ones_behind_a_large_one(max_bypass)
    found = members(engine)
    assert found[: len(schedule)] == schedule
    assert large.num_bypassed == min(max_bypass, 6)
    assert large.output_token_ids == alone(range(100, 120), 1)


def test_a_stream_of_small_requests_does_not_starve_a_large_one():
    """Two small ones arrive in every step; the large one begins after max_bypass of them."""
    waits = {}
    for most in (3, 12, 10**6):
        engine = engine_with(num_blocks=8, max_bypass=most, max_num_seqs=6)
        ask(engine, range(3), 4, "R")
        engine.step()
        ask(engine, range(100, 132), 1, "L")  # all 8 blocks
        for i in range(60):
            ask(engine, range(200 + 10 * i, 203 + 10 * i), 2, f"s{i}")
            engine.step()
            engine.scheduler.check_invariants()
        run_checked(engine)
        waits[most] = first_steps(engine)["L"]
    assert waits[3] < waits[12] < 20 and waits[10**6] > 60


# ---- reserved growth and the watermark


def three_that_grow(**config):
    """Pool of 9 blocks. Each request begins with 2 blocks and ends with 4 (16 positions)."""
    engine = engine_with(num_blocks=9, **config)
    group = [
        ask(engine, range(t, t + 7), 10, name)[0]
        for name, t in zip("ABC", (0, 20, 40), strict=True)
    ]
    run_checked(engine)
    assert all(r.output_token_ids == alone(r.prompt_token_ids, 10) for r in group)
    return engine, [r.num_preemptions for r in group]


@pytest.mark.parametrize("policy", POLICIES)
def test_reserved_admission_keeps_everybodys_growth_and_never_preempts(policy):
    engine, preemptions = three_that_grow(policy=policy, admission="reserved")
    assert preemptions == [0, 0, 0]
    assert max(len(step) for step in engine.runner.steps) == 2


def test_current_admission_takes_all_three_and_one_loses_its_blocks():
    engine, preemptions = three_that_grow()
    assert members(engine)[0] == "ABC" and preemptions == [0, 0, 1]


def test_reserved_growth_ends_at_the_longest_context():
    """max_tokens asks for far more than max_model_len allows: 12 positions are 3 blocks."""
    engine = engine_with(num_blocks=9, admission="reserved", max_model_len=12)
    for name, t in zip("ABC", (0, 20, 40), strict=True):
        ask(engine, range(t, t + 7), 10**6, name)
    run_checked(engine)
    assert members(engine)[0] == "ABC"


def test_reserved_growth_counts_shared_blocks_once():
    """A holds 3 blocks of the prompt and may take 1; B shares two of them and needs 2 of its
    own: 5 blocks do."""
    engine = engine_with(num_blocks=6, admission="reserved")
    ask(engine, range(11), 6, "A")
    engine.step()
    (b,) = ask(engine, [*range(8), 50], 8, "B")
    run_checked(engine)
    assert members(engine)[1] == "AB" and b.num_preemptions == 0
    assert b.num_cached_tokens == 8


@pytest.mark.parametrize(("num_blocks", "begins"), [(8, 1), (7, 8)])
def test_reserved_growth_counts_the_continuations_that_are_still_to_fork(num_blocks, begins):
    """Two continuations of 6 tokens and 7 outputs end in 3 blocks each and share the first: 5 in
    all. B needs 3, and waits for them where there are 7."""
    engine = engine_with(num_blocks=num_blocks, admission="reserved", max_num_batched_tokens=4)
    a = ask(engine, range(6), 7, "A", n=2)
    ask(engine, range(50, 54), 9, "B")
    run_checked(engine)
    assert [r.num_preemptions for r in a] == [0, 0]
    assert first_steps(engine)["B"] == begins


def test_reserved_lets_a_request_that_outgrows_the_pool_run_alone():
    engine = engine_with(num_blocks=4, admission="reserved")
    (a,) = ask(engine, range(4), 50, "A")
    (b,) = ask(engine, range(20, 24), 2, "B")
    run_checked(engine)
    assert a.finish_reason is FinishReason.CAPACITY
    assert len(a.output_token_ids) == 13  # 16 positions and the output that the last one gives
    assert b.output_token_ids == alone(range(20, 24), 2)
    assert members(engine)[-2:] == ["B", "B"]


@pytest.mark.parametrize(
    ("watermark", "together"), [(0.0, 4), (0.25, 3), (0.26, 2), (0.5, 2), (0.75, 1), (0.99, 1)]
)
def test_the_watermark_is_left_free_at_an_admission(watermark, together):
    """Four requests of one block in a pool of four; the first one is not held back."""
    engine = engine_with(num_blocks=4, watermark=watermark)
    for i in range(4):
        ask(engine, [i], 1, "ABCD"[i])
    run_checked(engine)
    assert len(engine.runner.steps[0]) == together


def test_the_watermark_holds_for_reserved_growth_too():
    engine = engine_with(num_blocks=9, watermark=0.2, admission="reserved")
    for name, t in (("A", 0), ("B", 20)):
        ask(engine, range(t, t + 7), 10, name)
    run_checked(engine)
    assert members(engine)[0] == "A"
