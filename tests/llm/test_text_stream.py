"""Tokens to text as they come: characters of several tokens, and stop strings at any split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab import tiny
from kvlab.tensors.tokenizer import TextStream, Tokenizer

TOKENIZER = Tokenizer(tiny.FOLDER)


def stream(text, stop=()):
    """Feed a text token by token; returns the pieces and the stop string found."""
    s = TextStream(TOKENIZER, stop)
    pieces = []
    for token in TOKENIZER.encode(text):
        pieces.append(s.push(token))
        if s.stopped_by:
            break
    return [*pieces, s.finish()], s


def test_a_character_of_several_tokens_comes_when_it_is_complete():
    pieces, s = stream("Ada é")
    assert s.text == " Ada é"
    assert "".join(pieces) == s.text
    assert not any("\ufffd" in p for p in pieces)


def test_bytes_of_an_unfinished_character_are_not_lost():
    s = TextStream(TOKENIZER)
    ids = TOKENIZER.encode("Ada é")[:-1]
    text = "".join(s.push(t) for t in ids) + s.finish()
    assert text == TOKENIZER.decode(ids)


def test_nothing_comes_after_a_stop_string():
    s = TextStream(TOKENIZER, ["is"])
    out = [s.push(t) for t in TOKENIZER.encode("The key is red.")]
    assert "".join(out) == " The key "
    assert s.finish() == ""
    assert s.stopped_by == "is"


words = st.lists(
    st.sampled_from(["Ada", "likes", "key", "is", "é", "red.", "zz"]), min_size=1, max_size=8
)


@given(words, st.lists(st.text("Adalikesyz .é", min_size=1, max_size=5), max_size=3))
def test_streamed_text_is_the_whole_text_up_to_the_first_stop_string(parts, stops):
    text = " ".join(parts)
    pieces, s = stream(text, stops)
    whole = TOKENIZER.decode(TOKENIZER.encode(text))
    at = min((whole.find(x) for x in stops if x in whole), default=None)
    assert s.text == (whole if at is None else whole[:at])
    assert "".join(pieces) == s.text
    assert (s.stopped_by is None) == (at is None)


def test_a_missing_tokenizer_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"tokenizer\.json is missing"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="cannot be read"):
        Tokenizer(tmp_path)
