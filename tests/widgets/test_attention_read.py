"""The view "attention read": real weights of a trace and of a padded batch, drawn as they are."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from growth_cases import small_llm, with_vocab
from hypothesis import given
from hypothesis import strategies as st

from kvlab import LLM, Decoder, ModelConfig, SamplingParams, Trace, tiny
from kvlab.core.attention_read import PaddedReads
from kvlab.tensors.kv_cache import ContiguousCache, contiguous_forward
from kvlab.tensors.reads import padded_reads
from kvlab.widgets import AttentionRead, attention_html, attention_payload, attention_read
from kvlab.widgets.attention_words import decimal, partners, sentence, sharing
from kvlab.widgets.html import payload_json

SHAPE = dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_layers=2, head_dim=8)
HOSTILE = "</script><img src=x onerror=alert(1)>"


def random_model(query: int = 4, kv: int = 2) -> Decoder:
    return Decoder.random(ModelConfig(num_query_heads=query, num_kv_heads=kv, **SHAPE))


def traced(llm: LLM, prompt: object = (5, 6, 7, 8, 9), layers=(0, 1), max_tokens: int = 4) -> Trace:
    llm.start_trace(attention_layers=layers)
    llm.generate([list(prompt)], SamplingParams(max_tokens=max_tokens, ignore_eos=True))
    return llm.stop_trace()


def reference(model: Decoder, token_ids: list[int], layer: int) -> torch.Tensor:
    """Weights of the last query, head by head, from the tensors of one pass without the package's
    attention: [num_query_heads, T]. Query head h reads KV head h // (H_q / H_kv)."""
    cache, seen = ContiguousCache(model.config), {}

    def keep(attention, arguments):
        x, cos, sin, _ = arguments
        seen[attention.layer] = (x, cos, sin)

    hooks = [part.self_attn.register_forward_pre_hook(keep) for part in model.layers]
    contiguous_forward(model, torch.tensor([token_ids]), cache)
    for hook in hooks:
        hook.remove()
    caught = []
    x, cos, sin = seen[layer]
    with torch.no_grad():
        model.layers[layer].self_attn(x, cos, sin, lambda n, q, k, v: caught.append((q, k)) or q)
    ((query, key),) = caught  # [T, Hq, d], [T, Hkv, d]
    group = query.shape[1] // key.shape[1]
    scores = [
        key[:, h // group] @ query[-1, h] / query.shape[2] ** 0.5 for h in range(query.shape[1])
    ]
    return torch.stack([torch.softmax(row, 0) for row in scores])


# ---- what the trace keeps


@pytest.mark.parametrize(("query", "kv"), [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("layer", [0, 1])
def test_weights_in_a_trace_are_those_of_its_layer_and_of_the_shared_keys(query, kv, layer) -> None:
    model = random_model(query, kv)
    trace = traced(LLM(model, block_size=4, num_blocks=12))
    tokens = trace.last_state()["requests"]["r1"]["token_ids"]
    other = reference(model, tokens[:5], 1 - layer)
    for event in (e for e in trace.events if e.kind == "computed"):
        want = reference(model, tokens[: event.data["end"]], layer)
        got = torch.tensor(event.data["attention"][str(layer)])
        assert got.shape == (query, event.data["end"])
        assert (got - want).abs().max() < 1e-4
    assert (
        other - reference(model, tokens[:5], layer)
    ).abs().max() > 0.02  # layers can be told apart


def test_only_the_layers_that_were_asked_for_are_kept() -> None:
    kept = [
        list(e.data["attention"])
        for e in traced(small_llm(), layers={1}).events
        if e.kind == "computed"
    ]
    assert kept == [["1"]] * 4


def test_after_the_trace_nothing_is_watched_any_more() -> None:
    llm = small_llm()
    traced(llm)
    assert llm.runner.watch_layers == frozenset()
    llm.generate([[5, 6, 7]], SamplingParams(max_tokens=2))
    assert llm.runner.watched == {}


def test_a_trace_without_weights_watches_nothing() -> None:
    llm = small_llm()
    llm.start_trace()
    llm.generate([[5, 6, 7]], SamplingParams(max_tokens=2))
    assert llm.runner.watched == {}
    assert all("attention" not in e.data for e in llm.stop_trace().events)


@pytest.mark.parametrize("layers", [[2], [-1], [0, True], 0, "0", [None], [0.0]])
def test_layers_that_do_not_exist_are_refused_and_nothing_is_recorded(layers) -> None:
    llm = small_llm()
    with pytest.raises(ValueError, match=r"attention_layers is .*give layers from 0 to 1"):
        llm.start_trace(attention_layers=layers)
    assert llm.runner.watch_layers == frozenset()
    llm.start_trace()  # a refused one has not begun


# ---- the view of a trace


def test_each_pass_is_a_stop_that_reads_one_key_more() -> None:
    trace = traced(small_llm())
    payload = attention_payload(trace)
    assert [s["own"] for s in payload["stops"]] == [4, 5, 6, 7]
    for stop, event in zip(
        payload["stops"], (e for e in trace.events if e.kind == "computed"), strict=True
    ):
        for layer, rows in event.data["attention"].items():
            drawn = [[w / 10_000 for w in row] for row in stop["weights"][layer]]
            assert drawn == rows
    assert [s["slots"] for s in payload["stops"]] == [8, 8, 8, 8]  # two blocks of four slots
    assert payload["heads"] == [8, 4] and payload["layers"] == [0, 1] and payload["prompt"] == 5
    for stop in payload["stops"]:
        for rows in stop["weights"].values():
            assert [len(row) for row in rows] == [stop["own"] + 1] * 8
            assert all(abs(sum(row) - 10_000) <= len(row) for row in rows)


def test_a_chunked_prompt_leaves_later_tokens_unread() -> None:
    payload = attention_payload(traced(small_llm(max_num_batched_tokens=2)))
    assert [(s["own"], s["known"]) for s in payload["stops"][:3]] == [(1, 5), (3, 5), (4, 5)]
    intros = [s["intro"] for s in payload["stops"][:4]]
    assert intros[0].startswith("The prompt pass over positions 0 to 1: its last query, that of")
    assert intros[2].startswith("The prompt pass over position 4: its last query")
    assert intros[3].startswith("Pass 1: the query of token ")
    assert intros[3].endswith("at position 5 reads 6 keys, its own included.")


def test_the_sentence_tells_the_story_alone() -> None:
    """Numbers by hand: four heads on two KV heads, three keys."""
    payload = {
        "heads": [4, 2],
        "columns": [[0, 5, " soup"], [1, 6, "\n"], [2, 7, None]],
        "stops": [],
    }
    rows = [[6200, 2100, 1700], [1700, 2100, 6200], [10_000, 0, 0], [3333, 3333, 3334]]
    stop = {"own": 2, "open": False, "intro": "Pass 1 reads.", "outro": "", "weights": {"2": rows}}
    assert sentence(payload, stop, 2, 0) == (
        "Pass 1 reads. Layer 2, query head 0 (reads KV head 0 together with query head 1): "
        "most of its weight, 0.62, goes to ' soup' at position 0, then 0.21 to '\\n' at position "
        "1; its own key gets 0.17. The weights of its 3 keys sum to 1.00."
    )
    assert "goes to its own key, token 7 at position 2, then 0.21" in sentence(payload, stop, 2, 1)
    assert sentence(payload, stop, 2, None) == (
        "Pass 1 reads. In layer 2, 4 query heads share 2 KV heads (grouped-query attention). "
        "Sharpest is head 2: 1.00 to ' soup' at position 0; most spread is head 3: at most 0.33, "
        "to its own key, token 7 at position 2. The weights of each head sum to 1.00."
    )


@pytest.mark.parametrize(
    ("heads", "rows", "words"),
    [
        ([1, 1], [[6200, 3800]], "Head 0 gives at most 0.62, to token 5 at position 0. The"),
        (
            [2, 1],
            [[6200, 3800], [3800, 6200]],
            "Head 0 gives at most 0.62, to token 5 at position 0; the largest weights of all "
            "heads are equal. The",
        ),
    ],
)
def test_no_head_is_sharpest_among_equals(heads, rows, words) -> None:
    payload = {"heads": heads, "columns": [[0, 5, None], [1, 6, None]]}
    stop = {"own": 1, "open": False, "intro": "", "outro": "", "weights": {"0": rows}}
    assert words in sentence(payload, stop, 0, None)


# ---- NaN


def no_constants(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def with_nan_keys() -> Trace:
    """A run of two layers whose cached keys become NaN after the second pass."""
    llm = small_llm()
    llm.start_trace(attention_layers=[0])
    (request,) = llm.engine.add_request([5, 6, 7], SamplingParams(max_tokens=4, ignore_eos=True))
    llm.engine.step()
    llm.engine.step()
    llm.cache.key_cache.fill_(float("nan"))
    llm.engine.run()
    assert request.finish_reason is not None
    return llm.stop_trace()


def test_weights_that_are_nan_are_shown_and_named() -> None:
    view = attention_read(with_nan_keys())
    good, bad = view.payload["stops"][1], view.payload["stops"][2]
    assert None not in good["weights"]["0"][0] and bad["weights"]["0"] == [[None] * 5] * 8
    assert json.loads(payload_json(view.payload), parse_constant=no_constants) == view.payload
    told = sentence(view.payload, bad, 0, 1)
    assert "Layer 0, query head 1 (reads KV head 0 together with query head 0): " in told
    assert "its weights are NaN, not a number: where one score is NaN, the softmax makes" in told
    assert told.endswith("The weights of its 5 keys sum to NaN.")
    told = sentence(view.payload, bad, 0, None)
    assert "(grouped-query attention). The weights of every head are NaN, not a number: " in told
    assert told.endswith("The weights of each head sum to NaN.")
    page = view.html()
    assert page.count("<td>NaN</td>") == 8 * (6 + 1)  # heads times keys, and the sums
    assert page.count('<tr><th scope="row">') == 6 + 1


def test_heads_with_nan_are_told_from_the_others() -> None:
    columns = [[0, 5, None], [None, None, None], [1, 6, None]]
    rows = [[6000, 1000, 3000], [None] * 3, [1000, 2000, 7000], [None] * 3]
    payload = {"heads": [4, 2], "columns": columns}
    stop = {"own": 2, "open": True, "intro": "", "outro": "", "weights": {"0": rows}}
    told = sentence(payload, stop, 0, None)
    assert "The weights of heads 1, 3 are NaN, not a number: " in told
    assert "; padding gets 0.10 to 0.20, or NaN of a head's weight. " in told
    assert told.endswith("The weights of each head sum to 1.00, or NaN.")
    assert "1 padded slot together 0.10" in sentence(payload, stop, 0, 0)


def test_logits_that_move_by_nan_are_told() -> None:
    reads = padded_reads(random_model(), [[7, 8, 9], [1, 2, 3, 4, 5]])
    nan = float("nan")
    passes = [replace(one, logit_difference=nan) for one in reads.passes]
    stops = attention_payload(replace(reads, passes=passes))["stops"]
    assert stops[0]["outro"].endswith("Without the mask, its logits would move by NaN.")
    assert stops[2]["outro"].startswith("The logits move by up to NaN; ")


# ---- ids beyond the tokenizer's


def test_an_id_that_the_tokenizer_does_not_have_is_named_by_its_number() -> None:
    config = replace(LLM("tiny").model.config, vocab_size=2000, num_layers=1)
    llm = LLM(Decoder.random(config), tokenizer="tiny", block_size=4, num_blocks=16)
    assert llm.tokenizer.vocab_size < 1500
    columns = attention_payload(traced(llm, [5, 1500, 6], [0], 1))["columns"]
    assert columns[1] == [1, 1500, "token 1500"]
    names = [llm.tokenizer.token_text(i) for i in range(llm.tokenizer.vocab_size)]
    assert not [name for name in names if not name or name.startswith("token ")]


@pytest.mark.parametrize(
    ("heads", "words", "who"),
    [
        (
            [4, 4],
            "4 query heads have a KV head each (multi-head attention)",
            "reads KV head 3 alone",
        ),
        (
            [4, 2],
            "4 query heads share 2 KV heads (grouped-query attention)",
            "reads KV head 1 together with query head 2",
        ),
        (
            [4, 1],
            "4 query heads share 1 KV head (multi-query attention)",
            "reads KV head 0 together with 3 other query heads",
        ),
        ([1, 1], "1 query head has a KV head (multi-head attention)", None),
    ],
)
def test_head_sharing_is_named_from_the_counts(heads, words, who) -> None:
    assert sharing(heads) == words
    assert who is None or partners(heads, 3) == who


def test_hundredths_round_alike_everywhere() -> None:
    assert [decimal(n) for n in (0, 49, 50, 1250, 9949, 9950, 10_000)] == [
        *("0.00", "0.00", "0.01", "0.13", "0.99", "1.00", "1.00")
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"request_id": "r9"}, "there is no request 'r9'; the trace has r1"),
        ({"layer": 1}, r"layer 1 was not recorded; there are \[0\]"),
        ({"head": 8}, "head 8 does not exist; give 0 to 7"),
        ({"head": False}, "head False does not exist"),
        ({"head": 0.0}, "head 0.0 does not exist"),
        ({"head": [0]}, r"head \[0\] does not exist"),
        ({"layer": False}, "layer False was not recorded"),
        ({"layer": 0.0}, "layer 0.0 was not recorded"),
        ({"layer": np.bool_(False)}, "layer np.False_ was not recorded"),
    ],
)
def test_what_was_not_recorded_is_refused(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        attention_payload(traced(small_llm(), layers=[0]), **options)


def test_numpys_integers_choose_as_ints_do() -> None:
    trace = traced(small_llm())
    chosen = attention_payload(trace, layer=np.int64(1), head=np.uint8(3))
    assert json.dumps(chosen) == json.dumps(attention_payload(trace, layer=1, head=3))


def test_a_trace_without_weights_and_other_things_are_refused() -> None:
    llm = small_llm()
    llm.start_trace()
    llm.generate([[5, 6]], SamplingParams(max_tokens=1))
    with pytest.raises(
        ValueError, match=r"holds no attention weights of request r1; record it with"
    ):
        attention_payload(llm.stop_trace())
    with pytest.raises(ValueError, match="list is neither a Trace nor PaddedReads"):
        attention_payload([])


# ---- padding


def test_masked_padding_is_as_if_it_were_not_there() -> None:
    """Request 0 has three tokens, its neighbour five: two padded slots, weight 0 when masked."""
    model = random_model()
    reads = padded_reads(model, [[7, 8, 9], [1, 2, 3, 4, 5]], passes=3)
    assert (reads.request, reads.lengths, reads.slots[:5]) == (0, [3, 5], [7, 8, 9, None, None])
    real = [t for t in reads.slots if t is not None]
    assert [one.query for one in reads.passes] == [2, 5, 6, 7]
    for n, one in enumerate(reads.passes, 3):
        for layer, rows in one.masked.items():
            shown = torch.tensor(rows)
            keep = [p for p, token in enumerate(reads.slots[: one.query + 1]) if token is not None]
            assert (shown[:, keep] - reference(model, real[:n], int(layer))).abs().max() < 1e-4
            pads = [p for p in range(one.query + 1) if p not in keep]
            assert len(pads) == (2 if n > 3 else 0) and shown[:, pads].abs().sum() == 0
        alone = contiguous_forward(model, torch.tensor([real[:n]]), ContiguousCache(model.config))
        assert one.masked_token == int(alone[0, -1].argmax())
    follows = [one.masked_token for one in reads.passes[:-1]]
    assert real[3:] == follows  # each pass processes what the masked run selected


def test_readable_padding_takes_weight_and_moves_the_logits() -> None:
    reads = padded_reads(random_model(), [[7, 8, 9], [1, 2, 3, 4, 5]], passes=2)
    first, *later = reads.passes
    assert first.masked == first.unmasked  # padding after the prompt's last query: causal mask
    assert first.logit_difference < 1e-4
    for one in later:
        for layer, rows in one.unmasked.items():
            leaks = [row[3] + row[4] for row in rows]
            assert min(leaks) > 0.001
            assert all(abs(sum(row) - 1) < 0.001 for row in rows)
            assert rows != one.masked[layer]
        assert one.logit_difference > 0.01


def test_without_a_mask_the_keys_read_in_a_padded_slot_are_those_of_the_filler() -> None:
    """What a naive implementation leaves there: the pass of [7, 8, 9, 0, 0, x] read to its end."""
    model = random_model()
    reads = padded_reads(model, [[7, 8, 9], [1, 2, 3, 4, 5]])
    other = padded_reads(model, [[7, 8, 9], [1, 2, 3, 4, 5]], pad_token_id=63)
    assert reads.passes[1].masked == other.passes[1].masked
    assert reads.passes[1].unmasked != other.passes[1].unmasked
    # layer 0's keys depend on token and position alone: the padded slots were computed as
    # positions 3 and 4, and the query's token is the fourth real one, at position 3
    cache, caught = ContiguousCache(model.config), []
    contiguous_forward(model, torch.tensor([[7, 8, 9, 0, 0]]), cache)

    class Query:
        def __call__(self, n, query, key, value):
            caught.append((query, key))
            return torch.zeros_like(query)

    with torch.no_grad():
        model(torch.tensor([reads.slots[5]]), torch.tensor([3]), Query())
    query, own = caught[0]
    keys = torch.cat((cache.keys[0][0], own.transpose(0, 1)), dim=1)  # [Hkv, 6, d]
    want = [torch.softmax(keys[h // 2] @ query[0, h] / 8**0.5, 0) for h in range(4)]
    assert (torch.tensor(reads.passes[1].unmasked["0"]) - torch.stack(want)).abs().max() < 1e-4


@given(st.lists(st.integers(1, 7), min_size=2, max_size=4).filter(lambda ls: len(set(ls)) > 1))
def test_any_padded_lengths(lengths: list[int]) -> None:
    """The shortest row: padding to the longest, no weight on it, one key more a pass."""
    model = random_model(2, 1)
    prompts = [[(3 * row + i) % 60 + 2 for i in range(n)] for row, n in enumerate(lengths)]
    reads = padded_reads(model, prompts, passes=2)
    short, widest = min(lengths), max(lengths)
    assert reads.slots.count(None) == widest - short
    assert [one.query for one in reads.passes] == [short - 1, widest, widest + 1]
    alone = contiguous_forward(
        model, torch.tensor([prompts[reads.request]]), ContiguousCache(model.config)
    )
    assert reads.passes[0].masked_token == int(alone[0, -1].argmax())
    payload = attention_payload(reads)
    for stop in payload["stops"]:
        rows = stop["weights"]["1"]
        pads = [p for p, column in enumerate(payload["columns"]) if column[0] is None]
        leaks = [sum(row[p] for p in pads if p <= stop["own"]) for row in rows]
        assert (max(leaks) > 0) == stop["open"]
    positions = [c[0] for c in payload["columns"] if c[0] is not None]
    assert positions == list(range(short + 2))


def test_a_padded_read_has_two_stops_a_pass_and_says_what_changes() -> None:
    llm = LLM("tiny")
    prompts = [
        llm.encode(tiny.prompt("Ada likes soup.", "What does Ada like?", rules="")),
        llm.encode(tiny.prompt("Ada likes soup. The key is red.", "What does Ada like?", rules="")),
    ]
    reads = padded_reads(llm.model, prompts, token_text=llm.tokenizer.token_text)
    view = attention_read(reads, head=0)
    stops = view.payload["stops"]
    assert [s["open"] for s in stops] == [False, False, True]
    assert [s["tick"] for s in stops] == ["P", "O", "X"]
    prompt, masked, unmasked = (sentence(view.payload, s, 0, 0) for s in stops)
    assert "request 0 has 15 tokens, a neighbour 20, so 5 slots of its row are padding" in prompt
    assert "reads 15 keys: the padding lies after it" in prompt
    assert "the padding masked" in masked and "reads 16 keys" in masked
    assert "5 padded slots together 0.00. The weights of its 16 keys sum to 1.00." in masked
    assert "the mask taken away" in unmasked and "reads 21 keys" in unmasked
    assert "The logits move by up to " in unmasked and "the next token " in unmasked


def test_a_next_token_that_changes_is_named() -> None:
    reads = padded_reads(random_model(), [[7], [1, 2, 3, 4, 5, 6, 7, 8]], passes=6)
    document = reads.to_dict()
    document["passes"][1] |= {"masked_token": 7, "unmasked_token": 8}
    document["vocab"] = {"7": " soup", "8": " plums"}
    stop = attention_payload(PaddedReads.from_dict(document))["stops"][2]
    assert stop["outro"].endswith("; the next token changes from ' soup' to ' plums'.")


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([], {}, "give prompts of at least one token"),
        ([[1], []], {}, r"prompts of \[1, 0\] tokens"),
        ([[1, 2], [3, 4]], {}, "leave request 0 without padding; give a longer prompt"),
        ([[1, 2], [3]], {"request": 0}, "leave request 0 without padding"),
        ([[1, 2], [3]], {"request": 2}, "request is 2; give a row from 0 to 1"),
        ([[1], [2, 3]], {"request": False}, "request is False; give a row from 0 to 1"),
        ([[1], [2, 3]], {"request": 0.0}, "request is 0.0; give a row from 0 to 1"),
        (None, {}, "prompts is None; give a list of lists of token ids"),
        ([1, 2], {}, r"prompts is \[1, 2\]; give a list of lists"),
        ("ab", {}, "prompts is 'ab'; give a list of lists"),
        ([[1, 2], [64]], {}, "token 64 is not an id of this vocabulary"),
        ([[1, 2], [3]], {"pad_token_id": -1}, "token -1 is not an id"),
        ([[1, 2], [3]], {"passes": 0}, "passes is 0; give 1 or more"),
        ([[1, 2], [3]], {"passes": 5000}, "passes is 5000"),
    ],
)
def test_batches_that_cannot_be_read_are_refused(prompts, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        padded_reads(random_model(), prompts, **options)


def test_an_llm_is_no_decoder() -> None:
    with pytest.raises(ValueError, match=r"model has type LLM; give a Decoder, such as"):
        padded_reads(small_llm(), [[1], [2, 3]])


def test_a_row_chosen_by_numpy_is_an_int_in_json() -> None:
    reads = padded_reads(random_model(), [[1], [2, 3]], request=np.int64(0))
    assert json.loads(json.dumps(reads.to_dict()))["request"] == 0


# ---- the forms


def two_sources() -> list:
    reads = padded_reads(random_model(), [[7, 8, 9], [1, 2, 3, 4, 5]])
    return [traced(small_llm()), reads]


@pytest.mark.parametrize("index", [0, 1])
def test_the_payload_is_json_both_ways_and_the_same_twice(index) -> None:
    one, other = (attention_payload(two_sources()[index]) for _ in range(2))
    assert json.loads(payload_json(one)) == one == other
    assert attention_html(one) == attention_html(other)


def test_padded_reads_are_json_both_ways() -> None:
    reads = two_sources()[1]
    again = PaddedReads.from_dict(json.loads(json.dumps(reads.to_dict())))
    assert again == reads
    assert repr(again) == "PaddedReads(request 0 of 2, 2 passes, 2 padded slots)"
    for damaged in ({}, {"passes": 5}, {**reads.to_dict(), "more": 1}, []):
        with pytest.raises(ValueError, match="not padded reads"):
            PaddedReads.from_dict(damaged)


def test_one_output_has_a_table_with_every_weight_and_a_short_text() -> None:
    view = attention_read(traced(small_llm()))
    assert isinstance(view, AttentionRead)
    size = "4 stops, 2 layers, 8 query heads on 4 KV heads"
    assert repr(view) == f"AttentionRead('Attention read of request r1', {size})"
    page = view.html()
    assert page.startswith('<div class="kvlab-view" data-view="attention_read">')
    assert page.count("<table>") == 1 and page.count("<li>") == 4
    last = view.payload["stops"][-1]
    for head, row in enumerate(last["weights"]["0"]):
        assert f"layer 0, query head {head}, KV head {head // 2}" in page
        assert f"<td>{decimal(max(row))}</td>" in page
    assert page.count('<tr><th scope="row">') == 8 + 1  # keys, then the sums
    assert "<td>own key</td>" in page


def test_a_padded_read_has_both_tables() -> None:
    page = attention_html(attention_payload(two_sources()[1]))
    assert page.count("<table>") == 2
    assert page.count('<th scope="row">slot 3</th><td>pad</td><td>padding</td><td>0.00</td>') == 1
    assert page.count('<th scope="row">slot 3</th><td>pad</td><td>padding, readable</td>') == 1


def test_hostile_text_stays_text() -> None:
    trace = with_vocab(traced(small_llm()), [HOSTILE, "\n\n", "<!--"])
    page = attention_html(attention_payload(trace))
    assert "<img" not in page and page.count("<script") == 1
    assert all(line.strip() for line in page.splitlines())


def test_the_output_of_the_tiny_model_stays_small() -> None:
    llm = LLM("tiny", block_size=4)
    prompt = llm.encode(tiny.prompt("Ada likes soup. The key is red.", "What colour is the key?"))
    view = attention_read(traced(llm, prompt, range(4), max_tokens=10))
    ends = [s["own"] for s in view.payload["stops"]]
    assert len(ends) == 10 and all(b == a + 1 for a, b in pairwise(ends))
    assert len(view.html()) < 60_000
