"""Reserved admission behind a window counts a shared block once (block size 4, window 8)."""

from history_runner import alone, make_reserved, run_checked
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_cases import ask, engine_with, members

from kvlab.core.request import FinishReason, SamplingParams

WINDOW = 8


def a_then_b(num_blocks, b_prompt):
    """A's 12 tokens and 4 outputs; B, of 9 tokens and 4 outputs, comes a step later."""
    engine = engine_with(num_blocks=num_blocks, window=WINDOW, admission="reserved")
    group = ask(engine, range(12), 4, "A")
    engine.step()
    group += ask(engine, b_prompt, 4, "B")
    run_checked(engine)
    assert [r.num_preemptions for r in group] == [0, 0]
    assert all(r.output_token_ids == alone(r.prompt_token_ids, 4) for r in group)
    return members(engine)[1], group[1].num_cached_tokens


def test_a_block_that_two_hold_is_counted_once():
    """A's first step computes 12 positions; its next query, at 12, reads 5 to 12: block 0 is out.

        A   |  out  |  1  |  2  |  3 to come |        1 is B's too
        B   |   0   |  1  |  2' to come |             its query at 8 reads 1 to 8

    Together 5 blocks. B alone could hold 3 at once and A 3, of which one is the same.
    """
    sharing = [*range(8), 50]
    assert a_then_b(5, sharing) == ("AB", 8)
    assert a_then_b(4, sharing) == ("A", 8)  # it waits until A has ended
    assert a_then_b(5, range(100, 109)) == ("A", 0)  # another prompt: 6 blocks are needed
    assert a_then_b(6, range(100, 109)) == ("AB", 0)


def test_what_is_shared_now_may_be_everybodys_own_later():
    """60 outputs each: past position 16 nothing is shared, so 3 blocks for A and, while B's prompt
    is computed, up to 4 for B."""
    for num_blocks, second in ((6, "A"), (7, "AB")):
        engine = engine_with(num_blocks=num_blocks, window=WINDOW, admission="reserved")
        ask(engine, range(8), 60, "A")
        engine.step()
        (b,) = ask(engine, range(8), 60, "B")
        run_checked(engine)
        assert members(engine)[1] == second
        assert b.num_preemptions == 0 and b.output_token_ids == alone(range(8), 60)


work = st.lists(
    st.tuples(st.integers(0, 24), st.integers(1, 12), st.integers(1, 30), st.integers(1, 3)),
    min_size=2,
    max_size=6,
)


@settings(max_examples=120)
@given(work, st.integers(1, 12), st.integers(1, 5), st.integers(0, 12), st.integers(1, 12))
def test_nobody_who_was_admitted_is_preempted_where_prompts_begin_alike(
    plans, window, size, spare, chunk
):
    """Prompts of `shared` common tokens and some of their own; one more comes in each step."""
    engine = make_reserved(window, size, spare, chunk)
    everyone = []
    for i, (shared, own, outputs, n) in enumerate(plans):
        prompt = [*range(shared), *range(100 + 20 * i, 100 + 20 * i + own)]
        everyone += engine.add_request(prompt, SamplingParams(outputs, n=n), request_id=f"q{i}")
        engine.step()
        engine.scheduler.check_invariants()
    run_checked(engine)
    for r in everyone:
        assert r.num_preemptions == 0 and r.finish_reason is FinishReason.LENGTH
        assert r.output_token_ids == alone(
            r.prompt_token_ids, r.sampling_params.max_tokens, r.sample_index
        )
