"""The calculator's bytes against live tensors: transformers' two caches, and our own two."""

import inspect
import json
import random

import pytest
import torch
from builders import CONFIG, random_model

from kvlab.core.budget import block_layout
from kvlab.core.formats import FORMATS
from kvlab.core.spec import KVCacheSpec
from kvlab.core.spec_families import FAMILIES, PLAIN, family_of
from kvlab.core.storage import Storage
from kvlab.tensors.config import ModelConfig
from kvlab.tensors.kv_cache import ContiguousCache, PagedCache, contiguous_forward

KINDS = ("sliding_attention", "full_attention")
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def tiny(rng, **more):
    """Random sizes that every family understands."""
    kv_heads = rng.choice([1, 2, 3])
    heads = kv_heads * rng.choice([2, 3])
    return {
        "vocab_size": 50,
        "hidden_size": heads * 8,
        "intermediate_size": 24,
        "num_hidden_layers": rng.randint(2, 4),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "bos_token_id": 0,
        "eos_token_id": 1,
        **more,
    }


def window(rng, **more):
    return tiny(rng, sliding_window=rng.randint(3, 9), **more)


def mixed(rng, **more):
    keys = window(rng, **more)
    layers = [rng.choice(KINDS) for _ in range(keys["num_hidden_layers"] - 1)]
    return {**keys, "layer_types": [*layers, "full_attention"]}


def some_windows(rng):
    keys = window(rng)
    return {**keys, "use_sliding_window": True, "max_window_layers": rng.randint(0, 3)}


def mla(rng):
    experts = {
        "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2,
        "moe_intermediate_size": 16, "first_k_dense_replace": 1,
    }  # fmt: skip
    keys = tiny(rng, q_lora_rank=24, qk_nope_head_dim=8, v_head_dim=rng.choice([8, 12]), **experts)
    keys["num_key_value_heads"] = keys["num_attention_heads"]
    return {**keys, "kv_lora_rank": rng.choice([16, 20]), "qk_rope_head_dim": rng.choice([4, 8])}


def delta(rng):
    return tiny(
        rng, head_dim=16, full_attention_interval=2, linear_key_head_dim=8, num_experts=4,
        linear_value_head_dim=rng.choice([8, 16]), linear_num_key_heads=2, linear_num_value_heads=4,
        num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16,
    )  # fmt: skip


def falcon(rng):
    """num_kv_heads is as wrong as in Falcon-7B's own file."""
    keys = tiny(rng, multi_query=rng.random() < 0.7, alibi=False)
    return {**keys, "num_kv_heads": keys["num_attention_heads"]}


def llama4(rng):
    return tiny(
        rng, num_hidden_layers=5, attention_chunk_size=rng.randint(3, 9), head_dim=8,
        num_local_experts=2, intermediate_size_mlp=24, num_experts_per_tok=1,
    )  # fmt: skip


FAMILY = {
    "llama": lambda rng: tiny(rng, head_dim=rng.choice([8, 12])),
    "mistral": window,
    "qwen2": some_windows,
    "qwen3": lambda rng: tiny(rng, head_dim=rng.choice([8, 24])),
    "gemma2": lambda rng: window(rng, head_dim=16),
    "gemma3_text": lambda rng: mixed(rng, head_dim=16),
    "gpt_oss": lambda rng: mixed(rng, head_dim=8, num_local_experts=2, num_experts_per_tok=1),
    "cohere2": mixed,
    "olmo2": tiny,
    "phi3": window,
    "falcon": falcon,
    "gpt_neox": tiny,  # its class does not look at num_key_value_heads
    "deepseek_v3": mla,
    "llama4_text": llama4,
    "qwen3_next": delta,
    "jamba": lambda rng: tiny(
        rng, attn_layer_period=2, attn_layer_offset=1, num_experts=1, use_mamba_kernels=False,
        mamba_d_state=rng.choice([4, 8]), mamba_expand=rng.choice([1, 2]),
    ),
    "lfm2": lambda rng: tiny(rng, full_attn_idxs=[1]),
    "gemma3n_text": lambda rng: window(
        rng, num_hidden_layers=6, num_kv_shared_layers=rng.choice([0, 2]), head_dim=8,
        layer_types=list(KINDS) * 3, activation_sparsity_pattern=[0.0] * 6, laurel_rank=4,
        hidden_size_per_layer_input=8, vocab_size_per_layer_input=50,
    ),
    "nemotron_h": lambda rng: tiny(
        rng, num_hidden_layers=4, hybrid_override_pattern=rng.choice(["M*-M", "*M-*"]), head_dim=8,
        ssm_state_size=rng.choice([4, 8]), mamba_num_heads=4, mamba_head_dim=8, n_groups=2,
    ),
    "falcon_h1": lambda rng: tiny(
        rng, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_state=rng.choice([4, 8]), mamba_n_groups=2,
    ),
}  # fmt: skip
WITH_STATE = ("qwen3_next", "jamba", "lfm2", "nemotron_h", "falcon_h1")


