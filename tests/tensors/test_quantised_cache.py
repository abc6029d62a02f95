"""Caches of fp8, int8 and q4_0 in the real engine: bytes, and that no feature changes an answer.

What is compared is a run with the feature and one without it, both over the same format: the
codes of a position do not depend on who computed it and when. Pools read as NaN beforehand.
"""

import random

import pytest
import torch
from builders import greedy, make_engine, near_tie, random_model, record_logits, run

from kvlab import LLM
from kvlab.core.formats import FORMATS as COUNTED
from kvlab.core.offload_tier import CPUTier
from kvlab.core.request import SamplingParams
from kvlab.core.scheduler import Scheduler
from kvlab.core.scheduler_config import SchedulerConfig
from kvlab.core.spec import KVCacheSpec
from kvlab.core.storage import Storage
from kvlab.core.transfers import BlockCopy
from kvlab.measure.ledger import byte_ledger
from kvlab.tensors.active_offload import ActiveOffload
from kvlab.tensors.block_copy import copy_blocks
from kvlab.tensors.host_tier import HostTier
from kvlab.tensors.identity import configuration_of
from kvlab.tensors.kv_cache import PagedCache, calibrated_scales
from kvlab.tensors.stored import cache_format

MODEL = random_model(5, head_dim=32)
FORMATS = ("fp8", "int8", "q4_0")
PROMPTS = [[(7 * i + 3 * j) % 61 for j in range(9 + i)] for i in range(5)]
formats = pytest.mark.parametrize("name", FORMATS)


def engine_of(name, num_blocks=64, block_size=4, **limits):
    return make_engine(MODEL, num_blocks, block_size, dtype=name, **limits)


def undisturbed(name, prompt, count):
    """Greedy outputs of the prompt alone, with no feature, up to where a near tie decides.

    Another order of sums may turn a last bit, and that bit may turn a code: 0.03 of a logit.
    """
    engine = engine_of(name, caching=False)
    logits = record_logits(engine)
    (r,) = engine.add_request(prompt, greedy(count), request_id="A")
    run(engine)
    ties = [near_tie([row], margin=0.03) for row in logits["A"]]
    return r.output_token_ids[: ties.index(True) if True in ties else count]


def assert_as_undisturbed(name, requests, least=3):
    """Outputs are those of undisturbed runs, at least so many of each request, on average."""
    compared = 0
    for r in requests:
        wanted = undisturbed(name, r.prompt_token_ids, len(r.output_token_ids))
        assert r.output_token_ids[: len(wanted)] == wanted
        compared += len(wanted)
    assert compared >= least * len(requests)


# ---- bytes


@pytest.mark.parametrize("name", ["fp32", "fp16", "bf16", *FORMATS])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_bytes_are_the_tensors_and_the_calculators(name, block_size):
    cache = PagedCache(MODEL.config, 5, block_size, name)
    c = MODEL.config
    keys = {
        "model_type": "llama", "num_hidden_layers": c.num_layers, "hidden_size": c.hidden_size,
        "num_attention_heads": c.num_query_heads, "num_key_value_heads": c.num_kv_heads,
        "head_dim": c.head_dim, "max_position_embeddings": 64, "vocab_size": 61,
    }  # fmt: skip
    counted = Storage(KVCacheSpec.from_config(keys), COUNTED[name])
    assert cache.bytes_per_position == counted.bytes_per_token
    assert cache.nbytes == 5 * block_size * cache.bytes_per_position
    assert cache.nbytes == sum(t.nbytes for pair in cache.tensors for t in pair)
    assert cache.stored_nbytes([3, 1], block_size + 1) == counted.nbytes(block_size + 1)
    llm = LLM(MODEL, cache_dtype=name, block_size=block_size, num_blocks=5)
    assert byte_ledger(llm).pool == byte_ledger(llm).free == cache.nbytes


