"""What configurations of many families say, and what is wrong with those that say nothing."""

import json

import pytest

from kvlab.core.budget import block_layout, context_that_fits, curve, whole_budget
from kvlab.core.formats import stored_format
from kvlab.core.presets import TINY, names, preset
from kvlab.core.sizes import both_units, parse_size
from kvlab.core.spec import KVCacheSpec
from kvlab.core.storage import Storage

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 32,
}  # fmt: skip


def read(**keys):
    return KVCacheSpec.from_config(keys)


def llama(**changes):
    """The Llama configuration with some keys changed; absent where the value is `...`."""
    keys = {**LLAMA, **changes}
    return KVCacheSpec.from_config({k: v for k, v in keys.items() if v is not ...})


def per_token(spec, **choices):
    return Storage(spec, **choices).bytes_per_token


# name: (configuration, bytes a token, full, sliding, with a state)
SIBLINGS = {
    "OLMo-2-7B": (
        dict(model_type="olmo2", hidden_size=4096, num_attention_heads=32, num_hidden_layers=32),
        524288, 32, 0, 0,
    ),
    "OLMo-3-7B, three of four layers slide": (
        dict(model_type="olmo3", hidden_size=4096, num_attention_heads=32, num_hidden_layers=32),
        524288, 8, 24, 0,
    ),
    "Phi-3-mini-4k, a window in every layer": (
        dict(model_type="phi3", hidden_size=3072, num_attention_heads=32, num_hidden_layers=32,
             num_key_value_heads=32, sliding_window=2047),
        393216, 0, 32, 0,
    ),
    "Gemma-2-9B, every second layer slides": (
        dict(model_type="gemma2", hidden_size=3584, num_attention_heads=16, num_hidden_layers=42,
             num_key_value_heads=8, head_dim=256, sliding_window=4096),
        344064, 21, 21, 0,
    ),
    "Gemma-2-2B, head_dim from the class": (
        dict(model_type="gemma2", hidden_size=2304, num_attention_heads=8, num_hidden_layers=26,
             num_key_value_heads=4),
        26 * 4096, 13, 13, 0,
    ),
    "Gemma-3-4B as published, sizes from the class": (
        dict(model_type="gemma3", text_config=dict(
            model_type="gemma3_text", hidden_size=2560, num_hidden_layers=34, sliding_window=1024)),
        34 * 4096, 5, 29, 0,
    ),
    "Gemma-3n-E4B, the last 15 layers read others'": (
        dict(model_type="gemma3n_text", hidden_size=2048, num_attention_heads=8,
             num_hidden_layers=35, num_key_value_heads=2, head_dim=256, num_kv_shared_layers=15,
             sliding_window=512,
             layer_types=(["sliding_attention"] * 4 + ["full_attention"]) * 7),
        20 * 2048, 4, 16, 0,
    ),
    "Mistral-7B-v0.1": (
        dict(model_type="mistral", hidden_size=4096, num_attention_heads=32, num_hidden_layers=32,
             num_key_value_heads=8, sliding_window=4096),
        131072, 0, 32, 0,
    ),
    "Mistral-7B-v0.3, the window is null": (
        dict(model_type="mistral", hidden_size=4096, num_attention_heads=32, num_hidden_layers=32,
             num_key_value_heads=8, sliding_window=None),
        131072, 32, 0, 0,
    ),
    "Mistral-Nemo, head_dim is not hidden / heads": (
        dict(model_type="mistral", hidden_size=5120, num_attention_heads=32, num_hidden_layers=40,
             num_key_value_heads=8, head_dim=128, sliding_window=None),
        163840, 40, 0, 0,
    ),
    "Granite-3-8B": (
        dict(model_type="granite", hidden_size=4096, num_attention_heads=32, num_hidden_layers=40,
             num_key_value_heads=8),
        163840, 40, 0, 0,
    ),
    "Granite-4 hybrid": (
        dict(model_type="granitemoehybrid", hidden_size=1536, num_attention_heads=12,
             num_key_value_heads=4, num_hidden_layers=40, mamba_n_heads=48, mamba_d_state=128,
             layer_types=(["mamba"] * 9 + ["attention"]) * 4),
        4 * 2 * 4 * 128 * 2, 4, 0, 36,
    ),
    "Qwen3-30B-A3B": (
        dict(model_type="qwen3_moe", hidden_size=2048, num_attention_heads=32, head_dim=128,
             num_hidden_layers=48, num_key_value_heads=4, sliding_window=None,
             use_sliding_window=False, max_window_layers=48),
        98304, 48, 0, 0,
    ),
    "Llama-4-Scout, three of four layers attend in chunks": (
        dict(model_type="llama4", text_config=dict(
            model_type="llama4_text", hidden_size=5120, num_attention_heads=40, head_dim=128,
            num_hidden_layers=48, num_key_value_heads=8, attention_chunk_size=8192,
            no_rope_layers=[])),
        196608, 12, 36, 0,
    ),
    "OpenELM, heads listed a layer": (
        dict(model_type="openelm", num_transformer_layers=4, num_query_heads=[12, 12, 12, 16],
             num_kv_heads=[3, 3, 3, 4], head_dim=64, model_dim=1280),
        13 * 64 * 2 * 2, 4, 0, 0,
    ),
    "Falcon-40B, the newer layout has 8 KV heads": (
        dict(model_type="falcon", hidden_size=8192, num_attention_heads=128, num_hidden_layers=60,
             num_kv_heads=8, multi_query=True, new_decoder_architecture=True),
        60 * 2 * 8 * 64 * 2, 60, 0, 0,
    ),
    "Falcon without multi_query": (
        dict(model_type="falcon", hidden_size=2048, num_attention_heads=32, num_hidden_layers=24,
             multi_query=False),
        24 * 2 * 2048 * 2, 24, 0, 0,
    ),
    "GPT-2, keys of its own": (
        dict(model_type="gpt2", n_embd=768, n_head=12, n_layer=12), 36864, 12, 0, 0,
    ),
    "MPT with grouped heads": (
        dict(model_type="mpt", d_model=4096, n_heads=32, n_layers=32,
             attn_config={"attn_type": "grouped_query_attention", "kv_n_heads": 8}),
        131072, 32, 0, 0,
    ),
    "DBRX": (
        dict(model_type="dbrx", d_model=6144, n_heads=48, n_layers=40,
             attn_config={"kv_n_heads": 8}),
        163840, 40, 0, 0,
    ),
    "StarCoder (MQA)": (
        dict(model_type="gpt_bigcode", n_embd=6144, n_head=48, n_layer=40, multi_query=True),
        40 * 2 * 128 * 2, 40, 0, 0,
    ),
    "ChatGLM3-6B": (
        dict(model_type="chatglm", hidden_size=4096, num_attention_heads=32, num_layers=28,
             kv_channels=128, multi_query_attention=True, multi_query_group_num=2),
        28672, 28, 0, 0,
    ),
    "DeepSeek-V2-Lite": (
        dict(model_type="deepseek_v2", hidden_size=2048, num_attention_heads=16,
             num_hidden_layers=27, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128,
             v_head_dim=128, q_lora_rank=None),
        27 * 576 * 2, 27, 0, 0,
    ),
    "Kimi-Linear, 7 latents and 20 states": (
        dict(model_type="kimi_linear", hidden_size=2304, num_attention_heads=32,
             num_hidden_layers=27, kv_lora_rank=512, qk_rope_head_dim=64,
             linear_attn_config=dict(full_attn_layers=[4, 8, 12, 16, 20, 24, 27],
                                     head_dim=128, num_heads=32, short_conv_kernel_size=4)),
        7 * 576 * 2, 7, 0, 20,
    ),
    "Jamba, one layer of eight attends": (
        dict(model_type="jamba", hidden_size=4096, num_attention_heads=32, num_hidden_layers=32,
             num_key_value_heads=8, attn_layer_period=8, attn_layer_offset=4),
        4 * 4096, 4, 0, 28,
    ),
    "Nemotron-H, a letter a layer": (
        dict(model_type="nemotron_h", hidden_size=4096, num_attention_heads=32, head_dim=128,
             num_key_value_heads=8, num_hidden_layers=8, hybrid_override_pattern="M-M-M*-M"),
        4096, 1, 0, 4,
    ),
    "MiniMax-Text, attn_type_list": (
        dict(model_type="minimax", hidden_size=6144, num_attention_heads=64, head_dim=128,
             num_key_value_heads=8, num_hidden_layers=8, attn_type_list=[0, 0, 0, 0, 0, 0, 0, 1]),
        4096, 1, 0, 7,
    ),
    "RecurrentGemma-2B": (
        dict(model_type="recurrent_gemma", hidden_size=2560, num_attention_heads=10,
             num_key_value_heads=1, num_hidden_layers=26, attention_window_size=2048),
        8 * 1024, 0, 8, 18,
    ),
    "LFM2-1.2B": (
        dict(model_type="lfm2", hidden_size=2048, num_attention_heads=32, num_key_value_heads=8,
             num_hidden_layers=16, full_attn_idxs=[2, 5, 8, 10, 12, 14]),
        6 * 2048, 6, 0, 10,
    ),
    "Mamba-2.8B": (
        dict(model_type="mamba", hidden_size=2560, num_hidden_layers=64), 0, 0, 0, 64,
    ),
    "Falcon-H1, both in every layer": (
        dict(model_type="falcon_h1", hidden_size=1024, num_attention_heads=8, head_dim=128,
             num_key_value_heads=2, num_hidden_layers=36, mamba_d_ssm=1536, mamba_n_heads=24),
        36 * 1024, 36, 0, 36,
    ),
    "EXAONE-4-32B, LLLG": (
        dict(model_type="exaone4", hidden_size=5120, num_attention_heads=40, head_dim=128,
             num_key_value_heads=8, num_hidden_layers=64, sliding_window=4096,
             sliding_window_pattern="LLLG"),
        262144, 16, 48, 0,
    ),
    "Hunyuan, every second layer reads the one before": (
        dict(model_type="hunyuan", hidden_size=6400, num_attention_heads=80, num_hidden_layers=64,
             num_key_value_heads=8, attention_head_dim=128, use_cla=True, cla_share_factor=2),
        32 * 4096, 32, 0, 0,
    ),
    "Nemotron-NAS, a block a layer": (
        dict(model_type="nemotron-nas", hidden_size=8192, num_attention_heads=64,
             num_hidden_layers=3, num_key_value_heads=None,
             block_configs=[{"attention": {"n_heads_in_group": 8}},
                            {"attention": {"no_op": True}},
                            {"attention": {"n_heads_in_group": 16}}]),
        (8 + 4) * 128 * 2 * 2, 2, 0, 0,
    ),
    "MPT with one head": (
        dict(model_type="mpt", d_model=4096, n_heads=32, n_layers=32,
             attn_config={"attn_type": "multiquery_attention"}),
        32 * 2 * 128 * 2, 32, 0, 0,
    ),
    "Llama-4 whose chunks are null": (
        dict(model_type="llama4_text", hidden_size=5120, num_attention_heads=40,
             num_hidden_layers=48, num_key_value_heads=8, attention_chunk_size=None),
        196608, 48, 0, 0,
    ),
    "Gemma-3n without the number of shared layers: 15, by its class": (
        dict(model_type="gemma3n_text", num_hidden_layers=35),
        20 * 2048, 4, 16, 0,
    ),
    "LongCat-Flash, two attentions a layer": (
        dict(model_type="longcat_flash", hidden_size=6144, num_layers=28, num_attention_heads=64,
             kv_lora_rank=512, qk_rope_head_dim=64),
        56 * 576 * 2, 56, 0, 0,
    ),
    "DeepSeek-V3.2, an index vector beside the latent": (
        dict(model_type="deepseek_v32", hidden_size=7168, num_hidden_layers=61,
             num_attention_heads=128, index_head_dim=128),
        61 * (576 + 128) * 2, 61, 0, 0,
    ),
    "Llama-3.2-11B-Vision, 8 of 40 layers read the picture": (
        dict(model_type="mllama", text_config=dict(
            model_type="mllama_text_model", hidden_size=4096, num_hidden_layers=40,
            num_attention_heads=32, num_key_value_heads=8)),
        131072, 32, 0, 0,
    ),
    "SmolLM3 with windows, where there are no rotary positions": (
        dict(model_type="smollm3", hidden_size=2048, num_attention_heads=16, num_hidden_layers=36,
             num_key_value_heads=4, use_sliding_window=True, sliding_window=4096),
        73728, 27, 9, 0,
    ),
    "Qwen2-MoE with windows, in every second of the first 21 layers": (
        dict(model_type="qwen2_moe", hidden_size=2048, num_attention_heads=16, num_hidden_layers=24,
             num_key_value_heads=16, use_sliding_window=True, max_window_layers=21),
        196608, 13, 11, 0,
    ),
    "dots.llm1, whose windows begin after its last layer": (
        dict(model_type="dots1", hidden_size=4096, num_attention_heads=32, num_hidden_layers=62,
             num_key_value_heads=32),
        62 * 2 * 32 * 128 * 2, 62, 0, 0,
    ),
    "multi_query beside num_key_value_heads, which counts": (
        dict(model_type="never_seen", hidden_size=4096, num_attention_heads=32, multi_query=True,
             num_key_value_heads=8, num_hidden_layers=32),
        131072, 32, 0, 0,
    ),
    "an unknown type with standard keys": (
        dict(model_type="never_seen", hidden_size=64, num_attention_heads=4, num_hidden_layers=2),
        512, 2, 0, 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SIBLINGS)
def test_a_sibling(name):
    config, nbytes, full, sliding, state = SIBLINGS[name]
    spec = KVCacheSpec.from_config(json.loads(json.dumps(config)))
    assert per_token(spec) == nbytes
    assert (spec.full_layers, spec.sliding_layers, spec.state_layers) == (full, sliding, state)


def test_minicpm3s_values_are_as_wide_as_a_query_head():
    """v_head_dim is absent: 2560 / 40 = 64; keys have 64 + 32 numbers."""
    spec = read(
        model_type="minicpm3", hidden_size=2560, num_attention_heads=40, num_hidden_layers=62,
    )  # fmt: skip
    assert per_token(spec) == 62 * (256 + 32) * 2
    assert per_token(spec, mla="expanded") == 62 * 40 * (96 + 64) * 2


def test_an_unknown_type_is_told():
    (notice,) = llama(model_type="never_seen").notices
    assert notice == "model_type 'never_seen' is unknown here: computed from its standard keys"
    assert llama().notices == ()


def test_a_key_without_heads_takes_the_class_default_and_says_so():
    spec = read(model_type="mistral", hidden_size=4096, num_attention_heads=32, num_hidden_layers=1)
    assert per_token(spec) == 4096
    assert spec.notices == ("num_key_value_heads is absent: the mistral class assumes 8",)
    null = read(
        model_type="mistral", hidden_size=4096, num_attention_heads=32, num_hidden_layers=1,
        num_key_value_heads=None,
    )  # fmt: skip
    assert per_token(null) == 4 * 4096  # as its class reads null


def test_sizes_beside_the_nested_keys_are_read():
    """Else the class would decide, silently wrong by a factor of 4 here."""
    spec = read(text_config={}, **LLAMA)
    assert per_token(spec) == 131072
    (notice,) = spec.notices
    assert notice.startswith("read from beside the nested keys, which lack them: num_hidden_layers")
    part = {key: LLAMA[key] for key in LLAMA if key != "num_key_value_heads"}
    assert per_token(read(text_config=part, num_key_value_heads=8)) == 131072
    assert per_token(read(text_config=LLAMA)) == 131072 and not read(text_config=LLAMA).notices
    with pytest.raises(ValueError, match=r"head_dim is 64 and text_config\.head_dim is 128"):
        read(text_config={**LLAMA, "head_dim": 128}, head_dim=64)


def test_a_null_window_stays_off_where_sizes_are_filled_in():
    part = dict(
        model_type="mistral", hidden_size=4096, num_hidden_layers=32, num_key_value_heads=8,
        sliding_window=None,
    )  # fmt: skip
    spec = read(model_type="llava", text_config=part)  # num_attention_heads: 32, by the class
    assert (spec.full_layers, spec.sliding_layers, per_token(spec)) == (32, 0, 131072)


def test_the_state_of_qwen3_next_in_numbers():
    """36 layers: 8,192 inputs of a convolution of 4 (2 bytes), and 32 × 128 × 128 in fp32."""
    stored = Storage(KVCacheSpec.from_config(preset("qwen3-next-80b-a3b").config))
    assert stored.state_bytes_per_request == 36 * (8192 * 4 * 2 + 32 * 128 * 128 * 4)
    assert stored.nbytes(0) == stored.state_bytes_per_request


def test_a_state_of_unknown_size_is_told():
    spec = llama(model_type="other", layer_types=["mamba"] * 16 + ["attention"] * 16)
    assert not spec.state_is_known and per_token(spec) == 65536
    assert "16 layers keep a fixed state whose size is not known" in spec.notices[-1]


WRONG = {
    "num_hidden_layers is missing": {"num_hidden_layers": ...},
    "num_hidden_layers is null": {"num_hidden_layers": None},
    "num_hidden_layers is '32'": {"num_hidden_layers": "32"},
    "num_hidden_layers is -1; it must be at least 1": {"num_hidden_layers": -1},
    "num_hidden_layers is 20000; no more than 10000 layers": {"num_hidden_layers": 20000},
    "num_hidden_layers is 32 and n_layer is 31": {"n_layer": 31},
    "num_attention_heads is missing": {"num_attention_heads": ...},
    "hidden_size is missing, and without head_dim": {"hidden_size": ...},
    "hidden_size is True": {"hidden_size": True},
    "head_dim is 64.5; it must be a whole number": {"head_dim": 64.5},
    "head_dim is a number of more than 30 digits; it must be at most": {"head_dim": 10**400},
    "hidden_size 4097 is no multiple of 32 query heads": {"hidden_size": 4097},
    "num_key_value_heads is 5, which cannot share 32": {"num_key_value_heads": 5},
    "num_key_value_heads is 64, which cannot share 32": {"num_key_value_heads": 64},
    "layer_types describes 1 layers and num_hidden_layers is 32": {
        "layer_types": ["full_attention"]
    },
    "layer_types has 'magic', whose storage is not known": {"layer_types": ["magic"] * 32},
    "layer_types is 'full_attention'; it must be a list": {"layer_types": "full_attention"},
    "32 layers are said to have a sliding window, and sliding_window is missing": {
        "layer_types": ["sliding_attention"] * 32
    },
    "sliding window, and use_sliding_window is false": {
        "layer_types": ["sliding_attention"] * 32,
        "sliding_window": 8,
        "use_sliding_window": False,
    },
    "sliding_window is 0; it must be at least 1": {"model_type": "mistral", "sliding_window": 0},
    "qk_rope_head_dim is missing, and kv_lora_rank says MLA": {"kv_lora_rank": 8},
    "model_type is 7; it must be a word": {"model_type": 7},
    "text_config is 'x'; it must be a set of keys": {"text_config": "x"},
    "num_hidden_layers is 32 and text_config.num_hidden_layers is 2": {
        "text_config": {"num_hidden_layers": 2}
    },
    "'t5' is an encoder with a decoder": {"model_type": "t5"},
    "'bert' is an encoder and keeps no KV cache": {"model_type": "bert"},
    "attn_layer_offset is 4 and attn_layer_period is 2": {"attn_layer_period": 2},
    "full_attn_idxs names layer 32; there are only 32": {"full_attn_idxs": [32]},
}


@pytest.mark.parametrize("message", WRONG)
def test_a_fault_names_the_key(message):
    with pytest.raises(ValueError) as caught:
        llama(**WRONG[message])
    assert message in str(caught.value)


def test_files_are_read_and_faults_name_them(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    assert KVCacheSpec.from_config(path) == KVCacheSpec.from_config(str(tmp_path)) == llama()
    path.write_text(json.dumps(LLAMA), encoding="utf-8-sig")  # as Windows' editors begin a file
    assert KVCacheSpec.from_config(path) == llama()
    for text, message in (
        ("{", "no JSON text"),
        ("[1]", "holds [1] instead of keys and values"),
        ("[" * 100_000, "nested too deeply"),
        ('{"num_hidden_layers": ' + "9" * 5000 + "}", "no JSON text"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError) as caught:
            KVCacheSpec.from_config(path)
        assert "config.json" in str(caught.value) and message in str(caught.value)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="no JSON text"):
        KVCacheSpec.from_config(path)
    with pytest.raises(ValueError, match="is not a file"):
        KVCacheSpec.from_config(tmp_path / "absent.json")


def test_every_preset_and_the_tiny_model_can_be_read():
    assert len(names()) == 12
    for name in names():
        chosen = preset(name)
        stored = Storage(KVCacheSpec.from_config(chosen.config))
        assert stored.bytes_per_token or stored.state_bytes_per_request
        assert (
            not stored.spec.notices and chosen.source and chosen.weights >= chosen.parameters // 2
        )
    assert per_token(KVCacheSpec.from_config(TINY)) == 4 * 2 * 2 * 32 * 2
    with pytest.raises(ValueError, match="there are deepseek-v3, falcon-7b"):
        preset("gpt-5")


# choices


def test_formats():
    spec = llama()
    bf16 = per_token(spec)
    sizes = {
        name: per_token(spec, stored=stored_format(name)) / bf16
        for name in ("fp16", "fp32", "fp8", "int8", "q8_0", "q4_0")
    }
    assert sizes == {
        "fp16": 1, "fp32": 2, "fp8": 0.5, "int8": 0.515625, "q8_0": 0.53125, "q4_0": 0.28125,
    }  # fmt: skip
    assert per_token(spec, stored=stored_format("fp8", 4)) == sizes["int8"] * bf16
    assert per_token(spec, stored=stored_format("int8", 0)) == bf16 // 2


@pytest.mark.parametrize(
    ("name", "scale", "message"),
    [
        ("int4", None, "dtype is 'int4'; choose one of bf16"),
        ("bf16", 4, "bf16, which has no scale"),
        ("q8_0", 2, "leave scale_bytes out"),
        ("int8", -1, "scale_bytes is -1"),
        ("int8", 10**400, "more than 30 digits; give a whole number of bytes, 0 to 1,024"),
        ("fp8", True, "scale_bytes is True"),
    ],
)
def test_a_format_that_does_not_exist(name, scale, message):
    with pytest.raises(ValueError, match=message):
        stored_format(name, scale)


def test_choices_that_do_not_fit_the_model():
    with pytest.raises(ValueError, match="q4_0 packs 32 values into a block, and a vector here"):
        Storage(llama(head_dim=80), stored_format("q4_0"))
    with pytest.raises(ValueError, match="stores plain keys and values; leave it out"):
        Storage(llama(), mla="expanded")
    with pytest.raises(ValueError, match="window policy is 'half'; choose one of capped, dynamic"):
        Storage(llama(), policy="half")
    with pytest.raises(ValueError, match="tp is 0"):
        Storage(llama(), ranks=0)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("80GiB", 80 * 2**30),
        ("80 GB", 80 * 10**9),
        ("1.5mib", 1572864),
        ("7", 7),
        (7, 7),
        ("4,093,640,704", 4093640704),
        ("4_093_640_704", 4093640704),
        ("1,024 MiB", 2**30),
    ],
)
def test_sizes_are_parsed(text, nbytes):
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    "text",
    ["80G", "", "-1", "GiB", "1.3B", "80 GiB more", None, -1, "9" * 99, "1,5GiB", "80,00GiB", ","],
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match=r"size|whole number of bytes"):
        parse_size(text)


