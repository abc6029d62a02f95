"""Layers with a window: case N04, against transformers (eager attention) and against masks."""

from dataclasses import replace

import pytest
import torch
from builders import (
    assert_same_run,
    greedy,
    make_engine,
    random_model,
    recomputed,
    record_logits,
    run,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from test_against_transformers import LLAMA3, save_random
from test_attention_ops import CONFIG

from kvlab.core.formats import FORMATS
from kvlab.core.scheduler_output import ScheduledRequest
from kvlab.core.spec import KVCacheSpec
from kvlab.core.storage import Storage
from kvlab.tensors import ops
from kvlab.tensors.attention import causal_mask, paged_attention_spec
from kvlab.tensors.checkpoint import load_model
from kvlab.tensors.checkpoint_save import config_to_hf
from kvlab.tensors.input_batch import build_input_batch
from kvlab.tensors.kv_cache import ContiguousCache, PagedCache, contiguous_forward
from kvlab.tensors.ops import NoCache, PagedAttention

transformers = pytest.importorskip("transformers")

SLIDING, FULL = "sliding_attention", "full_attention"
QWEN = {"use_sliding_window": True, "num_hidden_layers": 3, "sliding_window": 5}
QWEN3 = QWEN | {"head_dim": 16}
VARIANTS = {
    "mistral, 8": ("Mistral", {"sliding_window": 8}),
    "mistral, 1": ("Mistral", {"sliding_window": 1}),
    "mistral, 99": ("Mistral", {"sliding_window": 99}),
    "mistral, wider than all": ("Mistral", {"sliding_window": 500, "head_dim": 12}),
    "qwen2, from layer 1": ("Qwen2", {**QWEN, "max_window_layers": 1}),
    "qwen2, listed": ("Qwen2", {**QWEN, "layer_types": [SLIDING, FULL, SLIDING]}),
    "qwen3, every layer": ("Qwen3", {**QWEN3, "sliding_window": 16, "max_window_layers": 0}),
    "qwen3, no layer": ("Qwen3", {**QWEN3, "max_window_layers": 9}),
    "qwen3, listed": (
        "Qwen3", {**QWEN3, "sliding_window": 2, "layer_types": [FULL, SLIDING, FULL]}
    ),
}  # fmt: skip


def pair(folder, family, **changes):
    """Their model with eager attention, and ours from the same folder."""
    theirs = save_random(folder, family, **changes)
    theirs.set_attn_implementation("eager")
    return theirs, load_model(folder)


def tokens_of(count, seed=1):
    return torch.randint(0, 97, (1, count), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def logits_of(theirs, ids, positions=None):
    return theirs(ids, position_ids=positions, use_cache=False).logits[0]


@torch.no_grad()
def without_cache(model, ids, positions=None):
    positions = torch.arange(ids.shape[1]) if positions is None else positions
    return model.compute_logits(model(ids[0], positions, NoCache()))


@pytest.mark.parametrize("variant", VARIANTS)
class TestAgainstTransformers:
    @pytest.fixture
    def models(self, tmp_path, variant):
        family, changes = VARIANTS[variant]
        return pair(tmp_path, family, **changes)

    def test_logits_whole_and_in_chunks_of_every_size(self, models):
        theirs, ours = models
        ids = tokens_of(100)
        want = logits_of(theirs, ids)
        assert (without_cache(ours, ids) - want).abs().max() < 1e-4
        for chunk in (100, *range(1, 8)):
            cache = ContiguousCache(ours.config)
            rows = [
                contiguous_forward(ours, ids[:, at : at + chunk], cache)[0]
                for at in range(0, 100, chunk)
            ]
            assert (torch.cat(rows) - want).abs().max() < 1e-4

    def test_paged_chunks_and_64_greedy_tokens(self, models):
        theirs, ours = models
        prompt = tokens_of(20)[0].tolist()
        expected = greedy_by_recomputing(theirs, prompt, 64)
        for chunk in (1, 3, 7, 64):
            engine = make_engine(ours, 64, 4, max_num_batched_tokens=chunk)
            logits = record_logits(engine)
            (r,) = engine.add_request(prompt, greedy(64), request_id="A")
            run(engine)
            assert r.output_token_ids == expected[0]
            differences = [
                (a - b).abs().max() for a, b in zip(logits["A"], expected[1], strict=True)
            ]
            assert max(differences) < 1e-4

    def test_a_batch_of_unequal_lengths(self, models):
        theirs, ours = models
        prompts = [tokens_of(n, seed=n)[0].tolist() for n in (1, 3, 17, 40)]
        engine = make_engine(ours, 128, 4)
        logits = record_logits(engine)
        requests = [engine.add_request(p, greedy(12), request_id=str(len(p)))[0] for p in prompts]
        run(engine)
        for prompt, r in zip(prompts, requests, strict=True):
            expected, wanted = greedy_by_recomputing(theirs, prompt, 12)
            assert r.output_token_ids == expected
            for got, want in zip(logits[r.request_id], wanted, strict=True):
                assert (got - want).abs().max() < 1e-4


def greedy_by_recomputing(theirs, prompt, count):
    """Tokens and logits of transformers without a cache."""
    tokens, rows = list(prompt), []
    for _ in range(count):
        rows.append(logits_of(theirs, torch.tensor([tokens]))[-1])
        tokens.append(int(rows[-1].argmax()))
    return tokens[len(prompt) :], rows


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Mistral", {}),  # the class's own 4,096
        ("Mistral", {"sliding_window": 100, "rope_parameters": LLAMA3, "head_dim": 64}),
        ("Qwen2", {"use_sliding_window": True, "sliding_window": 4000, "max_window_layers": 1}),
    ],
)
def test_beyond_position_4096(tmp_path, family, changes):
    sizes = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 24} | changes
    theirs, ours = pair(tmp_path, family, **sizes)
    ids = tokens_of(4200)
    want = logits_of(theirs, ids)
    assert (without_cache(ours, ids) - want).abs().max() < 1e-4
    engine = make_engine(ours, 300, 16, max_num_batched_tokens=1500)
    logits = record_logits(engine)
    engine.add_request(ids[0].tolist(), greedy(1), request_id="A")
    run(engine)
    assert (logits["A"][0] - want[-1]).abs().max() < 1e-4
    ours = load_model(tmp_path)
    for layer in ours.layers:  # the same weights without windows: beyond the window it shows
        layer.self_attn.reach = {}
    without = (without_cache(ours, ids) - want).abs().amax(dim=1)
    assert without[:100].max() < 1e-4
    assert without[4150:].min() > 1e-3


