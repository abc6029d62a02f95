"""The prefix-block editor: worked examples, an independent comparison of tokens, what it says."""

import json
import re

import comm
import pytest
import torch
from comm.base_comm import BaseComm
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlab import LLM
from kvlab.core.block_pool import BlockPool
from kvlab.core.kv_cache_manager import KVCacheManager, cdiv
from kvlab.core.request import Request
from kvlab.tensors.identity import configuration_of
from kvlab.tensors.kv_cache import ContiguousCache, contiguous_forward
from kvlab.widgets import prefix_blocks, prefix_rows
from kvlab.widgets.prefix_data import (
    COMPUTED,
    DIFFERS,
    FIRST,
    LAST,
    LONGER,
    OTHER_SALT,
    PARTLY,
    REUSED,
    SAME,
    SHORTER,
    two_digits,
)
from kvlab.widgets.prefix_live import PRESETS
from kvlab.widgets.prefix_run import serve
from kvlab.widgets.prefix_words import digits, numbered

HOSTILE = "<img src=x onerror=alert(1)>"
PONY = "A gentle pony walked and the young child laughed in the meadow again."
IN_3 = "A gentle pony walked and the young child laughed in the garden again."
IN_2 = "A gentle pony walked and the clever child laughed in the meadow again."
WHOLE = "A gentle pony walked and the young child laughed in the meadow"
TINY = LLM("tiny", device="cpu")


class SilentComm(BaseComm):
    """Sends nothing anywhere."""

    def publish_msg(self, msg_type: str, data: dict | None = None, **_: object) -> None:
        pass


