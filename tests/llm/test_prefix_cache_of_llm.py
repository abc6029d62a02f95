"""The prefix cache as a caller of `LLM` meets it, on the embedded model."""

import pytest

from kvlab import LLM, PrefixCachePolicy, SamplingParams, tiny
from kvlab.core.hashing import truncated_sha256
from kvlab.core.prefix_cache import PrefixCacheStats
from kvlab.core.request import Request

RED = tiny.prompt("Ada likes soup. The key is red.", "What colour is the key?")
BLUE = tiny.prompt("Ada likes soup. The key is blue.", "What colour is the key?")


def answer(llm, prompt, **options):
    (out,) = llm.generate(prompt, SamplingParams(max_tokens=8), **options)
    return out.outputs[0].text, out.num_cached_tokens


def colliding_salt(llm, prompt, other, salt):
    """A salt under which the first block of `other` has the identity of the first of `prompt`."""
    hashes = llm.engine.scheduler.manager.prefix.block_hashes

    def first(text, salt):
        return hashes(Request("looks", llm.encode(text), cache_salt=salt), 1)

    wanted = first(prompt, salt)
    return next(s for s in map(str, range(10_000)) if first(other, s) == wanted)


@pytest.mark.parametrize(
    ("exact_match", "blue"), [(True, (" The key is blue.", 0)), (False, (" The key is red.", 16))]
)
def test_a_weak_hash_leaks_anothers_value_unless_contents_are_compared(exact_match, blue):
    policy = PrefixCachePolicy(truncated_sha256(1), exact_match)
    llm = LLM("tiny", block_size=16, num_blocks=32, prefix_cache_policy=policy)
    theirs = colliding_salt(llm, RED, BLUE, "mine")
    assert answer(llm, RED, cache_salt="mine") == (" The key is red.", 0)
    assert answer(llm, BLUE, cache_salt=theirs) == blue


def test_counters_and_reset():
    llm = LLM("tiny", block_size=4, num_blocks=64)
    assert llm.prefix_cache_stats == PrefixCacheStats()
    first, again = answer(llm, RED), answer(llm, RED)
    assert (first, again) == ((" The key is red.", 0), (" The key is red.", 24))
    stats = llm.prefix_cache_stats
    assert (stats.requests, stats.queries, stats.hits, stats.hit_rate) == (2, 54, 24, 24 / 54)
    assert llm.reset_prefix_cache() is True
    assert llm.prefix_cache_stats == PrefixCacheStats()
    assert answer(llm, RED) == first


def test_reset_is_refused_while_a_stream_is_open():
    llm = LLM("tiny", block_size=4, num_blocks=64)
    stream = llm.stream(RED)
    next(stream)
    assert llm.reset_prefix_cache() is False
    stream.close()
    assert llm.reset_prefix_cache() is True


def test_a_cached_prompt_of_whole_blocks_computes_nothing_where_logits_are_kept():
    for kept, cached, computed in ((0, 24, 3), (1, 27, 0)):
        policy = PrefixCachePolicy(kept_logits=kept)
        llm = LLM("tiny", block_size=3, num_blocks=64, prefix_cache_policy=policy)
        first = answer(llm, RED)
        llm.start_trace(attention_layers=[0])
        assert answer(llm, RED) == (first[0], cached)
        computing = [e for e in llm.stop_trace().events if e.kind == "computed"]
        prompt = [e.data["end"] - e.data["start"] for e in computing if e.data["start"] < 27]
        assert sum(prompt) == computed
        assert llm.runner.kept_logits_nbytes == kept * llm.model.config.vocab_size * 4


def test_immediate_release_forgets_a_prompt_with_its_last_request():
    llm = LLM("tiny", num_blocks=32, prefix_cache_policy=PrefixCachePolicy(retain_freed=False))
    assert answer(llm, RED) == answer(llm, RED) == (" The key is red.", 0)
    two = llm.generate([RED, RED], SamplingParams(max_tokens=8))
    assert [o.num_cached_tokens for o in two] == [0, 16]  # side by side they share


def test_without_prefix_caching_there_is_nothing_to_count():
    llm = LLM("tiny", num_blocks=32, enable_prefix_caching=False)
    assert answer(llm, RED) == answer(llm, RED) == (" The key is red.", 0)
    assert llm.prefix_cache_stats == PrefixCacheStats()
