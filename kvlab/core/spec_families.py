"""What the model classes assume where a config.json is silent, as in transformers 5.24.

A key that is given always wins over this table. `model_type` ending in `_text` (the language part
of a model with pictures) is looked up without the ending.
"""

from dataclasses import dataclass

FROM_QUERY_HEADS = 0  # as many KV heads as query heads


@dataclass(frozen=True)
class Family:
    """kv_heads, head_dim (None: hidden_size / heads), window: what an absent key means.

    every: each `every`-th layer attends to everything, the others to the window (0: all layers
    are alike); first_full: the full layer opens the group instead of closing it. window_off: the
    window counts only where use_sliding_window says so. latent: MLA's widths, (kv_lora_rank,
    qk_rope_head_dim, qk_nope_head_dim, v_head_dim; 0: hidden_size / heads). sizes: (layers,
    hidden_size, query heads), which published configurations leave out where they are nested;
    always_sizes: the last two may be missing from a flat one as well.
    """

    kv_heads: int = FROM_QUERY_HEADS
    head_dim: int | None = None
    window: int | None = None
    every: int = 0
    first_full: bool = False
    window_off: bool = False
    windows_from: int | None = None  # max_window_layers: windows begin at this layer
    latent: tuple[int, int, int, int] | None = None
    shared_layers: int = 0  # num_kv_shared_layers
    null_heads: bool = True  # num_key_value_heads null: as many as query heads
    sizes: tuple[int, int, int] | None = None
    always_sizes: bool = False
    state: str | None = None  # how the layers without attention keep a fixed state
    state_every: int = 0  # full_attention_interval


_DEEPSEEK = (512, 64, 128, 128)
_GEMMA = {"head_dim": 256, "null_heads": False}
_GEMMA3 = _GEMMA | {"always_sizes": True}
_QWEN2 = {"kv_heads": 32, "window": 4096, "window_off": True, "windows_from": 28}
_SMALL = {"sizes": (32, 4096, 32)}
_QWEN_VL = {"kv_heads": 8, "window": 4096, "window_off": True, "windows_from": 80}
_DELTA = {"head_dim": 256, "state": "gated_delta", "state_every": 4, "null_heads": False}

