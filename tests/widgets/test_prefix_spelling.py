"""The prefix blocks: salts that look alike, one token in words, and arguments that do not fit."""

import re
import unicodedata

import comm
import pytest
from comm.base_comm import BaseComm
from hypothesis import given
from hypothesis import strategies as st

from kvlab import LLM
from kvlab.widgets import prefix_blocks, prefix_rows
from kvlab.widgets.nested import nested_content
from kvlab.widgets.prefix_run import serve
from kvlab.widgets.prefix_spelling import seen, spelled
from kvlab.widgets.prefix_story import prefix_payload
from kvlab.widgets.prefix_words import by_difference, difference, lines, quoted, story

PONY = "A gentle pony walked and the young child laughed in the meadow again."
TINY = LLM("tiny", device="cpu")


class Unheard(BaseComm):
    """Sends nothing anywhere."""

    def publish_msg(self, msg_type: str, data: dict | None = None, **_: object) -> None:
        pass


# ---- salts


@pytest.mark.parametrize(
    ("salt", "shown"),
    [
        ("mine", "mine"),
        ("é", "é"),
        ("e\u0301", "e\\u0301"),
        ("日本 🐎", "日本␣🐎"),
        (" ", "␣"),
        ("  ", "␣␣"),
        ("␣", "\\u2423"),
        ("\u202eab", "\\u202eab"),
        ("a\u200bb", "a\\u200bb"),
        ("a\u00a0b", "a\\xa0b"),
        ("a\tb\n", "a\\tb\\n"),
        ("a\\tb", "a\\\\tb"),
        ("\u212b", "\\u212b"),  # the sign for ångström, which looks like the letter Å
        ("Å", "Å"),
        ("\u1112\u1161\u11ab", "\\u1112\\u1161\\u11ab"),  # three letters of one syllable
        ("\ud55c", "\ud55c"),  # the syllable
        ("\u3164", "\\u3164"),
        ("a” or “b", "a\\u201d␣or␣\\u201cb"),
        ("<b>", "<b>"),
        ("\ud800", "\\ud800"),
    ],
)
def test_a_salt_is_spelled_so_that_each_sign_is_seen(salt: str, shown: str) -> None:
    assert spelled(salt) == shown


SIGNS = st.sampled_from([*" ␣\\ueéÅ\u0301\u030a\u0041\u212b\u00a0\u200b\u202e\t23", "\u0307"])


@given(st.lists(SIGNS, max_size=6).map("".join), st.lists(SIGNS, max_size=6).map("".join))
def test_no_two_salts_are_spelled_alike(one: str, other: str) -> None:
    told = [spelled(one), spelled(other)]
    assert (told[0] == told[1]) == (one == other)
    normal = [unicodedata.normalize("NFKC", text) for text in told]
    assert (normal[0] == normal[1]) == (one == other)  # nor so that they look alike
    assert all(unicodedata.category(c)[0] not in "CMZ" for text in told for c in text)


def test_the_sentence_the_block_and_the_table_show_the_whole_salt() -> None:
    first, second = "a" * 25 + "1 ", "a" * 25 + "2\u202e"
    run = serve(TINY, [PONY, PONY], [first, second])
    one, two = "a" * 25 + "1␣", "a" * 25 + "2\\u202e"
    assert f"B has the salt “{two}”, A the salt “{one}”." in story(run)
    payload = prefix_payload(run, 2)
    assert [row["salt"] for row in payload["rows"]] == [one, two]
    assert f"4 tokens, the salt “{two}”)" in payload["rows"][1]["blocks"][0]["say"]
    page = nested_content(payload)
    assert f"Prompt A, salt “{one}”: 0 of 14 tokens reused." in page and "\u202e" not in page
    assert [row.salt for row in run.rows] == [first, second]


def test_a_token_without_ink_is_an_escape_and_a_blank_a_sign() -> None:
    assert quoted(" pony") == "“pony”" and quoted("  ") == "“␣␣”" and quoted("\n") == "“\\n”"
    assert quoted("\u202egnop") == "“\\u202egnop”"
    assert seen("e\u0301 ok") == "e\u0301 ok"  # a token's accents are no other token's


# ---- one token