def live_bytes(cache):
    """The sum of nbytes over every tensor of keys, values and states that a cache holds."""
    tensors = []
    for layer in cache.layers:
        for name in ("keys", "values", "indexer_keys", "conv_states", "recurrent_states"):
            held = getattr(layer, name, None)
            tensors += list(held.values()) if isinstance(held, dict) else [held]
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def a_model(family, seed, dtype):
    """A random tiny model of transformers, and the keys its config.json would have."""
    transformers = pytest.importorskip("transformers")
    if family not in transformers.CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {family}")
    rng = random.Random(f"{family} {seed}")
    keys = {**FAMILY[family](rng), "model_type": family}
    config = transformers.CONFIG_MAPPING[family](**{**keys})
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    saved = json.loads(json.dumps(config.to_dict(), default=str))
    assert KVCacheSpec.from_config(saved).groups == KVCacheSpec.from_config(keys).groups
    return model, keys, rng


def call(model, ids, cache):
    """One pass; newer transformers name the argument `cache`."""
    newer = "cache" in inspect.signature(model.forward).parameters
    model(ids, use_cache=True, **{"cache" if newer else "past_key_values": cache})


def mla_form(cache, spec):
    """Newer transformers keep MLA's latent, older ones every head."""
    return "expanded" if spec.is_latent and cache.layers[0].keys.shape[1] > 1 else "latent"


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("family", FAMILY)
@torch.inference_mode()
def test_a_dynamic_cache(family, seed):
    """Lengths before, at and beyond the window; a prompt and then single tokens; two requests."""
    name = random.Random(seed).choice(sorted(DTYPES))
    model, keys, rng = a_model(family, seed, DTYPES[name])
    spec = KVCacheSpec.from_config(keys)
    cache, length = pytest.importorskip("transformers").DynamicCache(config=model.config), 0
    for step in (rng.randint(2, 6), 1, 1, 7, 1):
        call(model, torch.randint(2, 50, (2, step)), cache)
        length += step
        form = mla_form(cache, spec)
        stored = Storage(spec, FORMATS[name], policy="dynamic", mla=form)
        assert live_bytes(cache) == stored.nbytes(length, requests=2)


@pytest.mark.parametrize("longest", [5, 16])
@pytest.mark.parametrize("family", [name for name in FAMILY if name not in WITH_STATE])
@torch.inference_mode()
def test_a_static_cache(family, longest):
    """It takes all its bytes at the first token; a window layer no more than the window."""
    transformers = pytest.importorskip("transformers")
    model, keys, _ = a_model(family, longest, torch.float32)
    cache = transformers.StaticCache(config=model.config, max_cache_len=longest)
    call(model, torch.randint(2, 50, (1, 3)), cache)
    spec = KVCacheSpec.from_config(keys)
    stored = Storage(spec, FORMATS["fp32"], policy="capped", mla=mla_form(cache, spec))
    assert live_bytes(cache) == stored.nbytes(longest)


def test_the_table_of_defaults_is_that_of_the_classes():
    transformers = pytest.importorskip("transformers", "5.24")
    checked = 0
    for name in sorted(FAMILIES.keys() | PLAIN):
        kind = f"{name}_text" if f"{name}_text" in transformers.CONFIG_MAPPING else name
        if kind not in transformers.CONFIG_MAPPING or name.startswith("gemma4"):
            continue  # gemma4's class refuses to name one head_dim, since layers differ
        config, (ours, _) = transformers.CONFIG_MAPPING[kind]().get_text_config(), family_of(kind)
        heads = getattr(config, "num_attention_heads", None)
        kv_heads = getattr(config, "num_key_value_heads", heads) or heads
        assert kv_heads == (ours.kv_heads or heads) or name == "gpt_bigcode", name
        width = getattr(config, "head_dim", None)
        if ours.head_dim is not None:
            assert width in (None, ours.head_dim), name
        if ours.latent is not None:
            found = [config.kv_lora_rank, config.qk_rope_head_dim, config.qk_nope_head_dim]
            assert tuple(found) == ours.latent[:3], name
            assert config.v_head_dim == ours.latent[3] or name == "minicpm3", name
        if ours.sizes is not None:
            sizes = (config.num_hidden_layers, config.hidden_size, config.num_attention_heads)
            assert sizes == ours.sizes, name
        assert getattr(config, "num_kv_shared_layers", 0) == ours.shared_layers, name
        checked += 1
    assert checked > 90


