"""The same requests in a padded rectangle and in blocks: tokens, slots, bytes, words, payload."""

import json
import re
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlab import LLM, Decoder, ModelConfig, SamplingParams, tiny
from kvlab.core.layouts import LayoutPass, LayoutRun
from kvlab.tensors.kv_cache import ContiguousAttention, ContiguousCache, contiguous_forward
from kvlab.widgets import (
    cache_layouts,
    compare_layouts,
    layouts_html,
    layouts_payload,
    module_source,
)
from kvlab.widgets.html import payload_json
from kvlab.widgets.layouts_story import (
    blocks_formula,
    fullest,
    layouts_stops,
    rectangle_formula,
)
from kvlab.widgets.layouts_words import listed

LIVE = "application/vnd.jupyter.widget-view+json"
HOSTILE = "</script><img src=x onerror=alert(1)>"
CONFIG = dict(
    vocab_size=64, hidden_size=32, intermediate_size=32, num_layers=2,
    num_query_heads=2, num_kv_heads=1, head_dim=2, max_model_len=64,
)  # fmt: skip
TWO = [SamplingParams(max_tokens=2), SamplingParams(max_tokens=4)]


def small(**changes: object) -> LLM:
    """L = 2, H_kv = 1, d_h = 2, two bytes a value: 2 · 2 · 1 · 2 · 2 = 16 bytes a position."""
    model = Decoder.random(ModelConfig(**{**CONFIG, **changes}))
    return LLM(model, block_size=4, num_blocks=8, cache_dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return small()


@pytest.fixture(scope="module")
def run(llm: LLM) -> LayoutRun:
    """Prompts of 3 and 5 tokens; A ends after 2 outputs, B after 4."""
    return compare_layouts(llm, [[5, 6, 7], [8, 9, 10, 11, 12]], TWO)


# ---- the worked example: 16 bytes a position, blocks of 4 slots are 64 bytes


def test_the_rectangle_is_as_wide_as_the_longest_and_grows_for_all(run: LayoutRun) -> None:
    columns = [p.columns for p in run.passes]
    assert columns == [("PPP--", "PPPPP"), ("O", "O"), ("-", "O"), ("-", "O")]
    assert [p.rectangle_nbytes for p in run.passes] == [160, 192, 224, 256]  # 2 · 5, 6, 7, 8 slots
    assert [p.row_nbytes for p in run.passes] == [(48, 80), (64, 96), (64, 112), (64, 128)]
    states = [state for _, kind, state in run.states() if kind == "pass"]
    assert states[-1].rows == ("PPP--O--", "PPPPPOOO")
    assert [s.padding for s in states] == [2, 2, 3, 4]


def test_blocks_are_taken_as_positions_come_and_given_back_at_the_end(run: LayoutRun) -> None:
    assert [p.new_block_ids for p in run.passes] == [((0,), (1, 2)), ((), ()), ((), ()), ((), ())]
    assert [p.num_computed_tokens for p in run.passes] == [(3, 5), (4, 6), (0, 7), (0, 8)]
    assert [p.block_nbytes for p in run.passes] == [(64, 128), (64, 128), (0, 128), (0, 128)]
    assert [p.payload_nbytes for p in run.passes] == [(48, 80), (64, 96), (0, 112), (0, 128)]
    assert [p.ended for p in run.passes] == [(), (0,), (), (1,)]
    after = [(kind, state.block_tables) for _, kind, state in run.states()]
    assert after[3] == ("ended", ((), (1, 2))) and after[-1] == ("ended", ((), ()))


def test_what_is_held_given_back_and_left_over_at_each_stop(run: LayoutRun) -> None:
    states = [s for _, _, s in run.states()]
    held = [(s.in_use, s.padding, s.left_over, s.rectangle_slots, s.block_slots) for s in states]
    assert held == [
        (0, 0, 0, 0, 0),
        (8, 2, 0, 10, 12),
        (10, 2, 0, 12, 12),
        (6, 2, 4, 12, 8),  # A has ended: 4 of its positions are still in the rectangle
        (7, 3, 4, 14, 8),
        (8, 4, 4, 16, 8),
        (0, 4, 12, 16, 0),
    ]
    assert states[1].tails == (1, 3)


def test_each_sentence_tells_what_happened(run: LayoutRun) -> None:
    assert [stop.sentence for stop in layouts_stops(run)] == [
        "2 requests arrive, with prompts of 3 (A) and 5 (B) tokens. "
        "Nothing is stored yet: 0 bytes in both layouts.",
        "The prompt pass: B has 5 tokens, so every row gets 5 slots. A is padded by 2: "
        "2 slots hold keys and values of a filler token, nothing of the request. 8 positions are "
        "in use. Rectangle: 10 slots, 160 bytes. 3 blocks of 4: 12 slots, 192 bytes.",
        "Pass 1 processes the first output of A and B. The rectangle grows by a column of "
        "2 slots. No new block is needed. 10 positions are in use. Rectangle: 12 slots, "
        "192 bytes. 3 blocks of 4: 12 slots, 192 bytes.",
        "A has its 2 outputs and ends. Its 1 block goes back to the pool. In the rectangle, its "
        "row of 6 slots is still held. 6 positions are in use. Rectangle: 12 slots, 192 bytes. "
        "2 blocks of 4: 8 slots, 128 bytes.",
        "Pass 2 processes the second output of B. The rectangle grows by a column of 2 slots; in "
        "the row of A, which has ended, it holds no position of the request. No new block is "
        "needed. 7 positions are in use. Rectangle: 14 slots, 224 bytes. 2 blocks of 4: 8 slots, "
        "128 bytes.",
        "Pass 3 processes the third output of B. The rectangle grows by a column of 2 slots; in "
        "the row of A, which has ended, it holds no position of the request. No new block is "
        "needed. 8 positions are in use. Rectangle: 16 slots, 256 bytes. 2 blocks of 4: 8 slots, "
        "128 bytes.",
        "B has its 4 outputs and ends. Its 2 blocks go back to the pool. In the rectangle, its "
        "row of 8 slots is still held until the whole of it is dropped. No position is in use. "
        "Rectangle: 16 slots, 256 bytes. Blocks: none, 0 bytes.",
    ]


def test_one_request_and_equal_prompts_need_no_padding(llm: LLM) -> None:
    one = layouts_stops(compare_layouts(llm, [5, 6, 7, 8], SamplingParams(max_tokens=2)))
    assert one[0].sentence.startswith("Request A arrives with a prompt of 4 tokens.")
    assert one[1].sentence.startswith("The prompt pass: the prompt has 4 tokens, so no slot is pad")
    assert "A takes block 1. 5 positions are in use." in one[2].sentence
    equal = layouts_stops(compare_layouts(llm, [[5, 6], [7, 8]], SamplingParams(max_tokens=2)))
    assert equal[1].sentence.startswith("The prompt pass: all prompts have 2 tokens")
    assert equal[-1].sentence.startswith("A and B have all their outputs and end. Their 2 blocks")
    assert listed(["A", "B", "C"]) == "A, B and C" and listed(["A"]) == "A"


def test_padding_holds_what_was_computed_from_the_filler(llm: LLM, run: LayoutRun) -> None:
    """Slots 3 and 4 of A are padding: no position of A, and yet keys and values stand there."""
    cache = ContiguousCache(llm.model.config, 2, llm.cache.dtype)
    ids = torch.tensor([[5, 6, 7, 0, 0], [8, 9, 10, 11, 12]])
    contiguous_forward(llm.model, ids, cache, [3, 5])
    assert cache.valid[0].tolist() == [True] * 3 + [False] * 2
    assert cache.keys[0][0, :, 3:].any() and cache.values[0][0, :, 3:].any()
    three = compare_layouts(llm, [[5], [6, 7], [8, 9, 10]], [*TWO, SamplingParams(max_tokens=6)])
    told = [stop.sentence for stop in layouts_stops(three)]
    assert "A is padded by 2 and B by 1: 3 slots hold keys and values of a filler token" in told[1]
    assert "filler token, nothing of these requests. 6 positions" in told[1]
    ended = next(s for s in told if "rows of A and B" in s)
    assert "in the rows of A and B, which have ended, it holds no position of these requests" in (
        ended
    )


# ---- the oracle: one model, the same tokens; measured bytes and formulas


def test_both_layouts_select_what_the_engine_selects(llm: LLM, run: LayoutRun) -> None:
    prompts = [list(r.prompt_token_ids) for r in run.requests]
    wanted = [output.outputs[0].token_ids for output in llm.generate(prompts, TWO)]
    assert [r.output_token_ids for r in run.requests] == [tuple(tokens) for tokens in wanted]


def test_the_measured_bytes_equal_the_formulas_at_every_stop(run: LayoutRun) -> None:
    for _, _, state in run.states():
        assert rectangle_formula(run.meta, state)[1] == state.rectangle_nbytes
        assert blocks_formula(run.meta, state)[1] == sum(state.block_nbytes)
    state = next(state for done, _, state in run.states() if done == 1)
    assert rectangle_formula(run.meta, state) == (
        "2 · 2 layers · 2 requests · 1 KV head · 5 slots · 2 width · 2 B",
        160,
    )
    assert blocks_formula(run.meta, state) == ("(⌈3/4⌉ + ⌈5/4⌉) · 4 slots · 16 B", 192)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    outputs=st.lists(st.integers(1, 6), min_size=4, max_size=4),
    block_size=st.integers(1, 7),
)
def test_slots_and_bytes_of_any_requests(
    llm: LLM, lengths: list[int], outputs: list[int], block_size: int
) -> None:
    prompts = [[(3 * i + 5 * j) % 60 for j in range(n)] for i, n in enumerate(lengths)]
    params = [SamplingParams(max_tokens=n) for n in outputs[: len(prompts)]]
    run = compare_layouts(llm, prompts, params, block_size=block_size)
    for done, _, state in run.states():
        width = max(lengths) + done - 1 if done else 0
        assert state.width == width and state.rectangle_slots == len(prompts) * width
        assert state.rectangle_nbytes == 16 * state.rectangle_slots
        assert sum(state.row_nbytes) == 16 * (state.rectangle_slots - state.padding)
        assert sum(state.block_nbytes) == 16 * state.block_slots
        assert sum(state.payload_nbytes) == 16 * state.in_use
        assert state.in_use <= state.block_slots and state.in_use <= state.rectangle_slots
        assert all(0 <= tail < block_size for tail in state.tails)
        taken = [block for table in state.block_tables for block in table]
        assert len(taken) == len(set(taken))
        assert state.in_use + state.padding + state.left_over == state.rectangle_slots
    assert not any(state.running) and state.block_slots == 0
    processed = [n + m.max_tokens - 1 for n, m in zip(lengths, params, strict=True)]
    assert [len(row.replace("-", "")) for row in state.rows] == processed


