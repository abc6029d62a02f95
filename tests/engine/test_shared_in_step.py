"""A block that is found in the step in which another request is to fill it (case P19).

The finder counts on that write, so the writer keeps its part of the step: whoever needs blocks in
the same step takes them from somebody else, or waits.
"""

from itertools import product

from history_runner import alone, run_checked
from policy_cases import ask, engine_with

SHORT = {"block_size": 1, "order": "priority", "priority_ageing": None, "max_prefill_gap": 2}


def test_a_request_whose_new_block_was_found_is_not_preempted_in_that_step():
    engine = engine_with(num_blocks=14, max_num_batched_tokens=3, prefill_chunk=1, **SHORT)
    for i in range(3):
        ask(engine, [i], 30, f"D{i}", priority=1)
    engine.step()
    (late,) = ask(engine, range(20, 30), 2, "L", priority=5)
    engine.step()
    engine.step()
    # three decodes fill the budget in turn with L's chunks; B's prompt begins as L's does
    prompt = [*range(20, 20 + late.num_computed_tokens + 1), 55]
    (first,) = ask(engine, prompt, 3, "B", priority=0)
    run_checked(engine)
    assert list(first.output_token_ids) == alone(prompt, 3)
    assert first.num_cached_tokens > 0 or first.num_preemptions > 0


def test_any_pool_and_any_moment():
    """Decodes fill the budget, so prompts get steps of their own, and the pool is nearly full."""
    found = preempted = 0
    for blocks, decodes, moment in product(range(11, 20), (2, 3, 4), range(2, 8)):
        engine = engine_with(
            num_blocks=blocks, max_num_batched_tokens=decodes, prefill_chunk=1, **SHORT
        )
        for i in range(decodes):
            ask(engine, [i], 30, f"D{i}", priority=1)
        engine.step()
        (late,) = ask(engine, range(20, 30), 2, "L", priority=5)
        for _ in range(moment):
            engine.step()
        prompt = [*range(20, 20 + late.num_computed_tokens + 1), 55]
        (first,) = ask(engine, prompt, 3, "B", priority=0)
        run_checked(engine)
        said = list(first.output_token_ids)
        assert said == alone(prompt, 3)[: len(said)], (blocks, decodes, moment)
        found += first.num_cached_tokens > 0
        preempted += late.num_preemptions > 0
    assert min(found, preempted) >= 40  # it was crowded, and prefixes were shared
