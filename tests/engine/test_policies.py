"""Whose turn it is under each policy, as literal schedules (block size 4 unless said)."""

import pytest
from history_runner import alone, run_checked
from policy_cases import POLICIES, ask, engine_with, members

from kvlab.core.request import FinishReason
from kvlab.core.scheduler_config import SchedulerConfig


def twelve_beside_two(**config):
    """A and B decode; then C arrives with 12 tokens and one output to give. Its schedule from
    there: P12 are 12 positions of C, D says that A or B took part."""
    engine = engine_with(**config)
    ask(engine, range(3), 9, "A")
    ask(engine, range(50, 53), 9, "B")
    engine.step()
    (c,) = ask(engine, range(100, 112), 1, "C")
    run_checked(engine)
    assert c.output_token_ids == alone(range(100, 112), 1)
    found = []
    for step in engine.runner.steps[1:]:
        parts = ["D"] * bool({"A", "B"} & step.keys()) + [f"P{step[n]}" for n in step if n == "C"]
        found.append("+".join(parts))
    return engine, found


@pytest.mark.parametrize(
    ("config", "schedule"),
    [
        ({"policy": "continuous"}, ["P12", "D", "D", "D"]),
        ({"policy": "alternating", "prefill_chunk": 4}, ["P4", "D", "P4", "D", "P4", "D", "D"]),
        ({"policy": "alternating", "prefill_chunk": 5}, ["P5", "D", "P5", "D", "P2", "D", "D"]),
        ({"policy": "alternating", "prefill_chunk": 11}, ["P11", "D", "P1", "D", "D"]),
        ({"policy": "alternating"}, ["P12", "D", "D", "D"]),
        ({"policy": "mixed"}, ["D+P12", "D", "D", "D"]),
        ({"policy": "mixed", "prefill_chunk": 4}, ["D+P4", "D+P4", "D+P4", "D", "D"]),
        ({"policy": "mixed", "max_num_batched_tokens": 6}, ["D+P4", "D+P4", "D+P4", "D", "D"]),
        ({"policy": "static", "prefill_chunk": 5}, [*["D"] * 8, "P5", "P5", "P2"]),
    ],
)
def test_twelve_tokens_beside_two_decoding_requests(config, schedule):
    _, found = twelve_beside_two(**config)
    assert found[: len(schedule)] == schedule


def test_the_last_chunk_gives_the_first_output():
    engine, _ = twelve_beside_two(policy="alternating", prefill_chunk=4)
    computed = [(i, s["C"]) for i, s in enumerate(engine.runner.steps) if "C" in s]
    assert computed == [(1, 4), (3, 4), (5, 4)]


@pytest.mark.parametrize(
    ("policy", "schedule"),
    [
        ("static", ["AB", "AB", "B", "B", "C", "C"]),
        ("continuous", ["AB", "AB", "C", "BC", "B"]),
        ("mixed", ["AB", "AB", "BC", "BC"]),
    ],
)
def test_two_slots_a_ends_and_c_waits(policy, schedule):
    """The chapter's example: A has two outputs to give, B four, and C waits for a slot."""
    engine = engine_with(policy=policy, max_num_seqs=2)
    for name, outputs in (("A", 2), ("B", 4), ("C", 2)):
        ask(engine, [ord(name), 1], outputs, name)
    run_checked(engine)
    assert members(engine) == schedule


def test_the_row_of_a_survivor_changes_and_its_positions_go_on():
    """A's row is free after step 2: B moves from row 1 to row 0, and its positions continue."""
    engine = engine_with(max_num_seqs=2)
    for name, outputs in (("A", 2), ("B", 4), ("C", 2)):
        ask(engine, [ord(name), 1], outputs, name)
    engine.start_trace()
    run_checked(engine)
    rows = {}
    for event in engine.stop_trace().events:
        if event.kind == "computed":
            rows.setdefault(event.clock, []).append((event.request_id, event.data["start"]))
    assert [[name for name, _ in row] for row in rows.values()] == [
        ["A", "B"],
        ["A", "B"],
        ["B", "C"],
        ["B", "C"],
    ]
    assert [start for row in rows.values() for name, start in row if name == "B"] == [0, 2, 3, 4]


def test_a_static_group_is_filled_step_by_step_until_the_queue_is_empty():
    """The budget takes one prompt a step. J comes while B has not begun, L when all have."""
    engine = engine_with(policy="static", max_num_batched_tokens=8)
    ask(engine, range(8), 3, "A")
    ask(engine, range(20, 28), 2, "B")
    engine.step()
    ask(engine, range(40, 44), 2, "J")
    engine.step()
    engine.step()
    ask(engine, range(60, 64), 1, "L")
    run_checked(engine)
    assert members(engine) == ["A", "B", "J", "ABJ", "A", "L"]


