"""KV heads averaged in groups, and decoders saved as checkpoints."""

import json

import pytest
import torch
from builders import random_model

from kvlab.llm import LLM
from kvlab.tensors.checkpoint import load_config, load_model
from kvlab.tensors.checkpoint_save import save_model
from kvlab.tensors.config import ModelConfig, RopeScaling
from kvlab.tensors.head_sharing import mean_pool_kv_heads
from kvlab.tensors.model import Decoder
from kvlab.tensors.ops import NoCache


def logits_of(model, ids=(3, 1, 4, 1, 5, 9)):
    ids = torch.tensor(ids)
    return model.compute_logits(model(ids, torch.arange(len(ids)), NoCache()))


def snapshot(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


# ---- mean pooling


def test_two_heads_of_two_rows_become_their_mean():
    """
    rows of qkv_proj:  q0 q0 q1 q1 | k0 k0 k1 k1 | v0 v0 v1 v1   ->   q0 q0 q1 q1 | k k | v v
    """
    config = ModelConfig(
        vocab_size=3, hidden_size=2, intermediate_size=2, num_layers=1,
        num_query_heads=2, num_kv_heads=2, head_dim=2, qkv_bias=True,
    )  # fmt: skip
    model = Decoder.random(config)
    rows = [[1, 2], [3, 4], [5, 6], [7, 8], [10, 0], [20, 0], [30, 2], [60, 4]]
    rows += [[0, 1], [0, 2], [4, 3], [8, 8]]
    projection = model.layers[0].self_attn.qkv_proj
    projection.weight.copy_(torch.tensor(rows))
    projection.bias.copy_(torch.tensor([0, 1, 2, 3, 10, 20, 30, 40, 1, 2, 3, 4]))
    pooled = mean_pool_kv_heads(model, 1).layers[0].self_attn.qkv_proj
    assert pooled.weight.tolist() == [
        *([1, 2], [3, 4], [5, 6], [7, 8]),  # queries stay
        *([20, 1], [40, 2]),  # keys: row by row the mean of both heads
        *([2, 2], [4, 5]),  # values
    ]
    assert pooled.bias.tolist() == [0, 1, 2, 3, 20, 30, 2, 3]


def test_neighbours_are_pooled_in_order():
    model = random_model(num_query_heads=4, num_kv_heads=4)
    key = model.layers[1].self_attn.qkv_proj.weight[4 * 8 : 8 * 8].unflatten(0, (4, 8))
    pooled = mean_pool_kv_heads(model, 2)
    got = pooled.layers[1].self_attn.qkv_proj.weight[4 * 8 : 6 * 8].unflatten(0, (2, 8))
    torch.testing.assert_close(got, torch.stack(((key[0] + key[1]) / 2, (key[2] + key[3]) / 2)))
    assert pooled.config.num_kv_heads == 2 and pooled.config.num_query_heads == 4
    assert pooled.config.bytes_per_position(2) == model.config.bytes_per_position(2) // 2


@pytest.mark.parametrize("changes", [{}, {"qkv_bias": True}, {"qk_norm": True}, {"tied": True}])
def test_pooling_heads_that_are_equal_changes_nothing(changes):
    """Equal heads are their own mean, so every query head must read what it read before."""
    changes = {"tie_word_embeddings": changes.pop("tied", False), **changes}
    model = random_model(num_query_heads=8, num_kv_heads=4, **changes)
    for layer in model.layers:
        for tensor in layer.self_attn.qkv_proj.parameters():
            for heads in tensor[64:96].unflatten(0, (4, 8)), tensor[96:].unflatten(0, (4, 8)):
                heads[1], heads[3] = heads[0], heads[2]
    before = snapshot(model)
    pooled = mean_pool_kv_heads(model, 2)
    torch.testing.assert_close(logits_of(pooled), logits_of(model))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    tied = pooled.lm_head.weight is pooled.embed_tokens.weight
    assert tied == changes["tie_word_embeddings"]


def test_as_many_heads_as_before_is_a_copy():
    model = random_model()
    same = mean_pool_kv_heads(model, 2)
    assert torch.equal(logits_of(same), logits_of(model))
    same.embed_tokens.weight.zero_()
    assert model.embed_tokens.weight.abs().sum() > 0


@pytest.mark.parametrize("wanted", [0, -1, 3, 8, 1.0, True])
def test_a_number_of_heads_that_cannot_be(wanted):
    with pytest.raises(ValueError, match=rf"num_kv_heads is {wanted!r}; 4 KV heads .* 1, 2, 4"):
        mean_pool_kv_heads(random_model(num_query_heads=8, num_kv_heads=4), wanted)


def test_an_llm_is_no_decoder():
    llm = LLM(random_model(), num_blocks=4)
    with pytest.raises(ValueError, match=r"model has type LLM; give a Decoder, such as llm"):
        mean_pool_kv_heads(llm, 1)


# ---- saving

VARIANTS = [
    {},
    {"tie_word_embeddings": True, "eos_token_ids": (4, 7)},
    {"qkv_bias": True, "o_bias": True, "mlp_bias": True},
    {"rope_scaling": RopeScaling("linear", 4.0)},
    {"rope_scaling": RopeScaling("llama3", 8.0, 1.0, 4.0, 64), "rope_theta": 5e5},
    {"qkv_bias": True, "architecture": "Qwen2ForCausalLM", "eos_token_ids": (1,)},
    {"qk_norm": True, "architecture": "Qwen3ForCausalLM", "eos_token_ids": (1,)},
    {"architecture": "MistralForCausalLM", "eos_token_ids": (1,)},
]


@pytest.mark.parametrize("changes", VARIANTS)
def test_what_is_saved_in_float32_is_loaded_exactly(tmp_path, changes):
    model = random_model(**{"eos_token_ids": (4,), **changes})
    save_model(model, tmp_path / "new" / "folder", dtype=torch.float32)
    loaded = load_model(tmp_path / "new" / "folder")
    same = {k: v for k, v in vars(model.config).items() if k != "rope_scaling"}
    assert {k: v for k, v in vars(loaded.config).items() if k != "rope_scaling"} == same
    assert torch.equal(logits_of(loaded), logits_of(model))


def test_float16_rounds_each_weight_to_eleven_bits(tmp_path):
    model = random_model(eos_token_ids=(4,))
    save_model(model, tmp_path)
    loaded = dict(load_model(tmp_path).named_parameters())
    for name, weight in model.named_parameters():
        error = (loaded[name] - weight).abs()
        assert (error <= weight.abs() * 2**-11 + 2**-25).all()
    assert any(not torch.equal(loaded[name], weight) for name, weight in model.named_parameters())
    difference = (logits_of(load_model(tmp_path)) - logits_of(model)).abs().max()
    assert 0 < difference < 0.05  # logits here are of size 1


def test_transformers_loads_the_folder_with_equal_logits(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = random_model(eos_token_ids=(4,), tie_word_embeddings=True)
    save_model(model, tmp_path, dtype=torch.float32, more={"bos_token_id": 0, "pad_token_id": 0})
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
    ids = torch.tensor([[3, 1, 4, 1, 5, 9]])
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits[0], logits_of(model))
    assert theirs.config.eos_token_id == 4 and theirs.config.pad_token_id == 0


def test_what_cannot_be_saved_is_refused_and_nothing_is_written(tmp_path):
    folder = tmp_path / "folder"
    with pytest.raises(ValueError, match="no weights to save"):
        save_model(Decoder(random_model().config), folder)
    with pytest.raises(ValueError, match=r"qk_norm is True, which .* LlamaForCausalLM cannot"):
        save_model(random_model(qk_norm=True, eos_token_ids=(4,)), folder)
    model = random_model(eos_token_ids=(4,))
    model.norm.weight[3] = 1e6
    with pytest.raises(ValueError, match=r"model.norm.weight holds values that torch.float16"):
        save_model(model, folder)
    assert not folder.exists()
    save_model(model, folder, dtype=torch.bfloat16)
    assert load_config(folder).hidden_size == 32


def test_the_index_of_another_checkpoint_is_not_left_beside(tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {}}))
    with pytest.raises(ValueError, match="holds the index of another checkpoint"):
        save_model(random_model(eos_token_ids=(4,)), tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.safetensors.index.json"]


def test_saving_again_replaces_the_files(tmp_path):
    save_model(random_model(eos_token_ids=(4,)), tmp_path)
    other = random_model(seed=1, eos_token_ids=(4,))
    save_model(other, tmp_path, dtype=torch.float32)
    assert torch.equal(logits_of(load_model(tmp_path)), logits_of(other))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
