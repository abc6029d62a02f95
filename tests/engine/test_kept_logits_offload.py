"""A request that is cached whole and loses its blocks, in the same step, before it could select."""

from history_runner import alone
from tiered_runner import ask, check_empty, make_tiered, run_tiered

from kvlab.core.prefix_cache import PrefixCachePolicy


def test_it_waits_to_be_found_again_and_selects_then():
    """Block size 1, pool of 6, one position a step: after a step without prompts they go first.
    Then "again" is admitted with all its 3 positions and their logits, and "decodes" needs the
    last block. The tier has no place for logits, so a record of all 3 could never go on."""
    engine = make_tiered(
        6,
        8,
        1,
        cache_policy=PrefixCachePolicy(kept_logits=8),
        max_num_batched_tokens=1,
        max_prefill_gap=2,
    )
    ask(engine, [1, 2, 3], 1, "first")
    run_tiered(engine)
    decodes = ask(engine, [10, 11], 4, "decodes")
    engine.step()
    engine.step()
    again = ask(engine, [1, 2, 3], 2, "again")
    engine.step()
    engine.step()
    assert again.num_preemptions == 1
    assert engine.scheduler.offload.record_of(again) is None
    run_tiered(engine)
    assert again.output_token_ids == alone([1, 2, 3], 2)
    assert decodes.output_token_ids == alone([10, 11], 4)
    check_empty(engine)


def test_the_same_with_a_prompt_of_one_token():
    engine = make_tiered(
        4,
        8,
        1,
        cache_policy=PrefixCachePolicy(kept_logits=8),
        max_num_batched_tokens=1,
        max_prefill_gap=2,
    )
    ask(engine, [1], 1, "first")
    run_tiered(engine)
    decodes = ask(engine, [10, 11], 3, "decodes")
    engine.step()
    engine.step()
    again = ask(engine, [1], 2, "again")
    engine.step()
    engine.step()
    assert again.num_preemptions == 1
    assert engine.scheduler.offload.record_of(again) is None
    run_tiered(engine)
    assert again.output_token_ids == alone([1], 2)
    assert decodes.output_token_ids == alone([10, 11], 3)
    check_empty(engine)
