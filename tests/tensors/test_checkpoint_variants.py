"""Variants of checkpoints that people meet, as transformers saves and reads them."""

import json

import pytest
import torch
from safetensors.torch import load_file
from test_against_transformers import LINEAR, LLAMA3, edit, save_random, set_config

from kvlab.tensors.checkpoint import CheckpointError, load_config, load_model
from kvlab.tensors.config import RopeScaling
from kvlab.tensors.ops import NoCache

transformers = pytest.importorskip("transformers")

IDS = torch.randint(0, 97, (60,), generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def ours_minus_theirs(folder):
    """Largest difference of the logits, with transformers reading the very same folder."""
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    model = load_model(folder)
    ours = model.compute_logits(model(IDS, torch.arange(60), NoCache()))
    return float((ours - theirs(IDS[None]).logits[0]).abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3"])
def test_stored_in_any_width_sharded_and_tied(tmp_path, family, tied, dtype):
    save_random(tmp_path, family, shard="50KB", dtype=dtype, tie_word_embeddings=tied)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert ours_minus_theirs(tmp_path) < 1e-4


def test_narrow_weights_stay_as_they_are_in_their_own_dtype(tmp_path):
    save_random(tmp_path, dtype=torch.bfloat16)
    model = load_model(tmp_path, torch.bfloat16)
    stored = load_file(tmp_path / "model.safetensors")
    assert model.dtype == torch.bfloat16
    assert torch.equal(model.embed_tokens.weight, stored["model.embed_tokens.weight"])
    down = "layers.1.mlp.down_proj.weight"
    assert torch.equal(model.get_parameter(down), stored[f"model.{down}"])


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Llama", {"attention_bias": True, "head_dim": 20, "tie_word_embeddings": True}),
        ("Llama", {"num_key_value_heads": 1}),
        ("Llama", {"num_key_value_heads": 6, "mlp_bias": True}),
        ("Qwen3", {"attention_bias": True, "head_dim": 32}),
        ("Mistral", {"head_dim": 20}),
    ],
)
def test_widths_and_biases(tmp_path, family, changes):
    save_random(tmp_path, family, **changes)
    assert ours_minus_theirs(tmp_path) < 1e-4


SPELLINGS = {
    "rope_theta alone": ({"rope_theta": 5e4}, RopeScaling(original_max_position=12000), 5e4),
    "rope_scaling null": (
        {"rope_theta": 5e4, "rope_scaling": None}, RopeScaling(original_max_position=12000), 5e4,
    ),
    "type instead of rope_type": (
        {"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 4.0}},
        RopeScaling("linear", 4.0, original_max_position=12000), 1e4,
    ),
    "both keys alike": (
        {"rope_scaling": LINEAR, "rope_parameters": LINEAR},
        RopeScaling("linear", 4.0, original_max_position=12000), 1e4,
    ),
    "llama3 in rope_scaling": (
        {"rope_theta": 5e5, "rope_scaling": {k: v for k, v in LLAMA3.items() if k != "rope_theta"}},
        RopeScaling("llama3", 32.0, 1.0, 4.0, 8192), 5e5,
    ),
    "llama3 in rope_parameters": (
        {"rope_parameters": LLAMA3}, RopeScaling("llama3", 32.0, 1.0, 4.0, 8192), 5e5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_of_rotary_positions(tmp_path, spelling):
    keys, scaling, theta = SPELLINGS[spelling]
    save_random(tmp_path, head_dim=64)
    config = json.loads((tmp_path / "config.json").read_text())
    config.pop("rope_parameters", None)
    (tmp_path / "config.json").write_text(json.dumps(config | keys))
    found = load_config(tmp_path)
    assert (found.rope_scaling, found.rope_theta) == (scaling, theta)
    assert ours_minus_theirs(tmp_path) < 1e-4


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3"])
def test_null_keys_of_every_family(tmp_path, family):
    save_random(tmp_path, family)
    keys = ("pretraining_tp", "quantization_config", "rope_scaling", "architectures", "layer_types")
    set_config(tmp_path, **dict.fromkeys(keys))
    assert load_config(tmp_path).architecture == f"{family}ForCausalLM"
    assert ours_minus_theirs(tmp_path) < 1e-4


class TestHeads:
    def test_flagged_untied_with_an_equal_head_of_its_own(self, tmp_path):
        theirs = save_random(tmp_path, tie_word_embeddings=True)
        edit(tmp_path, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"]}))
        set_config(tmp_path, tie_word_embeddings=False)
        model = load_model(tmp_path)
        assert model.lm_head.weight is not model.embed_tokens.weight
        assert model.num_parameters == theirs.num_parameters() + 97 * 48
        assert ours_minus_theirs(tmp_path) < 1e-4

    @pytest.mark.parametrize("shard", [None, "50KB"])
    def test_flagged_tied_with_another_head(self, tmp_path, shard):
        save_random(tmp_path, shard=shard)
        set_config(tmp_path, tie_word_embeddings=True)
        with pytest.raises(CheckpointError, match=r"lm_head\.weight differs"):
            load_model(tmp_path)


@pytest.mark.parametrize(
    "architecture",
    ["GPT2LMHeadModel", "MambaForCausalLM", "DeepseekV3ForCausalLM", "Qwen3MoeForCausalLM", "", 7],
)
def test_other_architectures_are_named_beside_the_supported(tmp_path, architecture):
    save_random(tmp_path)
    set_config(tmp_path, architectures=[architecture])
    with pytest.raises(CheckpointError) as error:
        load_model(tmp_path)
    for word in (repr(architecture), "LlamaForCausalLM", "MistralForCausalLM", "Qwen2", "Qwen3"):
        assert word in str(error.value)


def test_smollm2_is_a_llama(tmp_path):
    """The shape of SmolLM2-135M, narrower: 9 query heads over 3, tied, eps 1e-5, theta 1e5."""
    save_random(
        tmp_path, hidden_size=72, num_attention_heads=9, num_key_value_heads=3, rms_norm_eps=1e-5,
        tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 1e5},
    )  # fmt: skip
    config = load_config(tmp_path)
    assert (config.head_dim, config.rope_theta, config.rms_norm_eps) == (8, 1e5, 1e-5)
    assert ours_minus_theirs(tmp_path) < 1e-4