@pytest.mark.parametrize(
    ("name", "bytes_per_position", "bytes_per_value"),
    [
        ("fp32", 1024, 4), ("bf16", 512, 2), ("fp8", 256, 1),
        ("int8", 288, 1.125), ("q4_0", 144, 0.5625),
    ],
)  # fmt: skip
def test_two_layers_of_two_heads_32_wide(name, bytes_per_position, bytes_per_value):
    cache = PagedCache(MODEL.config, 4, 4, name)
    assert cache.bytes_per_position == bytes_per_position
    assert cache.bytes_per_value == bytes_per_value
    llm = LLM(MODEL, cache_dtype=name, num_blocks=4)
    llm.start_trace()
    llm.generate([1, 2, 3], SamplingParams(max_tokens=2))
    trace = llm.stop_trace()
    assert trace.meta["bytes_per_position"] == bytes_per_position
    assert trace.meta["bytes_per_value"] == bytes_per_value
    seen = [e.data["nbytes"] for e in trace.events if "nbytes" in e.data]
    assert seen[0] == 3 * bytes_per_position and seen[-1] == 4 * bytes_per_position


def test_shapes_of_codes_and_scales():
    caches = {name: PagedCache(MODEL.config, 3, 4, name) for name in FORMATS}
    assert [list(caches[n].value_cache.shape) for n in FORMATS] == [
        [2, 3, 4, 2, 32], [2, 3, 4, 2, 32], [2, 3, 4, 2, 16]
    ]  # fmt: skip
    assert [caches[n].key_cache.dtype for n in FORMATS] == [
        torch.float8_e4m3fn, torch.int8, torch.uint8
    ]  # fmt: skip
    assert caches["fp8"].key_scale == (1.0, 1.0)
    assert (list(caches["int8"].key_scale.shape), caches["int8"].key_scale.dtype) == (
        [2, 3, 4, 2], torch.float32
    )  # fmt: skip
    assert (list(caches["q4_0"].key_scale.shape), caches["q4_0"].key_scale.dtype) == (
        [2, 3, 4, 2, 1], torch.float16
    )  # fmt: skip


# ---- writing and reading


@formats
def test_what_is_read_is_what_was_written_rounded(name):
    """In logical order over scattered blocks; slots that nobody wrote are not touched."""
    cache = PagedCache(MODEL.config, 6, 4, name)
    cache.fill_with_nan()
    generator = torch.Generator().manual_seed(1)
    key, value = (torch.randn(6, 2, 32, generator=generator) for _ in "KV")
    cache.write(1, key, value, torch.tensor([20, 21, 22, 23, 8, 9]))
    keys, values = cache.read([5, 2], 6)
    assert (keys.shape, keys.dtype) == ((2, 2, 6, 32), torch.float32)
    assert bool(keys[0].isnan().all()) and bool(values[1].isfinite().all())
    kind = cache_format(name)
    for got, new in ((keys, key), (values, value)):
        codes, scale = kind.encode(new, 1.0)
        wanted = kind.decode(codes, 1.0 if scale is None else scale)
        assert torch.equal(got[1], wanted.transpose(0, 1))
    everything, _ = cache.read([0, 1, 2, 3, 4, 5], 24)
    assert int(everything[1, 0].isfinite().all(1).sum()) == 6


def test_fp8_with_scales_of_its_own_layers():
    """Calibrated on a run over float32, keys beyond 448 no longer saturate."""
    plain = make_engine(MODEL)
    plain.add_request(PROMPTS[0], greedy(2), request_id="A")
    plain.step()
    table = plain.scheduler.manager.block_table("A")
    plain.runner.cache.key_cache.mul_(1000)
    scales = calibrated_scales(plain.runner.cache, table, 9)
    assert len(scales[0]) == len(scales[1]) == 2 and scales[0][0] > 1 > scales[1][0]
    keys, values = plain.runner.cache.read(table, 9)
    errors = []
    for chosen in (None, scales):
        cache = PagedCache(MODEL.config, 6, 4, "fp8", scales=chosen)
        for layer in range(2):
            new = keys[layer].transpose(0, 1), values[layer].transpose(0, 1)
            cache.write(layer, *new, torch.arange(9))
        got, _ = cache.read([0, 1, 2], 9)
        errors.append(float(((got - keys) / keys).abs().max()))
    assert errors[0] > 0.5 and errors[1] <= 1 / 16 + 1e-3


