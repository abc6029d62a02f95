"""Requests that go to the CPU tier and come back, on the real engine, block size 4 (section 21.3).

The tier's copies end at once, or some steps later, or fail; the runner notices any block that is
read or reused too early. S13 with the copy under way stands here.
"""

import pytest
from history_runner import StepClock, alone, make_engine
from tiered_runner import TieredRunner, ask, check_empty, make_tiered, run_tiered, two_in_five

from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.request import FinishReason, RequestStatus
from kvlab.core.schedule_log import ScheduleLog
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.engine import LLMEngine


def statuses(engine, *requests):
    engine.step()
    engine.scheduler.check_invariants()
    return [r.status.value for r in requests]


def test_preempted_by_offload_and_back_without_computing_anything_again():
    engine, a, b = two_in_five(prefix_caching=False)
    assert statuses(engine, a, b) == ["running", "running"]  # blocks 0 1 and 2 3
    assert statuses(engine, a, b) == ["running", "offloaded"]  # A takes block 4, B finds none
    assert engine.runner.messages[1] == ([(2, 0), (3, 1)], [])
    assert engine.scheduler.offload.record_of(b).num_tokens == 8
    for _ in range(3):  # B needs three blocks and at most two are free
        assert statuses(engine, a, b) == ["running", "offloaded"]
    assert statuses(engine, a, b) == ["finished", "offloaded"]
    assert statuses(engine, a, b) == ["finished", "running"]  # loaded, and computed from the next
    assert engine.runner.messages[6][1] == [(0, 3), (1, 4)]  # A's last two blocks
    run_tiered(engine)
    assert [s.get("B") for s in engine.runner.steps] == [8, *[None] * 6, *[1] * 5]
    assert a.output_token_ids == alone(range(8), 6)
    assert b.output_token_ids == alone(range(100, 108), 6)
    stats = engine.scheduler.offload.stats
    assert (stats.requests_offloaded, stats.requests_loaded) == (1, 1)
    assert (stats.blocks_stored, stats.blocks_loaded, stats.bytes_stored) == (2, 2, 2)
    check_empty(engine)


def test_with_a_prefix_cache_only_what_left_the_device_is_loaded():
    """B's second block was evicted for A; its first one is still found under its identity."""
    engine, _, b = two_in_five()
    run_tiered(engine)
    assert engine.scheduler.offload.stats.blocks_loaded < 2
    assert sum(s.get("B", 0) for s in engine.runner.steps) == 8 + 5
    assert b.output_token_ids == alone(range(100, 108), 6)
    check_empty(engine)


def test_a_full_tier_means_computing_again():
    engine = make_tiered(5, 1, prefix_caching=False)
    a = ask(engine, range(8), 6, "A")
    b = ask(engine, range(100, 108), 6, "B")
    engine.step()
    assert statuses(engine, a, b) == ["running", "preempted"]
    run_tiered(engine)
    assert engine.scheduler.offload.stats.refused == 1
    assert sum(s.get("B", 0) for s in engine.runner.steps) == 8 + 9 + 4
    assert b.output_token_ids == alone(range(100, 108), 6)
    check_empty(engine)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("delay", [0, 3])
def test_whichever_copy_fails_nothing_is_lost(number, delay):
    """Copies 1 and 2 are B's stores, 3 and 4 its loads."""
    engine, a, b = two_in_five(
        prefix_caching=False, delays=(delay,), fails=lambda kind, n: n == number
    )
    run_tiered(engine)
    assert a.output_token_ids == alone(range(8), 6)
    assert b.output_token_ids == alone(range(100, 108), 6)
    stats = engine.scheduler.offload.stats
    assert (stats.failed_stores, stats.failed_loads) == ((1, 0) if number < 3 else (0, 1))
    assert stats.requests_loaded == 0
    assert sum(s.get("B", 0) for s in engine.runner.steps) == 8 + 9 + 4
    check_empty(engine)


def loading(engine, *requests):
    """Step until the last of them is being loaded."""
    while requests[-1].status is not RequestStatus.LOADING:
        engine.step()
        engine.scheduler.check_invariants()


def coming_back(delays):
    """B's two blocks are on their way back, each for so many steps; C runs beside them."""
    engine = make_tiered(16, 8, prefix_caching=False, delays=(0, 0, *delays))
    c = ask(engine, [7], 20, "C")
    b = ask(engine, range(100, 108), 6, "B")
    engine.step()
    engine.suspend("B")
    engine.step()
    engine.resume("B")
    assert statuses(engine, b, c) == ["loading", "running"]
    return engine, b, c


