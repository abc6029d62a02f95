"""Blocks behind a window are freed under a real model: what was given back is filled with NaN, so
that reading it shows; logits equal transformers' and those of an engine that frees nothing."""

from dataclasses import replace

import pytest
import torch
from builders import assert_same_run, greedy, make_engine, random_model, record_logits, run
from hypothesis import given, settings
from hypothesis import strategies as st
from test_sliding_window import FULL, SLIDING, logits_of, pair, tokens_of

from kvlab import LLM
from kvlab.core.budget import block_layout
from kvlab.core.formats import FORMATS
from kvlab.core.kv_cache_manager import KVCacheManager
from kvlab.core.spec import KVCacheSpec
from kvlab.core.storage import Storage
from kvlab.core.windows import held
from kvlab.measure.ledger import byte_ledger
from kvlab.tensors import ops
from kvlab.tensors.active_offload import ActiveOffload
from kvlab.tensors.checkpoint_save import config_to_hf
from kvlab.tensors.input_batch import readable


def poisoned(engine):
    """Fill with NaN whatever is given back and cannot be found again. Returns how many blocks."""
    manager, cache, count = engine.scheduler.manager, engine.runner.cache, []

    def fill(kind, request, **data):
        for block_id in data["block_ids"] if kind == "out_of_window" else ():
            block = manager.pool.blocks[block_id]
            if block.ref_cnt == 0 and block.block_hash is None:
                count.append(block_id)
                for tensor in (cache.key_cache, cache.value_cache):
                    tensor[:, block_id] = float("nan")

    manager.observer = fill
    return count


def held_blocks(engine, request_id):
    return len(held(engine.scheduler.manager.blocks_of(request_id)))


def test_logits_equal_transformers_far_beyond_the_window(tmp_path):
    theirs, ours = pair(tmp_path, "Mistral", sliding_window=8)
    prompt = tokens_of(100)[0].tolist()
    engine = make_engine(ours, 7, 4, caching=False, max_num_batched_tokens=16)
    gone, logits = poisoned(engine), record_logits(engine)
    (request,) = engine.add_request(prompt, greedy(60), request_id="A")
    most = 0
    while engine.has_unfinished_requests():
        engine.step()
        engine.scheduler.check_invariants()
        most = max(most, held_blocks(engine, "A"))
    assert len(gone) > 30 and most == 3  # between steps; a pool of 7 blocks, 159 positions
    tokens = torch.tensor([[*prompt, *request.output_token_ids]])
    want = logits_of(theirs, tokens[:, :-1])[99:]
    assert (torch.stack(logits["A"]) - want).abs().max() < 1e-4
    assert request.output_token_ids == want.argmax(-1).tolist()


plans = st.lists(
    st.tuples(st.lists(st.integers(0, 60), min_size=1, max_size=24), st.integers(1, 20)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60)
@given(plans, st.integers(1, 12), st.sampled_from([1, 2, 4, 7]), st.integers(4, 40), st.booleans())
def test_batches_behind_a_window_equal_recomputing(plans, window, size, budget, together):
    """Requests of unequal lengths, in rectangles or one by one; freed blocks are full of NaN."""
    model = random_model(5, sliding_window=window)
    engine = make_engine(
        model, 256, size, caching=False, max_num_batched_tokens=budget, max_num_seqs=4
    )
    assert engine.scheduler.manager.window.size == window
    poisoned(engine)
    logits = record_logits(engine)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops, "GATHER_TOGETHER", 1 << 40 if together else 0)
        requests = [
            engine.add_request(p, greedy(n), request_id=str(i))[0] for i, (p, n) in enumerate(plans)
        ]
        run(engine)
    for (prompt, _), r in zip(plans, requests, strict=True):
        assert all(row.isfinite().all() for row in logits[r.request_id])
        assert_same_run(model, prompt, r.output_token_ids, logits[r.request_id])


@pytest.mark.parametrize("caching", [False, True])
def test_tokens_and_logits_do_not_depend_on_freeing(caching):
    model, prompt = random_model(6, sliding_window=6), [7, 3, 9] * 15
    runs = []
    for frees in (True, False):
        engine = make_engine(model, 64, 4, caching=caching)
        if not frees:
            engine.scheduler.manager.window = engine.scheduler.manager.prefix.window = None
        logits = record_logits(engine)
        several = [prompt, prompt[:20], [*prompt, 5]]
        requests = [
            engine.add_request(p, greedy(30), request_id=str(i))[0] for i, p in enumerate(several)
        ]
        engine.step()
        engine.step()
        assert (held_blocks(engine, "0") < 5) == frees
        run(engine)
        runs.append(([r.output_token_ids for r in requests], logits))
    (tokens, freed), (others, kept) = runs
    assert tokens == others
    for name in freed:
        assert (torch.stack(freed[name]) - torch.stack(kept[name])).abs().max() < 1e-5


@pytest.mark.parametrize("kinds", [(SLIDING, FULL), (FULL, SLIDING)])
def test_one_layer_that_attends_to_everything_keeps_everything(kinds):
    model = random_model(7, sliding_window=4, layer_types=kinds)
    engine = make_engine(model, 64, 4)
    assert model.config.widest_window is None and engine.scheduler.manager.window is None
    engine.add_request(list(range(40)), greedy(20), request_id="A")
    for _ in range(15):
        engine.step()
    assert held_blocks(engine, "A") == 14 and None not in engine.scheduler.manager.block_table("A")