FAMILIES = {
    "llama": Family(**_SMALL),
    "mistral": Family(kv_heads=8, window=4096, **_SMALL),
    "mixtral": Family(kv_heads=8),
    "ministral": Family(kv_heads=8, window=4096),
    "ministral3": Family(kv_heads=8, head_dim=128),
    "mistral4": Family(kv_heads=32, latent=(256, 64, 64, 128)),
    "qwen2": Family(**_QWEN2, **_SMALL),
    "qwen2_moe": Family(16, window=4096, window_off=True, windows_from=28, null_heads=False),
    "qwen2_vl": Family(**_QWEN_VL),
    "qwen2_5_vl": Family(**_QWEN_VL),
    "qwen3": Family(**_QWEN2, head_dim=128),
    "qwen3_moe": Family(4, window=4096, window_off=True, null_heads=False),
    "qwen3_vl": Family(32, 128),
    "qwen3_vl_moe": Family(16),
    "qwen3_next": Family(2, **_DELTA),
    "qwen3_5": Family(4, **_DELTA),
    "qwen3_5_moe": Family(2, **_DELTA),
    "gemma": Family(16, **_GEMMA),
    "gemma2": Family(4, window=4096, every=2, **_GEMMA),
    "gemma3": Family(4, window=4096, every=6, sizes=(26, 2304, 8), **_GEMMA3),
    "gemma3n": Family(2, window=512, every=5, shared_layers=15, sizes=(35, 2048, 8), **_GEMMA3),
    "gemma4": Family(4, window=512, every=6, sizes=(30, 2304, 8), **_GEMMA3),
    "gemma4_unified": Family(4, window=1024, every=6, sizes=(30, 2304, 8), **_GEMMA3),
    "vaultgemma": Family(4, window=4096, every=2, **_GEMMA),
    "gpt_oss": Family(8, 64, window=128, every=2),
    "phimoe": Family(8),
    "starcoder2": Family(2, null_heads=False),
    "stablelm": Family(32, null_heads=False),
    "cohere2": Family(window=4096, every=4),
    "cohere2_moe": Family(head_dim=128, window=4096, every=4),
    "olmo3": Family(window=4096, every=4),
    "olmo_hybrid": Family(state="gated_delta", state_every=4),
    "afmoe": Family(head_dim=128, window=1024, every=4),
    "exaone": Family(8),
    "exaone4": Family(32, window=4096, every=4, null_heads=False),
    "exaone_moe": Family(32, window=4096, every=4, null_heads=False),
    "cwm": Family(8, 128, window=8192, every=4, first_full=True),
    "granite_swa": Family(4, window=128, every=4, first_full=True),
    "granitemoe_swa": Family(window=128, every=4, first_full=True),
    "granitemoehybrid": Family(state="mamba2"),
    "smollm3": Family(4, window_off=True),
    "llama4": Family(8, 128, sizes=(48, 5120, 40)),
    "mllama": Family(8, null_heads=False, sizes=(40, 4096, 32)),
    "moshi": Family(window=3000),
    "laguna": Family(8, 128, null_heads=False),
    "csm": Family(8),
    "glm": Family(2, 128, null_heads=False),
    "glm4": Family(2, 128, null_heads=False),
    "glm4_moe": Family(8, null_heads=False),
    "glm4_moe_lite": Family(20, latent=(512, 64, 192, 256)),
    "minimax": Family(8, state="lightning"),
    "minimax_m2": Family(8, 128, null_heads=False),
    "seed_oss": Family(8, 128),
    "ernie4_5": Family(2, 128),
    "ernie4_5_moe": Family(4, null_heads=False),
    "internlm3": Family(2, 128),
    "bitnet": Family(5),
    "dots1": Family(32, window=4096, windows_from=62),
    "solar_open": Family(8, 128, null_heads=False),
    "hy_v3": Family(8, 128, null_heads=False),
    "helium": Family(20, 128, null_heads=False),
    "iquestcoder": Family(8, 128),
    "jetmoe": Family(16, 128, null_heads=False),
    "mimo_v2_flash": Family(4, 192, window=129, every=6, null_heads=False),
    "deepseek_v2": Family(latent=_DEEPSEEK),
    "deepseek_v3": Family(128, latent=_DEEPSEEK),
    "deepseek_v32": Family(128, latent=_DEEPSEEK),
    "glm_moe_dsa": Family(64, latent=(512, 64, 192, 256)),
    "kimi_linear": Family(32, latent=_DEEPSEEK, state="kimi_delta"),
    "longcat_flash": Family(latent=_DEEPSEEK),
    "minicpm3": Family(40, latent=(256, 32, 64, 0)),
    "youtu": Family(16, latent=_DEEPSEEK),
    "axk1": Family(64, latent=_DEEPSEEK),
    "sarvam_mla": Family(latent=_DEEPSEEK),
    "jamba": Family(8, state="mamba"),
    "mamba": Family(state="mamba"),
    "falcon_mamba": Family(state="mamba"),
    "mamba2": Family(state="mamba2"),
    "bamba": Family(8, state="mamba2"),
    "zamba": Family(16, state="mamba", null_heads=False),
    "zamba2": Family(state="mamba2"),
    "falcon_h1": Family(8, state="mamba2"),
    "nemotron_h": Family(8, 128, state="mamba2"),
    "lfm2": Family(8, state="short_conv", null_heads=False),
    "lfm2_moe": Family(8, state="short_conv", null_heads=False),
    "recurrent_gemma": Family(window=2048, state="rglru"),
    "rwkv": Family(state="rwkv"),
    "dbrx": Family(1),
}
# Known classes whose absent keys mean what the standard ones mean, and without any window.
_PLAIN = """
    apertus arcee baichuan biogpt bloom chatglm codegen cohere ctrl deci diffllama falcon flex_olmo
    gpt2 gpt_bigcode gpt_neo gpt_neox gptj granite granitemoe granitemoeshared hunyuan_v1_dense
    hunyuan_v1_moe internlm internlm2 mpt nanochat nemotron nemotron-nas olmo olmo2 olmoe openelm
    opt persimmon phi phi3 qwen RefinedWeb RefinedWebModel xglm
"""
# Classes in which every query head has keys and values of its own, whatever the keys say.
_EVERY_HEAD = "biogpt bloom codegen ctrl gpt2 gpt_neo gpt_neox gptj opt persimmon xglm"
# Classes that read sliding_window although they assume none. The other known ones have no windows,
# and ignore such a key where it strays into a configuration.
_WINDOWED = "laguna minimax ministral3 mixtral phi3 phimoe smollm3 starcoder2"
_ENCODERS = """
    albert bert camembert clip convbert deberta deberta-v2 dinov2 distilbert electra ernie
    modernbert nomic_bert roberta siglip vit xlm-roberta
"""
_ENCODER_DECODERS = """
    bart blenderbot encoder-decoder fsmt led longt5 m2m_100 marian mbart mt5 nllb-moe pegasus
    speech_to_text t5 t5gemma umt5 vision-encoder-decoder whisper
"""
PLAIN, ENCODERS = frozenset(_PLAIN.split()), frozenset(_ENCODERS.split())
WINDOWED = frozenset(_WINDOWED.split())
EVERY_HEAD = frozenset(_EVERY_HEAD.split())
ENCODER_DECODERS = frozenset(_ENCODER_DECODERS.split())
WRAPPED = {
    "mistral3": "mistral",
    "llava": "llama",
    "llava_next": "llama",
    "kimi_k2": "deepseek_v3",
    "kimi_k25": "deepseek_v3",
    "minimax_m1": "minimax",
    "minimax_text_01": "minimax",
}


def family_of(model_type: str) -> tuple[Family, bool]:
    """The family's assumptions, and whether the model type is one that is known here."""
    name = _known_name(model_type)
    if name in FAMILIES:
        return FAMILIES[name], True
    return Family(), name in PLAIN


def has_no_windows(model_type: str) -> bool:
    """Whether the class is known to attend to everything, whatever sliding_window says."""
    family, known = family_of(model_type)
    return known and family.window is None and _known_name(model_type) not in WINDOWED


def _known_name(model_type: str) -> str:
    name = model_type.removesuffix("_model").removesuffix("_text")
    return WRAPPED.get(name, name)