def test_one_token_is_told_as_one() -> None:
    one = serve(TINY, ["<|user|>", "<|user|>", "<|user|><|end|>"], block_size=1)
    text = story(one)
    assert "A is served first, into an empty cache: 1 token computed." in text
    assert "B has the same token as A: nothing is reused, 1 token computed." in text
    assert "C has the one token of A and goes on: block 1 is reused (1 token), 1 computed." in text
    first = serve(TINY, ["<|user|><|end|>", "<|user|>"], block_size=1)
    assert "B is the first token of A: nothing is reused" in story(first)
    assert lines(serve(TINY, ["<|user|>"]))[2][1] == "0% (0 of 1 token)"
    for run in (one, first):
        payload = prefix_payload(run, 3)
        says = [block["say"] for row in payload["rows"] for block in row["blocks"]]
        assert re.search(r"hash\(h0 \w+, 1 token\)", says[0])
        assert "0 of 1 token reused." in nested_content(payload)
        for told in (story(run), *says, nested_content(payload)):
            assert not re.search(r"\b1 tokens", told)


def test_a_difference_below_the_threshold_is_told_as_a_sentence() -> None:
    assert [difference(0.9), difference(0.0)] == ["0.90", "less than 0.0001"]
    assert [by_difference(0.9), by_difference(0.0)] == ["by up to 0.90", "by less than 0.0001"]
    text = story(serve(TINY, ["the " * 8, "the " * 5], block_size=1))
    assert re.search(r"its keys differ by up to \d+, its values by less than 0\.0001\.", text)


# ---- arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([None], "prompts is None; give a list of two or three texts"),
        ([{"a", "b"}], r"prompts is \{.*\}; give a list of two or three texts"),
        ([{"a": 1, "b": 2}], "prompts is .*; give a list of two or three texts"),
        ([["a", "b"], "xy"], "salts is 'xy'; give a list of 2 texts, or None"),
        ([["a", "b"], 5], "salts is 5; give a list of 2 texts, or None"),
        ([["a", "b"], {"x", "y"}], r"salts is \{.*\}; give a list of 2 texts"),
        ([["a", "b"], [1, 2]], "salts has 1; give texts, and None or '' for no salt"),
        ([["a", "b"], ["x"]], r"2 prompts and 1 salt, \['x'\]; give one each, or None"),
        ([["a", "b"], ["\ud800", ""]], r"salts has '\\ud800', which holds characters that are no"),
        ([["a", "b"], None, 10**8], "block_size is 100000000; give one of 1, 2, 4, 8, 16"),
    ],
)
def test_prefix_blocks_refuses_what_does_not_fit(arguments: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prefix_blocks(TINY, *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([None], "prompts is None; give a list of 1 to 8 prompts"),
        ([{"a", "b"}], "give a list of 1 to 8 prompts"),
        ([[{1, 2}]], r"prompt is \{1, 2\}; give a text, or a list of token ids"),
        ([["a"], 5], "salts is 5; give a list of 1 text, or None"),
        ([["a", "b"], "xy"], "salts is 'xy'; give a list of 2 texts, or None"),
        ([["a", "b"], {"x": 1, "y": 2}], "salts is .*; give a list of 2 texts"),
        ([["a", "b"], [1, 2]], "salts has 1; give texts"),
        ([["a", "b"], [None, b"x"]], "salts has b'x'; give texts"),
        ([["a", "b"], [0, ""]], "salts has 0; give texts"),
        ([["a", "b"], ["x"]], r"2 prompts and 1 salt, \['x'\]"),
        ([["a"], None, 10**8], r"block_size is 100000000; give an integer from 1 to 256 \(a prom"),
        ([["a"], None, 257], "block_size is 257; give an integer from 1 to 256"),
        ([["a"], None, True], "block_size is True; give an integer"),
    ],
)
def test_prefix_rows_refuses_what_does_not_fit(arguments: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prefix_rows(TINY, *arguments)


def test_none_and_an_empty_text_are_no_salt_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comm, "create_comm", Unheard)
    editor = prefix_blocks(TINY, (PONY, PONY), (None, "x"))
    assert (editor.inputs["salt_a"], editor.inputs["salt_b"]) == ("", "x")
    rows = prefix_rows(TINY, [PONY] * 3, [None, "x", ""])
    assert [row.salt for row in rows] == [None, "x", None]
    assert [row.num_cached_tokens for row in rows] == [0, 0, 12]
    assert editor.rows == rows[:2]
    editor.set(salt_b="\ud800")
    assert "no valid Unicode" in editor.result["error"] and editor.inputs["salt_b"] == "x"


def test_the_largest_block_holds_the_longest_prompt() -> None:
    (row,) = prefix_rows(TINY, [[5] * 256], block_size=256)
    assert [block.kind for block in row.blocks] == ["computed"] and len(row.tokens) == 256
