"""Scheduling is measured where every request decodes, and its work grows with them alone."""

from collections import Counter

import pytest

from kvlab.core.request import SamplingParams
from kvlab.measure import report, scheduler_cost


def test_a_round_times_schedule_and_update_within_the_step():
    scheduling, step = scheduler_cost.one_round(scheduler_cost.engine_without_tensors(8), 8, 0)
    assert 0 < scheduling < step


def test_every_request_decodes_in_every_measured_step():
    """Otherwise the figure would hold prefills, or steps with fewer requests."""
    engine, found = scheduler_cost.engine_without_tensors(4), Counter()
    execute = engine.runner.execute

    def counted(output):
        found[tuple(len(row.token_ids) for row in output.requests)] += 1
        return execute(output)

    engine.runner.execute = counted
    scheduler_cost.one_round(engine, 4, 0)
    assert found == {(64,) * 4: 1, (1,) * 4: scheduler_cost.STEPS}


def test_the_table_names_cases_share_and_goal():
    found = scheduler_cost.measure(1, quick=True)
    assert list(found) == ["embedded model", "16 running", "64 running"]
    assert 0 < found["embedded model"]["share"]["median"] < 1
    assert ["share" in figures for figures in found.values()] == [True, False, False]
    assert "10% " in report.scheduler(found)


@pytest.mark.parametrize(("running", "waiting"), [(4, 0), (64, 0), (64, 500)])
def test_a_step_looks_at_each_running_request_once_and_at_the_head_of_the_queue(running, waiting):
    engine, calls = scheduler_cost.engine_without_tensors(running), Counter()
    for i in range(running + waiting):
        engine.add_request([i, 1, 2], SamplingParams(max_tokens=30, ignore_eos=True))
    engine.step()
    manager = engine.scheduler.manager
    for name in ("allocate_slots", "get_computed_blocks", "block_table"):
        function = getattr(manager, name)
        setattr(manager, name, lambda *a, n=name, f=function: (calls.update([n]), f(*a))[1])
    for _ in range(5):
        engine.step()
    assert calls == {"allocate_slots": 5 * running, "block_table": 5 * running}