def test_a_loading_request_has_no_turn_until_its_copies_ended():
    engine, b, c = coming_back((2, 3))
    assert statuses(engine, b) == ["loading"]
    assert statuses(engine, b) == ["loading"]  # its first copy has ended, its second has not
    assert statuses(engine, b) == ["running"]
    run_tiered(engine)
    assert [s.get("B", 0) for s in engine.runner.steps[:8]] == [8, 0, 0, 0, 0, 0, 1, 1]
    assert b.output_token_ids == alone(range(100, 108), 6)
    assert c.output_token_ids == alone([7], 20)
    check_empty(engine)


def test_s13_abort_while_a_copy_from_the_tier_is_under_way():
    """One terminal event; B's two blocks stay in use until the copies end, and are freed once."""
    engine, _, c = coming_back((2, 4))
    engine.start_trace()
    pool, tier = engine.scheduler.manager.pool, engine.scheduler.offload.tier.pool
    b, table = engine.requests["B"], engine.scheduler.manager.block_table("B")
    assert len(table) == 2
    assert engine.abort("B")
    assert not engine.abort("B")
    assert (b.status, b.finish_reason) == (RequestStatus.FINISHED, FinishReason.ABORT)
    assert engine.scheduler.manager.block_table("B") == []
    for _ in range(3):
        assert [pool.blocks[i].ref_cnt for i in table] == [1, 1]
        assert tier.num_free_blocks == 6  # the sources are read until then
        assert statuses(engine, b) == ["finished"]
    engine.step()
    engine.scheduler.check_invariants()
    assert set(table) <= set(pool.free_block_ids)
    assert tier.num_free_blocks == 8
    run_tiered(engine)
    told = [e.kind for e in engine.stop_trace().events if e.request_id == "B"]
    assert told == ["finished", "freed"]
    assert c.output_token_ids == alone([7], 20)
    check_empty(engine)


def test_a_new_request_may_take_the_name_while_the_copy_goes_on():
    engine, _, b = two_in_five(prefix_caching=False, delays=(0, 0, 5, 5))
    loading(engine, b)
    engine.abort("B")
    again = ask(engine, range(200, 204), 4, "B")
    run_tiered(engine)
    assert again.output_token_ids == alone(range(200, 204), 4)
    check_empty(engine)


def test_an_abort_while_a_store_is_under_way():
    engine, a, b = two_in_five(prefix_caching=False, delays=(5,))
    engine.step()
    assert statuses(engine, b) == ["offloaded"]
    engine.abort("B")
    tier = engine.scheduler.offload.tier.pool
    assert tier.num_free_blocks == 6  # both are being written
    run_tiered(engine)
    check_empty(engine)
    assert a.output_token_ids == alone(range(8), 6)


def test_nobody_ends_for_capacity_while_a_copy_holds_the_blocks():
    """B is aborted loading: for some steps its blocks are nobody's. C needs them and waits."""
    engine, _, b = two_in_five(prefix_caching=False, delays=(0, 0, 3, 3))
    loading(engine, b)
    engine.abort("B")
    c = ask(engine, range(300, 318), 2, "C")  # all five blocks
    run_tiered(engine)
    assert c.finish_reason is FinishReason.LENGTH
    assert c.output_token_ids == alone(range(300, 318), 2)
    check_empty(engine)


def test_a_running_request_waits_for_blocks_that_a_copy_holds():
    """Six blocks: C fills four, and two of B's are being loaded when B ends. At position 16 C needs
    a fifth: it keeps its own, misses some steps and goes on once the copies have ended."""
    engine = make_tiered(6, 8, prefix_caching=False, delays=(0, 0, 13))
    c = ask(engine, range(8), 12, "C")
    b = ask(engine, range(100, 108), 6, "B")
    engine.step()
    engine.suspend("B")
    engine.step()
    engine.resume("B")
    assert statuses(engine, b, c) == ["loading", "running"]
    engine.abort("B")
    run_tiered(engine)
    assert c.finish_reason is FinishReason.LENGTH
    assert c.num_preemptions == 0
    assert c.output_token_ids == alone(range(8), 12)
    check_empty(engine)


@pytest.mark.parametrize("early", [False, True])
def test_a_step_that_fails_before_or_after_it_began_the_copies(early):
    engine, a, b = two_in_five(prefix_caching=False, delays=(0, 0, 3, 3))
    seen = []
    for step in range(40):
        fails = step in (1, 5, 7, 8)
        engine.runner.fail_early, engine.runner.fail_next = fails and early, fails and not early
        try:
            engine.step()
        except RuntimeError as error:
            seen.append(str(error))
        engine.scheduler.check_invariants()
    assert seen == ["no copy was started" if early else "the model pass failed"] * 4
    assert a.output_token_ids == alone(range(8), 6)
    assert b.output_token_ids == alone(range(100, 108), 6)
    check_empty(engine)


