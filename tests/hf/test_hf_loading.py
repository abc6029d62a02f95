"""From a folder in Hugging Face layout, and what tells two models' blocks apart."""

import json
import subprocess
import sys

import pytest
import torch
from families import model_of, own_logits, tokens, transformers
from safetensors.torch import load_file, save_file

from kvlab import SamplingParams, tiny
from kvlab.hf import load_llm, open_decoder
from kvlab.tensors.identity import configuration_of
from kvlab.tensors.kv_cache import PagedCache


def identity(model):
    decoder = open_decoder(model)
    return configuration_of(decoder, PagedCache(decoder.config, 1, 4))


@pytest.mark.parametrize("family", ["Gemma2", "Qwen3Moe"])
def test_a_folder_gives_the_same_tokens_as_the_model(family, tmp_path):
    model, prompt = model_of(family), tokens(12)
    folder = tmp_path / "a-model"
    model.save_pretrained(folder)
    llm = load_llm(folder, block_size=4, num_blocks=16)
    assert (llm.name, llm.tokenizer) == ("a-model", None)
    (out,) = llm.generate(prompt, SamplingParams(max_tokens=8))
    output = list(out.outputs[0].token_ids)
    logits = own_logits(model, prompt + output)[len(prompt) - 1 : -1]
    assert logits.argmax(dim=-1).tolist() == output


def test_the_embedded_model_answers_through_transformers_as_it_does_through_ours():
    llm = load_llm("tiny", block_size=16, num_blocks=32)
    assert (llm.name, type(llm.model.lm).__name__) == ("tiny", "LlamaForCausalLM")
    prompt = tiny.prompt("Ada likes soup. The key is red.", "What colour is the key?")
    outputs = [llm.generate(prompt, SamplingParams(max_tokens=8))[0] for _ in range(2)]
    assert [out.outputs[0].text for out in outputs] == [" The key is red."] * 2
    assert [out.num_cached_tokens for out in outputs] == [0, 16]


def test_a_weight_that_is_not_finite_is_named(tmp_path):
    model = model_of("Gemma3")
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"][3] = 70_000.0  # float16 ends at 65,504
    save_file(tensors, path, {"format": "pt"})
    assert load_llm(tmp_path).model.dtype == torch.float32
    with pytest.raises(ValueError, match=r"norm\.weight holds inf at \[3\].*dtype=torch\.float32"):
        load_llm(tmp_path, dtype=torch.float16)
    tensors["model.norm.weight"][3] = float("nan")
    save_file(tensors, path, {"format": "pt"})
    with pytest.raises(ValueError, match=r"norm\.weight holds nan at \[3\]; get the file again"):
        load_llm(tmp_path)


@pytest.mark.parametrize("device", ["nope", "", "meta", "cuda:99"])
def test_a_device_that_is_not_here_is_named(device):
    for model in ("tiny", model_of("Gemma2")):
        with pytest.raises(ValueError, match=r"^device is .*; (here there is|the last CUDA)"):
            load_llm(model, device=device)


def test_dtype_and_cache_dtype(tmp_path):
    model_of("Gemma3").save_pretrained(tmp_path)
    llm = load_llm(tmp_path, dtype=torch.bfloat16, num_blocks=16)
    assert (llm.model.dtype, llm.cache.dtype) == (torch.bfloat16, torch.bfloat16)
    llm = load_llm(tmp_path, cache_dtype=torch.float16, num_blocks=16)
    assert (llm.model.dtype, llm.cache.dtype) == (torch.float32, torch.float16)
    assert llm.generate(tokens(9), SamplingParams(max_tokens=3))[0].outputs[0].token_ids


@pytest.mark.parametrize("stored", ["int8", "fp8"])
def test_layers_with_capped_scores_read_a_quantised_cache(stored):
    decoder, seen = open_decoder(model_of("Gemma2")), []
    for cache_dtype in (torch.float32, stored):
        llm = load_llm(decoder, cache_dtype=cache_dtype, block_size=4, num_blocks=32)
        llm.runner.on_logits = lambda logits: seen.extend(x.clone() for x in logits.values())
        llm.generate(tokens(13), SamplingParams(max_tokens=1))
    error = float((seen[0] - seen[1]).abs().max())
    assert 0 < error < 0.1 * float(seen[0].abs().max())