@pytest.mark.parametrize(
    ("name", "scales", "said"),
    [
        ("int8", ([1.0, 1.0], [1.0, 1.0]), "scales with int8; only fp8 has one a layer"),
        ("fp8", ([1.0], [1.0, 1.0]), "one number above 0 for each of 2 layers"),
        ("fp8", ([1.0, 0.0], [1.0, 1.0]), "one number above 0 for each of 2 layers"),
        ("fp8", ([1.0, float("nan")], [1.0, 1.0]), "one number above 0 for each of 2 layers"),
    ],
)
def test_scales_that_do_not_fit_are_refused(name, scales, said):
    with pytest.raises(ValueError, match=said):
        PagedCache(MODEL.config, 3, 4, name, scales=scales)


# ---- features


@formats
def test_decoding_batched_and_chunked(name):
    """Several at once, prompts in chunks of 5, the tail of each chunk read back from codes."""
    engine = engine_of(name, max_num_batched_tokens=5)
    requests = [engine.add_request(p, greedy(6))[0] for p in PROMPTS]
    run(engine)
    assert_as_undisturbed(name, requests)


@formats
def test_long_prompts_go_block_by_block(name, monkeypatch):
    """The other way through tensors/ops.py: whole blocks of one request after another."""
    monkeypatch.setattr("kvlab.tensors.ops.GATHER_TOGETHER", 0)
    engine = engine_of(name, max_num_batched_tokens=7)
    requests = [engine.add_request(p, greedy(6))[0] for p in PROMPTS[:3]]
    run(engine)
    monkeypatch.undo()
    assert_as_undisturbed(name, requests)


@formats
def test_prefix_hits(name):
    engine = engine_of(name)
    prompt = list(range(1, 22))
    requests = [engine.add_request([*prompt, last], greedy(6))[0] for last in (30,)]
    run(engine)
    requests += [engine.add_request([*prompt, last], greedy(6))[0] for last in (31, 32, 33, 34)]
    run(engine)
    assert [r.num_cached_tokens for r in requests] == [0, 20, 20, 20, 20]
    assert_as_undisturbed(name, requests)


@formats
def test_preemption_by_recomputing(name):
    engine = engine_of(name, num_blocks=10, caching=False)
    requests = [engine.add_request(p[:9], greedy(12))[0] for p in PROMPTS[:4]]
    run(engine)
    assert sum(r.num_preemptions for r in requests) > 0
    assert_as_undisturbed(name, requests)


@formats
def test_forks_copy_scales_on_write(name):
    """Continuations of a prompt that ends inside a block: the copy has its codes and scales."""
    params = SamplingParams(max_tokens=6, temperature=0.8, seed=3, n=3)
    engine = engine_of(name)
    logits = record_logits(engine)
    group = engine.add_request(PROMPTS[2][:10], params, request_id="A")
    run(engine)
    assert len({tuple(r.output_token_ids) for r in group}) > 1
    for index, r in enumerate(group):  # the text of each, computed again by itself
        apart = engine_of(name, caching=False)
        rows = record_logits(apart)
        text = [*r.prompt_token_ids, *r.output_token_ids[:-1]]
        apart.add_request(text, greedy(1), request_id="B")
        run(apart)
        assert (logits[r.request_id][-1] - rows["B"][0]).abs().max() < 0.05, index


@formats
def test_copied_blocks_read_alike(name):
    cache = PagedCache(MODEL.config, 6, 4, name)
    cache.fill_with_nan()
    new = torch.randn(2, 4, 2, 32, generator=torch.Generator().manual_seed(2))
    for layer in range(2):
        cache.write(layer, new[0], new[1], torch.arange(4))
    copy_blocks(cache, [BlockCopy(0, 3)])
    for one, other in zip(cache.read([0], 4), cache.read([3], 4), strict=True):
        assert bool(one.isfinite().all()) and torch.equal(one, other)


def spoilt(host):
    for part in host.parts[-1:]:
        part.fill_(float("nan"))
    return host


