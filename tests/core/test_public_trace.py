"""Published traces: equal hash ids become equal tokens, and nothing of a line is lost."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.core.public_trace import load_public_trace, read_public_trace

# two requests that share their first two blocks of 512 tokens
TWO = """\
{"timestamp": 27482, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 48]}
{"timestamp": 30535, "input_length": 1536, "output_length": 26, "hash_ids": [46, 47, 49]}
"""


def common(a, b):
    """Length of the common prefix."""
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


def line(**changes):
    known = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
    return json.dumps({k: v for k, v in {**known, **changes}.items() if v is not None})


@pytest.mark.parametrize("scale, lengths", [(1, (1100, 1536, 52)), (32, (35, 48, 2))])
def test_shared_hash_ids_are_a_common_prefix_of_that_many_tokens(scale, lengths):
    first, second = read_public_trace(TWO, vocab_size=958, scale=scale)
    sizes = len(first.prompt_token_ids), len(second.prompt_token_ids), first.max_tokens
    assert sizes == lengths
    assert common(first.prompt_token_ids, second.prompt_token_ids) == 1024 // scale
    assert (first.time, second.time) == (0.0, 3.053)
    assert (first.request_id, second.request_id) == ("1", "2")
    assert max(second.prompt_token_ids) < 958


def test_the_same_trace_gives_the_same_bytes():
    load = read_public_trace(TWO, vocab_size=958, scale=64)
    assert load.to_jsonl() == read_public_trace(TWO, vocab_size=958, scale=64).to_jsonl()
    assert load.arrivals[0].prompt_token_ids[:4] == (46, 0, 0, 0)  # the id, in base 958


def test_a_last_block_that_is_cut_short_is_shared_as_far_as_it_goes():
    text = line(input_length=655, hash_ids=[46, 47]) + "\n" + line(input_length=672)
    a, b = read_public_trace(text.replace("[1, 2]", "[46, 47]"), vocab_size=958)
    assert common(a.prompt_token_ids, b.prompt_token_ids) == 655


def test_a_line_without_hash_ids_shares_nothing():
    a, b = read_public_trace(line(hash_ids=None) + "\n" + line(hash_ids=None), vocab_size=958)
    assert len(a.prompt_token_ids) == 600 and common(a.prompt_token_ids, b.prompt_token_ids) < 4


def test_a_limit_reads_the_beginning(tmp_path):
    (tmp_path / "trace.jsonl").write_text(TWO + "{broken", encoding="utf-8")
    path = tmp_path / "trace.jsonl"
    assert len(load_public_trace(path, vocab_size=958, limit=2)) == 2
    with pytest.raises(ValueError, match=r"trace.jsonl, line 3: '{broken' is no JSON object"):
        load_public_trace(path, vocab_size=958)


@given(
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=6),
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=6),
    st.sampled_from([1, 2, 8, 32]),
    st.integers(2, 2000),
)
def test_prompts_share_their_common_hash_ids_and_part_within_the_next_block(a, b, scale, vocab):
    """Blocks of 512 / 32 = 16 tokens tell any two ids apart, down to a vocabulary of 16."""
    vocab = max(vocab, 16)
    text = "\n".join(line(hash_ids=ids, input_length=512 * len(ids)) for ids in (a, b))
    one, other = read_public_trace(text, vocab_size=vocab, scale=scale)
    shared, size = common(a, b), 512 // scale
    found = common(one.prompt_token_ids, other.prompt_token_ids)
    if shared == min(len(a), len(b)):
        assert found == shared * size
    else:
        assert shared * size <= found < (shared + 1) * size


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "the trace has no line"),
        (line(timestamp=-1), "line 1: timestamp is -1; give a finite number of at least 0"),
        (line(timestamp=float("nan")), "NaN is no number of JSON"),
        (line(timestamp="0"), "timestamp is '0'"),
        (line(timestamp=None), "timestamp is missing; a line has timestamp, input_length"),
        (
            line(timestamp=5) + "\n" + line(timestamp=9) + "\n" + line(timestamp=7),
            "line 3: timestamp is 7, and the line above has 9; sort the lines",
        ),
        (line(input_length=0), "input_length is 0; give an integer of at least 1"),
        (line(input_length=12.5), "input_length is 12.5; give an integer"),
        (line(output_length=-3), "output_length is -3"),
        (line(output_length=None), "output_length is missing"),
        (line(hash_ids=7), "hash_ids is 7; give a list"),
        (line(hash_ids=[1]), "hash_ids has 1 ids, and 600 tokens are 2 blocks of 512; mend"),
        (line(hash_ids=[1, -2]), "a hash id is -2"),
        (line(hash_ids=[1, "x"]), "a hash id is 'x'"),
        (line(hash_ids=[1, 2**64]), "give integers below 2"),
        ("3", "write one in braces"),
    ],
)
def test_a_bad_line_of_a_trace_is_named(text, said):
    with pytest.raises(ValueError, match=said):
        read_public_trace(text, vocab_size=958)


@pytest.mark.parametrize(
    "arguments, said",
    [
        ({"scale": 3}, "scale is 3 and does not divide a block of 512"),
        ({"scale": 0}, "scale is 0"),
        ({"block_tokens": 16}, "600 tokens are 38 blocks of 16"),
        ({"limit": 0}, "limit is 0"),
        ({"vocab_size": 1}, "vocab_size is 1"),
        ({"scale": 512, "vocab_size": 2}, "hash id 2 needs a longer block than 1 tokens"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        read_public_trace(line(), **{"vocab_size": 958, **arguments})
