"""Inputs that public calculators got wrong, each with the right value to the byte."""

import json
from fractions import Fraction
from pathlib import Path

import pytest

from kvlab.core.budget import block_layout, blocks_from_budget, capacity, context_that_fits
from kvlab.core.formats import FORMATS, stored_format
from kvlab.core.memory import kv_cache_bytes, kv_cache_gib
from kvlab.core.presets import preset
from kvlab.core.sizes import both_units, gb, gib, parse_size
from kvlab.core.spec import KVCacheSpec
from kvlab.core.storage import Storage

CASES = json.loads((Path(__file__).parents[1] / "data" / "memory_cases.json").read_text("utf-8"))
CONFIGS = {case["name"].split(" (")[0]: case["config"] for case in CASES}
GEMMA_12B = {
    "model_type": "gemma3_text", "hidden_size": 3840, "num_attention_heads": 16,
    "num_key_value_heads": 8, "num_hidden_layers": 48, "head_dim": 256, "sliding_window": 1024,
    "sliding_window_pattern": 6,
}  # fmt: skip
STARCODER = {
    "model_type": "starcoder2", "hidden_size": 3072, "num_attention_heads": 24,
    "num_key_value_heads": 2, "num_hidden_layers": 30, "sliding_window": 4096,
}  # fmt: skip


def storage(config, **choices):
    return Storage(KVCacheSpec.from_config(config), **choices)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_configuration(case):
    stored = storage(case["config"])
    found = {
        "bytes_per_token": stored.bytes_per_token,
        "sliding_layers": stored.spec.sliding_layers,
    }
    if "expanded_bytes_per_token" in case["expect"]:
        expanded = storage(case["config"], mla="expanded")
        found["expanded_bytes_per_token"] = expanded.bytes_per_token
    assert {key: found[key] for key in case["expect"]} == case["expect"]
    for length, nbytes in case.get("bytes_at", {}).items():
        assert stored.nbytes(int(length)) == nbytes


def test_more_ranks_than_kv_heads_hold_copies():
    eight = storage(CONFIGS["Llama-3.1-70B"], ranks=8)
    sixteen = storage(CONFIGS["Llama-3.1-70B"], ranks=16)
    assert (eight.heads_per_rank, eight.bytes_per_token_per_rank) == (1, 40960)
    assert (sixteen.heads_per_rank, sixteen.bytes_per_token_per_rank) == (1, 40960)
    assert (eight.group_total, sixteen.group_total) == (327680, 655360)


def test_ranks_that_neither_divide_nor_are_divided_are_refused():
    config = {**CONFIGS["Llama-3.1-8B"], "num_attention_heads": 40, "num_key_value_heads": 10}
    config["hidden_size"] = 5120
    with pytest.raises(ValueError, match="10 KV heads cannot be shared out over 4 ranks"):
        storage(config, ranks=4)
    with pytest.raises(ValueError, match="10 KV heads cannot be shared out over 16 ranks"):
        storage(config, ranks=16)
    assert storage(config, ranks=20).group_total == 2 * storage(config).bytes_per_token


def test_a_latent_is_whole_on_every_rank():
    stored = storage(CONFIGS["DeepSeek-V3"], ranks=8)
    assert (stored.heads_per_rank, stored.bytes_per_token_per_rank) == (1, 70272)
    expanded = storage(CONFIGS["DeepSeek-V3"], ranks=8, mla="expanded")
    assert (expanded.heads_per_rank, expanded.group_total) == (16, 4997120)


def test_a_pool_of_1952_blocks():
    layout = block_layout(storage(CONFIGS["Llama-3.1-8B"]))
    room = capacity(layout, 1952, 20000)
    assert (room.pool_bytes, room.tokens) == (4093640704, 31232)
    assert room.concurrency == Fraction("1.5616") and room.requests == 1
    assert blocks_from_budget(layout, 4093640704) == 1952
    assert blocks_from_budget(layout, 4093640703) == 1951