class Unmasked(ContiguousAttention):
    """Reads padding as if it held keys."""

    def __init__(self, cache: object, width: int) -> None:
        super().__init__(cache, width)
        self.mask = torch.ones_like(self.mask).tril(self.mask.shape[2] - width)


def test_padding_that_is_read_changes_tokens_and_is_caught(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [list(range(5, 25)), [8, 9, 10]]
    params = SamplingParams(max_tokens=8)
    assert len(compare_layouts(llm, prompts, params).passes) == 8
    monkeypatch.setattr("kvlab.tensors.kv_cache.ContiguousAttention", Unmasked)
    with pytest.raises(RuntimeError, match=r"request B, output \d: .*is padding masked\?"):
        compare_layouts(llm, prompts, params)


def test_end_tokens_and_the_longest_sequence_end_requests_in_both_layouts() -> None:
    llm = small(max_model_len=8)
    cut = compare_layouts(llm, [[5, 6, 7], [8, 9, 10, 11, 12]], SamplingParams(max_tokens=30))
    assert [len(r.output_token_ids) for r in cut.requests] == [5, 3]
    second = cut.requests[0].output_token_ids[1]
    stops = SamplingParams(max_tokens=5, stop_token_ids=(second,))
    ended = compare_layouts(llm, [[5, 6, 7]], stops)
    assert ended.requests[0].output_token_ids == cut.requests[0].output_token_ids[:2]
    with_eos = small(max_model_len=8, eos_token_ids=(second,))
    assert compare_layouts(with_eos, [[5, 6, 7]]).requests == ended.requests


def test_the_llm_given_is_left_alone(llm: LLM) -> None:
    fresh = small()
    compare_layouts(fresh, [[5, 6, 7], [8, 9]])
    assert not fresh.cache.key_cache.any() and not fresh.engine.has_unfinished_requests()
    assert fresh.engine.scheduler.manager.pool.num_free_blocks == 8


# ---- what is refused before anything runs


@pytest.mark.parametrize(
    ("prompts", "params", "message"),
    [
        ([], None, r"prompts is \[\]; give one to 8 prompts"),
        ([[5]] * 9, None, "9 prompts; the view draws 8 at most, leave some out"),
        ([[5], []], None, "prompt B is empty; give at least one token"),
        ([[5], [6] * 64], None, "prompt B has 64 tokens .* shorten it to 63 or fewer"),
        ([[5], [99]], None, r"prompt token 99 is not an id of this vocabulary \(0 to 63\)"),
        ("text", None, "no tokenizer; give token ids"),
        ([[5]], SamplingParams(temperature=1.0), "temperature is 1.0; give 0"),
        ([[5]], SamplingParams(n=2), "n is 2; give 1"),
        ([[5]], SamplingParams(stop="x"), r"stop is \('x',\); give none"),
        ([[5], [6]], TWO[:1], "2 prompts and 1 sampling_params"),
        ([[5]], ["greedy"], "sampling_params of A is 'greedy'"),
    ],
)
def test_bad_input_is_named_with_its_remedy(
    llm: LLM, prompts: object, params: object, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        cache_layouts(llm, prompts, params)


@pytest.mark.parametrize("other", [None, "tiny"])
def test_what_is_no_llm_is_refused(other: object) -> None:
    with pytest.raises(ValueError, match=r"llm has type \w+; give an LLM, such as LLM\('tiny'\)"):
        cache_layouts(other, [[5]])


@pytest.mark.parametrize("block_size", [0, -1, 513, 2.0, True, "4"])
def test_a_block_size_that_cannot_be(llm: LLM, block_size: object) -> None:
    with pytest.raises(ValueError, match=r"block_size is .*; give an integer from 1 to 512"):
        cache_layouts(llm, [[5]], block_size=block_size)


def test_a_quantised_cache_is_refused():
    codes = LLM(Decoder.random(ModelConfig(**CONFIG)), cache_dtype="int8", num_blocks=8)
    with pytest.raises(ValueError, match="the llm's cache stores int8, and a rectangle here holds"):
        cache_layouts(codes, [[5]])


def test_too_wide_to_draw_and_too_large_for_memory() -> None:
    long = small(max_model_len=4096)
    with pytest.raises(ValueError, match=r"615 slots wide and the view draws 512 .* by 103"):
        cache_layouts(long, [[5] * 600, [6]], SamplingParams(max_tokens=16))
    fat = LLM(Decoder.random(ModelConfig(**{**CONFIG, "head_dim": 65536})), num_blocks=1)
    with pytest.raises(ValueError, match=r"may need 346,030,080 bytes and 268,435,456 are"):
        cache_layouts(
            fat, [[5] * 60, [6], [7], [8], [9]], SamplingParams(max_tokens=7), block_size=1
        )


# ---- the payload and the three forms


def test_json_both_ways(run: LayoutRun) -> None:
    document = json.loads(json.dumps(run.to_dict()))
    again = LayoutRun.from_dict(document)
    assert again == run and again.to_dict() == document
    assert isinstance(again.passes[0], LayoutPass) and repr(again) == repr(run)
    assert repr(run) == "LayoutRun(2 requests, 4 passes, blocks of 4)"
    with pytest.raises(ValueError, match=r"'kvlab.layouts' version 2; wanted .* version 1"):
        LayoutRun.from_dict({**document, "version": 2})


def test_one_output_has_three_forms_and_two_runs_are_equal(llm: LLM, run: LayoutRun) -> None:
    view = cache_layouts(llm, [[5, 6, 7], [8, 9, 10, 11, 12]], TWO)
    data, _ = view._repr_mimebundle_()
    assert set(data) == {"text/plain", "text/html", LIVE}
    assert data["text/plain"] == (
        "CacheLayouts(2 requests, 7 stops, rectangle 192 bytes, blocks 192 bytes)"
    )
    assert view.run == run and view.html() == layouts_html(layouts_payload(run))


def test_the_table_shows_the_fullest_stop_with_both_totals(run: LayoutRun) -> None:
    stops = layouts_stops(run)
    assert fullest(stops) == 2
    page = layouts_html(layouts_payload(run))
    assert "Stop 2 of 6. Rectangle: 192 bytes in the tensors = 2 · 2 layers" in page
    rows = re.findall(r"<tr>(<th scope=\"row\">.*?)</tr>", page)
    cells = [re.findall(r">([^<]+)<", row) for row in rows]
    assert cells == [
        ["A", "3", "1", "6", "2", "0", "4", "0"],
        ["B", "5", "1", "6", "0", "1, 2", "8", "2"],
        ["together", "8", "2", "12 (192 bytes)", "2", "3", "12 (192 bytes)", "2"],
    ]
    assert all(line.strip() for line in page.splitlines())


def test_bytes_that_disagree_with_the_formula_are_called_wrong(run: LayoutRun) -> None:
    payload = layouts_payload(run)
    payload["layouts"]["passes"][1]["rectangle_nbytes"] = 200
    page = layouts_html(payload)
    assert "200 bytes in the tensors, 2 · 2 layers" in page and "= 192: THEY DISAGREE." in page


def test_hostile_text_stays_text(run: LayoutRun) -> None:
    named = LayoutRun({**run.meta, "vocab": {"5": HOSTILE}}, run.requests, run.passes)
    page = layouts_html({**layouts_payload(named), "title": HOSTILE})
    assert page.count("</script>") == 1 and "<img" not in page
    assert layouts_payload(named)["layouts"]["meta"]["vocab"]["5"] == HOSTILE


def test_the_payload_of_four_real_requests_is_small() -> None:
    prompts = [
        tiny.prompt("Ada likes soup. Tom likes plums. The key is red.", "What does Tom like?"),
        tiny.prompt("", "What does Ada like?", rules=""),
        tiny.prompt("The key is red.", "What colour is the key?", rules=""),
        tiny.prompt("Ada likes soup.", "What does Ada like?"),
    ]
    view = cache_layouts(LLM("tiny"), prompts, SamplingParams(max_tokens=24, ignore_eos=True))
    assert 4_000 < len(payload_json(view.payload)) < 40_000
    assert view.run.meta["vocab"][str(view.run.requests[0].prompt_token_ids[3])]


def test_the_module_is_self_contained() -> None:
    source = module_source("cache_layouts")
    assert not re.search(r"^\s*import\b|\bimport\s*\(|https?:|fetch\(|url\(", source, re.M)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", source)
    assert "VIEWS.cache_layouts" in source


def test_drawing_needs_neither_torch_nor_the_engine() -> None:
    code = (
        "import sys, kvlab.widgets.layouts_view\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('torch', 'numpy')"
        " or m in ('kvlab.llm', 'kvlab.engine', 'kvlab.tensors')]\n"
        "assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60)
    assert done.returncode == 0
