"""Random tiny checkpoints saved by transformers: the same logits and the same greedy tokens."""

import json

import pytest
import torch
from builders import greedy, make_engine, record_logits, run
from safetensors.torch import load_file, save_file

from kvlab.tensors.checkpoint import CheckpointError, load_config, load_model
from kvlab.tensors.config import FAMILIES, RopeScaling
from kvlab.tensors.kv_cache import ContiguousCache, contiguous_forward
from kvlab.tensors.ops import NoCache
from kvlab.tensors.rope import inverse_frequencies

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
    "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 12000,
    "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
}  # fmt: skip
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
VARIANTS = {
    "llama": ("Llama", {}),
    "llama, tied": ("Llama", {"tie_word_embeddings": True}),
    "llama, biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, head_dim apart": ("Llama", {"head_dim": 20}),
    "llama, mha": ("Llama", {"num_key_value_heads": None}),
    "llama, llama3 scaling": ("Llama", {"head_dim": 64, "rope_parameters": LLAMA3}),
    "llama, linear scaling": ("Llama", {"rope_parameters": LINEAR}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "qwen3, tied": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen3, biased": ("Qwen3", {"head_dim": 16, "attention_bias": True}),
    "mistral without a window": ("Mistral", {"sliding_window": None}),
}  # fmt: skip


def save_random(folder, family="Llama", shard=None, dtype=None, **changes):
    """A random checkpoint of a transformers family; returns the transformers model."""
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **changes})
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():  # biases and norms start at 0 and 1: move them
            if p.dim() == 1:
                p.add_(0.1 * torch.randn_like(p))
            elif "embed" not in name:
                p.mul_(4)
    if dtype is not None:
        model = model.to(dtype)
    model.save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    return model.float()


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_greedy_tokens_are_equal(tmp_path, variant):
    family, changes = VARIANTS[variant]
    theirs = save_random(tmp_path, family, **changes)
    ours = load_model(tmp_path)
    ids = torch.randint(0, 97, (1, 100), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        want = theirs(ids).logits[0]
    whole = contiguous_forward(ours, ids, ContiguousCache(ours.config))[0]
    assert (whole - want).abs().max() < 1e-4
    engine = make_engine(ours, 64, 4, max_num_batched_tokens=7)
    logits = record_logits(engine)
    prompt = ids[0, :20].tolist()
    (r,) = engine.add_request(prompt, greedy(64), request_id="A")
    run(engine)
    assert (logits["A"][0] - want[19]).abs().max() < 1e-4
    out = theirs.generate(
        ids[:, :20], max_new_tokens=64, min_new_tokens=64, do_sample=False, eos_token_id=None
    )
    assert r.output_token_ids == out[0, 20:].tolist()


@pytest.mark.parametrize("spelling", ["rope_scaling", "rope_parameters"])
def test_n05_scaled_rotary_positions_at_10000(tmp_path, spelling):
    theirs = save_random(tmp_path, head_dim=64, num_hidden_layers=1, rope_parameters=LLAMA3)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config.pop("rope_parameters")
    if spelling == "rope_scaling":
        scaling = {k: v for k, v in LLAMA3.items() if k != "rope_theta"}
        config |= {"rope_theta": 500000.0, "rope_scaling": scaling}
    else:
        config["rope_parameters"] = LLAMA3
    path.write_text(json.dumps(config))
    ours = load_model(tmp_path)
    ids = torch.randint(0, 97, (1, 8))
    positions = torch.arange(9_996, 10_004)[None]
    with torch.no_grad():
        want = theirs(ids, position_ids=positions).logits[0]

    @torch.no_grad()
    def run_ours():
        return ours.compute_logits(ours(ids[0], positions[0], NoCache()))

    assert (run_ours() - want).abs().max() < 1e-4
    ours.inv_freq = inverse_frequencies(64, 500000.0, RopeScaling())  # scaling left out: it shows
    assert (run_ours() - want).abs().max() > 1e-3


def test_sharded_bf16_checkpoint(tmp_path):
    save_random(tmp_path, shard="60KB", dtype=torch.bfloat16)
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    ours = load_model(tmp_path)
    ids = torch.arange(30)[None]
    with torch.no_grad():
        want = theirs(ids).logits[0]
    assert (
        contiguous_forward(ours, ids, ContiguousCache(ours.config))[0] - want
    ).abs().max() < 1e-4


def edit(folder, change):
    """Apply `change` to the tensors of a one-file checkpoint."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file({k: v.contiguous().clone() for k, v in tensors.items()}, path, {"format": "pt"})


def set_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


class TestN06TiedHead:
    def test_absent_head_works_and_is_counted_once(self, tmp_path):
        theirs = save_random(tmp_path, tie_word_embeddings=True)
        edit(tmp_path, lambda t: t.pop("lm_head.weight", None))
        ours = load_model(tmp_path)
        assert ours.lm_head.weight is ours.embed_tokens.weight
        assert ours.num_parameters == theirs.num_parameters()

    def test_present_and_equal_works(self, tmp_path):
        save_random(tmp_path, tie_word_embeddings=True)
        edit(tmp_path, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"]}))
        ours = load_model(tmp_path)
        assert ours.lm_head.weight is ours.embed_tokens.weight

    def test_absent_though_the_flag_says_untied(self, tmp_path):
        save_random(tmp_path)
        edit(tmp_path, lambda t: t.pop("lm_head.weight"))
        with pytest.raises(
            CheckpointError, match=r"lm_head\.weight is missing.*tie_word_embeddings"
        ):
            load_model(tmp_path)

    def test_present_and_different_though_the_flag_says_tied(self, tmp_path):
        save_random(tmp_path)
        set_config(tmp_path, tie_word_embeddings=True)
        with pytest.raises(
            CheckpointError, match=r"tie_word_embeddings is true, yet lm_head\.weight"
        ):
            load_model(tmp_path)


class TestWhatDoesNotFitIsRefused:
    @pytest.fixture
    def folder(self, tmp_path):
        save_random(tmp_path)
        return tmp_path

    def check_refused(self, folder, *words):
        with pytest.raises(CheckpointError) as error:
            load_model(folder)
        for word in words:
            assert word in str(error.value)

    def test_missing_tensor(self, folder):
        edit(folder, lambda t: t.pop("model.layers.1.mlp.up_proj.weight"))
        self.check_refused(
            folder, "model.layers.1.mlp.up_proj.weight is missing", "[80, 48]", "1 of"
        )

    def test_misshapen_tensor(self, folder):
        edit(folder, lambda t: t.update({"model.norm.weight": torch.ones(47)}))
        self.check_refused(folder, "model.safetensors", "model.norm.weight", "[47]", "[48]")

    def test_unknown_tensor(self, folder):
        edit(folder, lambda t: t.update({"model.layers.0.self_attn.q_norm.weight": torch.ones(8)}))
        self.check_refused(folder, "q_norm.weight has no place in a LlamaForCausalLM")

    def test_truncated_file(self, folder):
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
        self.check_refused(folder, "model.safetensors", "truncated or damaged")

    def test_missing_file_of_a_sharded_checkpoint(self, tmp_path):
        save_random(tmp_path, shard="60KB")
        sorted(tmp_path.glob("*.safetensors"))[-1].unlink()
        self.check_refused(tmp_path, "is missing")

    def test_index_that_points_outside(self, folder):
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"a": "../other.safetensors"}})
        )
        self.check_refused(folder, "../other.safetensors", "not a file name inside the folder")

    def test_only_a_pickle_file(self, folder):
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        self.check_refused(folder, "pytorch_model.bin is a pickle file")

    def test_no_config(self, tmp_path):
        self.check_refused(tmp_path, "config.json is missing")

    def test_broken_config(self, folder):
        (folder / "config.json").write_text("{")
        self.check_refused(folder, "not valid JSON")

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"architectures": ["GPT2LMHeadModel"]}, ["GPT2LMHeadModel", "LlamaForCausalLM"]),
            ({"hidden_act": "gelu"}, ["hidden_act", "gelu", "silu"]),
            ({"num_key_value_heads": 4}, ["6 query heads", "4 KV heads"]),
            ({"hidden_size": None}, ["hidden_size is missing"]),
            ({"hidden_size": "48"}, ["hidden_size is '48'"]),
            ({"num_hidden_layers": -2}, ["num_layers is -2"]),
            ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, ["yarn", "llama3"]),
            ({"rope_parameters": {"rope_type": "llama3", "factor": 4.0}}, ["low_freq_factor"]),
            ({"rope_parameters": {"rope_type": "linear"}}, ["factor"]),
            ({"quantization_config": {"bits": 4}}, ["quantization_config"]),
            ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor is 0.5"]),
            ({"layer_types": ["sliding_attention", "full_attention"]}, ["sliding_attention"]),
            ({"use_sliding_window": True}, ["use_sliding_window is True", "no windows"]),
        ],
    )  # fmt: skip
    def test_unsupported_configuration(self, folder, changes, words):
        set_config(folder, **changes)
        self.check_refused(folder, *words)

    def test_an_unknown_architecture_is_named_beside_those_supported(self, folder):
        set_config(folder, architectures=["MambaForCausalLM"])
        self.check_refused(folder, "MambaForCausalLM", *FAMILIES)


def test_null_keys_mean_absent(tmp_path):
    save_random(tmp_path, num_key_value_heads=6)
    set_config(tmp_path, head_dim=None, num_key_value_heads=None, rope_parameters=None)
    config = load_config(tmp_path)
    assert (config.head_dim, config.num_kv_heads, config.rope_theta) == (8, 6, 10000.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rope_scaling": LINEAR | {"factor": 2.0}, "rope_parameters": LINEAR}, "keep one"),
        ({"rope_parameters": LLAMA3, "original_max_position_embeddings": 4096}, "given twice"),
        ({"is_causal": False}, "is_causal"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(tmp_path, changes, words):
    save_random(tmp_path)
    set_config(tmp_path, **changes)
    with pytest.raises(CheckpointError, match=words):
        load_model(tmp_path)


def test_llama3_original_length_at_the_top_level(tmp_path):
    theirs = save_random(tmp_path, head_dim=64, num_hidden_layers=1, rope_parameters=LLAMA3)
    scaling = {k: v for k, v in LLAMA3.items() if k != "original_max_position_embeddings"}
    set_config(tmp_path, rope_parameters=scaling, original_max_position_embeddings=8192)
    ids = torch.arange(40)[None]
    with torch.no_grad():
        want = theirs(ids).logits[0]
    ours = load_model(tmp_path)
    assert (
        contiguous_forward(ours, ids, ContiguousCache(ours.config))[0] - want
    ).abs().max() < 1e-4
