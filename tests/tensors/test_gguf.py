"""GGUF files: order of rows, tied heads, quantised types, tokenizer; and what is refused."""

from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch
from builders import random_model
from gguf_files import TOKENS, tensors_of, write

from kvlab import LLM, chat_prompt
from kvlab.tensors.checkpoint import CheckpointError
from kvlab.tensors.gguf_model import hugging_face_order, load_gguf, load_gguf_tokenizer

KINDS = gguf.GGMLQuantizationType


def model_for(**changes):
    """Rows of 32 values, which is one block of most quantised types."""
    return random_model(vocab_size=len(TOKENS), intermediate_size=64, **changes)


def test_rows_of_a_head_come_back_in_halves():
    # One head of 6 rows: llama.cpp writes the pairs (0, 3), (1, 4), (2, 5) next to each other.
    stored = torch.tensor([[0.0], [3.0], [1.0], [4.0], [2.0], [5.0]])
    assert hugging_face_order(stored, 1).flatten().tolist() == [0, 1, 2, 3, 4, 5]
    two = torch.cat((stored, stored + 6))
    assert hugging_face_order(two, 2).flatten().tolist() == list(range(12))


@pytest.mark.parametrize("tied", [False, True])
def test_every_weight_comes_back_as_it_was(tmp_path, tied):
    model = model_for(tie_word_embeddings=tied)
    path = write(tmp_path / "small.gguf", model.config, tensors_of(model))
    found, _ = load_gguf(path)
    assert found.config.tie_word_embeddings is tied
    assert (found.lm_head.weight is found.embed_tokens.weight) is tied
    theirs = found.state_dict()
    assert theirs.keys() == model.state_dict().keys()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, theirs[name]), name


def test_the_configuration_is_read(tmp_path):
    model = model_for(max_model_len=99, rope_theta=5000.0, head_dim=16, tie_word_embeddings=True)
    config = load_gguf(write(tmp_path / "s.gguf", model.config, tensors_of(model)))[0].config
    assert (config.num_layers, config.num_query_heads, config.num_kv_heads) == (2, 4, 2)
    assert (config.head_dim, config.hidden_size, config.intermediate_size) == (16, 32, 64)
    assert (config.max_model_len, config.rope_theta, config.eos_token_ids) == (99, 5000.0, (0,))
    assert config.rms_norm_eps == pytest.approx(1e-6)


@pytest.mark.parametrize("kind", [KINDS.Q8_0, KINDS.Q4_1, KINDS.F16, KINDS.BF16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_stored_types_become_floating_point(tmp_path, kind, dtype):
    model = model_for()
    weights = tensors_of(model)
    types = {name: kind for name, weight in weights.items() if weight.ndim == 2}
    found, _ = load_gguf(write(tmp_path / "q.gguf", model.config, weights, types), dtype)
    assert found.dtype == dtype
    for i, layer in enumerate(found.layers):
        stored = gguf.quants.quantize(weights[f"blk.{i}.ffn_down.weight"], kind)
        wanted = torch.from_numpy(gguf.quants.dequantize(stored, kind)).to(dtype)
        assert torch.equal(layer.mlp.down_proj.weight, wanted)
        stored = gguf.quants.quantize(weights[f"blk.{i}.attn_k.weight"], kind)
        wanted = torch.from_numpy(gguf.quants.dequantize(stored, kind)).to(dtype)
        rows = layer.self_attn.qkv_proj.weight[32:48]  # after 4 query heads of 8
        assert torch.equal(rows, hugging_face_order(wanted, 2))


def test_text_and_chats_of_a_file(tmp_path):
    model = model_for()
    llm = LLM(write(tmp_path / "small.gguf", model.config, tensors_of(model)), num_blocks=8)
    assert llm.name == "small.gguf"
    assert llm.encode("hi hi<|end|>") == [TOKENS.index("hi"), TOKENS.index("Ġhi"), 0]
    assert llm.tokenizer.decode(llm.encode("hi hi<|end|>")) == "hi hi"
    assert chat_prompt(llm, "hi") == [1, TOKENS.index("hi")]
    assert len(llm.generate("hi")[0].outputs[0].token_ids) > 0
    alone = load_gguf_tokenizer(tmp_path / "small.gguf")
    assert alone.encode("hi hi<|end|>") == llm.encode("hi hi<|end|>")
    assert alone.settings == llm.tokenizer.settings


def test_a_type_that_cannot_be_turned_back_is_named(tmp_path):
    model = model_for(hidden_size=256)
    types = {"blk.1.attn_v.weight": KINDS.Q8_K}
    path = write(tmp_path / "q.gguf", model.config, tensors_of(model), types)
    with pytest.raises(CheckpointError, match=r"blk\.1\.attn_v\.weight is stored as Q8_K"):
        load_gguf(path)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"architecture": "qwen2"}, "architecture 'qwen2' is not read from GGUF.*'llama'"),
        ({"pre": "tekken"}, "the split 'tekken' is not read from GGUF.*'smollm'"),
        ({"scaling": gguf.RopeScalingType.YARN}, "rope.scaling.type is 'yarn'"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path, told, message):
    model = model_for()
    path = write(tmp_path / "other.gguf", model.config, tensors_of(model), **told)
    with pytest.raises(CheckpointError, match=message):
        load_gguf(path)


@pytest.mark.parametrize(
    ("name", "weight", "message"),
    [
        ("output_norm.weight", None, r"output_norm\.weight is missing, expected \[32\]"),
        ("token_embd.weight", None, "vocab_size is missing"),
        ("rope_freqs.weight", np.ones(4, np.float32), r"rope_freqs\.weight has no place"),
        ("blk.0.attn_q.bias", np.ones(32, np.float32), r"attn_q\.bias has no place"),
        (
            "blk.1.attn_k.weight",
            np.ones((8, 32), np.float32),
            r"attn_k\.weight has shape \[8, 32\], expected \[16, 32\]",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(tmp_path, name, weight, message):
    model = model_for()
    weights = {**tensors_of(model), name: weight}
    kept = {key: value for key, value in weights.items() if value is not None}
    with pytest.raises(CheckpointError, match=message):
        load_gguf(write(tmp_path / "odd.gguf", model.config, kept))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 10**9}, "block_count is 1000000000, with 21 tensors"),
        ({"intermediate_size": 2**30}, "expected .*1073741824"),
    ],
)
def test_sizes_that_the_file_does_not_hold_take_no_memory(tmp_path, changes, message):
    model = model_for()
    told = replace(model.config, **changes)
    with pytest.raises(CheckpointError, match=message):
        load_gguf(write(tmp_path / "claims.gguf", told, tensors_of(model)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_named(tmp_path, value):
    model = model_for()
    weights = tensors_of(model)
    weights["blk.1.attn_k.weight"][9, 4] = value
    path = write(tmp_path / "odd.gguf", model.config, weights)
    with pytest.raises(CheckpointError, match=rf"blk\.1\.attn_k\.weight holds {value} at \[9, 4\]"):
        load_gguf(path)


@pytest.mark.parametrize("kept", [0, 3, 100, 5000, -1000])
def test_a_damaged_file_is_refused(tmp_path, kept):
    model = model_for()
    whole = write(tmp_path / "whole.gguf", model.config, tensors_of(model)).read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[:kept])
    with pytest.raises(CheckpointError, match=r"cut\.gguf cannot be read as GGUF"):
        load_gguf(path)
    path.write_bytes(b"PK\x03\x04" + whole[4:])
    with pytest.raises(CheckpointError, match=r"cut\.gguf cannot be read as GGUF"):
        load_gguf(path)