def test_a_preempted_member_of_a_static_group_joins_the_next_one():
    engine = engine_with(num_blocks=4, policy="static")
    ask(engine, range(7), 6, "A")
    (b,) = ask(engine, range(20, 27), 6, "B")
    (c,) = ask(engine, range(40, 44), 1, "C")
    run_checked(engine)
    assert b.num_preemptions == 1
    assert members(engine) == [*["AB"] * 2, *["A"] * 4, "BC", *["B"] * 3]
    assert b.output_token_ids == alone(range(20, 27), 6)
    assert c.output_token_ids == alone(range(40, 44), 1)


def test_no_step_is_idle_between_two_static_groups():
    engine = engine_with(policy="static", max_num_seqs=1)
    for name in "ABC":
        ask(engine, [ord(name)], 2, name)
    steps = len(run_checked(engine))
    assert members(engine) == list("AABBCC") and steps == 6


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("admission", ["current", "reserved"])
@pytest.mark.parametrize("chunked", [True, False])
def test_s02_two_requests_too_large_together_both_end(policy, admission, chunked):
    """Pool of 2,047 blocks; A needs 1,600 and B 1,200. `run_checked` sees idle steps."""
    whole = policy == "continuous" or not chunked
    engine = engine_with(
        num_blocks=2047,
        block_size=1,
        max_num_batched_tokens=2048 if whole else 128,
        enable_chunked_prefill=chunked,
        policy=policy,
        admission=admission,
    )
    (a,) = ask(engine, range(1600), 3, "A")
    (b,) = ask(engine, range(5000, 6200), 3, "B")
    run_checked(engine)
    assert (a.finish_reason, b.finish_reason) == (FinishReason.LENGTH, FinishReason.LENGTH)
    assert a.output_token_ids == alone(range(1600), 3)
    assert b.output_token_ids == alone(range(5000, 6200), 3)
    if whole or admission == "reserved":
        assert (a.num_preemptions, b.num_preemptions) == (0, 0)


@pytest.mark.parametrize("policy", ["static", "alternating", "mixed"])
def test_s04_a_long_prompt_in_sixteen_chunks_and_a_rest(policy):
    engine = engine_with(num_blocks=2100, block_size=16, policy=policy)
    ask(engine, range(32889), 1, "A")
    outputs = run_checked(engine)
    assert [s["A"] for s in engine.runner.steps] == [2048] * 16 + [121]
    assert [len(o) for o in outputs] == [0] * 16 + [1]


def test_s04_continuous_refuses_a_prompt_beyond_the_budget():
    engine = engine_with(num_blocks=2100, block_size=16, policy="continuous")
    with pytest.raises(ValueError, match="at most 2048; use another policy than 'continuous' or"):
        ask(engine, range(32889), 1, "A")


@pytest.mark.parametrize("policy", POLICIES)
def test_continuations_and_prefix_hits_under_every_policy(policy):
    engine = engine_with(policy=policy, max_num_seqs=5)
    first = ask(engine, range(9), 4, "A", n=3)
    engine.step()
    second = ask(engine, [*range(8), 70], 4, "B", n=2)
    run_checked(engine)
    for group in (first, second):
        prompt = group[0].prompt_token_ids
        whole = [alone(prompt, 4, i) for i in range(len(group))]
        assert [r.output_token_ids for r in group] == whole
    assert second[1].num_cached_tokens == 8


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"policy": "batch"}, "policy is 'batch'; give 'mixed' or 'static' or"),
        ({"policy": ["mixed"]}, r"policy is \['mixed'\]; give"),
        ({"order": None}, "order is None; give 'fcfs' or 'priority'"),
        ({"admission": "all"}, "admission is 'all'; give 'current' or 'reserved'"),
        ({"preempt_by": "swap"}, "preempt_by is 'swap'; give 'recompute' or 'offload'"),
        ({"prefill_chunk": 0}, "prefill_chunk is 0; give an integer of at least 1, or None"),
        ({"priority_ageing": 0.5}, "priority_ageing is 0.5; give an integer of at least 1, or"),
        ({"max_bypass": -1}, "max_bypass is -1; give an integer of at least 0"),
        ({"max_decode_gap": 1}, "max_decode_gap is 1; give an integer of at least 2"),
        ({"max_prefill_gap": True}, "max_prefill_gap is True; give an integer of at least 2"),
        ({"watermark": 1}, "watermark is 1; give a share"),
        ({"watermark": float("nan")}, "watermark is nan; give a share"),
        (
            {"policy": "continuous", "prefill_chunk": 4},
            "prefill_chunk is 4 and the policy is 'continuous'",
        ),
        (
            {"enable_chunked_prefill": False, "prefill_chunk": 4},
            "prefill_chunk is 4 and enable_chunked_prefill is False",
        ),
    ],
)
def test_a_bad_setting_names_the_value_and_the_remedy(bad, message):
    with pytest.raises(ValueError, match=message):
        SchedulerConfig(**bad)