@pytest.mark.parametrize("delay", [0, 3])
def test_a_step_interrupted_before_its_update(delay):
    """The runner has begun B's load and nobody was told: the next step first waits for its end."""
    engine = make_tiered(4, 8, prefix_caching=False, delays=(0, delay))
    a, b = ask(engine, range(4), 9, "A"), ask(engine, range(100, 104), 5, "B")
    engine.step()
    engine.suspend("B")
    engine.step()
    engine.resume("B")
    update, engine.scheduler.update_from_output = engine.scheduler.update_from_output, None
    with pytest.raises(TypeError):
        engine.step()
    assert b.status is RequestStatus.LOADING
    engine.scheduler.update_from_output = update
    run_tiered(engine)
    assert a.output_token_ids == alone(range(4), 9)
    assert b.output_token_ids == alone(range(100, 104), 5)
    stats = engine.scheduler.offload.stats
    assert stats.requests_loaded == stats.requests_offloaded > 0
    check_empty(engine)


# ---- what is written down


def test_the_trace_tells_where_the_blocks_are():
    engine, *_ = two_in_five(prefix_caching=False, delays=(1,))
    engine.start_trace()
    run_tiered(engine)
    frames = list(engine.stop_trace().frames())
    mine = [(f.event.kind, f.state) for f in frames[1:] if f.event.request_id == "B"]
    kinds = [kind for kind, _ in mine]
    way = ["freed", "offloaded", "block_taken", "block_taken", "loading", "loaded", "admitted"]
    start = kinds.index("offloaded") - 1
    assert kinds[start : start + 7] == way
    at = {kind: state for kind, state in mine[start : start + 7]}
    away = at["offloaded"]
    assert away["requests"]["B"]["status"] == "offloaded"
    assert away["requests"]["B"]["block_table"] == []
    assert away["requests"]["B"]["cpu_block_table"] == [0, 1]
    assert away["cpu_blocks"]["0"] == {"ref_cnt": 2, "identity": None, "tier": "cpu"}
    assert at["loading"]["requests"]["B"]["status"] == "loading"
    assert at["loading"]["requests"]["B"]["num_computed_tokens"] == 0
    assert at["loaded"]["requests"]["B"]["num_computed_tokens"] == 8
    assert at["loaded"]["requests"]["B"]["cpu_block_table"] == []
    assert frames[-1].state["cpu_free"] and "cpu_blocks" in frames[0].state


def test_without_a_tier_a_trace_has_none():
    engine = make_engine(5)
    engine.start_trace()
    ask(engine, range(8), 6, "A")
    engine.run()
    state = engine.stop_trace().last_state()
    assert not {"cpu_blocks", "cpu_free"} & state.keys()
    assert "cpu_block_table" not in state["requests"]["A"]


def test_the_schedule_log_shows_who_is_away_and_who_is_coming():
    engine = make_tiered(5, 8, prefix_caching=False, delays=(0, 0, 1))
    with ScheduleLog(engine.scheduler) as log:
        ask(engine, range(8), 6, "A")
        ask(engine, range(100, 108), 6, "B")
        run_tiered(engine)
    spans = [(span.kind, span.count) for span in log.requests["B"].spans]
    # the second step of loading has no other work and waits for the copies
    assert spans == [("prefill", 1), ("offloaded", 5), ("loading", 2), ("decode", 5)]


# ---- the cache as a whole


def test_forgetting_all_prefixes_forgets_those_of_the_tier():
    engine = make_tiered(4, 8)
    ask(engine, range(12), 2, "A")
    run_tiered(engine)
    ask(engine, range(50, 62), 2, "B")
    run_tiered(engine)
    tier = engine.scheduler.offload.tier.pool
    assert any(b.block_hash for b in tier.blocks.values())
    c = ask(engine, range(70, 78), 4, "C")
    engine.step()
    assert not engine.reset_prefix_cache()
    engine.suspend("C")
    assert not engine.reset_prefix_cache()  # C's blocks in the tier are in use
    assert any(b.block_hash for b in tier.blocks.values())
    engine.resume("C")
    run_tiered(engine)
    assert engine.reset_prefix_cache()
    assert not any(b.block_hash for b in tier.blocks.values())
    assert c.output_token_ids == alone(range(70, 78), 4)


def test_preemption_to_a_tier_that_is_not_there_is_refused():
    manager = KVCacheManager(BlockPool(8), 4)
    with pytest.raises(ValueError, match="preempt_by is 'offload' and there is no CPU tier"):
        Scheduler(manager, SchedulerConfig(preempt_by="offload"))
    engine = LLMEngine(Scheduler(manager, SchedulerConfig()), TieredRunner(4), StepClock())
    assert engine.scheduler.offload is None