def test_sizes_in_words():
    assert [both_units(n) for n in (0, 1, 1023, 1024, 10**9, -(2**30))] == [
        "0 bytes", "1 byte", "1,023 bytes", "1.00 KiB (1.02 kB)", "953.67 MiB (1,000.00 MB)",
        "-1.00 GiB (-1.07 GB)",
    ]  # fmt: skip


# the budget


def test_the_whole_budget_adds_up():
    stored = Storage(llama())
    parts = whole_budget(
        stored, 24 * 2**30, weights=16 * 10**9, other=10**9, seq_len=100, requests=3
    )
    assert parts.payload == 3 * 100 * 131072
    assert parts.tails == 3 * 12 * 131072  # 7 blocks of 16 hold 100 positions
    assert parts.fits and parts.used + parts.free == parts.total
    short = whole_budget(stored, 2**30, weights=2**30, seq_len=1)
    assert (short.fits, short.free, short.missing) == (False, 0, 16 * 131072)


def test_the_blocks_that_hold_a_window_slide_with_it():
    """Blocks of 4, a window of 6: positions 7..12 of 13 lie in blocks 1, 2 and 3."""
    stored = Storage(llama(model_type="mistral", sliding_window=6))
    (group,) = block_layout(stored, 4).groups
    assert [group.blocks_at(t) for t in (0, 1, 4, 5, 7, 12, 13, 14)] == [0, 1, 1, 2, 2, 2, 3, 2]


