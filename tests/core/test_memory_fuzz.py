"""10,000 damaged configurations: figures or a sentence each, never a traceback or a bare 0."""

import copy
import json
import random
from pathlib import Path

from kvlab.core.budget import block_layout, capacity, context_that_fits, whole_budget
from kvlab.core.presets import names, preset
from kvlab.core.spec import KVCacheSpec
from kvlab.core.storage import Storage

CASES = json.loads((Path(__file__).parents[1] / "data" / "memory_cases.json").read_text("utf-8"))
STRANGE = (
    None, 0, -1, 1, 2, 3, 7, 64, 10**6, 2**53, 10**30, 10**400, 0.5, 8.0, float("nan"),
    float("inf"), True, False, "", "8", "full_attention", "\ud800", [], [1], [0, 1], {}, {"a": 1},
    ["full_attention"], [None], [[]], "x" * 10_000,
)  # fmt: skip
MORE_KEYS = (
    "layer_types", "layers_block_type", "sliding_window", "sliding_window_pattern",
    "use_sliding_window", "max_window_layers", "full_attention_interval", "kv_lora_rank",
    "qk_rope_head_dim", "v_head_dim", "head_dim", "num_kv_shared_layers", "attn_type_list",
    "hybrid_override_pattern", "attn_layer_indices", "attn_layer_period", "linear_attn_config",
    "block_types", "attention_chunk_size", "no_rope_layers", "attn_config", "multi_query",
    "multi_query_attention", "block_configs", "per_layer_config", "text_config", "llm_config",
    "n_layer", "num_kv_heads", "use_cla", "cla_share_factor", "cross_attention_layers",
    "index_head_dim", "is_encoder_decoder", "model_type", "expand", "mamba_d_state", "n_groups",
    "layer_group_size", "hybrid_layer_pattern", "max_position_embeddings", "thinker_config",
)  # fmt: skip
MODEL_TYPES = (
    "llama", "jamba", "mamba2", "bamba", "zamba2", "kimi_linear", "gemma3n_text", "gemma4_text",
    "llama4_text", "mllama_text_model", "recurrent_gemma", "rwkv", "minicpm3", "mimo_v2_flash",
    "lfm2", "granitemoehybrid", "falcon_h1", "nemotron_h", "openelm", "qwen2_moe", "smollm3",
)  # fmt: skip


def damaged(rng: random.Random, config: dict) -> object:
    """One to four things wrong with a configuration that was right."""
    config = copy.deepcopy(config)
    if rng.random() < 0.3:
        config["model_type"] = rng.choice(MODEL_TYPES)
    for _ in range(rng.randint(1, 4)):
        key = rng.choice([*config, *rng.sample(MORE_KEYS, 4)])
        kind = rng.randrange(6)
        if kind == 0:
            config.pop(key, None)
        elif kind == 1:
            config = {rng.choice(("text_config", "language_config", key)): config, **config}
        elif kind == 2 and isinstance(config.get(key), int):
            config[key] = rng.choice((-1, 1)) * config[key] + rng.randint(-2, 2)
        elif kind == 3 and isinstance(config.get(key), list):
            rng.shuffle(config[key])
            config[key] = config[key][: rng.randint(0, len(config[key]))]
        else:
            config[key] = rng.choice(STRANGE)
    return rng.choice(STRANGE) if rng.random() < 0.005 else config


def use_everything(spec: KVCacheSpec, rng: random.Random) -> None:
    """Every figure of a configuration that was accepted."""
    stored = Storage(spec, policy=rng.choice(("capped", "dynamic", "reserve_full")))
    total = stored.nbytes(1000)
    assert total > 0
    if spec.attending_layers:
        assert stored.bytes_per_token > 0
    assert sum(term.nbytes for term in stored.terms(1000)) == total
    layout = block_layout(stored)
    assert capacity(layout, 100, 1000).concurrency > 0
    context_that_fits(stored, total)
    assert whole_budget(stored, total, seq_len=1000).used >= total
    assert stored.heads_per_rank is not None or not spec.attending_layers


def test_ten_thousand_damaged_configurations():
    rng = random.Random(21)
    good = [case["config"] for case in CASES] + [preset(name).config for name in names()]
    read, refused = 0, set()
    for _ in range(10_000):
        config = damaged(rng, rng.choice(good))
        try:
            spec = KVCacheSpec.from_config(config, "config.json")
            use_everything(spec, rng)
            read += 1
        except ValueError as error:
            message = str(error)
            assert 20 < len(message) < 700, message[:300]
            assert message.startswith(("config.json", "config is", "'", "window policy")), message
            refused.add(message.split(" is ")[0][:60])
    assert read > 2000 and len(refused) > 100  # both ends are well visited
