"""Files beside the weights and keys that contradict each other: right, or refused by name."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_against_transformers import edit, save_random, set_config

from kvlab import LLM
from kvlab.core.request import SamplingParams
from kvlab.tensors.checkpoint import CheckpointError, load_config, load_model

transformers = pytest.importorskip("transformers")
huggingface_hub = pytest.importorskip("huggingface_hub")

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


def refusal(folder) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_model(folder)
    return str(caught.value)


def write_generation(folder, text) -> None:
    (folder / "generation_config.json").write_text(text)


class TestWhatEndsAText:
    @pytest.mark.parametrize(
        ("said", "ends"),
        [
            ({"eos_token_id": [5, 9]}, (5, 9)),
            ({"eos_token_id": 7}, (7,)),
            ({"eos_token_id": []}, ()),
            ({"eos_token_id": None}, (1,)),  # then config.json says it
            ({}, (1,)),
        ],
    )
    def test_the_generation_configuration_goes_first(self, tmp_path, said, ends):
        save_random(tmp_path)
        write_generation(tmp_path, json.dumps(said))
        assert load_config(tmp_path).eos_token_ids == ends

    def test_generation_ends_where_transformers_ends(self, tmp_path):
        theirs = save_random(tmp_path)
        ids = torch.tensor([[5, 6, 7]])
        whole = theirs.generate(ids, max_new_tokens=12, do_sample=False, eos_token_id=None)
        ends = [96, int(whole[0, 3 + 4])]
        write_generation(tmp_path, json.dumps({"eos_token_id": ends}))
        again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
        wanted = again.generate(ids, max_new_tokens=12, do_sample=False)[0, 3:].tolist()
        (answer,) = LLM(load_model(tmp_path), num_blocks=8).generate(
            [5, 6, 7], SamplingParams(max_tokens=12)
        )
        assert len(wanted) < 12 and list(answer.outputs[0].token_ids) == wanted
        assert answer.outputs[0].finish_reason == "stop"

    @pytest.mark.parametrize(
        "text", ["{", "[]", '{"eos_token_id": "2"}', '{"eos_token_id": [[1]]}']
    )
    def test_a_damaged_one_is_named(self, tmp_path, text):
        save_random(tmp_path)
        write_generation(tmp_path, text)
        assert "generation_config.json is not" in refusal(tmp_path)


@pytest.mark.parametrize("key", ["tie_word_embeddings", "attention_bias", "mlp_bias"])
@pytest.mark.parametrize("value", ["false", 0])
def test_flags_are_true_or_false(tmp_path, key, value):
    save_random(tmp_path)
    set_config(tmp_path, **{key: value})
    assert f"{key} is {value!r}; it must be true or false" in refusal(tmp_path)


def test_an_architecture_and_a_model_type_that_disagree(tmp_path):
    """transformers would go by the type and give every layer a window, others by the name."""
    save_random(tmp_path)
    set_config(tmp_path, model_type="mistral", sliding_window=4)
    assert "architectures names LlamaForCausalLM and model_type is 'mistral'" in refusal(tmp_path)


def test_one_file_beside_an_index_that_does_not_name_it(tmp_path):
    """transformers reads the one file; so do we."""
    save_random(tmp_path, shard="50KB")
    whole = {}
    for path in tmp_path.glob("model-*.safetensors"):
        whole |= load_file(path)
    whole["model.norm.weight"] = torch.full_like(whole["model.norm.weight"], 3.0)
    save_file(whole, tmp_path / "model.safetensors", {"format": "pt"})
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(load_model(tmp_path).norm.weight, theirs.model.norm.weight)
    assert float(load_model(tmp_path).norm.weight[0]) == 3.0


@pytest.mark.parametrize(
    ("family", "keys", "named"),
    [
        ("Qwen2", {"rope_scaling": YARN}, "rope_type 'yarn' is not supported"),
        ("Llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type 'dynamic'"),
        ("Llama", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ],
)
def test_a_variant_that_transformers_runs_is_sent_there(tmp_path, family, keys, named):
    theirs = save_random(tmp_path, family)
    config = json.loads((tmp_path / "config.json").read_text())
    config.pop("rope_parameters")
    (tmp_path / "config.json").write_text(json.dumps(config | keys))
    with pytest.raises(ValueError, match=named) as caught:
        LLM(tmp_path)
    assert f"kvlab.hf.load_llm({str(tmp_path)!r}) runs its layers" in str(caught.value)

    from kvlab.hf import load_llm

    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    wanted = theirs.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=6, do_sample=False)
    (answer,) = load_llm(tmp_path, num_blocks=8).generate([5, 6, 7], SamplingParams(max_tokens=6))
    assert list(answer.outputs[0].token_ids) == wanted[0, 3:].tolist()


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", "fp8"])
def test_quantised_weights_are_named_and_sent_nowhere(tmp_path, method):
    save_random(tmp_path)
    set_config(tmp_path, quantization_config={"quant_method": method, "bits": 4})
    with pytest.raises(ValueError, match=method) as caught:
        LLM(tmp_path)
    assert "quantization_config is" in str(caught.value) and "load_llm" not in str(caught.value)


def test_eight_bit_floats_without_a_word_in_the_configuration(tmp_path):
    save_random(tmp_path)
    name = "model.layers.0.mlp.up_proj.weight"
    edit(tmp_path, lambda t: t.update({name: t[name].to(torch.float8_e4m3fn)}))
    assert f"{name} is stored as F8_E4M3" in refusal(tmp_path)


def test_a_folder_without_a_tokenizer_tells_the_way_to_token_ids(tmp_path):
    save_random(tmp_path)
    with pytest.raises(ValueError, match=r"tokenizer\.json is missing") as caught:
        LLM(tmp_path)
    assert "LLM(kvlab.tensors.checkpoint.load_model(FOLDER))" in str(caught.value)
    (answer,) = LLM(load_model(tmp_path), num_blocks=8).generate([5], SamplingParams(max_tokens=2))
    assert len(answer.outputs[0].token_ids) == 2


def test_a_family_of_the_hub_that_transformers_runs_is_sent_there(tmp_path, monkeypatch):
    place = tmp_path / "models--me--gemma"
    for part in ("refs", "snapshots/abc"):
        (place / part).mkdir(parents=True)
    (place / "refs" / "main").write_text("abc")
    config = transformers.Gemma2Config(architectures=["Gemma2ForCausalLM"])
    config.save_pretrained(place / "snapshots" / "abc")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="'Gemma2ForCausalLM' is not supported") as caught:
        LLM("me/gemma")
    assert "kvlab.hf.load_llm('me/gemma') runs its layers" in str(caught.value)