def test_a_state_raises_the_block_size():
    layout = block_layout(Storage(KVCacheSpec.from_config(preset("qwen3-next-80b-a3b").config)))
    assert layout.block_size == 1056 and "raised from 16 to 1056" in layout.notices[0]
    assert layout.block_bytes == 12 * 1056 * 2048 >= 12 * (65536 + 2097152)


def test_a_model_of_states_alone_holds_any_length():
    stored = Storage(KVCacheSpec.from_config(preset("mamba-2.8b").config))
    layout = block_layout(stored)
    assert layout.block_bytes == stored.state_bytes_per_request == 64 * 5120 * (4 * 2 + 16 * 4)
    assert layout.tokens(5) is None and layout.blocks(10**6) == 1
    assert context_that_fits(stored, layout.block_bytes) is None
    assert context_that_fits(stored, layout.block_bytes - 1) == 0


def test_the_curve_bends_at_the_window():
    stored = Storage(llama(model_type="mistral", sliding_window=100))
    points = curve(stored, 1000, points=4)
    assert points == ((0, 0), (100, 13107200), *((t, 13107200) for t in (250, 500, 750, 1000)))


def test_the_formula_adds_up():
    stored = Storage(KVCacheSpec.from_config(preset("gpt-oss-20b").config))
    terms = stored.terms(8192, 32)
    assert sum(term.nbytes for term in terms) == stored.nbytes(8192, 32)
    assert str(terms[0]) == (
        "32 requests × 12 layers with a window of 128 × 128 positions × 2 (K, V) × 8 heads × "
        "64 values × 2 bytes = 100,663,296 bytes"
    )
    assert stored.growth(127) == stored.bytes_per_token and stored.growth(128) == 24576


def test_repr():
    assert repr(llama()) == (
        "KVCacheSpec('llama', 32 layers: 32 full, 0 sliding, 0 with a state, 0 shared)"
    )