@pytest.fixture
def editor(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(comm, "create_comm", SilentComm)
    return prefix_blocks(TINY)


def kinds(row) -> list[str]:
    return [block.kind for block in row.blocks]


# ---- worked examples


def test_an_edit_in_block_3_keeps_1_and_2_and_one_in_block_2_keeps_1_alone() -> None:
    a, b, c = prefix_rows(TINY, [PONY, IN_3, IN_2])
    assert [row.num_cached_tokens for row in (a, b, c)] == [0, 8, 4]
    assert [row.reused for row in (a, b, c)] == [(), (1, 2), (1,)]
    assert kinds(b) == [REUSED, REUSED, COMPUTED, PARTLY]
    assert [row.match_end for row in (a, b, c)] == [FIRST, DIFFERS, DIFFERS]
    assert [row.num_equal_tokens for row in (a, b, c)] == [0, 11, 6]
    assert (b.tokens[11], c.tokens[6]) == (" garden", " clever")
    assert [n for n in range(3) if b.identities[n] != a.identities[n]] == [2]
    assert [n for n in range(3) if c.identities[n] != a.identities[n]] == [1, 2]
    assert [[block.block_id for block in row.blocks] for row in (a, b, c)] == [
        [0, 1, 2, 3],
        [0, 1, 3, 4],  # the partly filled block 3 was free again, and is taken first
        [0, 4, 5, 6],
    ]


def test_equal_tokens_after_another_prefix_have_another_identity_and_other_k_and_v() -> None:
    a, _, c = prefix_rows(TINY, [PONY, IN_3, IN_2])
    hit, third = c.blocks[0], c.blocks[2]
    assert third.tokens == a.blocks[2].tokens and third.like == ("A", 3)
    assert third.identity != a.blocks[2].identity and not third.same_identity
    assert third.key_difference > 0.1 and third.value_difference > 0.1
    assert hit.identity == a.blocks[0].identity and hit.block_id == a.blocks[0].block_id
    assert (hit.key_difference, hit.value_difference) == (0.0, 0.0)


def test_the_measured_difference_is_that_of_a_forward_pass_without_the_engine() -> None:
    keys, values = [], []
    for text in (PONY, IN_2):
        cache = ContiguousCache(TINY.model.config)
        contiguous_forward(TINY.model, torch.tensor([TINY.encode(text)]), cache)
        keys.append(torch.stack(cache.keys)[..., 8:12, :])
        values.append(torch.stack(cache.values)[..., 8:12, :])
    want = [two_digits((x[0] - x[1]).abs().max().item()) for x in (keys, values)]
    third = prefix_rows(TINY, [PONY, IN_2])[1].blocks[2]
    assert [third.key_difference, third.value_difference] == want


def test_salts_never_share_and_a_hit_comes_within_ones_own_salt_only() -> None:
    run = serve(TINY, [PONY] * 4, ["one", "two", "one", None])
    assert [row.num_cached_tokens for row in run.rows] == [0, 0, 12, 0]
    assert [row.match_end for row in run.rows] == [FIRST, OTHER_SALT, SAME, OTHER_SALT]
    assert len({row.identities for row in run.rows}) == 3
    assert (run.hits, run.queries) == (12, 56)
    tables = [{b.block_id for b in row.blocks if b.identity} for row in run.rows]
    assert tables[0] == tables[2] and tables[0].isdisjoint(tables[1] | tables[3])


def test_the_last_position_of_a_prompt_that_is_cached_whole_is_computed() -> None:
    _, b, c = prefix_rows(TINY, [WHOLE, WHOLE, PONY])
    assert kinds(b) == [REUSED, REUSED, LAST] and b.num_computed == 4
    assert b.blocks[2].same_identity and b.blocks[2].block_id != c.blocks[2].block_id
    assert b.blocks[2].key_difference == 0.0  # computed anew, the same to rounding
    assert kinds(c) == [REUSED, REUSED, REUSED, PARTLY]
    assert (b.match_end, c.match_end) == (SAME, LONGER)
    assert prefix_rows(TINY, [PONY, WHOLE])[1].match_end == SHORTER


def test_a_timestamp_first_ends_the_match_and_last_it_costs_its_own_block() -> None:
    found = {}
    for name in ("timestamp first", "timestamp last"):
        given = PRESETS[name]
        found[name] = prefix_rows(TINY, [given["prompt_a"], given["prompt_b"]])[1]
    first, last = found.values()
    assert (first.num_cached_tokens, last.num_cached_tokens) == (0, 16)
    assert len(first.tokens) == len(last.tokens) == 19


def test_tokens_decide_and_not_the_visible_words() -> None:
    spaced, template = PONY.replace("pony ", "pony  "), f"<|user|> {PONY}<|end|>"
    _, b, c = prefix_rows(TINY, [PONY, spaced, template])
    assert (b.num_cached_tokens, c.num_cached_tokens) == (0, 0)
    assert (b.tokens[3], c.tokens[0], c.tokens[-1]) == (" ", "<|user|>", "<|end|>")


def test_identities_are_those_of_the_manager() -> None:
    configuration = configuration_of(TINY.model, TINY.cache)
    for size in (1, 4, 16):
        manager = KVCacheManager(BlockPool(8), size, configuration=configuration)
        run = serve(TINY, [PONY, IN_3], [None, "salt"], size)
        assert run.root == manager.prefix.root.hex()[:8]
        for row, text, salt in zip(run.rows, (PONY, IN_3), (None, "salt"), strict=True):
            request = Request("r", TINY.encode(text), cache_salt=salt)
            hashes = manager.prefix.block_hashes(request, request.num_tokens // size)
            assert row.identities == tuple(h.hex()[:8] for h in hashes)
            parents = [run.root, *row.identities]
            assert [b.parent for b in row.blocks] == parents[: len(row.blocks)]


# ---- any texts


def common(one: list[int], other: list[int]) -> int:
    """Length of the common start, by trying lengths from the longest on."""
    return next(n for n in range(len(one), -1, -1) if n <= len(other) and one[:n] == other[:n])


words = st.lists(st.sampled_from(["a", "pony", "the", "zz", "."]), min_size=1, max_size=14)
texts = st.lists(words.map(" ".join), min_size=2, max_size=3)


@settings(max_examples=60, deadline=None)
@given(texts, st.lists(st.sampled_from([None, "s"]), min_size=3, max_size=3), st.integers(1, 5))
def test_hits_are_what_comparing_token_ids_gives(texts, salts, size) -> None:
    run = serve(TINY, texts, salts[: len(texts)], size)
    ids = [TINY.encode(text) for text in texts]
    for i, row in enumerate(run.rows):
        equal = [common(ids[i], ids[j]) for j in range(i) if salts[j] == salts[i]]
        want = min(max(equal, default=0) // size, (len(ids[i]) - 1) // size)
        assert row.reused == tuple(range(1, want + 1))
        assert row.num_cached_tokens == want * size
        assert len(row.blocks) == cdiv(len(ids[i]), size)
        for block in row.blocks:
            assert (block.kind == PARTLY) == (len(block.tokens) < size) == (block.identity is None)
            if block.kind == REUSED:
                assert (block.key_difference, block.value_difference) == (0.0, 0.0)
        for j, other in enumerate(run.rows[:i]):
            start = common(ids[i], ids[j]) // size if salts[i] == salts[j] else 0
            same = [a == b for a, b in zip(row.identities, other.identities, strict=False)]
            assert same == [n < start for n in range(len(same))]
    assert run.hits == sum(row.num_cached_tokens for row in run.rows)
    assert run.queries == sum(map(len, ids))


# ---- the editor


def test_its_lines_and_its_sentence_tell_the_story_alone(editor) -> None:
    assert editor.result["lines"] == [
        ["Reused tokens", "A 0 of 14 · B 8 of 14 · C 4 of 14", "plain"],
        ["Computed", "A 14 · B 6 · C 10", "plain"],
        ["Hit rate", "29% (12 of 42 tokens)", "plain"],
    ]
    assert re.fullmatch(
        r"A is served first, into an empty cache: 14 tokens computed\. B first differs from A at "
        r"position 11, in block 3 \(“garden”, not “meadow”\): blocks 1 and 2 are reused "
        r"\(8 tokens\), 6 computed\. C first differs from A at position 6, in block 2 "
        r"\(“clever”, not “young”\): block 1 is reused \(4 tokens\), 10 computed\. Block 3 of C "
        r"has the tokens of block 3 of A after another prefix, so another identity: its keys "
        r"differ by up to \d\.\d+, its values by up to \d\.\d+\.",
        editor.result["view"]["sentence"],
    )


def test_a_block_is_told_by_itself(editor) -> None:
    a, b, c = editor.result["view"]["rows"]
    identity, parent = c["blocks"][2]["identity"], c["blocks"][1]["identity"]
    assert c["blocks"][2]["say"].startswith(
        f"Block 3 of C, “laughed in the meadow”: h3 = hash(h2 {parent}, 4 tokens) = {identity}. "
        "The tokens of block 3 of A, but another parent, so another identity: not shared. "
        "Computed into physical block 5; largest difference of K "
    )
    assert b["blocks"][0]["say"].endswith(
        "The identity of block 1 of A: reused, nothing computed. Its K and V are read from "
        "physical block 0; difference 0 and 0."
    )
    assert "2 of 4 slots filled, so it has no identity and is never shared" in a["blocks"][3]["say"]
    assert b["blocks"][0]["differences"] == ["0", "0"] and b["difference"] == 11


@pytest.mark.parametrize("preset", list(PRESETS))
def test_every_preset_runs_and_is_what_its_name_says(editor, preset: str) -> None:
    editor.set(**PRESETS[preset])
    editor.check()
    hits = [row.num_cached_tokens for row in editor.rows]
    assert (
        hits
        == {
            "an edit in block 3 (B) and in block 2 (C)": [0, 8, 4],
            "edit block 3": [0, 8],
            "edit block 2": [0, 4],
            "timestamp first": [0, 0],
            "timestamp last": [0, 16],
            "same words, other spacing (B), in a template (C)": [0, 0, 0],
            "two groups (salts)": [0, 0, 12],
            "the whole prompt again (B), and a longer one (C)": [0, 8, 12],
            "words that the tokenizer cuts into pieces": [0, 36, 20],
        }[preset]
    )


@pytest.mark.parametrize(
    ("preset", "told"),
    [
        ("two groups (salts)", "B has the salt “two”, A the salt “one”. The salt is in the first"),
        ("two groups (salts)", "The partly filled block 4 of A is never shared."),
        ("the whole prompt again (B), and a longer one (C)", "since K and V give no logits."),
        (
            "words that the tokenizer cuts into pieces",
            "A block is 4 tokens, here also pieces of words.",
        ),
        ("same words, other spacing (B), in a template (C)", "in block 1 (“␣”, not “walked”)"),
    ],
)
def test_the_sentence_names_the_reason(editor, preset: str, told: str) -> None:
    editor.set(**PRESETS[preset])
    assert told in editor.result["view"]["sentence"]


def test_the_same_inputs_give_the_same_result_and_the_readers_engine_is_left_alone(editor) -> None:
    before, page = editor.result, editor.html()
    editor.set(prompt_b="the old dog", salt_a="x", block_size=2)
    editor.set(prompt_b=IN_3, salt_a="", block_size=4)
    assert (editor.result["lines"], editor.result["view"]) == (before["lines"], before["view"])
    assert editor.html() == page
    assert TINY.prefix_cache_stats.requests == 0 and TINY.engine.scheduler.step_index == 0


def test_an_empty_third_prompt_is_left_out_and_its_row_is_kept(editor) -> None:
    editor.set(prompt_c="")
    editor.check()
    view = editor.result["view"]
    assert [row["name"] for row in view["rows"]] == ["A", "B"] and view["room"] == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt_b": " "}, "prompt B is empty; type a few words, such as 'A gentle pony walke"),
        ({"prompt_a": ""}, "prompt A is empty; type a few words"),
        ({"prompt_c": "the " * 300}, r"prompt C has 30\d tokens; shorten it to 256 at most"),
        ({"salt_b": "x" * 41}, "salt B has 41 characters; give 40 at most"),
        ({"block_size": 3}, "block_size is 3; give one of 1, 2, 4, 8, 16"),
    ],
)
def test_a_mistake_is_named_and_the_last_good_picture_stays(editor, change, message) -> None:
    before = editor.result
    editor.set(**change)
    assert re.search(message, editor.result["error"])
    assert (editor.result["view"], editor.inputs) == (before["view"], before["inputs"])
    with pytest.raises(ValueError, match=message):
        editor.check()
    assert [row.num_cached_tokens for row in editor.rows] == [0, 8, 4]


def test_arguments_that_do_not_fit_are_refused() -> None:
    for call, message in (
        (lambda: prefix_blocks(TINY, ["one"]), "give a list of two or three texts"),
        (lambda: prefix_blocks(TINY, "abc"), "prompts is 'abc'"),
        (lambda: prefix_blocks(TINY, [PONY, PONY], ["x"]), r"2 prompts and 1 salt, \['x'\]"),
        (lambda: prefix_blocks(None), "llm has type NoneType; give an LLM"),
        (lambda: prefix_rows(TINY, []), "give a list of 1 to 8 prompts"),
        (lambda: prefix_rows(TINY, [PONY], ["a", "b"]), "1 prompt and 2 salts"),
        (lambda: prefix_rows(TINY, [PONY], block_size=0), "block_size is 0; give an integer"),
        (lambda: prefix_rows(TINY, [[]]), "prompt A has no tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_two_prompts_have_two_rows_of_controls_and_the_presets_that_fit(monkeypatch) -> None:
    monkeypatch.setattr(comm, "create_comm", SilentComm)
    editor = prefix_blocks(TINY, [PONY, IN_3], ["s", "s"], 8)
    assert list(editor.controls) == ["block_size", "prompt_a", "salt_a", "prompt_b", "salt_b"]
    assert "edit block 3" in editor.presets and "two groups (salts)" not in editor.presets
    assert [row.num_cached_tokens for row in editor.rows] == [0, 8]


def test_the_html_form_has_one_table_a_prompt_and_text_stays_text(editor) -> None:
    editor.set(prompt_a=f"{HOSTILE} a pony", salt_a=HOSTILE)
    page = editor.html()
    assert page.count("<table>") == 4 and "<img" not in page
    assert "max |ΔK|" in page and editor.result["view"]["root"] in page
    payload = re.search(r'<script type="application/json">(.*)</script>', page)[1]
    assert json.loads(payload)["result"]["inputs"]["prompt_a"] == f"{HOSTILE} a pony"


def test_numbers_in_words() -> None:
    assert [numbered(n) for n in ([1], [1, 2], [1, 2, 3])] == [
        "block 1",
        "blocks 1 and 2",
        "blocks 1 to 3",
    ]
    assert [digits(x) for x in (0, 0.9, 4.0, 12.0, 120.0, 0.012)] == [
        *("0", "0.90", "4.0", "12", "120", "0.012")
    ]
    assert [two_digits(x) for x in (9.9e-5, 0.91247, 2.9995, 123.4)] == [0.0, 0.91, 3.0, 120.0]
