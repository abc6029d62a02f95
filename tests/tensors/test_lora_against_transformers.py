"""Adapters on checkpoints of three families, against transformers with W + scale * B A set by hand.

The adapter's folder is written here, key by key, and not by kvlab.
"""

import json

import pytest
import torch
from safetensors.torch import save_file

from kvlab import LLM, SamplingParams

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 83, "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "initializer_range": 0.15,
}  # fmt: skip
FAMILIES = {"llama": {}, "qwen2": {}, "qwen3": {"head_dim": 12}}
PROMPTS = [list(range(5, 70)), [9, 8, 7, 6, 5], list(range(30, 3, -1))]
ADAPTERS = {
    "small": ({"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}, 2.0),
    "wide": (
        {
            "r": 9,
            "lora_alpha": 6,
            "use_rslora": True,
            "target_modules": r".*\.(self_attn\.[ko]_proj|mlp\..*_proj)",
        },
        2.0,
    ),
}
PARTS = {
    "small": ("q_proj", "v_proj"),
    "wide": ("k_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
}


def saved(kind, folder):
    """A seeded random model of transformers; also saved into the folder."""
    torch.manual_seed(3)
    config = transformers.AutoConfig.for_model(kind, **SIZES, **FAMILIES[kind])
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(folder)
    return model


def write_adapter(model, name, folder):
    """A PEFT folder with seeded numbers; {module's name: scale * B A}."""
    keys, scale = ADAPTERS[name]
    generator = torch.Generator().manual_seed(len(name))
    tensors, added = {}, {}
    for module_name, module in model.named_modules():
        if module_name.rpartition(".")[2] in PARTS[name]:
            rows, columns = module.weight.shape
            a = torch.randn(keys["r"], columns, generator=generator) / columns**0.5
            b = torch.randn(rows, keys["r"], generator=generator) / keys["r"]
            tensors[f"base_model.model.{module_name}.lora_A.weight"] = a
            tensors[f"base_model.model.{module_name}.lora_B.weight"] = b
            added[module_name] = scale * (b @ a)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    said = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "bias": "none"} | keys
    (folder / "adapter_config.json").write_text(json.dumps(said))
    return added


@torch.no_grad()
def continued(model, added, prompt, num_tokens):
    """Greedy tokens and their logits, from weights with the adapter added; then taken out again."""
    modules, tokens, rows = dict(model.named_modules()), list(prompt), []
    kept = {name: modules[name].weight.clone() for name in added}
    for name, change in added.items():
        modules[name].weight += change
    for _ in range(num_tokens):
        rows.append(model(torch.tensor([tokens])).logits[0, -1])
        tokens.append(int(rows[-1].argmax()))
    for name, weight in kept.items():
        modules[name].weight.copy_(weight)
    return tokens[len(prompt) :], torch.stack(rows)


@pytest.mark.parametrize("kind", FAMILIES)
def test_requests_with_and_without_adapters_in_one_batch(kind, tmp_path):
    model = saved(kind, tmp_path / "model")
    added = {None: {}, **{n: write_adapter(model, n, tmp_path / n) for n in ADAPTERS}}
    (tmp_path / "model" / "tokenizer.json").write_text(json.dumps(WORDS))
    llm, rows = LLM(tmp_path / "model", block_size=4, num_blocks=128), {}
    for name in ADAPTERS:
        llm.load_adapter(name, tmp_path / name)
    llm.runner.on_logits = lambda found: [
        rows.setdefault(request_id, []).append(row.clone()) for request_id, row in found.items()
    ]
    asked = [(prompt, name) for prompt in PROMPTS for name in (None, "small", "wide")]
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    outs = llm.generate([p for p, _ in asked], params, adapter=[name for _, name in asked])
    said = set()
    for (prompt, name), out in zip(asked, outs, strict=True):
        tokens, logits = continued(model, added[name], prompt, 6)
        assert list(out.outputs[0].token_ids) == tokens
        assert (torch.stack(rows[out.request_id]) - logits).abs().max() < 1e-4
        said.add((len(prompt), *tokens))
    assert len(said) == len(asked)  # every adapter changes every answer


WORDS = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
    "pre_tokenizer": None, "post_processor": None, "decoder": None,
    "model": {"type": "WordLevel", "vocab": {str(i): i for i in range(83)}, "unk_token": "0"},
}  # fmt: skip