@pytest.mark.parametrize("window", [1, 2, 5, 8, 30])
@pytest.mark.parametrize("step_tokens", [1, 3])
def test_the_most_that_is_held_is_what_the_calculator_says(window, step_tokens):
    """The policy `freed` beside `reserve_full`: peak bytes in blocks, payload between steps."""
    model = random_model(9, sliding_window=window, architecture="MistralForCausalLM")
    keys = config_to_hf(replace(model.config, max_model_len=256), torch.float32)
    spec, fp32 = KVCacheSpec.from_config(keys), FORMATS["fp32"]
    freed, reserved = (Storage(spec, fp32, policy=p) for p in ("freed", "reserve_full"))
    engine = make_engine(model, 64, 4, max_num_batched_tokens=step_tokens)
    cache, manager = engine.runner.cache, engine.scheduler.manager
    pool, execute, peak = manager.pool, engine.runner.execute, []

    def watched(output):
        peak.append(pool.num_blocks - pool.num_free_blocks)
        return execute(output)

    engine.runner.execute = watched
    (request,) = engine.add_request(list(range(50)), greedy(60), request_id="A")
    while engine.has_unfinished_requests():
        engine.step()
        computed, table = request.num_computed_tokens, manager.block_table("A")
        if table:
            out = table.count(None)
            assert len(table) - out == block_layout(freed, 4).blocks_at(computed)
            payload = cache.stored_nbytes(table[out:], computed - 4 * out)
            assert payload >= freed.nbytes(computed)
            assert payload - freed.nbytes(computed) < 4 * freed.bytes_per_token  # one block's part
    one_block = block_layout(freed, 4).block_bytes
    assert one_block * pool.num_blocks == cache.nbytes
    measured = max(peak) * one_block
    assert measured == block_layout(freed, 4).blocks(109, step_tokens) * one_block
    assert block_layout(reserved, 4).blocks(109) == 28
    assert measured < 28 * one_block
    assert freed.nbytes(109) < reserved.nbytes(109) == 109 * reserved.bytes_per_token


def test_with_one_full_layer_the_calculator_keeps_everything_too():
    keys = {
        "model_type": "qwen3", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "use_sliding_window": True, "sliding_window": 5,
        "layer_types": [SLIDING, FULL],
    }  # fmt: skip
    mixed = KVCacheSpec.from_config(keys)
    freed, reserved = (Storage(mixed, policy=p) for p in ("freed", "reserve_full"))
    assert freed.nbytes(100) == reserved.nbytes(100) and freed.bends == ()
    assert block_layout(freed, 4).blocks(100) == 25
    every = KVCacheSpec.from_config({**keys, "layer_types": [SLIDING, SLIDING]})
    freed = Storage(every, policy="freed")
    assert freed.bends == (4,) and freed.nbytes(100) == 4 * freed.bytes_per_token


# ---- what else looks at block tables


def test_a_traced_run_behind_a_window_shows_bytes_and_weights():
    model = random_model(7, sliding_window=6)
    llm = LLM(model, block_size=4, num_blocks=6)
    llm.start_trace(attention_layers=[0])
    llm.generate(list(range(1, 40)), greedy(10))
    trace = llm.stop_trace()
    passes = [e for e in trace.events if e.kind == "computed"]
    assert len(passes) > 10
    last = passes[-1].data
    (weights,) = last["attention"].values()
    assert all(sum(w > 0 for w in head) <= 6 for head in weights)
    assert all(len(head) == last["end"] for head in weights)
    assert last["nbytes"] <= 3 * 4 * trace.meta["bytes_per_position"]
    assert (
        max(len(f.state["requests"]["r1"]["block_table"]) for f in trace.frames() if f.event) == 12
    )


def test_the_ledger_counts_what_is_held():
    model = random_model(7, sliding_window=6)
    llm = LLM(model, block_size=4, num_blocks=16, enable_prefix_caching=False)
    llm.engine.add_request(list(range(1, 40)), greedy(10))
    llm.step()
    found = byte_ledger(llm)
    assert found.payload == 7 * llm.cache.bytes_per_position  # positions 32 to 38
    assert found.payload + found.block_tails + found.retained + found.free == found.pool


def test_the_experiment_with_every_block_on_the_host_reads_what_is_held():
    model, prompt = random_model(7, sliding_window=6), list(range(1, 40))
    (want,) = LLM(model, block_size=4).generate(prompt, greedy(10))
    llm = LLM(model, block_size=4, num_blocks=16)
    llm.engine.runner = ActiveOffload(llm.runner)
    (got,) = llm.generate(prompt, greedy(10))
    assert got.outputs[0].token_ids == want.outputs[0].token_ids
    assert max(r.bytes_loaded for r in llm.engine.runner.reports[1:]) <= 3 * 4 * (
        llm.cache.bytes_per_position
    )


@pytest.mark.parametrize("preempt_by", ["recompute", "offload"])
def test_a_crowded_pool_gives_the_same_tokens(preempt_by):
    model = random_model(8, sliding_window=6)
    prompts = [[i, *range(1, 30)] for i in range(3)]
    want = LLM(model, block_size=4, num_blocks=64).generate(prompts, greedy(25))
    llm = LLM(model, block_size=4, num_blocks=7, cpu_blocks=32, preempt_by=preempt_by)
    got = llm.generate(prompts, greedy(25))
    assert [o.outputs[0].token_ids for o in got] == [o.outputs[0].token_ids for o in want]
    assert [o.outputs[0].finish_reason for o in got] == ["length"] * 3


def test_a_table_for_tensors_names_a_held_block_everywhere():
    assert readable([None, None, 7, 8]) == [7, 7, 7, 8]
    assert readable((3, 1)) == (3, 1)


def test_the_manager_of_an_llm_knows_the_windows():
    assert LLM(random_model(1, sliding_window=5)).engine.scheduler.manager.window.size == 5
    manager = LLM(random_model(1)).engine.scheduler.manager
    assert isinstance(manager, KVCacheManager) and manager.window is None