@pytest.mark.parametrize("name", ["mistral", "gemma2", "gemma3_text", "cohere2", "gpt_oss", "cwm"])
def test_layers_and_windows_by_default_are_those_of_the_class(name):
    """Only sizes are given: what slides, and how far, comes from the class."""
    transformers = pytest.importorskip("transformers", "5.24")
    config = transformers.CONFIG_MAPPING[name]()
    keys = ("num_hidden_layers", "hidden_size", "num_attention_heads", "model_type")
    spec = KVCacheSpec.from_config({key: getattr(config, key) for key in keys})
    theirs = [
        getattr(layer, "sliding_window", None)
        for layer in transformers.DynamicCache(config=config).layers
    ]
    assert [layer.window for layer in spec.layers] == theirs


# our own caches


def as_keys(config: ModelConfig, **more):
    return {
        "model_type": "llama",
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_query_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        **more,
    }


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_our_contiguous_cache(dtype):
    torch_dtype = {**DTYPES, "fp16": torch.float16}[dtype]
    model = random_model()
    cache = ContiguousCache(CONFIG, batch=3, dtype=torch_dtype)
    stored = Storage(KVCacheSpec.from_config(as_keys(CONFIG)), FORMATS[dtype])
    length = 0
    for step in (5, 1, 1):
        contiguous_forward(model, torch.randint(0, 61, (3, step)), cache)
        length += step
        assert cache.nbytes == stored.nbytes(length, requests=3)


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_our_paged_cache(block_size):
    stored = Storage(KVCacheSpec.from_config(as_keys(CONFIG)), FORMATS["fp32"])
    layout = block_layout(stored, block_size)
    cache = PagedCache(CONFIG, num_blocks=7, block_size=block_size)
    assert cache.nbytes == 7 * layout.block_bytes
    assert cache.bytes_per_position == stored.bytes_per_token
    tables, length = list(range(layout.blocks_at(6))), 6
    assert cache.stored_nbytes(tables, length) == stored.nbytes(length)


@pytest.mark.parametrize("length", [3, 8, 9, 21])
def test_our_contiguous_cache_with_sliding_layers(length):
    """Layer 0 slides over 8 positions: what it must keep is the end of its real tensors."""
    model = random_model()
    cache = ContiguousCache(CONFIG)
    contiguous_forward(model, torch.randint(0, 61, (1, length)), cache)
    spec = KVCacheSpec.from_config(
        as_keys(CONFIG, layer_types=["sliding_attention", "full_attention"], sliding_window=8)
    )
    reserved = Storage(spec, FORMATS["fp32"], policy="reserve_full")
    assert cache.nbytes == reserved.nbytes(length)
    for cached in (cache.keys, cache.values):
        cached[0] = cached[0][:, :, -8:].clone()
    assert cache.nbytes == Storage(spec, FORMATS["fp32"], policy="capped").nbytes(length)


@pytest.mark.parametrize("length", [3, 8, 9, 21])
def test_our_paged_cache_with_sliding_layers(length):
    """Two groups of two layers share one pool; a request's blocks are those of both."""
    kinds = ["sliding_attention", "full_attention"] * 2
    config = ModelConfig(**{**CONFIG.__dict__, "num_layers": 4})
    spec = KVCacheSpec.from_config(as_keys(config, layer_types=kinds, sliding_window=8))
    layout = block_layout(Storage(spec, FORMATS["fp32"]), block_size=4)
    assert [group.layers for group in layout.groups] == [2, 2]
    a_group = ModelConfig(**{**CONFIG.__dict__, "num_layers": 2})
    pool = PagedCache(a_group, num_blocks=layout.blocks_at(length), block_size=4)
    assert pool.nbytes == layout.blocks_at(length) * layout.block_bytes
    held = {"window": min(length, 8), "full": length}
    first = length - held["window"]  # the window's first position, and the block it lies in
    blocks = {"full": -(-length // 4), "window": -(-length // 4) - first // 4}
    assert {group.reach: group.blocks_at(length) for group in layout.groups} == blocks
    payload = 2 * 2 * 2 * 8 * 4 * sum(held.values())  # K and V, 2 layers, 2 heads of 8, fp32
    assert Storage(spec, FORMATS["fp32"]).nbytes(length) == payload <= pool.nbytes
