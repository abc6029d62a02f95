"""Neighbours of the families that run: each is right, or refused by name; none is wrong quietly."""

import shutil

import pytest
import torch
from families import SIZES, own_logits, paged_logits, tokens, transformers

from kvlab import SamplingParams, tiny
from kvlab.hf import load_llm, open_decoder

CHARACTER = {**SIZES, "pad_token_id": 1, "bos_token_id": 0, "type_vocab_size": 1}


def roberta(dtype, **changed):
    torch.manual_seed(0)
    keys = {**CHARACTER, "is_decoder": True, "initializer_range": 0.02, **changed}
    return transformers.RobertaForCausalLM(transformers.RobertaConfig(**keys)).to(dtype).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_positions_that_start_elsewhere_are_refused_in_every_dtype(dtype):
    """RoBERTa's first position is pad_token_id + 1: in half precision, with the small weights of
    a new model, the wrong logits would pass for rounding."""
    with pytest.raises(ValueError, match=r"^RobertaForCausalLM .* number positions from 0"):
        open_decoder(roberta(dtype))


def test_small_logits_are_compared_with_themselves():
    """A state besides keys and values that moves logits of less than 0.001."""
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(1e-4)

    def lean_on_the_past(module, _, output):
        return output + 0.2 * output.cumsum(dim=1)

    model.model.layers[1].mlp.register_forward_hook(lean_on_the_past)
    with pytest.raises(ValueError, match="its logits there differ"):
        open_decoder(model)


def test_a_mask_that_a_model_makes_only_for_long_passes_is_noticed():
    """A trial of nine tokens shows no such mask; the pass that meets it stops."""
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).eval()

    def hide(module, args, kwargs):
        mask = torch.zeros((1, 1, 1, 1)) if kwargs["hidden_states"].shape[1] > 12 else None
        return args, kwargs if mask is None else {**kwargs, "attention_mask": mask}

    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(hide, with_kwargs=True)
    llm = load_llm(model, num_blocks=16)
    assert llm.generate(tokens(12), SamplingParams(max_tokens=1))
    with pytest.raises(RuntimeError, match="changed how it attends"):
        llm.generate(tokens(13, seed=1), SamplingParams(max_tokens=1))


YARN16 = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.5,
}  # fmt: skip
SHARED = {"num_kv_shared_layers": 2, "layer_types": ["sliding_attention", "full_attention"] * 2}
NEIGHBOURS = {
    # layers 2 and 3 attend with the keys and values of 0 and 1
    "Gemma3n": ("Gemma3nTextConfig", {
        **SHARED, "head_dim": 8, "sliding_window": 8, "intermediate_size": 48,
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 97, "laurel_rank": 8,
        "activation_sparsity_pattern": [0.0] * 4,
    }),
    # queries grow with their position from 16 on
    "Ministral3": ("Ministral3Config", {"head_dim": 8, "rope_parameters": YARN16}),
    # every other layer has no positions
    "SmolLM3": ("SmolLM3Config", {"no_rope_layers": [1, 0, 1, 0]}),
    "Cohere2": ("Cohere2Config", {"sliding_window": 8, "logit_scale": 0.5}),
}  # fmt: skip


@pytest.mark.parametrize("family", NEIGHBOURS)
def test_chunks_and_batches_far_beyond_the_trial(family):
    config_class, changed = NEIGHBOURS[family]
    torch.manual_seed(1)
    config = getattr(transformers, config_class)(**{**SIZES, **changed})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    decoder = open_decoder(model)
    prompts = [tokens(60, 0), tokens(33, 1), tokens(5, 2)]
    for chunk in (64, 7):
        for found, ids in zip(paged_logits(decoder, prompts, chunk), prompts, strict=True):
            assert float((found - own_logits(model, ids)).abs().max()) < 1e-4


@pytest.mark.parametrize(
    ("name", "config", "why"),
    [
        ("BertLMHeadModel", transformers.BertConfig(**CHARACTER), "neither causal nor"),
        ("FalconForCausalLM", transformers.FalconConfig(**SIZES, alibi=True), "registry"),
        (
            "Gemma3ForCausalLM",
            transformers.Gemma3TextConfig(
                **{**SIZES, "head_dim": 8, "use_bidirectional_attention": True}
            ),
            "neither causal nor",
        ),
        ("DiffLlamaForCausalLM", transformers.DiffLlamaConfig(**SIZES), "more than once a pass"),
    ],
)
def test_refused_with_the_reason(name, config, why):
    with pytest.raises(ValueError, match=rf"^{name} does not run on .*{why}"):
        open_decoder(getattr(transformers, name)(config).eval())


def test_training_mode_is_noticed():
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    llm = load_llm(model, num_blocks=8)
    model.train()
    with pytest.raises(RuntimeError, match="training mode"):
        llm.generate([3, 1, 4], SamplingParams(max_tokens=1))
    model.eval()
    assert len(llm.generate([3, 1, 4], SamplingParams(max_tokens=2))[0].outputs[0].token_ids) == 2


def test_a_tokenizer_with_an_id_more_than_the_model(tmp_path):
    """Gemma-3 1B is one: 262,144 rows, and <image_soft_token> beyond them."""
    config = transformers.LlamaConfig(**{**SIZES, "vocab_size": 957})  # the tokenizer has 958
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    shutil.copy(tiny.FOLDER / "tokenizer.json", tmp_path)
    llm = load_llm(tmp_path, num_blocks=8)
    assert llm.tokenizer.vocab_size == 958
    (answer,) = llm.generate("Ada likes soup.", SamplingParams(max_tokens=2))
    assert len(answer.outputs[0].token_ids) == 2
    with pytest.raises(ValueError, match=r"957 is not an id of this vocabulary"):
        llm.generate([957])