def test_a_model_that_is_loaded_keeps_its_dtype():
    model = model_of("Phi3").to(torch.bfloat16)
    llm = load_llm(model, num_blocks=4)
    assert llm.model.lm is model and llm.cache.dtype is torch.bfloat16
    other = load_llm(model, dtype=torch.float32, num_blocks=4)
    assert other.model.lm is not model and other.cache.dtype is torch.float32
    assert model.dtype is torch.bfloat16


def test_ids_that_end_a_text():
    model = model_of("Llama")
    assert open_decoder(model).config.eos_token_ids == ()
    model.generation_config.eos_token_id = [5, 7]
    assert open_decoder(model).config.eos_token_ids == (5, 7)
    model.generation_config.eos_token_id = None
    model.config.eos_token_id = 6
    assert open_decoder(model).config.eos_token_ids == (6,)


def test_identity_covers_weights_settings_and_buffers():
    """Equal models share blocks; whatever changes K/V makes others of them."""
    first = identity(model_of("Gemma2"))
    assert identity(model_of("Gemma2")) == first
    assert identity(model_of("Gemma2", attn_logit_softcapping=3.0)) != first
    assert identity(model_of("Gemma2", sliding_window=9)) != first
    changed = model_of("Gemma2")
    changed.model.layers[1].mlp.up_proj.weight.data[0, 0] += 1
    assert identity(changed) != first
    stored = model_of("Gemma2")
    stored.model.register_buffer("bias_of_a_router", torch.ones(3))
    assert identity(stored) != first


def test_where_a_checkpoint_lies_is_no_part_of_its_identity(tmp_path):
    model_of("Phi3").save_pretrained(tmp_path / "a")
    model_of("Phi3").save_pretrained(tmp_path / "b")
    a, b = (load_llm(tmp_path / name, num_blocks=4) for name in "ab")
    assert configuration_of(a.model, a.cache) == configuration_of(b.model, b.cache)


def test_folders_that_cannot_be_loaded(tmp_path):
    with pytest.raises(ValueError, match="no configuration to read"):
        load_llm(tmp_path)
    model = model_of("Llama")
    model.config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"model\.safetensors is missing"):
        load_llm(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin is a pickle file"):
        load_llm(tmp_path)


def test_weights_that_are_damaged_or_incomplete(tmp_path):
    """transformers fills what is missing with random numbers; here it is an error."""
    model = model_of("Llama")
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    whole, weights = path.read_bytes(), load_file(path)
    path.write_bytes(whole[:-100])
    with pytest.raises(ValueError, match="truncated or damaged"):
        load_llm(tmp_path)
    del weights["model.layers.2.self_attn.k_proj.weight"]
    save_file(weights, path, {"format": "pt"})
    with pytest.raises(ValueError, match=r"no weights for model\.layers\.2\.self_attn\.k_proj"):
        load_llm(tmp_path)
    path.write_bytes(whole)
    config = {**json.loads((tmp_path / "config.json").read_text()), "hidden_size": 64}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_llm(tmp_path)


def test_an_index_that_names_a_file_outside_the_folder(tmp_path):
    folder = tmp_path / "model"
    model_of("Llama").save_pretrained(folder)
    (folder / "model.safetensors").rename(tmp_path / "model.safetensors")
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "../model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="not a file name inside the folder"):
        load_llm(folder)


def test_code_beside_a_checkpoint_is_not_executed(tmp_path):
    (tmp_path / "modeling.py").write_text("raise SystemExit('executed')")
    (tmp_path / "config.json").write_text(
        '{"model_type": "mine", "auto_map": {"AutoConfig": "modeling.C", '
        '"AutoModelForCausalLM": "modeling.M"}}'
    )
    with pytest.raises(ValueError, match="no configuration to read"):
        load_llm(tmp_path)


def test_transformers_is_imported_by_nobody_else():
    code = "import sys, kvlab.hf, kvlab.llm; print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert transformers.__version__


def test_without_transformers_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['transformers'] = None; import kvlab.hf\n"
        "try: kvlab.hf.load_llm\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == 'kvlab.hf needs transformers: pip install "kvlab[models]"'