@formats
def test_blocks_come_back_from_the_host_to_the_bit(name):
    cache = PagedCache(MODEL.config, 6, 4, name)
    new = torch.randn(2, 24, 2, 32, generator=torch.Generator().manual_seed(2))
    for layer in range(2):
        cache.write(layer, new[0], new[1], torch.arange(24))
    before = [[t.clone() for t in pair] for pair in cache.tensors]
    host = spoilt(HostTier(cache, 3))
    assert host.block_nbytes == 4 * cache.bytes_per_position
    host.start([BlockCopy(2, 0), BlockCopy(5, 1)], [])
    assert host.finished().bytes_stored == 2 * host.block_nbytes
    cache.fill_with_nan()
    host.start([], [BlockCopy(0, 4), BlockCopy(1, 2)])
    for pair, old in zip(cache.tensors, before, strict=True):
        for tensor, was in zip(pair, old, strict=True):
            bits = tensor[:, [4, 2]].contiguous().view(torch.uint8)
            assert torch.equal(bits, was[:, [2, 5]].contiguous().view(torch.uint8))


@formats
def test_preemption_by_offload(name):
    engine = engine_of(name, num_blocks=9)
    engine.runner.host_tier = spoilt(HostTier(engine.runner.cache, 40))
    config = SchedulerConfig(preempt_by="offload")
    engine.scheduler = Scheduler(engine.scheduler.manager, config, CPUTier(40))
    requests = [engine.add_request(p[:9], greedy(9))[0] for p in PROMPTS[:3]]
    run(engine)
    stats = engine.scheduler.offload.stats
    assert stats.requests_offloaded > 0 and stats.requests_loaded > 0
    assert_as_undisturbed(name, requests)


@formats
def test_active_offload(name):
    engine = engine_of(name)
    engine.runner = ActiveOffload(engine.runner)
    requests = [engine.add_request(p, greedy(6))[0] for p in PROMPTS[:2]]
    run(engine)
    assert engine.runner.stats.blocks_loaded > 0
    assert_as_undisturbed(name, requests)


@formats
def test_random_workloads(name):
    """Shared beginnings, a small pool and everything at once."""
    r, requests = random.Random(4), []
    stem = [r.randrange(61) for _ in range(12)]
    for _ in range(4):
        engine = engine_of(name, num_blocks=16, max_num_batched_tokens=9)
        asked = [stem[: r.choice([0, 8, 12])] + [r.randrange(61)] * r.randint(1, 6) for _ in "abcd"]
        requests += [engine.add_request(p, greedy(8))[0] for p in asked]
        run(engine)
    assert sum(r.num_cached_tokens for r in requests) > 0
    assert_as_undisturbed(name, requests)


# ---- identity and arguments


def test_a_format_is_part_of_a_blocks_identity():
    stored = [configuration_of(MODEL, PagedCache(MODEL.config, 2, 4, n))["cache"] for n in FORMATS]
    assert [s["dtype"] for s in stored] == ["torch.float8_e4m3fn", "int8", "q4_0"]
    other = PagedCache(MODEL.config, 2, 4, "fp8", scales=([2.0, 1.0], [1.0, 1.0]))
    assert configuration_of(MODEL, other)["cache"] != stored[0]


def test_llm_takes_names_and_dtypes():
    for asked in ("fp8", torch.float8_e4m3fn):
        llm = LLM(MODEL, cache_dtype=asked, num_blocks=8)
        assert llm.cache.key_cache.dtype == torch.float8_e4m3fn
    four = LLM(MODEL, cache_dtype="int4")  # of the pool's size, by its bytes
    assert four.cache.dtype == "q4_0" and four.cache.num_blocks > 8
    assert len(four.generate([1, 2, 3], SamplingParams(max_tokens=3))[0].outputs[0].token_ids) == 3
    assert LLM(MODEL, cache_dtype=four.cache.dtype, num_blocks=8).cache.dtype == "q4_0"


@pytest.mark.parametrize("asked", ["int3", "float16", torch.int8, 16, True])
def test_llm_refuses_other_names(asked):
    with pytest.raises(ValueError, match=r"cache_dtype is .*; give one of fp32, fp16, bf16, fp8"):
        LLM(MODEL, cache_dtype=asked, num_blocks=8)


def test_llm_refuses_a_width_that_blocks_of_32_do_not_fill():
    with pytest.raises(ValueError, match="q4_0 packs 32 values into a block, and a vector here"):
        LLM(random_model(0), cache_dtype="int4", num_blocks=8)
