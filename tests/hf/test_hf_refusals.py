"""Families that attend by other means are refused, by name and with the reason."""

import pytest
import torch
from families import SIZES, model_of, own_logits, paged_logits, tokens, transformers

from kvlab.hf import load_llm, open_decoder
from kvlab.hf.family import longest
from kvlab.tensors.lora import random_adapter

SMALL = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2}
HEADS = {**SMALL, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 48}
MLA = {**HEADS, "kv_lora_rank": 16, "q_lora_rank": 16, "n_routed_experts": 4}
LLAMA4 = {  # the layers of Scout that attend in chunks are refused by their kind
    **HEADS,
    "head_dim": 8,
    "intermediate_size_mlp": 48,
    "num_local_experts": 2,
    "layer_types": ["full_attention"] * 2,
    "no_rope_layers": [1, 0],
}
REFUSED = {
    "MambaForCausalLM": ("Mamba", SMALL, "running state"),
    "Mamba2ForCausalLM": ("Mamba2", {**SMALL, "num_heads": 8, "head_dim": 8}, "running state"),
    "RwkvForCausalLM": ("Rwkv", {**SMALL, "attention_hidden_size": 32}, "running state"),
    "JambaForCausalLM": ("Jamba", {**HEADS, "use_mamba_kernels": False}, "running state"),
    "DeepseekV2ForCausalLM": ("DeepseekV2", MLA, "latent form .MLA.: kv_lora_rank is 16"),
    "DeepseekV3ForCausalLM": (
        "DeepseekV3",
        {**MLA, "first_k_dense_replace": 2},
        "latent form .MLA.: kv_lora_rank is 16",
    ),
    "T5ForConditionalGeneration": (
        "T5",
        {"vocab_size": 97, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
        "encoder-decoder",
    ),
    "Lfm2ForCausalLM": ("Lfm2", {**HEADS, "layer_types": ["conv", "full_attention"]}, "kind conv"),
    "Llama4ForCausalLM": ("Llama4", LLAMA4, "place in the row .attn_temperature_tuning"),
    "BloomForCausalLM": (
        "Bloom",
        {"vocab_size": 97, "hidden_size": 32, "n_layer": 2, "n_head": 4},
        "attention registry",
    ),
}


CONFIGS = {"Llama4": "Llama4Text"}


def refused(name):
    family, keys, why = REFUSED[name]
    config = getattr(transformers, f"{CONFIGS.get(family, family)}Config")(**keys)
    return getattr(transformers, name), config, rf"^{name} does not run on .*{why}"


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_is_loaded_already(name):
    model_class, config, message = refused(name)
    ran = []
    model = model_class(config)
    model.register_forward_pre_hook(lambda *_: ran.append(True))
    with pytest.raises(ValueError, match=message):
        load_llm(model)
    assert ran == []


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_is_refused_before_its_weights_are_read(name, tmp_path):
    _, config, message = refused(name)
    config.architectures = [name]
    config.save_pretrained(tmp_path)  # there are no weights at all
    with pytest.raises(ValueError, match=message):
        load_llm(tmp_path)


def test_llama_4_without_that_scale_runs():
    config = transformers.Llama4TextConfig(**LLAMA4, attn_temperature_tuning=False)
    torch.manual_seed(4)
    model, ids = transformers.Llama4ForCausalLM(config).eval(), tokens(13)
    (found,) = paged_logits(open_decoder(model), [ids], 5)
    assert float((found - own_logits(model, ids)).abs().max()) < 1e-4


def test_keys_and_values_of_different_widths():
    """Were latent attention not refused by its configuration, its shapes would tell."""
    _, config, _ = refused("DeepseekV3ForCausalLM")
    model = transformers.DeepseekV3ForCausalLM(config)
    vars(model.config)["kv_lora_rank"] = None
    with pytest.raises(ValueError, match="keys of width 192 and values of width 128"):
        open_decoder(model)


def test_a_layer_that_attends_by_itself():
    model = model_of("Llama")
    layer = model.model.layers[1].self_attn
    layer.forward = lambda hidden_states, **_: (hidden_states, None)
    with pytest.raises(ValueError, match=r"layers \[1\] of 4 do not attend"):
        open_decoder(model)


def test_a_state_that_no_class_tells_of():
    """A layer that adds the row before it: whole prompts agree, chunks and neighbours do not."""
    model = model_of("Llama")

    def smear(module, args, output):
        return output + torch.cat((output[:, :1], output[:, :-1]), dim=1)

    model.model.layers[0].mlp.register_forward_hook(smear)
    with pytest.raises(ValueError, match="something besides keys and values"):
        open_decoder(model)


def test_masks_of_other_forms():
    both_ways = model_of("Llama")
    both_ways.config.is_causal = False
    with pytest.raises(ValueError, match="its mask is neither causal nor a sliding window"):
        open_decoder(both_ways)


def test_a_model_without_weights():
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    with pytest.raises(ValueError, match="no weights yet"):
        open_decoder(model)


@pytest.mark.parametrize("thing", [None, 3, object(), torch.nn.Linear(2, 2)])
def test_what_is_no_model(thing):
    with pytest.raises(ValueError, match="give a model of transformers"):
        load_llm(thing)


def test_arguments_are_those_of_llm():
    with pytest.raises(TypeError, match="no_such"):
        load_llm(model_of("Llama"), no_such=1)
    with pytest.raises(ValueError, match="max_model_len"):
        load_llm(model_of("Llama"), max_model_len=257)


def test_frequencies_that_depend_on_the_length_bound_the_length():
    """Phi-3 with longrope: other frequencies from position 64 on, for the whole sequence."""
    half = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "rope_theta": 1e4}
    config = transformers.Phi3Config(
        **SIZES,
        original_max_position_embeddings=64,
        rope_parameters={
            "rope_type": "longrope",
            **half,
            "original_max_position_embeddings": 64,
        },
    )
    assert longest(config) == 64
    model, ids = transformers.Phi3ForCausalLM(config).eval(), tokens(64)
    decoder = open_decoder(model)
    assert decoder.config.max_model_len == 64
    (found,) = paged_logits(decoder, [ids], 7)
    assert float((found - own_logits(model, ids)).abs().max()) < 1e-4
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    assert longest(transformers.LlamaConfig(**SIZES, rope_parameters=dynamic)) == 256


def test_adapters_are_for_kvlabs_own_decoder():
    llm = load_llm(model_of("Llama"), block_size=4, num_blocks=32)
    for source in ("a folder", random_adapter(llm.model.config)):
        with pytest.raises(ValueError, match="an adapter goes with kvlab's own decoder"):
            llm.load_adapter("x", source)
    assert llm.adapters == {}