def test_n04_a_window_of_w_keys_counts_the_query_itself():
    assert causal_mask(2, 5, window=2).int().tolist() == [[0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]
    assert causal_mask(3, 3, window=1).int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert torch.equal(causal_mask(4, 9, window=9), causal_mask(4, 9))
    assert causal_mask(3, 40, window=6).sum(1).tolist() == [6, 6, 6]


def test_n04_a_window_of_one_sees_nothing_but_itself():
    """Whatever came before, the logits are those of the token alone (at its position)."""
    model = random_model(3, sliding_window=1)
    rows = [without_cache(model, torch.tensor([[*past, 9]]))[-1] for past in ([1, 2, 3], [7, 5, 6])]
    assert torch.equal(rows[0], rows[1])
    wider = random_model(3, sliding_window=2)
    rows = [without_cache(wider, torch.tensor([[*past, 9]]))[-1] for past in ([1, 2, 3], [7, 5, 6])]
    assert (rows[0] - rows[1]).abs().max() > 1e-3


def test_layers_reach_back_one_window_each():
    """Two layers of a window of 3: the last logits depend on the 5 last tokens, and no more."""
    model = random_model(4, sliding_window=3, num_layers=2)
    ids = torch.arange(12)[None]
    base = without_cache(model, ids)[-1]
    for place in range(11):
        other = ids.clone()
        other[0, place] = 55
        changed = (without_cache(model, other)[-1] - base).abs().max()
        assert (changed > 1e-6) == (place >= 12 - 5), place


SETTINGS = {"one layer": (FULL, SLIDING), "first": (SLIDING, FULL), "all": ()}


@settings(max_examples=40)
@given(
    st.sampled_from(sorted(SETTINGS)),
    st.integers(1, 12),
    st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=24), min_size=1, max_size=4),
    st.sampled_from([1, 2, 4, 7, 16]),
    st.integers(1, 40),
    st.booleans(),
)
def test_batches_chunks_and_blocks_equal_recomputing(kinds, window, several, size, budget, caching):
    model = random_model(5, sliding_window=window, layer_types=SETTINGS[kinds])
    engine = make_engine(
        model, 256, size, caching=caching, max_num_batched_tokens=max(4, budget), max_num_seqs=4
    )
    logits = record_logits(engine)
    requests = [
        engine.add_request(p, greedy(6), request_id=str(i))[0] for i, p in enumerate(several)
    ]
    run(engine)
    for prompt, r in zip(several, requests, strict=True):
        assert_same_run(model, prompt, r.output_token_ids, logits[r.request_id])


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), min_size=1, max_size=4),
    st.booleans(),
    st.integers(1, 14),
    st.sampled_from([1, 3, 4, 16]),
    st.booleans(),
    st.sampled_from([3, 512]),
)
def test_the_fast_ways_equal_the_specification(work, alike, window, size, together, tile):
    """Pools full of NaN; work: positions computed before and now, of each request."""
    if alike:
        work = [(past, work[0][1]) for past, _ in work]
    tables, used = [], 0
    for past, new in work:
        count = -(-(past + new) // size)
        tables.append(list(range(used, used + count))[::-1])
        used += count
    cache = PagedCache(CONFIG, used, size)
    cache.key_cache.fill_(float("nan"))
    cache.value_cache.fill_(float("nan"))
    generator = torch.Generator().manual_seed(0)
    attention = PagedAttention(cache, torch.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops, "GATHER_TOGETHER", 1 << 40 if together else 0)
        patch.setattr(ops, "QUERY_TILE", tile)
        for spans in ([(0, p) for p, _ in work], [(p, p + n) for p, n in work]):
            rows = tuple(
                ScheduledRequest(str(i), a, [0] * (b - a), tables[i], ())
                for i, (a, b) in enumerate(spans)
                if b > a
            )
            if rows:
                batch = build_input_batch(rows, size, torch.device("cpu"))
                attention.begin(batch)
                n = len(batch.input_ids)
                q = torch.randn(n, 4, 8, generator=generator)
                k, v = torch.randn(2, n, 2, 8, generator=generator)
                out = attention(1, q, k, v, window)
    want = paged_attention_spec(
        q, cache.key_cache[1], cache.value_cache[1], tables,
        batch.query_lens, batch.seq_lens, window=window,
    )  # fmt: skip
    assert (out.double() - want).abs().max() < 1e-6


def test_a_windowed_layer_gathers_what_it_can_reach_and_no_more():
    cache = PagedCache(CONFIG, 200, 4)
    attention = PagedAttention(cache, torch.float32)
    row = ScheduledRequest("A", 399, [0], list(range(100)), ())
    attention.begin(build_input_batch((row,), 4, torch.device("cpu")))
    slots, mask = attention._rectangle(6)
    assert (slots.tolist(), mask) == ([394, 395, 396, 397, 398, 399], None)


def test_what_is_kept_is_what_the_calculator_says():
    """One layer of the two attends to everything: the window saves reading, not memory."""
    kinds = (SLIDING, FULL)
    model = random_model(9, sliding_window=4, layer_types=kinds, architecture="Qwen2ForCausalLM")
    engine = make_engine(model, 64, 4)
    engine.add_request(list(range(30)), greedy(3), request_id="A")
    engine.step()
    table = engine.scheduler.manager.block_table("A")
    spec = KVCacheSpec.from_config(
        config_to_hf(replace(model.config, qkv_bias=True), torch.float32)
    )
    assert spec.windows == (4,)
    kept = Storage(spec, FORMATS["fp32"], policy="reserve_full").nbytes(30)
    assert len(table) == 8 and engine.runner.cache.stored_nbytes(table, 30) == kept
    assert Storage(spec, FORMATS["fp32"], policy="capped").nbytes(30) < kept
    engine.abort("A")


def test_padding_does_not_use_up_the_window():
    """N01 with a window: a rectangle of lengths 3 and 8, equal to single runs step by step."""
    model = random_model(6, sliding_window=4, layer_types=(SLIDING, FULL))
    three, eight = [7, 8, 9], [1, 2, 3, 4, 5, 6, 10, 11]
    cache = ContiguousCache(model.config, batch=2)
    logits = contiguous_forward(
        model, torch.tensor([[*three, 0, 0, 0, 0, 0], eight]), cache, [3, 8]
    )
    rows = [logits[0, 2], logits[1, 7]]
    for _ in range(5):
        for prompt, row in ((three, rows[0]), (eight, rows[1])):
            want = without_cache(model, torch.tensor([prompt]))[-1]
            assert (row - want).abs().max() < 1e-4
            prompt.append(int(row.argmax()))
        new = torch.tensor([[three[-1]], [eight[-1]]])
        rows = list(contiguous_forward(model, new, cache)[:, 0])


def test_watched_weights_are_those_of_the_window():
    model = random_model(7, sliding_window=3, layer_types=(SLIDING, FULL))
    engine = make_engine(model)
    engine.runner.watch_layers = frozenset({0, 1})
    engine.add_request(list(range(10)), greedy(1), request_id="A")
    engine.step()
    near, all_of_it = (engine.runner.watched["A"][layer] for layer in (0, 1))
    assert (near > 0).sum(dim=1).tolist() == [3] * 4 and (all_of_it > 0).all()
    assert torch.allclose(near.sum(dim=1), torch.ones(4))


def test_recomputing_in_the_tests_knows_windows():
    model = random_model(8, sliding_window=2)
    _, (logits,) = recomputed(model, list(range(9)), 1)
    assert (logits - without_cache(model, torch.arange(9)[None])[-1]).abs().max() < 1e-4
