"""Time to first token in parts: exact on a clock that is a script, whole on a real one."""

import itertools
import re

import pytest

from kvlab import LLM, SamplingParams, tiny
from kvlab.measure.first_token import FirstToken, first_token, least_disturbed

PROMPT = tiny.prompt("Ada likes soup. The key is red.", "What colour is the key?")  # 27 tokens


def llm_with(times, **options):
    """An engine whose clock reads the next of these numbers each time it is asked."""
    numbers = iter(times)
    return LLM("tiny", block_size=4, num_blocks=64, clock=lambda: next(numbers), **options)


def test_the_parts_on_a_scripted_clock():
    """start, arrival, the pass begins, scores, the step ends, text; then the request's end."""
    llm = llm_with([1, 3, 11, 31, 34, 36, 99])
    found = first_token(llm, PROMPT)
    assert found == FirstToken(
        queue=8,
        prefill=20,
        selection=3,
        delivery=2,
        remainder=2,
        total=35,
        num_prompt_tokens=27,
        num_cached_tokens=0,
    )
    assert found.ttft == 8 + 20 + 3 + 2 == 33  # the sum of the chapter's example
    assert list(found.parts()) == ["remainder", "queue", "prefill", "selection", "delivery"]
    assert sum(found.parts().values()) == found.total


def test_a_prompt_in_chunks_is_prefilled_until_its_scores_are_there():
    """Three passes of 10, 10 and 7 positions: their whole span is prefill."""
    llm = llm_with([0, 1, 10, 20, 30, 40, 50, 60, 70, 80, 90], max_num_batched_tokens=10)
    found = first_token(llm, PROMPT)
    assert (found.queue, found.prefill, found.selection, found.delivery) == (9, 50, 10, 10)


def test_a_hit_leaves_the_rest_of_the_prompt_to_compute():
    llm = llm_with(itertools.count())
    first, again = first_token(llm, PROMPT), first_token(llm, PROMPT)
    salted = first_token(llm, PROMPT, cache_salt="another group")
    assert [f.num_cached_tokens for f in (first, again, salted)] == [0, 24, 0]
    assert [f.num_prefill_tokens for f in (first, again, salted)] == [27, 3, 27]


def test_on_a_real_clock_nothing_is_negative_and_nothing_is_missing():
    llm = LLM("tiny", block_size=4, num_blocks=64)
    for _ in range(3):
        found = first_token(llm, PROMPT, SamplingParams(max_tokens=1))
        parts = found.parts().values()
        assert min(parts) >= 0 and found.prefill > 0
        assert sum(parts) == pytest.approx(found.total, abs=1e-9)
        assert found.ttft == pytest.approx(found.total - found.remainder, abs=1e-9)


def test_waiting_for_a_seat_is_queue_time():
    """One seat, taken by a request that was there first: its steps are the newcomer's queue."""
    llm = llm_with(itertools.count(), max_num_seqs=1)
    alone = first_token(llm, PROMPT)
    llm.engine.add_request([3, 4, 5], SamplingParams(max_tokens=6, ignore_eos=True))
    behind = first_token(llm, PROMPT)
    assert alone.queue == 1 and behind.queue > 10
    assert alone.prefill == behind.prefill == 1
    assert llm.engine.requests == {}


def test_another_callback_goes_on_and_nothing_is_left_behind():
    llm = LLM("tiny", block_size=4, num_blocks=64)
    seen = []
    llm.runner.on_logits = watching = lambda rows: seen.extend(rows)
    first_token(llm, PROMPT, SamplingParams(max_tokens=8))
    assert llm.runner.on_logits is watching and len(seen) == 1
    pool = llm.engine.scheduler.manager.pool
    assert llm.engine.requests == {} and pool.num_free_blocks == pool.num_blocks


def test_an_output_without_text_ends_with_its_last_token():
    """The end mark is selected at once: there is no text, and delivery lasts until the stream
    says so."""
    llm = llm_with(itertools.count())
    prompt = PROMPT + " The key is red."
    (end,) = llm.generate(prompt, SamplingParams(max_tokens=1))
    assert end.outputs[0].text == ""
    assert first_token(llm, prompt).total > 0


@pytest.mark.parametrize("n", [2, 5])
def test_several_continuations_are_refused(n):
    llm = LLM("tiny", num_blocks=32)
    with pytest.raises(ValueError, match=f"n={n}"):
        first_token(llm, PROMPT, SamplingParams(n=n))
    assert llm.engine.requests == {}


def test_a_prompt_that_is_refused_leaves_the_engine_as_it_was():
    llm = LLM("tiny", block_size=4, num_blocks=4)
    with pytest.raises(ValueError, match="whole pool has 4"):
        first_token(llm, PROMPT)
    assert llm.runner.on_logits is None and llm.engine.requests == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sampling_params": 5}, "sampling_params is 5; give one SamplingParams, or None"),
        ({"sampling_params": [SamplingParams()]}, "sampling_params is [SamplingParams("),
        ({"sampling_params": {}}, "sampling_params is {}; give"),
        ({"cache_salt": 5}, "cache_salt is 5; give a text"),
        ({"cache_salt": ["a"]}, "cache_salt is ['a']; give a text"),
        ({"cache_salt": ""}, "cache_salt is ''; give a text that is not empty"),
        ({"prompt": 5}, "prompt is 5; give a text, or a list of token ids"),
        ({"prompt": None}, "prompt is None; give a text"),
        ({"prompt": [1.5]}, "prompt token 1.5 is not an id"),
        ({"prompt": [[1, 2]]}, "prompt token [1, 2] is not an id"),
        ({"prompt": ""}, "the prompt has no tokens; give at least one"),
    ],
)
def test_what_makes_no_request_is_refused_and_leaves_the_engine_as_it_was(given, said):
    llm = LLM("tiny", block_size=4, num_blocks=32)
    with pytest.raises(ValueError, match=re.escape(said)):
        first_token(llm, **{"prompt": PROMPT, **given})
    assert llm.runner.on_logits is None and llm.engine.requests == {}
    assert llm.prefix_cache_stats.queries == 0 and not llm.engine.has_unfinished_requests()


@pytest.mark.parametrize("llm", ["tiny", None, 5, LLM])
def test_what_is_no_engine_is_refused(llm):
    with pytest.raises(ValueError, match=re.escape(f"llm is {llm!r}; give an LLM, such as")):
        first_token(llm, PROMPT)


@pytest.mark.parametrize("runs", [5, None, "ab", [1, 2], FirstToken(0, 1, 0, 0, 0, 1, 9, 0)])
def test_what_is_no_list_of_runs_is_refused(runs):
    with pytest.raises(ValueError, match="give a list of what first_token returns"):
        least_disturbed(runs)


def test_the_least_disturbed_run_is_the_shortest():
    def run(total):
        return FirstToken(0, total, 0, 0, 0, total, 9, 0)

    assert least_disturbed([run(5), run(1), run(3)]).total == 1
    with pytest.raises(ValueError, match="at least one"):
        least_disturbed([])