def test_a_window_in_every_layer_needs_the_steps_tokens_and_one_more_block():
    """min(4095 + 8192, 16384) tokens are 768 blocks of 16, and 1 more: 137407 / 769."""
    layout = block_layout(storage(STARCODER))
    assert layout.blocks(16384, step_tokens=8192) == 769
    assert round(float(capacity(layout, 2198512 // 16, 16384, 8192).concurrency), 2) == 178.68
    full = block_layout(storage(STARCODER, policy="reserve_full"))
    assert full.blocks(16384, step_tokens=8192) == 1024


def test_the_longest_context_inverts_the_curve():
    stored = storage(GEMMA_12B)
    assert context_that_fits(stored, 8512 * 2**20) == 131072
    assert context_that_fits(stored, 8512 * 2**20 - 1) == 131071
    assert 8512 * 2**20 // stored.bytes_per_token == 22698  # the wrong answer


def test_capped_and_reserved_are_two_policies():
    config = CONFIGS["gpt-oss-20b"]
    assert storage(config, policy="capped").nbytes(8192, 32) == 6543114240
    assert storage(config, policy="reserve_full").nbytes(8192, 32) == 12884901888
    assert storage(config, policy="dynamic").nbytes(8192, 32) == 6543114240 - 32 * 12 * 2048


def test_hybrid_groups_follow_the_rarest_kind():
    """10 full and 52 sliding layers: 1 + 6 groups of 10, the last places empty."""
    layout = block_layout(storage(CONFIGS["Gemma-3-27B"]))
    assert [group.reach for group in layout.groups] == ["window"] * 6 + ["full"]
    assert sorted(group.layers for group in layout.groups) == [8, 8, 9, 9, 9, 9, 10]
    assert layout.block_bytes == 10 * 16 * 2 * 16 * 128 * 2
    # 8192 blocks of full attention, and 6 groups of ceil((1023 + 2048) / 16) + 1
    assert layout.blocks(131072, step_tokens=2048) == 8192 + 6 * 193
    assert layout.tokens(7000) == 16000


@pytest.mark.parametrize(("full", "groups"), [(12, [12, 12]), (14, [12, 14]), (15, [7, 8, 12])])
def test_kinds_of_nearly_equal_number_are_padded_instead_of_split(full, groups):
    """Beside 12 sliding layers, 14 full ones leave 2 empty places; 15, a quarter more, split."""
    kinds = ["sliding_attention"] * 12 + ["full_attention"] * full
    config = {**CONFIGS["Llama-3.1-8B"], "num_hidden_layers": len(kinds), "layer_types": kinds}
    layout = block_layout(storage({**config, "sliding_window": 128}))
    assert sorted(group.layers for group in layout.groups) == groups
    size = 14 if full == 14 else 12
    assert layout.block_bytes == size * 16 * 4096
    assert bool(layout.notices) == (full > 12)


def test_a_chunk_holds_itself_and_the_steps_tokens():
    """1 full and 3 chunked layers: 131072 / 16 blocks, and (8192 + 8192) / 16 of each chunk's."""
    config = {**CONFIGS["Llama-3.1-8B"], "num_hidden_layers": 4, "model_type": "llama4_text"}
    layout = block_layout(storage({**config, "attention_chunk_size": 8192}))
    assert layout.blocks(131072, step_tokens=8192) == 8192 + 3 * 1024


def test_narrower_layers_have_more_positions_in_a_block():
    """Heads of 512 in full layers and 256 in the others: blocks of equal bytes."""
    config = {
        "model_type": "gemma4_text", "hidden_size": 2304, "num_attention_heads": 8,
        "num_key_value_heads": 4, "num_hidden_layers": 6, "head_dim": 256, "global_head_dim": 512,
        "sliding_window": 512,
    }  # fmt: skip
    layout = block_layout(storage(config))
    assert {group.reach: group.block_size for group in layout.groups} == {"window": 32, "full": 16}
    assert layout.block_bytes == 16 * 4 * 512 * 2 * 2


def test_int8_with_one_fp32_scale_a_token_and_head():
    int8 = stored_format("int8")
    assert int8.bytes_per_value(128) / 2 == Fraction("0.515625")
    assert int8.bytes_per_value(64) / 2 == Fraction("0.53125")
    stored = storage(CONFIGS["Llama-3.1-8B"], stored=int8)
    assert stored.bytes_per_token == 131072 * 33 // 64


def test_llama_cpps_blocks():
    assert float(FORMATS["q8_0"].bytes_per_value()) == 1.0625
    assert float(FORMATS["q4_0"].bytes_per_value()) == 0.5625
    stored = storage(CONFIGS["Llama-3.1-8B"], stored=FORMATS["q4_0"])
    assert stored.bytes_per_token == 32 * 2 * 8 * 72


def test_both_units_are_named_rightly():
    nbytes = storage(CONFIGS["Llama-3.1-70B"]).nbytes(131072)
    assert (nbytes, gib(nbytes), gb(nbytes)) == (42949672960, 40.0, 42.94967296)
    assert both_units(nbytes) == "40.00 GiB (42.95 GB)"
    assert (parse_size("40GiB"), parse_size("42.94967296 GB")) == (nbytes, nbytes)


def test_the_chapters_formula_is_the_simplest_case():
    assert [kv_cache_gib(32, 1, heads, 8192, 128) for heads in (8, 2, 1)] == [1.0, 0.25, 0.125]
    stored = storage(CONFIGS["Llama-3.1-8B"])
    assert stored.nbytes(8192, 3) == kv_cache_bytes(32, 3, 8, 8192, 128)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("llama-3.1-8b", "Llama-3.1-8B"),
        ("llama-3.1-70b", "Llama-3.1-70B"),
        ("llama-2-7b", "Llama-2-7B"),
        ("qwen2.5-7b", "Qwen2.5-7B"),
        ("qwen3-0.6b", "Qwen3-0.6B"),
        ("falcon-7b", "Falcon-7B"),
        ("gemma-3-27b", "Gemma-3-27B"),
        ("gpt-oss-20b", "gpt-oss-20b"),
        ("deepseek-v3", "DeepSeek-V3"),
        ("qwen3-next-80b-a3b", "Qwen3-Next-80B-A3B"),
    ],
)
def test_a_preset_says_what_the_case_says(name, case):
    ours = storage(preset(name).config)
    theirs = storage(CONFIGS[case])
    assert ours.bytes_per_token == theirs.bytes_per_token
    assert ours.nbytes(100_000) == theirs.nbytes(100_000)
